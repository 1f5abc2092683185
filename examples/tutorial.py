# ---
# jupyter:
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Tutorial: complete a graph of the world
#
# In fifteen minutes you train two models on a small knowledge graph, measure them, query them by name and look at
# what they have learned. You need `pip install 'jobi-tf[pandas]'`. No download is needed: the data set `world`
# comes with the package.
#
# ## 1. A graph
#
# A knowledge graph is a list of triples *(head, relation, tail)*. `world` has facts about 246 countries and
# territories.

# %%
import pandas as pd

import jobi_tf

graph = jobi_tf.load_graph("world")
print(graph)
print("relations:", *graph.relations.names)

# %% [markdown]
# The triples are stored as integer ids. The vocabularies `graph.entities` and `graph.relations` translate between
# ids and names. These are five of the training triples:

# %%
for head, relation, tail in graph.train[::700][:5]:
    print(graph.entities[head], "·", graph.relations[relation], "·", graph.entities[tail])

# %% [markdown]
# The triples are divided into three splits. A model learns from `train`; `valid` decides when to stop; `test` is
# used once, at the end. Your own triples become a graph with `jobi_tf.Graph.from_triples` or
# `jobi_tf.load_graph("my-folder")`.
#
# ## 2. A baseline
#
# First a plain ComplEx model: `joint=False` means without the pair head, `p=0` means that negative examples are
# drawn uniformly from all entities. A run is a folder, here `runs/plain`. `callbacks=()` hides the progress
# display. To run this cell again, delete the folder first.

# %%
plain = jobi_tf.train(graph, joint=False, p=0.0, dim=50, epochs=40, run_dir="runs/plain", callbacks=())
print(plain)

# %% [markdown]
# How good is it? Each test triple is ranked among all 1,370 entities, once by its head and once by its tail. Other
# answers that are known to be true do not count against the model: the ranks are *filtered*.

# %%
jobi_tf.evaluate(plain, split="test").to_frame().round(3)

# %% [markdown]
# ## 3. JoBi
#
# JoBi adds two things. The *pair head* learns which entities occur with a relation at all, and *biased negatives*
# are drawn with probability `p` from those entities: a country that has a currency is a harder negative for *(?,
# currency, Euro)* than a language.

# %%
joint = jobi_tf.train(graph, joint=True, p=0.3, dim=50, epochs=40, run_dir="runs/joint", callbacks=())
jobi_tf.evaluate(joint, split="test").to_frame().round(3)

# %% [markdown]
# Is that difference more than chance? The test split of `world` has 314 triples only. A paired bootstrap over them
# answers: draw test triples with replacement many times, and look at how the difference varies. On the command line
# this is `jobi-tf runs compare runs/plain runs/joint`.

# %%
import numpy as np

from jobi_tf.evaluation.significance import paired_bootstrap

first, second = jobi_tf.evaluate(plain), jobi_tf.evaluate(joint)
reciprocal = [np.mean([1 / side.ranks() for side in x.ranks.values()], axis=0) for x in (first, second)]
paired_bootstrap(*reciprocal)

# %% [markdown]
# The interval does not contain 0: on these triples JoBi has the higher MRR by more than chance. Hits@10 is nearly
# the same. This does not cover the seed: for a claim about a method, train several seeds.
#
# ## 4. Ask questions
#
# `tails` completes *(head, relation, ?)*, `heads` completes *(?, relation, tail)*. The column `split` says in which
# split the graph has the fact. Answers that are not `known` are new statements of the model.

# %%
joint.tails("Switzerland", "official_language", k=6).to_frame().round(2)

# %% [markdown]
# Facts of the split `test` are a success: training never saw them. Some answers are not even languages.
# `typed=True` only allows entities that training saw as the tail of the relation:

# %%
joint.tails("Switzerland", "official_language", k=6, typed=True).to_frame().round(2)

# %% [markdown]
# New neighbours of Austria, without the known ones:

# %%
joint.heads("neighbour", "Austria", k=10, new_only=True).to_frame().round(2)

# %% [markdown]
# Higher scores are more plausible, but a score is not a probability. Compare scores of one query only. An
# [export](https://jobi-tf.github.io/jobi-tf/export/) contains calibrated probabilities.

# %%
joint.score([("France", "continent", "Europe"), ("France", "continent", "Asia")])

# %% [markdown]
# ## 5. Look inside
#
# Which relations are hard? Metrics by relation show it:

# %%
rows = {graph.relations[i]: row for i, row in second.by_relation().items()}
pd.DataFrame(rows).T[["triples", "mrr", "hits@10"]].round(3).head(8)

# %% [markdown]
# Which entities have similar embeddings? And how do two entities relate?

# %%
joint.nearest("Norway", k=5).to_frame().round(3)

# %%
joint.relations("Norway", "Sweden", k=3).to_frame().round(2)

# %% [markdown]
# ## 6. Facts about something new
#
# A trained run can learn entities that it has never seen, without training again. All other embeddings stay as they
# are.

# %%
extended = joint.extend(
    [
        ("Atlantis", "continent", "Europe"),
        ("Atlantis", "neighbour", "Portugal"),
        ("Atlantis", "sub_region", "Southern Europe"),
    ]
)
extended.tails("Atlantis", "calling_zone", k=3, typed=True).to_frame().round(2)

# %% [markdown]
# ## 7. Keep it
#
# Both runs are on disk. `load_run` opens a folder again, in another program or on another machine.

# %%
run = jobi_tf.load_run("runs/joint")
print(run)
print(f"epochs: {len(run.history['epoch'])}, best validation MRR: {max(x for x in run.history['val_mrr'] if x):.3f}")

# %% [markdown]
# ## Where to go from here
#
# - your own triples: [Own data](https://jobi-tf.github.io/jobi-tf/data/)
# - better settings: [Tune](https://jobi-tf.github.io/jobi-tf/search/) and [Which settings for my
#   graph?](https://jobi-tf.github.io/jobi-tf/settings/)
# - a service: [Export](https://jobi-tf.github.io/jobi-tf/export/) and
#   [Serve](https://jobi-tf.github.io/jobi-tf/serving/)
