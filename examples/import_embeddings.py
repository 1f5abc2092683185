"""Makes a run of a ComplEx model that another program trained, here with random numbers."""

import numpy as np

import jobi_tf

graph = jobi_tf.load_graph("world")
# Complex numbers [rows, d], in the order of graph.entities.names and graph.relations.names.
parts = np.random.default_rng(0).normal(size=(2, graph.num_entities + graph.num_relations, 20))
entities, relations = np.split(parts[0] + 1j * parts[1], [graph.num_entities])

model = jobi_tf.JoBi(graph.num_entities, graph.num_relations, dim=20, scorer="complex", joint=False)
for table, rows in ((model.entities.table, entities), (model.heads[0].relations.table, relations)):
    table.assign(np.concatenate([rows.real, rows.imag], axis=1))  # DistMult: table.assign(rows)
run = jobi_tf.Run.from_model(model, graph).save("runs/imported")
jobi_tf.export_run(run, "exports/imported")
head, relation, tail = graph.train[0]
expected = (entities[head] * relations[relation] * entities[tail].conj()).sum().real
names = (graph.entities[head], graph.relations[relation], graph.entities[tail])
print(run.score([names])[0] - expected)  # 0, but for rounding
