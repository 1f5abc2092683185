"""UMLS for TensorFlow Datasets; importing it makes `tfds.load("umls")` work."""

from jobi_tf.datasets.umls.umls_dataset_builder import Builder

__all__ = ["Builder"]
