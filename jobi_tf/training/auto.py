"""The recipe auto: looks at a graph, compares a few settings on its validation split, and trains the best of them."""

import dataclasses
import functools
import json
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import distinct, distinct_triples, find
from jobi_tf.data.soft_labels import SoftLabels
from jobi_tf.datasets.statistics import CATEGORIES, relation_categories
from jobi_tf.errors import JobiError, UsageError, first_line
from jobi_tf.evaluation.evaluate import evaluate
from jobi_tf.evaluation.metrics import best_row
from jobi_tf.evaluation.rules import RuleModel
from jobi_tf.evaluation.soft_labels import soft_labels
from jobi_tf.files import written_beside
from jobi_tf.launch import cores
from jobi_tf.models import scorers
from jobi_tf.training.assembly import completed, epoch
from jobi_tf.training.config import Recipe, TrainConfig, overridden
from jobi_tf.training.devices import Cluster, training_strategy
from jobi_tf.training.estimate import check_memory
from jobi_tf.training.pool import Pool
from jobi_tf.training.progress import show_progress
from jobi_tf.training.recording import SECONDS_PER_MINUTE, Callbacks, Training
from jobi_tf.training.run import Run
from jobi_tf.training.run_folder import RunFolder
from jobi_tf.training.train import new_run_folder, resume, train_as_configured

MINUTES = 15.0
SEARCH, LONGEST_SEARCH = 1 / 3, 2 / 3  # fractions of the time; the second one if the final training is short
TRIAL_EPOCHS = 2  # of a candidate, at least: the first one is not typical, as TensorFlow traces and compiles in it
TRAININGS = 3  # of the largest model that a longer search leaves time for: teacher, student and a spare one
SECONDS_TO_BEGIN = 10  # of a training
MOST_CANDIDATES = 8
FEWEST_EPOCHS, MOST_EPOCHS, RANKINGS = 8, 60, 10  # of the training after the search
AFTER_PEAK = 3  # A candidate that got worse is trained for at most this times the epochs to its peak.
VALIDATION_TRIPLES = 2000  # that candidates are ranked on
FASTER = 1.3  # how many times as fast as in float32 a product in bfloat16 has to be
SECONDS_A_SCORE = 3e-9  # of two cores, for all but the products in training against all entities
SAMPLED_RATE = 2.5e9  # operations a second of two cores, with gathered rows for sampled negatives
DIM, LARGE_DIM = 200, 1000
SPARSE = 10  # training triples an entity
RESCAL_DIM, RESCAL_TRIPLES = 256, 1000  # RESCAL has d² numbers for a relation, so it needs many triples of each
SYMMETRIC = 0.8  # share of the triples
SHOWN = ("model", "dim", "loss", "negatives_mode", "joint", "n3", "dura", "relation_prediction")
UNLIMITED = 10_000  # epochs
TRIAL = {  # settings of a candidate's training
    **{"patience": UNLIMITED, "eval_every": 1, "eval_first": 1, "monitor": "mrr"},
    "average_epochs": 1,  # a mean says little after the first epochs
    **{"schedule": "constant", "warmup_epochs": 0, "tensorboard": "none", "profile": None, "checkpoint_every": "10000"},
    "soft_labels": None,  # given ones are of the graph with all validation triples
}

Settings = dict[str, Any]


