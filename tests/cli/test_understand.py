import json

import numpy as np
import pytest

import jobi_tf
from jobi_tf.training.vectors import read_vectors

TRIPLE = ("--head", "town 1", "--relation", "near", "--tail", "town 2")


def test_neighbors_are_those_of_the_run(run, call):
    rows = json.loads(call("neighbors", run, "town 1", "-k", 3, "--json").stdout)
    expected = jobi_tf.load_run(run).nearest("town 1", 3)
    assert [row["entity"] for row in rows] == [x.entity for x in expected]
    assert "town" in call("neighbors", "--run-dir", run, "town 1").stdout
    assert call("neighbors", run, status=2).stderr


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


def test_complete_streams_new_triples(run, call, tmp_path):
    graph = jobi_tf.load_run(run).graph
    facts = {tuple(x) for part in graph.splits.values() for x in part.tolist()}
    lines = [x.split("\t") for x in call("complete", run, "-k", 7).stdout.splitlines()]
    assert len(lines) == 7
    assert not facts & {tuple(x) for x in graph.ids_of_triples([line[:3] for line in lines]).tolist()}
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


def test_convert_refuses_another_format(run, call, tmp_path):
    assert call("convert", run, "--out", tmp_path / "x.csv", status=2).stderr


def test_plots_are_written_as_png_and_svg(run, call, tmp_path):
    call("plot", run, "--out", tmp_path / "plots")
    assert {x.name for x in (tmp_path / "plots").iterdir()} == {
        f"{name}.{suffix}" for name in ("curves", "map", "relations") for suffix in ("png", "svg")
    }
