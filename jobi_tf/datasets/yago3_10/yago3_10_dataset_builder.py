"""YAGO3-10."""

from jobi_tf.datasets.tfds_builder import TripleBuilder


class Builder(TripleBuilder):
    """Triples of YAGO3-10; its facts are in the catalogue under `yago3-10`."""
