"""Trains JoBi in your own program: graph → batches → model → compile → fit → evaluate."""

import keras

import jobi_tf

graph = jobi_tf.load_graph("world")  # or jobi_tf.Graph.from_triples(train, valid, test)
model = jobi_tf.JoBi(graph.num_entities, graph.num_relations, dim=100, scorer="complex")
model.compile(
    optimizer=jobi_tf.LazyAdam(0.003),
    loss={"triple": jobi_tf.SampledSoftmax(), "pair": keras.losses.BinaryCrossentropy(from_logits=True)},
)
model.fit(
    jobi_tf.training_batches(graph, batch_size=100, negatives=50, p=0.3),
    steps_per_epoch=jobi_tf.steps_per_epoch(graph, 100),
    epochs=30,
    callbacks=[
        jobi_tf.ValidationRanking(graph, every=5),
        keras.callbacks.EarlyStopping("val_mrr", mode="max", patience=2),
    ],
)
print(jobi_tf.evaluate(model, graph, split="test"))
run = jobi_tf.Run.from_model(model, graph).save("runs/mine")  # all commands take this folder
print(run.tails("Switzerland", "official_language", k=3))
