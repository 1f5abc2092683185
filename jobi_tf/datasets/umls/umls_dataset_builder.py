"""UMLS."""

from jobi_tf.datasets.tfds_builder import TripleBuilder


class Builder(TripleBuilder):
    """Triples of UMLS; its facts are in the catalogue under `umls`."""
