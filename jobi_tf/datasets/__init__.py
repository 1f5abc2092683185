"""Data sets: from a name or a path to a prepared graph; checks, statistics, made-up and built graphs."""

from jobi_tf.datasets.cache import Prepared
from jobi_tf.datasets.catalogue import NAMES
from jobi_tf.datasets.loading import load_graph, prepare

__all__ = ["NAMES", "Prepared", "load_graph", "prepare"]
