"""Trains a score function of your own: DistMult, written anew."""

import keras

import jobi_tf


@keras.saving.register_keras_serializable("my_package")
class MyDistMult(jobi_tf.Scorer):
    """Σ h·r·t (Yang et al. 2015)."""

    def tail_query(self, head, relation):
        """Returns what a tail is multiplied with: [..., d]."""
        return head * relation

    def head_query(self, relation, tail):
        """Returns what a head is multiplied with: [..., d]."""
        return relation * tail


graph = jobi_tf.load_graph("world")
model = jobi_tf.JoBi(graph.num_entities, graph.num_relations, dim=50, scorer=MyDistMult())
model.compile(jobi_tf.LazyAdam(0.01), {"triple": jobi_tf.SampledSoftmax(), "pair": jobi_tf.PairCrossentropy()})
model.fit(
    jobi_tf.training_batches(graph, batch_size=100), steps_per_epoch=jobi_tf.steps_per_epoch(graph, 100), epochs=3
)
print(jobi_tf.evaluate(model, graph))
