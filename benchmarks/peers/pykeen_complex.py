# /// script
# requires-python = ">=3.10"
# dependencies = ["torch==2.13.0", "pykeen==1.11.1"]
# ///
"""Times PyKEEN's ComplEx: pykeen_complex.py FOLDER TRIPLES RANKED DIM BATCH NEGATIVES.

FOLDER holds train.tsv and test.tsv. As in ../worker.py, each line on stdin is a round, `{"measure": "train"}` (on
TRIPLES random training triples) or `{"measure": "rank"}` (RANKED test triples on both sides, filtered), which is
answered by `{"rate": triples a second}` on stdout.
"""

import json
import os
import sys
import time
import warnings

import torch
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import ComplEx
from pykeen.training import SLCWATrainingLoop
from pykeen.triples import TriplesFactory


def main(folder: str, count: int, ranked: int, dim: int, batch: int, negatives: int) -> None:
    """Trains two epochs a round, or ranks."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(os.cpu_count() or 1)
    train = TriplesFactory.from_path(f"{folder}/train.tsv")
    ids = {"entity_to_id": train.entity_to_id, "relation_to_id": train.relation_to_id}
    test = TriplesFactory.from_path(f"{folder}/test.tsv", **ids)
    part = TriplesFactory(train.mapped_triples[torch.randperm(train.num_triples)[:count]], **ids)
    rows = test.mapped_triples[:ranked]
    # By default PyKEEN's ComplEx has a penalty, which takes more than half of the time; jobi-tf has none.
    model = ComplEx(triples_factory=part, embedding_dim=dim, loss="crossentropy", regularizer=None, random_seed=0)
    evaluator, known = RankBasedEvaluator(), [train.mapped_triples]
    for line in sys.stdin:
        loop = SLCWATrainingLoop(  # one trains up to a number of epochs, so that it would train in its first round only
            model=model,
            triples_factory=part,
            optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
            negative_sampler="basic",
            negative_sampler_kwargs={"num_negs_per_pos": negatives},
        )
        start = time.perf_counter()
        if json.loads(line)["measure"] == "train":
            loop.train(part, num_epochs=2, batch_size=batch, use_tqdm=False, use_tqdm_batch=False)
            done = 2 * part.num_triples
        else:
            evaluator.evaluate(model, rows, batch_size=256, additional_filter_triples=known, use_tqdm=False)
            done = len(rows)
        print(json.dumps({"rate": done / (time.perf_counter() - start)}), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
