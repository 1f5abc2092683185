import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jobi_tf
from jobi_tf.report.plots import plot_run
from jobi_tf.training.vectors import read_vectors

TRIPLE = ("--head", "town 1", "--relation", "near", "--tail", "town 2")


def test_neighbors_are_those_of_the_run(run, call):
    rows = json.loads(call("neighbors", run, "town 1", "-k", 3, "--json").stdout)
    expected = jobi_tf.load_run(run).nearest("town 1", 3)
    assert [row["entity"] for row in rows] == [x.entity for x in expected]
    assert "town" in call("neighbors", "--run-dir", run, "town 1").stdout
    assert "ENTITY" in call("neighbors", run, status=2).stderr


@pytest.mark.parametrize("command", ["convert", "merge"])
def test_what_writes_a_file_needs_its_name(run, call, command):
    assert "--out" in call(command, run, status=2).stderr


def test_explain_prints_scores_ranks_and_evidence(run, call):
    found = json.loads(call("explain", run, *TRIPLE, "--json").stdout)
    assert found["scores"]["triple"] == pytest.approx(jobi_tf.load_run(run).score([TRIPLE[1::2]])[0], rel=1e-5)
    assert set(found["ranks"]) == {"head", "tail"}
    assert "score of the pair head" in call("explain", run, *TRIPLE).stdout


def test_rules_are_printed_written_and_ranked(triples, call, tmp_path):
    printed = call("rules", triples, "-k", 3, "--out", tmp_path / "rules.tsv").stdout
    model = jobi_tf.RuleModel(jobi_tf.load_graph(triples))
    lines = [x.split("\t") for x in (tmp_path / "rules.tsv").read_text().splitlines()]
    assert len(lines) == 1 + model.num_rules
    assert [lines[1][0], int(lines[1][2])] == [model.best(1)[0].rule, model.best(1)[0].hits]
    assert lines[1][0] in printed
    assert f"{jobi_tf.evaluate(model).metrics()['mrr']:.4f}" in printed
    call("rules", triples, "--minutes", 0, status=2)


def test_a_run_learns_from_soft_labels_of_a_pool(run, triples, call, tmp_path):
    labels = tmp_path / "labels.npz"
    printed = call("soft-labels", run, "--rules", "--out", labels).stdout
    graph = jobi_tf.load_run(run).graph
    assert f"{len(jobi_tf.SoftLabels.load(labels, graph).entities):,} queries of towns" in printed
    options = ("--no-joint", "--loss", "full-softmax", "--dim", 4, "--epochs", 1, "--eval-every", 0)
    call("train", "-q", triples, *options, "--soft-labels", labels, "--run-dir", tmp_path / "run")
    assert jobi_tf.load_run(tmp_path / "run").config.soft_labels == str(labels)
    assert "another graph" in call("train", "world", *options, "--soft-labels", labels, status=1).stderr


def test_complete_streams_new_triples(run, call, tmp_path):
    graph = jobi_tf.load_run(run).graph
    facts = {tuple(x) for part in graph.splits.values() for x in part.tolist()}
    lines = [x.split("\t") for x in call("complete", run, "-k", 7).stdout.splitlines()]
    assert len(lines) == 7
    assert not facts & {tuple(x) for x in graph.ids_of_triples([line[:3] for line in lines]).tolist()}
    full = jobi_tf.Graph.from_triples([("a", "r", "b")])
    jobi_tf.Run.from_model(jobi_tf.JoBi(2, 1, 2), full).save(tmp_path / "full")
    nothing = call("complete", tmp_path / "full")
    assert (nothing.stdout, "no new triple" in nothing.stderr) == ("", True)
    call("complete", run, "--relation", "near", "-k", 3, "--out", tmp_path / "new.tsv")
    assert {x.split("\t")[1] for x in (tmp_path / "new.tsv").read_text().splitlines()} == {"near"}


@pytest.mark.parametrize("suffix", ["npz", "txt", "parquet"])
def test_converted_embeddings_are_those_of_the_run(run, call, tmp_path, suffix):
    path = tmp_path / f"vectors.{suffix}"
    call("convert", run, "--out", path)
    trained = jobi_tf.load_run(run)
    names, table = trained.graph.entities.names, trained.model.entities.table.numpy()
    if suffix == "parquet":
        frame = pytest.importorskip("pandas").read_parquet(path)
        found, vectors = list(frame["name"]), np.stack(frame["vector"])
    else:
        found, vectors = read_vectors(path, table.shape[1])
    assert [name.replace(" ", "_") for name in found] == [name.replace(" ", "_") for name in names]
    np.testing.assert_array_equal(vectors, table)


