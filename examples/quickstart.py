"""Opens a trained run and queries it by name."""

import jobi_tf

run = jobi_tf.load_run("runs/world")  # or run = jobi_tf.train("world", run_dir="runs/world")

for entity, score, known, split in run.tails("Switzerland", "official_language", k=5):
    print(f"{entity:15} {score:6.2f}  {f'known fact ({split})' if known else ''}")

print(run.score([("France", "continent", "Europe"), ("France", "continent", "Asia")]))
print(jobi_tf.evaluate(run, split="test").metrics())
