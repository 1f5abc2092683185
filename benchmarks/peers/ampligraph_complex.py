"""Times AmpliGraph's ComplEx: ampligraph_complex.py FOLDER TRIPLES RANKED DIM BATCH NEGATIVES."""

import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import pandas as pd
import tensorflow as tf
from ampligraph.latent_features import ScoringBasedEmbeddingModel


class EpochSeconds(tf.keras.callbacks.Callback):
    """Keeps the seconds of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch, logs=None):  # type: ignore[no-untyped-def]
        """Starts the clock."""
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):  # type: ignore[no-untyped-def]
        """Stops it."""
        self.seconds.append(time.perf_counter() - self.start)


def main(folder: str, count: int, ranked: int, dim: int, batch: int, negatives: int) -> None:
    """Trains one epoch to warm up and two that count, then ranks; filtered with the triples that it was given."""
    train, test = (
        pd.read_csv(f"{folder}/{split}.tsv", sep="\t", header=None, dtype=str, keep_default_na=False).values
        for split in ("train", "test")
    )
    part = train[np.random.default_rng(0).permutation(len(train))[:count]]
    model = ScoringBasedEmbeddingModel(eta=negatives, k=dim, scoring_type="ComplEx", seed=0)
    model.compile(optimizer=tf.keras.optimizers.legacy.Adam(1e-3), loss="multiclass_nll")
    timer = EpochSeconds()
    model.fit(part, batch_size=batch, epochs=3, verbose=0, callbacks=[timer])
    print(f"PEER ampligraph train {2 * len(part) / sum(timer.seconds[1:]):.1f}")
    # It refuses to rank what it was not trained on.
    entities, relations = set(part[:, 0]) | set(part[:, 2]), set(part[:, 1])
    rows = np.array([x for x in test if x[0] in entities and x[2] in entities and x[1] in relations])[:ranked]
    start = time.perf_counter()
    model.evaluate(rows, use_filter={"train": part, "test": rows}, corrupt_side="s,o", verbose=0, batch_size=64)
    print(f"PEER ampligraph rank {len(rows) / (time.perf_counter() - start):.1f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
