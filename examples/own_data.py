"""Makes a graph of a DataFrame, and writes the same triples as files that `jobi-tf train --dataset` reads."""

from pathlib import Path

import pandas as pd

import jobi_tf

world = jobi_tf.load_graph("world")  # stands for your own triples
triples = pd.DataFrame(
    [(world.entities[h], world.relations[r], world.entities[t]) for h, r, t in world.train],
    columns=["subject", "predicate", "object"],
).sample(frac=1, random_state=0)

graph = jobi_tf.Graph.from_triples(triples[:3000], valid=triples[3000:3200], test=triples[3200:], name="mine")
print(graph)
model_run = jobi_tf.train(graph, dim=50, epochs=30, learning_rate=0.005, run_dir="runs/from-python", callbacks=())
print(jobi_tf.evaluate(model_run))

folder = Path("my-folder")
folder.mkdir(exist_ok=True)
for name, rows in {"train": triples[:3000], "valid": triples[3000:3200], "test": triples[3200:]}.items():
    rows.to_csv(folder / f"{name}.tsv", sep="\t", header=False, index=False)
triples.to_csv("facts.csv.gz", index=False)
