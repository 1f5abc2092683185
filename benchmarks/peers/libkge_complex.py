"""Times LibKGE's ComplEx: libkge_complex.py FOLDER TRIPLES RANKED DIM BATCH NEGATIVES."""

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
    """Trains with negatives of each triple's own and with shared ones, an epoch to warm up and one that counts."""
    torch.set_num_threads(os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as work:
        write_ids(Path(folder), Path(work), {"train": count, "valid": 100, "test": ranked})
        for name, shared in (("train", False), ("train-shared", True)):
            config = configuration(work, dim, batch, negatives, shared)
            dataset = Dataset.create(config, folder=work)
            job = TrainingJob.create(config, dataset)
            job._prepare()
            job.epoch = 1
            job.run_epoch()
            start = time.perf_counter()
            job.epoch = 2
            job.run_epoch()
            print(f"PEER libkge {name} {len(dataset.split('train')) / (time.perf_counter() - start):.1f}")
        config.set("job.type", "eval")
        config.set("eval.split", "test")
        ranking = EvaluationJob.create(config, dataset, model=job.model)
        job.model.eval()
        ranking.run()  # indexes for the filter are made the first time
        start = time.perf_counter()
        ranking.run()
        print(f"PEER libkge rank {len(dataset.split('test')) / (time.perf_counter() - start):.1f}")


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