@dataclass(frozen=True)
class Look:
    """What the recipe measures of a graph: counts, means, and shares of the training triples.

    `triples` are training triples; `symmetric` is the share of those whose reverse is one too, `inverse` of those whose
    entities another relation links in the other direction, and `categories` of each category of relations.
    """

    entities: int
    relations: int
    triples: int
    triples_per_entity: float
    triples_per_relation: float
    symmetric: float
    inverse: float
    categories: dict[str, float]

    @classmethod
    def at(cls, graph: Graph) -> "Look":
        """Looks at a graph."""
        triples, sizes = np.asarray(graph.train), (graph.num_entities, graph.num_relations)
        head, relation, tail = triples.astype(np.int64).T
        numbers, reverse = np.split(distinct_triples(np.concatenate([triples, triples[:, ::-1]]))[1], 2)
        symmetric = np.isin(reverse, numbers)
        _, other_way = find(distinct(head * sizes[0] + tail), tail * sizes[0] + head)
        inverse = other_way & ~symmetric
        category = relation_categories(graph)[relation]
        return cls(
            *sizes,
            len(head),
            2 * len(head) / sizes[0],
            len(head) / sizes[1],
            float(symmetric.mean()),
            float(inverse.mean()),
            {kind: float((category == kind).mean()) for kind in CATEGORIES},
        )

    def __str__(self) -> str:
        kinds = ", ".join(f"{share:.0%} {kind}" for kind, share in self.categories.items())
        return (
            f"{self.entities:,} entities, {self.relations:,} relations, {self.triples:,} training triples "
            f"({self.triples_per_entity:.1f} for an entity, {self.triples_per_relation:,.0f} for a relation); "
            f"{self.symmetric:.0%} symmetric, {self.inverse:.0%} with an inverse; {kinds}"
        )


@dataclass
class Candidate:
    """Settings that are compared with others, and what was measured."""

    config: TrainConfig  # all of its settings
    settings: Settings  # its values of the settings in which candidates differ
    mrr: list[float] = field(default_factory=list)  # the best validation MRR after each round
    epochs: int = 0  # that were trained
    peak: int = 0  # the best of them
    seconds: float = 0.0  # of an epoch, with its ranking

    @classmethod
    def of(cls, settings: Settings, given: Settings) -> "Candidate":
        """Returns a candidate with these settings, which given ones override."""
        config = overridden(settings, given)
        return cls(config, {name: getattr(config, name) for name in settings})

    def __str__(self) -> str:
        shown = {name: self.settings[name] for name in self.settings if name in SHOWN}
        return " ".join(f"{name} {x:g}" if isinstance(x, float) else f"{name} {x}" for name, x in shown.items())


