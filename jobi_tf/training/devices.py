"""Devices, and the strategy that trains on them."""

import tensorflow as tf

from jobi_tf.errors import UsageError


def strategy_for(devices: str = "all", logical_devices: int = 1) -> tf.distribute.Strategy:
    """Returns the strategy for some devices: GPUs where there are any, else the CPU.

    Args:
        devices: `"all"`, or numbers of devices such as `"0,1"`.
        logical_devices: split the CPU into that many devices, to try several without GPUs.

    Returns:
        A `MirroredStrategy` for two devices or more, else one that leaves everything to the one device.

    Raises:
        UsageError: a device does not exist, or TensorFlow started before the CPU could be split.
    """
    if logical_devices > 1:
        _split_cpu(logical_devices)
    kind = "CPU" if logical_devices > 1 or not tf.config.list_physical_devices("GPU") else "GPU"
    present = [f"{kind}:{i}" for i in range(len(tf.config.list_logical_devices(kind)))]
    numbers = list(range(len(present))) if devices == "all" else [int(x) for x in devices.split(",")]
    if max(numbers) >= len(present) or len(set(numbers)) != len(numbers):
        raise UsageError(f"expected distinct devices out of {', '.join(present)} by their numbers, got {devices}")
    chosen = [present[i] for i in numbers]
    if len(chosen) > 1:
        # NCCL serves GPUs; on CPUs the default collective ops fail when a process makes a second strategy.
        reduction = None if kind == "GPU" else tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(chosen, cross_device_ops=reduction)
    if devices == "all":
        return tf.distribute.get_strategy()
    return tf.distribute.OneDeviceStrategy(chosen[0])


def _split_cpu(count: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    try:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError:
        if len(tf.config.list_logical_devices("CPU")) != count:
            raise UsageError(
                f"expected to split the CPU into {count} devices before TensorFlow starts, "
                f"but it runs with {len(tf.config.list_logical_devices('CPU'))} already"
            ) from None
