"""Starts from entity vectors of another program, here random ones, and keeps them fixed."""

import numpy as np

import jobi_tf

graph = jobi_tf.load_graph("world")
names = graph.entities.names[:500]  # entities without a vector begin at random and are kept fixed too
vectors = np.random.default_rng(0).normal(size=(len(names), 40)).astype(np.float32)
np.savez("vectors.npz", names=np.array(names), vectors=vectors)  # width 40 = 2d for ComplEx with d = 20

run = jobi_tf.train(
    "world", dim=20, epochs=2, entity_vectors="vectors.npz", freeze_entities=True, run_dir="runs/pretrained"
)
print(np.abs(run.embedding(names[0]) - vectors[0]).max())  # 0.0
