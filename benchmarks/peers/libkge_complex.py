# /// script
# requires-python = ">=3.10"
# dependencies = ["torch==2.13.0", "libkge @ git+https://github.com/uma-pi1/kge.git"]
# ///
"""Times LibKGE's ComplEx; arguments, rounds and answers are those of pykeen_complex.py.

`{"measure": "train-shared"}` trains with negatives that are shared by a batch.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from kge import Config, Dataset
from kge.job import EvaluationJob, TrainingJob

SPLITS = ("train", "valid", "test")


def main(folder: str, count: int, ranked: int, dim: int, batch: int, negatives: int) -> None:
    """Trains an epoch a round, or ranks."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as work:
        write_ids(Path(folder), Path(work), {"train": count, "valid": 100, "test": ranked})
        jobs, epoch = {}, 0
        for name, shared in (("train", False), ("train-shared", True)):
            config = configuration(work, dim, batch, negatives, shared)
            dataset = Dataset.create(config, folder=work)
            jobs[name] = TrainingJob.create(config, dataset)
            jobs[name]._prepare()
        config.set("job.type", "eval")
        config.set("eval.split", "test")
        model = jobs[name].model
        ranking = EvaluationJob.create(config, dataset, model=model)
        for line in sys.stdin:
            measure, epoch = json.loads(line)["measure"], epoch + 1
            start = time.perf_counter()
            if measure == "rank":
                model.eval()
                ranking.run()
            else:
                jobs[measure].epoch = epoch
                jobs[measure].model.train()
                jobs[measure].run_epoch()
            done = len(dataset.split("test" if measure == "rank" else "train"))
            print(json.dumps({"rate": done / (time.perf_counter() - start)}), file=answers, flush=True)


def configuration(work: str, dim: int, batch: int, negatives: int, shared: bool) -> Config:
    """Returns settings like those of the other libraries."""
    config = Config(folder=work)
    config.set("verbose", False)
    config.set("model", "complex")
    config._import("complex")
    for key, value in {
        "job.device": "cpu",
        "dataset.pickle": False,
        "train.type": "negative_sampling",
        "train.loss": "kl",
        "train.batch_size": batch,
        "train.optimizer": "Adam",
        "negative_sampling.num_samples.s": negatives // 2,
        "negative_sampling.num_samples.o": negatives - negatives // 2,
        "negative_sampling.shared": shared,
        "negative_sampling.with_replacement": not shared,
        "negative_sampling.implementation": "auto",
        "lookup_embedder.dim": 2 * dim,  # real and imaginary parts
        "eval.batch_size": 256,
    }.items():
        config.set(key, value, create=True)
    config.set("train.optimizer_args.lr", 1e-3, create=True)
    config.init_folder()
    return config


def write_ids(source: Path, target: Path, counts: dict[str, int]) -> None:
    """Writes the triples by number; ids of all entities and relations, but only some triples of each split."""
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    for split in SPLITS:
        lines = (source / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t") for line in lines]
        ids = [
            (
                entities.setdefault(head, len(entities)),
                relations.setdefault(relation, len(relations)),
                entities.setdefault(tail, len(entities)),
            )
            for head, relation, tail in rows
        ]
        kept = torch.randperm(len(ids))[: counts[split]].tolist()
        (target / f"{split}.del").write_text("".join("\t".join(map(str, ids[i])) + "\n" for i in kept))
    for name, numbers in (("entity", entities), ("relation", relations)):
        (target / f"{name}_ids.del").write_text("".join(f"{i}\t{x}\n" for x, i in numbers.items()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
