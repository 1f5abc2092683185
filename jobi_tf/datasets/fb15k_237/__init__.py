"""FB15K-237 for TensorFlow Datasets; importing it makes `tfds.load("fb15k_237")` work."""

from jobi_tf.datasets.fb15k_237.fb15k_237_dataset_builder import Builder

__all__ = ["Builder"]
