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
from jobi_tf.report.runs import store_evaluation
from tests.export.asking import PREDICT, load, named, random_ids
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


@pytest.mark.processes
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


def test_the_checkpoint_holds_two_tables_and_the_lists(run, exported):
    checkpoint = tf.train.load_checkpoint(str(exported.path / "variables" / "variables"))
    shapes = {
        name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"): shape
        for name, shape in checkpoint.get_variable_to_shape_map().items()
    }
    assert shapes.pop("_CHECKPOINTABLE_OBJECT_GRAPH") == []
    assert shapes == {
        **{"model/entity": [31, 16], "model/relation": [5, 16], "names": [31]},
        "model/lists/known": [491],  # 245 facts on both sides, and a last key
    }
    for name, table in (("entity", run.model.entities.table), ("relation", run.model.heads[0].relations.table)):
        np.testing.assert_array_equal(checkpoint.get_tensor(f"model/{name}/.ATTRIBUTES/VARIABLE_VALUE"), table.numpy())


def size(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def test_size(run, folder):
    graph = random_graph(entities=5000, relations=20, train=20_000, valid=100)
    larger = jobi_tf.Run(run.path, run.config, graph, jobi_tf.JoBi(5000, 20, dim=50))
    exported = export_run(larger, folder)
    tables, lists = 4 * (5000 + 20) * 100, 2 * 8 * (20_000 + 100 + 25) + sum(len(x) + 1 for x in graph.entities.names)
    assert size(exported.path / "variables") == pytest.approx(tables + lists, rel=0.02)
    assert (exported.path / "saved_model.pb").stat().st_size < 400_000  # no lists in the graph
    half = export_run(larger, folder, dtype="float16", warmup=False)
    assert size(half.path / "variables") == pytest.approx(tables / 2 + lists, rel=0.02)
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


def test_signature_json(exported):
    contract = json.loads((exported.path / "signature.json").read_text("utf-8"))
    ask = load(exported.path)
    expected = {
        **{"model": "complex", "graph": "tiny", "entities": 31, "relations": 5, "width": 16, "top_k": 31},
        **{"dtype": "float32", "typed": False, "candidates": None},
    }
    assert {name: contract[name] for name in expected} == expected
    assert np.float32(contract["unknown_score"]) == np.finfo(np.float32).min
    fit = exported.calibration
    assert contract["calibration"] == {
        **{"a": fit.slope, "b": fit.intercept, "ece_before": fit.ece_before, "ece_after": fit.ece_after}
    }
    loaded = tf.saved_model.load(str(exported.path)).signatures
    assert set(loaded) == {"serving_default", "score_ids", "embed", *PREDICT} == set(contract["signatures"])
    for name, about in contract["signatures"].items():
        specs = loaded[name].structured_input_signature[1], loaded[name].structured_outputs
        for part, tensors in zip(("inputs", "outputs"), specs, strict=True):
            shapes = {key: [-1 if size is None else size for size in spec.shape] for key, spec in tensors.items()}
            assert about[part] == {
                key: {"dtype": spec.dtype.name, "shape": shapes[key]} for key, spec in tensors.items()
            }
            assert {shape[0] for shape in shapes.values()} == {-1}
        answer = ask(name, **contract["examples"][name])
        assert answer.keys() == about["outputs"].keys()
        assert answer["known"].all()
        assert not any(key.endswith("_bytes") for key in answer)  # TensorFlow Serving encodes those in base64
    assert ask("predict_tails", **contract["examples"]["predict_tails"])["seen"].any()


def test_model_card(run, exported):
    card = (exported.path / "MODEL_CARD.md").read_text("utf-8")
    assert card.startswith("# tiny, version 1\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines() if line[:1] == "|"]
    table = {row[0]: row[1:] for row in rows}
    best = max(map(json.loads, (run.path / "metrics.jsonl").read_text().splitlines()), key=lambda x: x["val_mrr"])
    assert f"epoch {best['epoch']}," in card
    assert table["MRR"] == [f"{best['val_mrr']:.4f}"]
    assert (table["train triples"], table["dim"]) == (["200"], ["8"])
    assert "chunk" not in table  # which has no effect in this run
    assert str(run.path) not in card
    fit = exported.calibration
    for error in (fit.ece_before, fit.ece_after):
        assert f"{error:.4f}" in card
    low, high = fit.bins[0].low, fit.bins[0].high
    assert table[f"{low:.2f}–{high:.2f}"][1:] == [f"{fit.bins[0].probability:.3f}", f"{fit.bins[0].true:.3f}"]
    assert table["`predict_tails`"][0] == "head, relation: string [B]; k: int32 [B]"
    bodies = [line for line in card.splitlines() if line.startswith("curl ")]
    assert len(bodies) == 7
    assert "/v1/models/odd%20names:predict" in bodies[0]


def test_the_model_card_has_stored_test_metrics(run, tmp_path):
    saved = run.save(tmp_path / "run")
    evaluation = jobi_tf.evaluate(saved)
    store_evaluation(saved.path, "test", evaluation, evaluation.to_dict())
    card = (export_run(saved, tmp_path / "exports", warmup=False).path / "MODEL_CARD.md").read_text("utf-8")
    (valid, test), *_ = (line.split("|")[2:-1] for line in card.splitlines() if line.startswith("| MRR"))
    assert float(valid) == pytest.approx(max(x for x in run.history["val_mrr"] if x), abs=1e-4)
    assert float(test) == pytest.approx(evaluation.metrics()["mrr"], abs=1e-4)


def test_versions_count_up_and_are_never_overwritten(run, folder):
    for version, expected in ((None, 1), (None, 2), (7, 7), (None, 8)):
        assert export.choose_version(folder, version) == expected
        (folder / str(expected)).mkdir(parents=True)
    for version in (7, -1, 2**63, 1.5, "3"):
        with pytest.raises(UsageError, match=str(version)):
            export_run(run, folder, version)
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2", "7", "8"]


def test_a_version_that_another_export_writes_meanwhile(run, folder, monkeypatch):
    def write(*arguments):
        (folder / "1" / "assets").mkdir(parents=True)

    monkeypatch.setattr(export, "_write", write)
    with pytest.raises(UsageError, match="version 1 exists"):
        export_run(run, folder)
    assert [path.name for path in folder.iterdir()] == ["1"]


@pytest.mark.slow
def test_two_versions_in_one_process(run, run_of, folder):
    first, second = (export_run(x, folder, typed=True, warmup=False).path for x in (run, run_of("distmult")))
    asks = [load(path) for path in (first, second, second)]
    query = {"head": ["0"], "relation": ["relation 1"], "k": [5]}
    answers = [ask("predict_tails", **query)["score"] for ask in asks]
    assert (answers[0] != answers[1]).all()
    np.testing.assert_array_equal(answers[1], answers[2])
    asks[1] = None
    gc.collect()
    for i in (0, 2):
        np.testing.assert_array_equal(asks[i]("predict_tails", **query)["score"], answers[i])


def test_a_failure_leaves_nothing(run, folder, monkeypatch):
    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(export, "write_id_tables", fail)
        with pytest.raises(OSError, match="No space left"):
            export_run(run, folder)
    assert not folder.parent.exists()
    (folder / "1").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(tf.saved_model, "save", fail)
        with pytest.raises(OSError, match="No space left"):
            export_run(run, folder)
    assert [path.name for path in folder.iterdir()] == ["1"]


def test_a_file_instead_of_a_folder(run, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(UsageError, match=str(path)):
        export_run(run, path)
    with pytest.raises(NotADirectoryError):
        export_run(run, path / "versions")
    assert path.read_text() == "mine"
