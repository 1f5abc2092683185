import gc
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.errors import UsageError
from jobi_tf.export import export, export_run
from tests.export.asking import load, named, random_ids
from tests.graphs import random_graph

ALONE = """
import json, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "jobi_tf":
            raise ImportError(name)

sys.meta_path.insert(0, Blocker())
import tensorflow as tf

triples = json.load(sys.stdin)
inputs = dict(zip(("head", "relation", "tail"), map(tf.constant, zip(*triples))))
score = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
print(json.dumps(score(**inputs)["score"].numpy().tolist()))
try:
    import jobi_tf
except ImportError:
    print("alone")
"""


def test_a_moved_export_alone_gives_the_scores_of_the_run(run, exported, tmp_path):
    moved = tmp_path / "moved" / "7"
    shutil.copytree(exported.path, moved)
    hidden = exported.path.rename(exported.path.with_name("hidden"))
    try:
        triples = named(run.graph, random_ids(run.graph, 10_000))
        command = [sys.executable, "-c", ALONE, str(moved)]
        done = subprocess.run(
            command, input=json.dumps(triples), capture_output=True, text=True, check=False, cwd=tmp_path
        )
    finally:
        hidden.rename(exported.path)
    assert done.returncode == 0, done.stderr[-2000:]
    scores, alone = done.stdout.splitlines()
    assert alone == "alone"
    np.testing.assert_allclose(json.loads(scores), run.score(triples), atol=1e-5)


def test_the_checkpoint_holds_two_tables_and_nothing_else(run, exported):
    checkpoint = tf.train.load_checkpoint(str(exported.path / "variables" / "variables"))
    shapes = checkpoint.get_variable_to_shape_map()
    assert shapes.pop("_CHECKPOINTABLE_OBJECT_GRAPH") == []
    assert {name.split("/")[0]: shape for name, shape in shapes.items()} == {"entity": [31, 16], "relation": [5, 16]}
    assert len(shapes) == 2
    for name in shapes:
        table = {"entity": run.model.entity, "relation": run.model.triple_relation}[name.split("/")[0]]
        np.testing.assert_array_equal(checkpoint.get_tensor(name), table.numpy())