def train_auto(
    config: TrainConfig,
    graph: Graph | None = None,
    callbacks: Callbacks = show_progress,
    say: Callable[[str], None] | None = None,
) -> Run:
    """Chooses settings for a graph and trains with them, within `config.minutes`: what the recipe `auto` does.

    The search takes a third of the time, or up to two thirds if the final training is short. A few candidates, which
    depend on the graph, are trained in the first half of the search. If there are four or more, the better half of them
    is trained further in the second half; otherwise that time is left to the final training. The best candidate is
    trained again for the rest of the time; if this training is interrupted and resumed, its time is not limited. Its
    run folder gets `auto.json`, with what was measured of the graph and of each candidate.

    If there is time for two trainings against all entities, the first run is a teacher: the second one learns from soft
    labels of a pool of the first run and the rules of the graph, which are in its folder.

    No candidate changes the given settings. Those of the schedule and of rankings, and the callbacks, are for the
    training after the search. `say` is called with a line for each decision and result; None: print them on stderr,
    unless there are no callbacks.

    Raises:
        UsageError: there are no validation triples or several processes, no candidate goes with the given settings, or
            as for `jobi_tf.train`.
        JobiError: no candidate could be trained.
    """
    begun, total = time.monotonic(), SECONDS_PER_MINUTE * (config.minutes or MINUTES)
    say = say or (functools.partial(print, file=sys.stderr) if callbacks else lambda line: None)
    if Cluster.of_environment() or config.strategy in ("multi-worker", "parameter-server"):
        raise UsageError(f"expected one process for the recipe auto, got TF_CONFIG or the strategy {config.strategy}")
    if not config.eval_every:
        raise UsageError("expected eval_every to be at least 1 for the recipe auto, which chooses by rankings, got 0")
    training_strategy(config)  # splits the CPU, if it has to, before TensorFlow starts
    graph = graph or config.load_graph()
    path = new_run_folder(config, graph).path
    if not len(graph.valid):
        raise UsageError(f"expected validation triples in {graph.name} for the recipe auto, got none")
    look, given = Look.at(graph), config.model_dump(exclude_unset=True)
    say(f"graph     {look}")
    search = _search_seconds(look, graph, given, total)
    candidates = _candidates(look, graph, given, total, search)
    say(f"search    {len(candidates)} candidate{'s' * (len(candidates) > 1)}, for about {search:.0f} of {total:.0f} s")
    with tempfile.TemporaryDirectory() as folder:
        epochs = given.get("epochs", UNLIMITED)
        _search(candidates, _with_fewer_validation_triples(graph), Path(folder), begun + search, epochs, say)
    ranked = sorted((x for x in candidates if x.mrr), key=lambda x: (len(x.mrr), x.mrr[-1]), reverse=True)
    if not ranked:
        raise JobiError("no candidate of the recipe auto could be trained")
    best = ranked[0]
    left = begun + total - time.monotonic()
    final = _final(best, given, left).replace(run_dir=str(path))
    reason = f"MRR {best.mrr[-1]:.4f} on {min(len(graph.valid), VALIDATION_TRIPLES):,} validation triples"
    say(f"chosen    {best}: {reason}, the best of {len(ranked)}")
    length = f"{final.epochs} epoch{'s' * (final.epochs > 1)}"
    say(f"training  at most {length} of about {best.seconds:.1f} s, for {max(0, left):.0f} s")
    measured = [{k: v for k, v in vars(x).items() if k != "config"} for x in candidates]
    record = {"graph": vars(look), "candidates": measured, "chosen": best.settings, "reason": reason}
    labels = None
    training = SECONDS_TO_BEGIN + final.epochs * best.seconds
    if final.full_softmax and final.soft_labels is None and left > 2 * training:
        labels = _teach(final, graph, (left - 2 * training) / SECONDS_PER_MINUTE / 2, say)

    def every(training: Training) -> list[keras.callbacks.Callback]:
        with written_beside(training.folder.path / "auto.json") as beside:
            beside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        return [*(callbacks(training) if callable(callbacks) else callbacks), _Until(begun + total)]

    return train_as_configured(final, graph, every, labels)


def _teach(config: TrainConfig, graph: Graph, minutes: float, say: Callable[[str], None]) -> SoftLabels:
    """Trains a teacher, and returns the soft labels of a pool of it and the rules of the graph."""
    with tempfile.TemporaryDirectory() as folder:
        config = config.replace(run_dir=f"{folder}/teacher", tensorboard="none", profile=None)
        teacher = train_as_configured(config, graph, [])
        pool = Pool([teacher], RuleModel(graph, minutes))
        labels = soft_labels(pool)
        mrr = [f"{evaluate(x, split='valid').metrics()['mrr']:.4f}" for x in (teacher, pool)]
    say(f"teacher   MRR {mrr[0]} on the validation split, {mrr[1]} with the rules of the graph")
    return labels


def _search_seconds(look: Look, graph: Graph, given: Settings, total: float) -> float:
    """Returns the time for the search: what the longest training after it leaves, within bounds."""
    try:
        first = completed(overridden(next(_pool(look)) | {"dim": LARGE_DIM}, given), graph)
    except UsageError:  # it does not go with a given setting
        return SEARCH * total
    left = total - TRAININGS * (SECONDS_TO_BEGIN + MOST_EPOCHS * _seconds_an_epoch(first, graph))
    return float(np.clip(left, SEARCH * total, LONGEST_SEARCH * total))


