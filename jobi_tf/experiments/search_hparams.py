"""Trials in TensorBoard's HParams plugin."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorboard.plugins.hparams import api, api_pb2
from tensorboard.plugins.hparams import api as hp
from tensorboard.plugins.hparams.summary import session_end_pb

from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER, METRICS


class Session:
    """A trial in the HParams plugin, beside the logs of its run.

    Args:
        logs: folder of the run's logs; its curves are in `train` and `validation` there.
        params: the settings that vary.
        domains: of each, `{"choices": […]}`, or `{"low": …, "high": …}`.
    """

    def __init__(self, logs: Path, params: Mapping[str, Any], domains: Mapping[str, Mapping[str, Any]]):
        self._writer = tf.summary.create_file_writer(str(logs))
        with self._writer.as_default():
            # Each trial describes the whole search; the plugin takes the description that it finds first.
            hp.hparams_config([hp.HParam(name, _domain(domain)) for name, domain in domains.items()], _metrics())
            hp.hparams({name: _plain(value) for name, value in params.items()}, trial_id=logs.parent.name)
        self._writer.flush()

    def end(self, metrics: Mapping[str, float] | None = None, failed: bool = False) -> None:
        """Writes the metrics of the epoch that the run keeps, and that the trial has ended."""
        status = api_pb2.STATUS_FAILURE if failed else api_pb2.STATUS_SUCCESS
        with self._writer.as_default():
            for name, value in (metrics or {}).items():
                tf.summary.scalar(f"best_{name}", value, step=0)
            tf.summary.experimental.write_raw_pb(session_end_pb(status).SerializeToString(), step=0)
        self._writer.close()


def _metrics() -> list[api.Metric]:
    """Metrics of the best epoch, and as they were at the last ranking."""
    best = [hp.Metric(f"best_{name}", display_name=f"best {METRICS[name]}") for name in BETTER_IF_HIGHER]
    last = [
        hp.Metric(f"epoch_{name}", group="validation", display_name=f"last {METRICS[name]}")
        for name in ("mrr", "hits@10")
    ]
    return best + last


def _domain(domain: Mapping[str, Any]) -> api.Domain | None:
    choices = domain.get("choices")
    if choices is None:
        interval = hp.IntInterval if isinstance(domain["low"], int) else hp.RealInterval
        return interval(domain["low"], domain["high"])
    return hp.Discrete(choices) if len({type(value) for value in choices}) == 1 and choices[0] is not None else None


def _plain(value: Any) -> Any:
    return "default" if value is None else value
