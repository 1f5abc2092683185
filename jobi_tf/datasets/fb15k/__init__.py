"""FB15K for TensorFlow Datasets; importing it makes `tfds.load("fb15k")` work."""

from jobi_tf.datasets.fb15k.fb15k_dataset_builder import Builder

__all__ = ["Builder"]