def _candidates(look: Look, graph: Graph, given: Settings, total: float, search: float) -> list[Candidate]:
    """Returns the settings to compare, the most promising first, as many as there is time for."""
    found: list[Candidate] = []
    left = search / 2  # for the first round
    possible, error = False, UsageError("expected settings that a candidate of the recipe auto can have")
    for settings in _pool(look):
        try:
            candidate = Candidate.of(settings, given)
            config = completed(candidate.config, graph)
            check_memory(config, graph)
        except UsageError as problem:  # it does not go with a given setting, or needs too much memory
            error = problem
            continue
        possible = True
        seconds = _seconds_an_epoch(config, graph)
        cost = SECONDS_TO_BEGIN + TRIAL_EPOCHS * seconds
        fits = FEWEST_EPOCHS * seconds < total - search and (cost <= left or not found)
        if fits and all(x.config != candidate.config for x in found):
            found.append(candidate)
            left -= cost
    if not possible:
        raise error
    # If all are estimated to be too slow, the recipe for large graphs.
    return found[:MOST_CANDIDATES] or [Candidate.of(Recipe.read("large").settings, given)]


def _pool(look: Look) -> Iterator[Settings]:
    """Yields settings in the order in which they are promising for a graph."""
    # Candidates start from a lower rate than the recipe, because their trials have no warm-up.
    faster = _product_rate("bfloat16") > FASTER * _product_rate("float32")
    trial = {"precision": "bfloat16" if faster else "float32", "learning_rate": 0.3, "warmup_epochs": 0}
    strong, quick = Recipe.read("strong").settings | trial, Recipe.read("fast").settings
    model = "distmult" if look.symmetric > SYMMETRIC else "complex"
    penalties = [(0.15, 2.0), (0.05, 0.0), (0.05, 2.0), (0.01, 2.0), (0.15, 0.0)]
    if look.triples_per_entity < SPARSE:  # larger N3 first
        penalties = [(0.3, 0.0), *penalties]
    full = [strong | {"model": model, "dim": DIM, "n3": x, "relation_prediction": y} for x, y in penalties]
    adagrad = {"model": "complex", "dim": DIM, "joint": True, "p": 0.3, "optimizer": "adagrad", "learning_rate": 0.1}
    adagrad["average_epochs"] = 1  # its learning rate falls to 0
    yield full[0]
    if look.triples_per_entity < SPARSE and look.triples_per_relation > RESCAL_TRIPLES:
        rescal = {"model": "rescal", "dim": RESCAL_DIM, "dura": 0.2, "learning_rate": 0.1}
        yield {name: x for name, x in full[0].items() if name not in ("n3", "relation_prediction")} | rescal
    yield full[1]
    by_side = {"negatives": 100, "negatives_mode": "by-side", "reciprocal": True}
    yield adagrad | by_side | {"n3": 0.05, "relation_prediction": 1.0}
    yield from full[2:3]
    yield full[2] | {"dim": LARGE_DIM}  # where there is time for it
    yield adagrad | {"negatives_mode": "own", "n3": 0.01}
    yield from full[3:]
    yield quick


def _seconds_an_epoch(config: TrainConfig, graph: Graph) -> float:
    """Returns a rough estimate of the training steps of an epoch on this machine, given `completed` settings."""
    width = scorers.get(config.model).entity_width(config.dim)
    steps, triples = epoch(config, graph)
    scale = cores() / 2
    if config.full_softmax:
        scores = steps * (config.batch_size or 0) * graph.num_entities
        return scores * (6 * width / _product_rate(config.precision) + SECONDS_A_SCORE / scale)
    shared = 4 if config.shared else 1
    return 6 * triples * config.negatives * width / SAMPLED_RATE / scale / shared


@functools.cache
def _product_rate(precision: str) -> float:
    """Returns the operations a second of a product of queries and all entities on this machine, with its casts."""
    queries, entities = tf.ones([500, 400]), tf.ones([8000, 400])

    @tf.function
    def product() -> tf.Tensor:
        factors = tf.cast(queries, precision), tf.cast(entities, precision)
        return tf.reduce_max(tf.cast(tf.matmul(*factors, transpose_b=True), tf.float32))

    product()
    seconds = min(timeit.repeat(lambda: product().numpy(), number=1, repeat=5))
    return 2 * 500 * 8000 * 400 / seconds


