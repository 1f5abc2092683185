"""Adds an entity to a trained run by a few facts about it."""

import jobi_tf

run = jobi_tf.load_run("runs/world")
facts = [("Atlantis", "continent", "Europe"), ("Atlantis", "neighbour", "Portugal"), ("Atlantis", "currency", "Euro")]
extended = run.extend(facts)
print(extended.tails("Atlantis", "calling_zone", k=3, typed=True))
extended.save("runs/world-with-atlantis")
