"""Trains plain ComplEx against all entities, with reciprocal relations and N3."""

import jobi_tf

graph = jobi_tf.load_graph("world")
model = jobi_tf.JoBi(
    graph.num_entities, graph.num_relations, dim=50, joint=False, reciprocal=True, regularizers=[jobi_tf.N3(0.05)]
)
model.compile(jobi_tf.LazyAdagrad(0.1), {"triple": jobi_tf.FullSoftmax()})
model.fit(
    jobi_tf.query_batches(graph, batch_size=100, joint=False),
    steps_per_epoch=jobi_tf.steps_per_epoch(graph, 100, queries=True),
    epochs=5,
)
print(jobi_tf.evaluate(model, graph))