def _with_fewer_validation_triples(graph: Graph) -> Graph:
    chosen = np.random.default_rng(0).permutation(len(graph.valid))[:VALIDATION_TRIPLES]
    splits = dict(graph.splits) | {"valid": np.asarray(graph.valid)[np.sort(chosen)], "test": graph.test[:0]}
    return dataclasses.replace(graph, splits=splits, sources={})


class _Until(keras.callbacks.Callback):
    """Ends training at the first ranking after a moment of `time.monotonic`, and measures the time of an epoch.

    At least `fewest` epochs are trained.
    """

    def __init__(self, deadline: float, fewest: int = 1):
        super().__init__()
        self.deadline, self.fewest = deadline, fewest
        self._ends: list[float] = []  # of the training's begin, then of each epoch

    @property
    def seconds(self) -> float:
        """Seconds of an epoch, without the first one if there are more."""
        ends = self._ends[1:] if len(self._ends) > 2 else self._ends
        return (ends[-1] - ends[0]) / (len(ends) - 1)

    def on_train_begin(self, logs: dict | None = None) -> None:
        self._ends = [time.monotonic()]

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        self._ends.append(time.monotonic())
        if "val_mrr" in logs and self._ends[-1] >= self.deadline and len(self._ends) > self.fewest:
            self.model.stop_training = True


def _search(
    candidates: list[Candidate], graph: Graph, folder: Path, deadline: float, epochs: int, say: Callable[[str], None]
) -> None:
    """Trains all candidates for half of the time, and the better half of them for the other half.

    None is trained for more than `epochs`.
    """
    chosen = candidates
    for round_ in range(2):
        ends = time.monotonic() + (deadline - time.monotonic()) * (0.5 if round_ == 0 and len(chosen) > 1 else 1)
        for i, candidate in enumerate(chosen):
            now = time.monotonic()
            until = _Until(now + max(0.0, ends - now) / (len(chosen) - i), TRIAL_EPOCHS)
            path = folder / str(candidates.index(candidate))
            try:
                if round_:
                    resume(path, callbacks=[until])
                else:
                    config = candidate.config.replace(**TRIAL, epochs=epochs, run_dir=str(path)).effective()
                    train_as_configured(config, graph, [until])
            except (JobiError, tf.errors.ResourceExhaustedError) as error:  # its loss is not finite, or memory is full
                say(f"  {candidate}: {first_line(error)}")
                continue
            rows = RunFolder(path).read_metrics()
            row = best_row(rows, "mrr") or {}
            candidate.mrr.append(row["val_mrr"])
            if len(rows) > candidate.epochs:  # else it had all epochs before
                candidate.seconds = until.seconds
            candidate.epochs, candidate.peak = len(rows), row["epoch"]
            after = f"after {candidate.epochs} epochs of {candidate.seconds:.1f} s"
            say(f"  {candidate}: MRR {candidate.mrr[-1]:.4f} {after}")
        chosen = [x for x in chosen if len(x.mrr) > round_]
        chosen = sorted(chosen, key=lambda x: x.mrr[-1], reverse=True)[: max(1, len(chosen) // 2)]
        if len(chosen) < 2:
            return


def _final(best: Candidate, given: Settings, seconds: float) -> TrainConfig:
    """Returns the settings of the training for the time that is left; settings that are given win."""
    most = MOST_EPOCHS
    if best.epochs > AFTER_PEAK * best.peak:
        most = min(most, max(FEWEST_EPOCHS, AFTER_PEAK * best.peak))
    fewest = 1 + best.config.warmup_epochs
    for_epochs = min(0.9 * seconds, seconds - SECONDS_TO_BEGIN)
    epochs = given.get("epochs") or int(np.clip(for_epochs / max(best.seconds, 1e-3), fewest, most))
    changes = {"epochs": epochs, "eval_every": max(1, epochs // RANKINGS), "monitor": "mrr", "patience": RANKINGS + 1}
    if best.config.optimizer == "adagrad":
        changes["schedule"] = "cosine"
    return best.config.replace(**changes | given)
