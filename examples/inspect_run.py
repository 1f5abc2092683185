"""Looks at a run: answers, relations, similar entities, embeddings, history."""

import jobi_tf

run = jobi_tf.load_run("runs/joint")
print(run)

# Best tails of (Switzerland, official_language, ?), and best new heads of (?, currency, Euro)
print(*run.tails("Switzerland", "official_language", k=5), sep="\n")
print(*run.heads("currency", "Euro", k=5, new_only=True), sep="\n")
# Only entities that training saw as tails of "capital"
print(*run.tails("France", "capital", k=3, typed=True), sep="\n")
print(*run.relations("Norway", "Sweden", k=3), sep="\n")
# Similar embeddings by cosine; an embedding: for ComplEx the real parts, then the imaginary parts
print(*run.nearest("Norway", k=5), sep="\n")
print(run.embedding("Norway").shape)

worst = sorted(jobi_tf.evaluate(run).by_relation().items(), key=lambda item: item[1]["mrr"])
for relation, metrics in worst[:3]:
    print(run.graph.relations[relation], round(metrics["mrr"], 3))
print(run.history.keys())
