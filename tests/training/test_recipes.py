"""Recipes: named settings, and the recipe that looks for settings."""

import json
import subprocess
import sys

import numpy as np
import pytest

import jobi_tf
from jobi_tf.errors import UsageError
from jobi_tf.training.assembly import completed
from jobi_tf.training.auto import Look
from jobi_tf.training.config import Recipe, TrainConfig, with_recipe
from tests.graphs import huge_graph, named_graph, random_graph, write_towns

GRAPH = random_graph(entities=40, relations=3, train=300, valid=60, test=40)


def config(**settings):
    return with_recipe(TrainConfig.create({"dataset": "tiny"} | settings))


@pytest.mark.parametrize("name", sorted(Recipe.built_in()))
def test_every_recipe_has_settings_for_a_graph(name):
    assert set(Recipe.built_in()) == {"fast", "large", "paper", "strong"}
    settings = config(recipe=name)
    assert settings.recipe == name
    assert settings.effective() == settings
    completed(settings, GRAPH)


def test_a_recipe_leaves_out_the_mean_of_the_weights_with_servers():
    settings = {"strategy": "parameter-server", "tensorboard": "none"}
    config(recipe="fast", **settings).check()
    with pytest.raises(UsageError, match="average_epochs 4 has no effect"):
        config(average_epochs=4, **settings).check()


def test_given_settings_win_over_the_recipe():
    strong = Recipe.read("strong").settings
    assert config(recipe="strong", dim=7).dim == 7
    assert config(recipe="strong", dim=7).n3 == strong["n3"]
    assert config(recipe="strong", n3=0.0).n3 == 0
    assert config(dim=7) == TrainConfig(dataset="tiny", dim=7)


def test_settings_of_the_recipe_that_have_no_effect_beside_given_ones_are_left_out():
    chosen = config(recipe="paper", loss="full-softmax")
    assert not {"p", "negatives", "negatives_mode"} & chosen.model_fields_set
    chosen.check()
    with pytest.raises(UsageError, match="negatives"):  # but one that is given is refused
        config(recipe="strong", negatives=10).check()


def test_a_recipe_can_be_a_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("description: mine\nsettings: {dim: 9}\n")
    assert config(recipe=str(path)).dim == 9
    for text, key in (
        ("description: mine\nsettings: {dmi: 9}\n", "dmi"),
        ("description: mine\nsettings: {dataset: umls}\n", "dataset"),
        ("description: mine\nsettings: {chunk: 9}\n", "chunk"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=key):
            config(recipe=str(path))
    with pytest.raises(UsageError, match="best"):
        config(recipe="best")
    with pytest.raises(UsageError, match="minutes"):
        config(recipe="strong", minutes=3).check()


def test_a_run_shows_its_recipe_and_all_settings(tmp_path, call):
    folder, triples = tmp_path / "run", write_towns(tmp_path / "towns")
    call("train", "-q", "--dataset", triples, "--recipe", "fast", "--epochs", 1, "--dim", 4, "--run-dir", folder)
    run = jobi_tf.load_run(folder)
    assert (run.config.recipe, run.config.dim, run.config.negatives_mode) == ("fast", 4, "shared-by-side")
    assert "negatives_mode: shared-by-side" in (folder / "config.yaml").read_text()


def test_the_look_at_a_graph():
    train = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 2], [2, 2, 0], [3, 1, 2]], np.int32)
    look = Look.at(named_graph({"train": train, "valid": train[:1], "test": train[:1]}, 5, 3))
    assert (look.entities, look.relations, look.triples) == (5, 3, 5)
    assert look.triples_per_entity == 2
    assert look.symmetric == pytest.approx(2 / 5)
    assert look.inverse == pytest.approx(2 / 5)
    assert sum(look.categories.values()) == pytest.approx(1)
    assert Look.at(huge_graph([[0, 0, 5], [5, 0, 2**21]])).symmetric == 0


