"""FB15K-237."""

from jobi_tf.datasets.tfds_builder import TripleBuilder


class Builder(TripleBuilder):
    """Triples of FB15K-237; its facts are in the catalogue under `fb15k-237`."""
