"""Runs to export, and their exports; not to be changed."""

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import jobi_tf
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.export import Exported, export_run
from tests.graphs import random_graph

# Names that a file, a shell or a table could stumble over; `nobody` and `never` occur in no triple.
ODD = ["Łódź", "東京", " led by a space", "quo\"te's", "0", "-1", "a|b", "two  spaces ", "nobody"]


def odd_graph() -> jobi_tf.Graph:
    """30 entities and 4 relations that occur, one of each that does not."""
    graph = random_graph()
    return dataclasses.replace(
        graph,
        entities=Vocabulary([*(f"entity {i}" for i in range(22)), *ODD], "entity"),
        relations=Vocabulary([*(f"relation {i}" for i in range(4)), "never"], "relation"),
    )


@pytest.fixture(scope="session")
def run_of(tmp_path_factory) -> Callable[..., jobi_tf.Run]:
    """Gives a run of ComplEx, or one with an untrained model of the scorer of that name in its place."""
    folder = tmp_path_factory.mktemp("runs") / "complex"
    settings = {"dim": 8, "batch_size": 20, "negatives": 5, "epochs": 2, "eval_every": 1, "learning_rate": 0.1}
    trained = jobi_tf.train(odd_graph(), run_dir=folder, callbacks=(), **settings)

    @cache
    def run_of(scorer: str = "complex", reciprocal: bool = False) -> jobi_tf.Run:
        if scorer == "complex" and not reciprocal:
            return trained
        dim = 9 if scorer == "conve" else 8
        sizes = trained.graph.num_entities, trained.graph.num_relations
        model = jobi_tf.JoBi(*sizes, dim, scorer, reciprocal=reciprocal)
        for table in model.weights:  # far enough from zero that mistakes show
            table.assign(3 * table)
        return jobi_tf.Run(trained.path, trained.config, trained.graph, model)

    return run_of


@pytest.fixture(scope="session")
def run(run_of) -> jobi_tf.Run:
    """A run of ComplEx."""
    return run_of()


@pytest.fixture(scope="session")
def exported(run, tmp_path_factory) -> Exported:
    """Its export, with all entities as answers and warm-up requests."""
    return export_run(run, tmp_path_factory.mktemp("exports") / "odd names", top_k=31)


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder for versions that is not there yet."""
    return tmp_path / "deep" / "versions"