def test_auto_compares_candidates_and_trains_the_best(tmp_path, capsys):
    run = jobi_tf.train(GRAPH, recipe="auto", minutes=0.2, dim=4, epochs=3, seed=5, run_dir=tmp_path / "run")
    found = json.loads((tmp_path / "run" / "auto.json").read_text())
    assert (run.config.recipe, run.config.minutes, run.config.dim, run.config.seed) == ("auto", 0.2, 4, 5)
    best = max(found["candidates"], key=lambda x: (len(x["mrr"]), x["mrr"]))
    assert found["chosen"] == best["settings"]
    assert {x["settings"]["dim"] for x in found["candidates"] if "dim" in x["settings"]} == {4}
    assert run.config.loss == found["chosen"].get("loss", "softmax")
    assert run.history["epoch"][-1] <= 3
    assert max(x["epochs"] for x in found["candidates"]) <= 3
    assert "search" in capsys.readouterr().err
    options = {"schedule": "cosine", "warmup_epochs": 1}
    run = jobi_tf.train(GRAPH, recipe="auto", minutes=0.1, dim=4, epochs=2, **options, run_dir=tmp_path / "warm")
    assert run.config.warmup_epochs == 1


def test_auto_learns_from_a_teacher_where_there_is_time(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("jobi_tf.training.auto.SECONDS_TO_BEGIN", 0)
    options = {"recipe": "auto", "minutes": 2, "dim": 4, "epochs": 2, "loss": "full-softmax", "schedule": "constant"}
    run = jobi_tf.train(GRAPH, **options, run_dir=tmp_path / "new" / "run")
    assert run.config.soft_labels is not None
    assert "teacher" in capsys.readouterr().err
    assert [x.name for x in (tmp_path / "new").iterdir() if x.suffix == ".npz"] == []
    (tmp_path / "new").rename(tmp_path / "moved")
    assert len(jobi_tf.resume(tmp_path / "moved" / "run", epochs=3).history["epoch"]) == 3
    labels = tmp_path / "moved" / "run" / "soft-labels.npz"
    run = jobi_tf.train(GRAPH, **options | {"minutes": 0.1}, soft_labels=str(labels), run_dir=tmp_path / "given")
    assert run.config.soft_labels == str(labels)
    assert labels.exists()


@pytest.mark.processes
def test_auto_trains_on_several_logical_devices(tmp_path):
    triples, command = write_towns(tmp_path / "towns"), [sys.executable, "-m", "jobi_tf", "train", "--quiet"]
    options = ["--recipe", "auto", "--minutes", "0.05", "--dim", "4", "--epochs", "1", "--logical-devices", "2"]
    subprocess.run([*command, "--dataset", triples, *options, "--run-dir", tmp_path / "run"], check=True)
    assert jobi_tf.load_run(tmp_path / "run").config.logical_devices == 2


def test_auto_needs_validation_triples_and_settings_that_go_together(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="valid"):
        jobi_tf.train(random_graph(valid=0), recipe="auto", callbacks=(), run_dir=tmp_path / "run")
    with pytest.raises(UsageError, match="batch_size"):
        jobi_tf.train(GRAPH, recipe="auto", batch_size=10**6, callbacks=(), run_dir=tmp_path / "run")
    with pytest.raises(UsageError, match="eval_every"):
        jobi_tf.train(GRAPH, recipe="auto", eval_every=0, callbacks=(), run_dir=tmp_path / "run")
    addresses = {"worker": ["localhost:1", "localhost:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": addresses, "task": {"type": "worker", "index": 0}}))
    with pytest.raises(UsageError, match="one process"):
        jobi_tf.train(GRAPH, recipe="auto", callbacks=(), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_recipe_is_answered_with_all_names():
    with pytest.raises(UsageError, match=r"recipe .*auto.*strong.*'stong'"):
        config(recipe="stong")