def test_converted_relations_include_the_inverse_ones(run, call, tmp_path):
    graph, path = jobi_tf.load_run(run).graph, tmp_path / "vectors.npz"
    model = jobi_tf.JoBi(graph.num_entities, graph.num_relations, 4, reciprocal=True)
    jobi_tf.Run.from_model(model, graph).save(tmp_path / "run")
    call("convert", tmp_path / "run", "--of", "relations", "--out", path)
    names, vectors = read_vectors(path, 8)
    assert names == [*graph.relations.names, *(f"{name} (inverse)" for name in graph.relations.names)]
    np.testing.assert_array_equal(vectors, model.heads[0].relations.table)


def test_convert_refuses_another_format(run, call, tmp_path):
    assert "x.csv" in call("convert", run, "--out", tmp_path / "x.csv", status=2).stderr


def test_plots_are_written_as_png_and_svg(run, call, tmp_path):
    call("plot", run, "--out", tmp_path / "plots")
    assert {x.name for x in (tmp_path / "plots").iterdir()} == {
        f"{name}.{suffix}" for name in ("curves", "map", "relations") for suffix in ("png", "svg")
    }


def test_characters_that_no_font_has_make_one_warning(call, tmp_path):
    graph = jobi_tf.Graph.from_triples([("李一", "r", "王二"), ("张三", "r", "陈四")])
    jobi_tf.Run.from_model(jobi_tf.JoBi(4, 1, 2), graph).save(tmp_path / "run")
    assert call("plot", tmp_path / "run").stderr.count("Glyph") == 1


def test_names_in_plots_are_no_markup(tmp_path):
    names = ["_hypernym", r"$\frac{$"]
    graph = jobi_tf.Graph.from_triples([(f"e{i}", names[i % 2], f"US${i} and {i}$") for i in range(9)])
    plot_run(jobi_tf.Run.from_model(jobi_tf.JoBi(graph.num_entities, 2, 2), graph), tmp_path)
    shown = " ".join(re.findall("<!-- (.*?) -->", (tmp_path / "map.svg").read_text()))
    assert all(f"{name} {side}" in shown for name in names for side in ("head", "tail"))


def test_plots_of_a_run_that_was_never_ranked(run, call, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    epochs = [json.loads(line) for line in (copy / "metrics.jsonl").open()]
    unranked = [{key: value for key, value in x.items() if not key.startswith("val_")} for x in epochs]
    (copy / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in unranked))
    assert "legend" not in call("plot", copy).stderr
    assert (copy / "plots" / "curves.png").exists()


def test_nothing_is_plotted_into_the_package(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written = call("plot", "world").stdout.splitlines()
    assert "plots/map.png" in written
    assert all((tmp_path / x).exists() for x in written)


def test_the_folder_of_a_file_must_exist(run, triples, call, tmp_path):
    out = ("--out", tmp_path / "nowhere" / "file.npz")
    for arguments in (("rules", triples), ("complete", run), ("convert", run), ("report", run)):
        assert "nowhere" in call(*arguments, *out, status=2).stderr


@pytest.mark.parametrize("option", ["--split", "--columns"])
def test_plan_takes_no_options_of_files_without_them(call, option):
    sizes = ("--entities", 20, "--relations", 2, "--triples", 100)
    assert option in call("plan", *sizes, option, "0.8/0.1/0.1" if option == "--split" else "a,b,c", status=2).stderr


def test_tensorboard_tells_runs_of_one_name_apart(call, tmp_path, monkeypatch):
    paths = [tmp_path / parent / "run" for parent in ("a", "b")]
    for path in paths:
        path.mkdir(parents=True)
    (paths[0] / "logs").mkdir()
    shown = []

    def started(command):
        logs = Path(command[command.index("--logdir") + 1])
        shown.append({name: Path(logs, name).resolve() for name in ("a run", "b run", "run")})
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", started)
    call("tensorboard", *paths)
    call("tensorboard", paths[0])
    assert shown[0]["a run"] == shown[1]["run"] == paths[0]
    assert shown[0]["b run"] == paths[1]
    call("tensorboard", tmp_path / "a")
    assert shown[2]["run"] == paths[0]
    (nested := paths[0] / "b" / "run").mkdir(parents=True)
    call("tensorboard", paths[0], nested, paths[1])
    assert [x.name for x in nested.parent.iterdir()] == ["run"]
    monkeypatch.chdir(tmp_path)
    assert "runs" in call("tensorboard", status=2).stderr


@pytest.mark.processes
def test_tensorboard_starts_without_messages_of_tensorflow(run):
    command = [sys.executable, "-m", "jobi_tf", "tensorboard", run, "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stderr:
            assert not re.match(r"WARNING: All log|[IWE]\d{4} ", line)
            if line.startswith("TensorBoard") and "http://" in line:
                break
        else:
            pytest.fail("it did not start")
        process.send_signal(signal.SIGINT)
        process.stderr.read()
