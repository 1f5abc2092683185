"""Data sets: from a name or a path to a prepared graph; checks and statistics; builders for TensorFlow Datasets."""

from jobi_tf.datasets.catalogue import NAMES
from jobi_tf.datasets.preparation import Prepared, load_graph, prepare

__all__ = ["NAMES", "Prepared", "load_graph", "prepare"]
