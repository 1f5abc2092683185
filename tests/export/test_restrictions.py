import numpy as np
import pytest
import tensorflow as tf

from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.export import export, export_run, stored_model
from jobi_tf.export.lists import AnswerLists
from tests.evaluation.oracle import triple_set
from tests.export.asking import PREDICT, load, named, named_columns, query, random_ids, with_each_entity
from tests.graphs import huge_graph
from tests.models.oracles import complex_, oracle_scores

CHOSEN = [3, 4, 5, 6, 7, 23, 30]


@pytest.fixture(scope="module")
def chosen(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / "chosen.txt"
    names = [run.graph.entities[i] for i in [*CHOSEN[::-1], 3]]
    path.write_text("\ufeff" + "\r\n".join(names) + "\n\n", encoding="utf-8", newline="")
    return path


def test_a_graph_whose_facts_have_no_keys_of_64_bits_needs_candidates():
    with pytest.raises(UsageError, match="fewer candidates"):
        AnswerLists(huge_graph([[0, 0, 1]]))
    assert AnswerLists(huge_graph([[0, 0, 1]]), np.array([1], np.int32)).count == 1


def test_candidates_that_are_none_or_unknown(run, tmp_path):
    for names, words in (([], "none"), (["no one"], "'no one'"), ([1], "1")):
        with pytest.raises(DataError, match=words):
            export_run(run, tmp_path / "export", candidates=names)


@pytest.mark.parametrize(("typed", "restricted"), [(True, False), (False, True), (True, True)])
def test_only_allowed_entities_best_first(run, chosen, tmp_path, monkeypatch, typed, restricted):
    monkeypatch.setattr(stored_model, "SLICE_SCORES", 1)  # as few entities at a time as can be
    graph, known = run.graph, triple_set(*run.graph.splits.values())
    listed = [*filter(None, chosen.read_text("utf-8-sig").splitlines())] if typed else chosen
    exported = export_run(run, tmp_path, top_k=31, typed=typed, candidates=listed if restricted else None, warmup=False)
    assert (exported.typed, exported.candidates) == (typed, len(CHOSEN) if restricted else None)
    ask = load(exported.path)
    triples = np.array([[e, r, e] for e in range(5) for r in range(5)])
    for signature, (side, _, column) in PREDICT.items():
        got = ask(signature, **query(graph, triples, signature, 31))
        for row, triple in enumerate(triples):
            seen = {int(x[column]) for x in graph.train if x[1] == triple[1]}
            allowed = seen if typed else set(range(31))
            candidates = with_each_entity(triple, column, sorted(allowed & set(CHOSEN) if restricted else allowed))
            if "new" in signature:
                candidates = np.array([x for x in candidates.tolist() if tuple(x) not in known], int).reshape(-1, 3)
            count = len(candidates)
            assert {graph.entities.id(name) for name in got[side][row, :count]} == set(candidates[:, column])
            np.testing.assert_allclose(
                got["score"][row, :count], np.sort(oracle_scores(run.model, candidates))[::-1], atol=1e-5
            )
            answers = with_each_entity(triple, column, graph.entities.ids(got[side][row, :count]))
            assert got["seen"][row, :count].tolist() == [tuple(x) in known for x in answers.tolist()]
            assert (got[side][row, count:] == "").all()
            assert (got["score"][row, count:] == stored_model.UNKNOWN_SCORE).all()
            assert not got["seen"][row, count:].any()
        assert (count == 0) == typed  # the last relation occurs nowhere


def test_float16(run, tmp_path):
    exported = export_run(run, tmp_path, top_k=31, dtype="float16", warmup=False)
    variables = tf.train.load_checkpoint(str(exported.path / "variables" / "variables"))
    for name in ("entity", "relation"):
        assert variables.get_tensor(f"model/{name}/.ATTRIBUTES/VARIABLE_VALUE").dtype == np.float16
    ask, graph = load(exported.path), run.graph
    triples = random_ids(graph, 300)
    columns = named_columns(graph, triples)
    got = ask("serving_default", **columns)
    assert 0 < np.abs(got["score"] - run.score(named(graph, triples))).max() < 0.02
    answers = ask("predict_tails", **query(graph, triples[:10], "predict_tails", 31))
    for row, (head, relation, _) in enumerate(named(graph, triples[:10])):
        again = ask("serving_default", head=[head] * 31, relation=[relation] * 31, tail=answers["tail"][row])
        np.testing.assert_allclose(answers["score"][row], again["score"], atol=1e-5)
    rounded = [x.astype(np.float16).astype(float) for x in tables(run)]
    drift = exported.drift
    exact, here = (complex_scores(x, graph.valid) for x in (tables(run), rounded))
    assert drift.most == pytest.approx(np.abs(exact - here).max(), rel=0.02)
    assert drift.mean == pytest.approx(np.abs(exact - here).mean(), rel=0.02)
    assert (drift.triples, drift.queries) == (20, 40)
    assert drift.same_best == np.mean(
        [same_best(tables(run), rounded, x, side) for x in graph.valid for side in (0, 2)]
    )


def tables(run):
    return [x.table.numpy().astype(float) for x in (run.model.entities, run.model.heads[0].relations)]


def complex_scores(tables, triples):
    (entity, relation), (h, r, t) = tables, triples.T
    return complex_(entity[h], relation[r], entity[t])


def same_best(before, after, triple, column):
    candidates = with_each_entity(triple, column, range(31))
    return complex_scores(before, candidates).argmax() == complex_scores(after, candidates).argmax()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"entity 1\nentity 333\n", "names.txt:2: .*'entity 333'"),
        (b"entity 1\r\n\xff\n", "names.txt:2: .*0xff"),
        (b"\n\r\n", "names.txt"),
        (None, "names.txt"),
    ],
)
def test_bad_candidates(run, folder, tmp_path, content, match):
    path = tmp_path / "names.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=match):
        export_run(run, folder, candidates=path)
    assert not folder.parent.exists()


@pytest.mark.parametrize(("option", "value"), [("dtype", "int8"), ("top_k", 0), ("top_k", 1001), ("version", 0)])
def test_bad_options(run, folder, option, value):
    with pytest.raises(UsageError, match=str(value)):
        export_run(run, folder, **{option: value})
    assert not folder.parent.exists()


def test_weights_that_are_broken_or_too_large(run_of, folder, monkeypatch):
    monkeypatch.setattr(export, "CHECKED_ROWS", 7)
    run = run_of("distmult")
    table = run.model.entities.table.numpy()
    try:
        for value, dtype, error in (
            (np.nan, "float32", JobiError),
            (np.inf, "float32", JobiError),
            (7e4, "float16", UsageError),
        ):
            run.model.entities.table.assign(np.where(np.arange(31)[:, None] == 20, value, table))
            with pytest.raises(error):
                export_run(run, folder, dtype=dtype)
    finally:
        run.model.entities.table.assign(table)
    assert not folder.parent.exists()
