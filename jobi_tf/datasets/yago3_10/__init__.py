"""YAGO3-10 for TensorFlow Datasets; importing it makes `tfds.load("yago3_10")` work."""

from jobi_tf.datasets.yago3_10.yago3_10_dataset_builder import Builder

__all__ = ["Builder"]
