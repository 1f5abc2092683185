"""WN18RR."""

from jobi_tf.datasets.tfds_builder import TripleBuilder


class Builder(TripleBuilder):
    """Triples of WN18RR; its facts are in the catalogue under `wn18rr`."""
