# /// script
# requires-python = ">=3.8,<3.12"
# dependencies = ["ampligraph==2.2.0"]
# ///
"""Times AmpliGraph's ComplEx; arguments, rounds and answers are those of pykeen_complex.py."""

import json
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what libraries print, also when they are imported, does not mix with the answers
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import pandas as pd
import tensorflow as tf
from ampligraph.latent_features import ScoringBasedEmbeddingModel


def main(folder: str, count: int, ranked: int, dim: int, batch: int, negatives: int) -> None:
    """Trains three epochs a round, of which the first does not count, or ranks; the filter has the given triples."""
    train, test = (
        pd.read_csv(f"{folder}/{split}.tsv", sep="\t", header=None, dtype=str, keep_default_na=False).values
        for split in ("train", "test")
    )
    part = train[np.random.default_rng(0).permutation(len(train))[:count]]
    # It refuses to rank what it was not trained on.
    entities, relations = set(part[:, 0]) | set(part[:, 2]), set(part[:, 1])
    rows = np.array([x for x in test if x[0] in entities and x[2] in entities and x[1] in relations])[:ranked]
    model = ScoringBasedEmbeddingModel(eta=negatives, k=dim, scoring_type="ComplEx", seed=0)
    model.compile(optimizer=tf.keras.optimizers.legacy.Adam(1e-3), loss="multiclass_nll")
    ends: list[float] = []  # of all epochs so far
    timer = tf.keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ends.append(time.perf_counter()))
    for line in sys.stdin:
        if json.loads(line)["measure"] == "train":
            model.fit(part, batch_size=batch, epochs=3, verbose=0, callbacks=[timer])
            rate = 2 * len(part) / (ends[-1] - ends[-3])
        else:
            start = time.perf_counter()
            known = {"train": part, "test": rows}
            model.evaluate(rows, use_filter=known, corrupt_side="s,o", verbose=0, batch_size=64)
            rate = len(rows) / (time.perf_counter() - start)
        print(json.dumps({"rate": rate}), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
