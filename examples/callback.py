"""Adds a callback to a training: it records the largest norm of an entity's embedding after each epoch."""

import keras
import numpy as np

import jobi_tf


class LargestNorm(keras.callbacks.Callback):
    """Adds `largest_norm` to the logs."""

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Measures the entity table, float32 [entities, width]."""
        table = self.model.entities.table.numpy()
        logs["largest_norm"] = float(np.linalg.norm(table, axis=1).max())


run = jobi_tf.train("world", dim=20, epochs=2, run_dir="runs/callback", callbacks=[LargestNorm()])
print(run.history["largest_norm"])
