"""FB15K."""

from jobi_tf.datasets.tfds_builder import TripleBuilder


class Builder(TripleBuilder):
    """Triples of FB15K; its facts are in the catalogue under `fb15k`."""
