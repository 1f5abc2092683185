"""Times PyKEEN's ComplEx: pykeen_complex.py FOLDER TRIPLES RANKED DIM BATCH NEGATIVES."""

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
    """Trains one epoch to warm up and two that count, then ranks."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(os.cpu_count() or 1)
    train = TriplesFactory.from_path(f"{folder}/train.tsv")
    ids = {"entity_to_id": train.entity_to_id, "relation_to_id": train.relation_to_id}
    test = TriplesFactory.from_path(f"{folder}/test.tsv", **ids)
    part = TriplesFactory(train.mapped_triples[torch.randperm(train.num_triples)[:count]], **ids)
    model = ComplEx(triples_factory=part, embedding_dim=dim, loss="crossentropy", random_seed=0)
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=part,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        negative_sampler="basic",
        negative_sampler_kwargs={"num_negs_per_pos": negatives},
    )
    quiet = {"use_tqdm": False, "use_tqdm_batch": False}
    loop.train(triples_factory=part, num_epochs=1, batch_size=batch, **quiet)
    start = time.perf_counter()
    loop.train(triples_factory=part, num_epochs=2, batch_size=batch, **quiet)
    print(f"PEER pykeen train {2 * part.num_triples / (time.perf_counter() - start):.1f}")
    rows = test.mapped_triples[:ranked]
    start = time.perf_counter()
    RankBasedEvaluator().evaluate(
        model, rows, batch_size=256, additional_filter_triples=[train.mapped_triples], use_tqdm=False
    )
    print(f"PEER pykeen rank {len(rows) / (time.perf_counter() - start):.1f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