def size(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def test_variables_are_as_large_as_the_two_tables(run, folder):
    graph = random_graph(entities=5000, relations=20, train=20_000, valid=100)
    model = jobi_tf.JoBi(5000, 20, dim=50)
    larger = jobi_tf.Run(run.path, run.config, graph, model)
    exported = export_run(larger, folder)
    tables = 4 * (5000 + 20) * 100
    assert size(exported.path / "variables") == pytest.approx(tables, rel=0.01)
    assert (exported.path / "saved_model.pb").stat().st_size < 200_000  # no list of triples in the graph
    assert (exported.path / "assets" / "known.bin").stat().st_size == 8 * (20_000 + 100 + 25)
    half = export_run(larger, folder, dtype="float16", warmup=False)
    assert size(half.path / "variables") == pytest.approx(tables / 2, rel=0.01)
    assert half.size == size(half.path)


def test_files(run, exported):
    assert (exported.path.name, exported.version) == ("1", 1)
    assert {path.name for path in exported.path.iterdir()} == {
        *("saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra"),
        *("MODEL_CARD.md", "signature.json", "entities.tsv", "relations.tsv"),
    }
    graph = run.graph
    assert (exported.path / "assets" / "entities.txt").read_text("utf-8").split("\n") == [*graph.entities.names, ""]
    for name, vocabulary, columns in (("entities", graph.entities, (0, 2)), ("relations", graph.relations, (1,))):
        header, *lines, end = (exported.path / f"{name}.tsv").read_text("utf-8").split("\n")
        assert (header, end) == ("id\tname\ttriples", "")
        counts = [sum(i in triple[list(columns)] for triple in graph.train) for i in range(len(vocabulary))]
        assert lines == [f"{i}\t{name}\t{counts[i]}" for i, name in enumerate(vocabulary.names)]


def test_signature_json(run, exported):
    text = (exported.path / "signature.json").read_text("utf-8")
    contract = json.loads(text)
    ask = load(exported.path)
    assert {
        name: contract[name] for name in ("model", "graph", "entities", "relations", "width", "top_k", "dtype")
    } == {
        **{"model": "complex", "graph": "tiny", "entities": 31, "relations": 5},
        **{"width": 16, "top_k": 31, "dtype": "float32"},
    }
    assert (contract["typed"], contract["candidates"]) == (False, None)
    assert np.float32(contract["unknown_score"]) == np.finfo(np.float32).min
    fit = exported.calibration
    assert contract["calibration"] == {
        **{"a": fit.slope, "b": fit.intercept, "ece_before": fit.ece_before, "ece_after": fit.ece_after}
    }
    signatures = contract["signatures"]
    assert list(signatures) == ["serving_default", "score_ids", "predict_tails", "predict_heads", "embed"]
    loaded = tf.saved_model.load(str(exported.path)).signatures
    assert set(loaded) == set(signatures)
    for name, about in signatures.items():
        specs = loaded[name].structured_input_signature[1], loaded[name].structured_outputs
        for part, tensors in zip(("inputs", "outputs"), specs, strict=True):
            assert about[part] == {
                key: {"dtype": spec.dtype.name, "shape": [-1, *spec.shape[1:]]} for key, spec in tensors.items()
            }
        answer = ask(name, **contract["examples"][name])
        assert answer.keys() == about["outputs"].keys()
        assert len(answer) >= 2
        assert not any(key.endswith("_bytes") for key in answer)
    assert ask("serving_default", **contract["examples"]["serving_default"])["known"].all()
    assert ask("predict_tails", **contract["examples"]["predict_tails"])["seen"].any()


def test_model_card(run, exported):
    card = (exported.path / "MODEL_CARD.md").read_text("utf-8")
    assert card.startswith("# tiny, version 1\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines() if line[:1] == "|"]
    table = {row[0]: row[1:] for row in rows}
    best = max(map(json.loads, (run.path / "metrics.jsonl").read_text().splitlines()), key=lambda x: x["val_hits@10"])
    assert f"after epoch {best['epoch']}," in card
    assert table["MRR"] == [f"{best['val_mrr']:.4f}"]
    assert (table["train triples"], table["of these without a training triple"], table["dim"]) == (
        ["200"],
        ["1"],
        ["8"],
    )
    assert str(run.path) not in card
    fit = exported.calibration
    assert f"{fit.ece_before:.4f} for sigmoid(score), {fit.ece_after:.4f} for the probability" in card
    low, high = fit.bins[0].low, fit.bins[0].high
    assert table[f"{low:.2f}–{high:.2f}"][1:] == [f"{fit.bins[0].probability:.3f}", f"{fit.bins[0].true:.3f}"]
    bodies = [line for line in card.splitlines() if line.startswith("curl ")]
    assert len(bodies) == 5
    assert "/v1/models/odd:predict" in bodies[0]


def test_versions_count_up_and_are_never_overwritten(run, folder):
    versions = [export_run(run, folder, version, warmup=False).version for version in (None, None, 7, None)]
    assert versions == [1, 2, 7, 8]
    for version, words in (
        (7, "expected a new version, 7 is in .*versions already; the next one is 9"),
        (0, "from 1 to"),
    ):
        with pytest.raises(UsageError, match=words):
            export_run(run, folder, version)
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2", "7", "8"]


def test_two_versions_in_one_process(run, run_of, folder):
    first, second = (export_run(x, folder, typed=True, warmup=False).path for x in (run, run_of("distmult")))
    query = {"head": tf.constant(["0"]), "relation": tf.constant(["relation 1"])}
    models = [tf.saved_model.load(str(path)) for path in (first, second, second)]
    asks = [model.signatures["predict_tails"] for model in models]
    answers = [ask(**query)["score"].numpy() for ask in asks]
    assert (answers[0] != answers[1]).all()
    np.testing.assert_array_equal(answers[1], answers[2])
    models[1].release()
    with pytest.raises(tf.errors.OpError):
        asks[1](**query)
    del models  # signatures alone go on
    gc.collect()
    for i in (0, 2):
        np.testing.assert_array_equal(asks[i](**query)["score"], answers[i])


def test_a_failure_leaves_nothing(run, folder, monkeypatch):
    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(export, "write_tables", fail)
        with pytest.raises(OSError, match="No space left"):
            export_run(run, folder)
    assert not folder.parent.exists()
    export_run(run, folder, warmup=False)
    with monkeypatch.context() as patch:
        patch.setattr(tf.saved_model, "save", fail)
        with pytest.raises(OSError, match="No space left"):
            export_run(run, folder)
    assert [path.name for path in folder.iterdir()] == ["1"]


def test_refuses_a_file(run, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(UsageError, match=f"expected a folder for the versions, {path} is a file"):
        export_run(run, path)
    with pytest.raises(NotADirectoryError):
        export_run(run, path / "versions")
    assert path.read_text() == "mine"
