"""Looks at a run: answers, relations, similar entities, embeddings, history."""

import jobi_tf

run = jobi_tf.load_run("runs/joint")
print(run)

print(
    *run.tails("Switzerland", "official_language", k=5), sep="\n"
)  # best tails of (Switzerland, official_language, ?)
print(*run.heads("currency", "Euro", k=5, new_only=True), sep="\n")  # best new heads of (?, currency, Euro)
print(*run.tails("France", "capital", k=3, typed=True), sep="\n")  # only entities seen as tails of "capital"
print(*run.relations("Norway", "Sweden", k=3), sep="\n")
print(*run.nearest("Norway", k=5), sep="\n")  # by the cosine of embeddings
print(run.embedding("Norway").shape)  # ComplEx with d = 50: 50 real parts, then 50 imaginary parts

worst = sorted(jobi_tf.evaluate(run).by_relation().items(), key=lambda item: item[1]["mrr"])
for relation, metrics in worst[:3]:
    print(run.graph.relations[relation], round(metrics["mrr"], 3))
print(run.history.keys())
