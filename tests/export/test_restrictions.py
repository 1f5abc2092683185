import numpy as np
import pytest
import tensorflow as tf

from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.export import export_run, servable
from tests.export.asking import load, named, random_ids
from tests.models.oracles import oracle_scores

CHOSEN = [3, 4, 5, 6, 7, 23, 30]


@pytest.fixture(scope="module")
def chosen(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / "chosen.txt"
    names = [run.graph.entities[i] for i in [*CHOSEN[::-1], 3]]
    path.write_text("\ufeff" + "\r\n".join(names) + "\n\n", encoding="utf-8", newline="")
    return path


def seen_in_training(graph, relation, column):
    return {int(triple[column]) for triple in graph.train if triple[1] == relation}


@pytest.mark.parametrize(("typed", "restricted"), [(True, False), (False, True), (True, True)])
def test_only_allowed_entities_best_first(run, chosen, tmp_path, typed, restricted):
    graph = run.graph
    exported = export_run(run, tmp_path, top_k=31, typed=typed, candidates=chosen if restricted else None, warmup=False)
    assert (exported.typed, exported.candidates) == (typed, len(CHOSEN) if restricted else None)
    ask = load(exported.path)
    triples = np.array([[h, r, 0] for h in range(5) for r in range(5)])
    head, relation, _ = zip(*named(graph, triples), strict=True)
    for signature, side, column, anchor in (("predict_tails", "tail", 2, "head"), ("predict_heads", "head", 0, "tail")):
        got = ask(signature, **{anchor: head, "relation": relation})
        for row, (entity, relation_id, _) in enumerate(triples):
            allowed = seen_in_training(graph, relation_id, column) if typed else set(range(31))
            allowed &= set(CHOSEN) if restricted else allowed
            candidates = np.array(
                [[entity, relation_id, x] if column else [x, relation_id, entity] for x in allowed], int
            )
            scores = oracle_scores(run.model, candidates.reshape(-1, 3))
            count = len(allowed)
            assert {graph.entities.id(name) for name in got[side][row][:count]} == allowed
            np.testing.assert_allclose(got["score"][row][:count], np.sort(scores)[::-1], atol=1e-5)
            assert (got[side][row][count:] == "").all()
            assert (got["score"][row][count:] == servable.UNKNOWN_SCORE).all()
            assert (got["probability"][row][count:] == 0).all()
            assert not got["seen"][row][count:].any()
    assert (count == 0) == typed  # the last relation occurs nowhere


def test_fewer_answers_than_entities(run, chosen, tmp_path):
    ask = load(export_run(run, tmp_path, top_k=2, candidates=chosen, warmup=False).path)
    every = load(export_run(run, tmp_path, top_k=31, candidates=chosen, warmup=False).path)
    query = {"head": ["0", "-1"], "relation": ["relation 1", "relation 2"]}
    got, expected = ask("predict_tails", **query), every("predict_tails", **query)
    for name in ("tail", "seen"):
        np.testing.assert_array_equal(got[name], expected[name][:, :2])
    for name in ("score", "probability"):
        np.testing.assert_allclose(got[name], expected[name][:, :2], rtol=1e-6)


@pytest.mark.parametrize("rows", [7, 2**16])
def test_float16(run, tmp_path, monkeypatch, rows):
    monkeypatch.setattr(servable, "CAST_ROWS", rows)
    exported = export_run(run, tmp_path, top_k=31, dtype="float16", warmup=False)
    variables = tf.train.load_checkpoint(str(exported.path / "variables" / "variables"))
    assert {variables.get_tensor(name).dtype for name in variables.get_variable_to_shape_map() if "VALUE" in name} == {
        np.dtype(np.float16)
    }
    ask = load(exported.path)
    triples = random_ids(run.graph, 300)
    head, relation, tail = zip(*named(run.graph, triples), strict=True)
    got = ask("serving_default", head=head, relation=relation, tail=tail)
    assert 0 < np.abs(got["score"] - run.score(named(run.graph, triples))).max() < 0.02
    answers = ask("predict_tails", head=head[:10], relation=relation[:10])
    for row in range(10):
        again = ask("serving_default", head=[head[row]] * 31, relation=[relation[row]] * 31, tail=answers["tail"][row])
        np.testing.assert_allclose(answers["score"][row], again["score"], atol=1e-5)
    rounded = {name: x.astype(np.float16).astype(float) for name, x in tables(run).items()}
    drift = exported.drift
    exact, here = (complex_scores(x, run.graph.valid) for x in (tables(run), rounded))
    assert drift.most == pytest.approx(np.abs(exact - here).max(), rel=0.02)
    assert drift.mean == pytest.approx(np.abs(exact - here).mean(), rel=0.02)
    assert (drift.triples, drift.queries) == (20, 40)
    assert drift.same_best == np.mean(
        [same_best(tables(run), rounded, x, side) for x in run.graph.valid for side in (0, 2)]
    )


def tables(run):
    return {name: getattr(run.model, name).numpy() for name in ("entity", "triple_relation")}


def complex_scores(tables, triples):
    entity, relation = (x.astype(float) for x in tables.values())
    h, r, t = (
        (x[:, :8] + 1j * x[:, 8:]) for x in (entity[triples[:, 0]], relation[triples[:, 1]], entity[triples[:, 2]])
    )
    return (h * r * t.conj()).sum(-1).real


def same_best(before, after, triple, column):
    candidates = np.repeat(triple[None], 31, 0)
    candidates[:, column] = np.arange(31)
    return complex_scores(before, candidates).argmax() == complex_scores(after, candidates).argmax()


def test_float32_does_not_drift(exported):
    assert exported.drift is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"entity 1\nentity 333\n", "names.txt:2: unknown entity 'entity 333'.*did you mean 'entity 3'"),
        (b"entity 1\r\n\xff\n", "names.txt:2: expected text in UTF-8, got byte 0xff"),
        (b"\n\r\n", "expected names of entities in .*names.txt, one a line, found none"),
        (None, "expected a file of entities at .*names.txt: No such file"),
    ],
)
def test_refuses_candidates(run, folder, tmp_path, content, words):
    path = tmp_path / "names.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        export_run(run, folder, candidates=path)
    assert not folder.parent.exists()


def test_refuses_options(run, folder):
    with pytest.raises(UsageError, match="expected a type of the tables out of float32, float16, got 'int8'"):
        export_run(run, folder, dtype="int8")
    for top_k in (0, 32):
        with pytest.raises(UsageError, match=f"expected from 1 to 31 answers a query .top-k., got {top_k}"):
            export_run(run, folder, top_k=top_k)
    assert not folder.parent.exists()


def test_refuses_weights_that_are_broken_or_too_large(run_of, folder, monkeypatch):
    run = run_of("distmult")
    table = run.model.entity.numpy()
    try:
        run.model.entity.assign(np.where(np.arange(31)[:, None] == 3, np.nan, table))
        with pytest.raises(JobiError, match="expected finite weights, got NaN"):
            export_run(run, folder)
        run.model.entity.assign(np.where(np.arange(31)[:, None] == 3, 70000, table))
        with pytest.raises(UsageError, match="expected weights up to 65,504 for float16, got 70,000"):
            export_run(run, folder, dtype="float16")
    finally:
        run.model.entity.assign(table)
    assert not folder.parent.exists()
