"""Scripts that time other libraries; each runs in that library's own Python environment and imports nothing of jobi-tf.

    SCRIPT FOLDER TRIPLES RANKED DIM BATCH NEGATIVES

FOLDER holds train.tsv, valid.tsv and test.tsv. A script trains ComplEx on TRIPLES random training triples with the
settings that follow, on all cores, then ranks RANKED test triples on both sides, filtered, and prints lines

    PEER NAME WHAT TRIPLES_A_SECOND

where WHAT is `train`, `train-shared` (negatives shared by a batch) or `rank`.
"""
