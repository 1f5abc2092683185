"""Triples as ids: vocabularies, graphs, occurrence tables, known answers, negatives and the tf.data pipeline."""
