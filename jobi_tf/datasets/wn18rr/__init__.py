"""WN18RR for TensorFlow Datasets; importing it makes `tfds.load("wn18rr")` work."""

from jobi_tf.datasets.wn18rr.wn18rr_dataset_builder import Builder

__all__ = ["Builder"]
