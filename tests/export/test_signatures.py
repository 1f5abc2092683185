import numpy as np
import pytest
import tensorflow as tf

from jobi_tf.export import export_run, stored_model
from tests.evaluation.oracle import triple_set
from tests.export.asking import PREDICT, load, named_columns, query, random_ids, with_each_entity
from tests.models.oracles import oracle_scores

LOWEST = np.finfo(np.float32).min


@pytest.fixture(scope="module")
def ask(exported):
    return load(exported.path)


def probability(exported, scores):
    fit = exported.calibration
    return 1 / (1 + np.exp(-(fit.slope * scores.astype(float) + fit.intercept)))


def test_scores_by_name_and_id(run, exported, ask):
    triples = random_ids(run.graph, 500)
    got = ask("serving_default", **named_columns(run.graph, triples))
    expected = oracle_scores(run.model, triples)
    np.testing.assert_allclose(got["score"], expected, atol=1e-5)
    np.testing.assert_allclose(got["probability"], probability(exported, expected), atol=1e-5)
    assert got["known"].all()
    by_id = ask("score_ids", head=triples[:, 0], relation=triples[:, 1], tail=triples[:, 2])
    assert by_id.keys() == got.keys()
    for name, values in by_id.items():
        np.testing.assert_array_equal(values, got[name])


def test_unknown_names_and_ids_are_data(ask):
    known = ("entity 0", "relation 0", "entity 1")
    rows = [known, ("who", *known[1:]), (known[0], "how", known[2]), (*known[:2], "Entity 1"), ("", "", "")]
    head, relation, tail = zip(*rows, strict=True)
    by_name = ask("serving_default", head=head, relation=relation, tail=tail)
    by_id = ask("score_ids", head=[0, 31, 0, 0, -1], relation=[0, 0, 5, 0, -1], tail=[1, 1, 1, -1, 2**31 - 1])
    for got in (by_name, by_id):
        assert got["known"].tolist() == [True, False, False, False, False]
        assert (got["score"][1:] == LOWEST).all()
        assert got["score"][0] > -1e3
        assert (got["probability"][1:] == 0).all()
        assert 0 < got["probability"][0] < 1


def test_embeddings(run, ask):
    got = ask("embed", entity=["東京", "nowhere", "entity 0"])
    table = run.model.entities.table.numpy()
    np.testing.assert_array_equal(got["embedding"], [table[23], np.zeros(16), table[0]])
    assert got["known"].tolist() == [True, False, True]


@pytest.fixture(scope="module")
def ask_sliced(run, exported):
    """Queries an export with two slices: the smallest ones hold 16 of the 31 entities."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_model, "SLICE_SCORES", 1)
        patch.setattr(stored_model, "ROWS", 7)
        return load(export_run(run, exported.path.parent, top_k=31, warmup=False).path)


@pytest.mark.parametrize("signature", PREDICT)
@pytest.mark.parametrize("sliced", [False, True])
def test_answers_equal_a_numpy_ordering(run, exported, request, signature, sliced):
    graph, (side, _, column) = run.graph, PREDICT[signature]
    ask = request.getfixturevalue("ask_sliced" if sliced else "ask")
    known = triple_set(*graph.splits.values())
    triples = random_ids(graph, 40, seed=1)
    triples[:20] = graph.test[:20]
    ks = np.random.default_rng(2).integers(0, 32, 40).tolist()
    inputs = query(graph, triples, signature, ks)
    inputs["relation"][3] = inputs[{"tail": "head", "head": "tail"}[side]][4] = "nothing"
    got = ask(signature, **inputs)
    assert {name: x.shape for name, x in got.items()} == {
        **dict.fromkeys((side, "score", "probability", "seen"), (40, max(ks))),
        "known": (40,),
    }
    assert got["known"].tolist() == [row not in (3, 4) for row in range(40)]
    for row, (triple, k) in enumerate(zip(triples, ks, strict=True)):
        candidates = with_each_entity(triple, column, range(31))
        if "new" in signature:
            candidates = np.array([x for x in candidates if tuple(x) not in known])
        count = 0 if row in (3, 4) else min(k, len(candidates))
        expected = np.sort(oracle_scores(run.model, candidates))[::-1][:count]
        answers = with_each_entity(triple, column, graph.entities.ids(got[side][row, :count]))
        assert len(triple_set(answers)) == count
        np.testing.assert_allclose(got["score"][row, :count], expected, atol=1e-5)
        np.testing.assert_allclose(got["score"][row, :count], oracle_scores(run.model, answers), atol=1e-5)
        np.testing.assert_allclose(got["probability"][row, :count], probability(exported, expected), atol=1e-5)
        assert got["seen"][row, :count].tolist() == [tuple(x) in known for x in answers.tolist()]
        for name, nothing in ((side, ""), ("score", LOWEST), ("probability", 0), ("seen", False)):
            assert (got[name][row, count:] == nothing).all()
    assert got["seen"].any() == ("new" not in signature)


def test_k_is_clamped(ask):
    inputs = {"head": ["entity 1"] * 3, "relation": ["relation 1"] * 3}
    got = ask("predict_tails", **inputs, k=[-5, 2, 10**6])
    assert (got["tail"] != "").sum(1).tolist() == [0, 2, 31]
    assert got["tail"].shape == (3, 31)
    assert {name: x.shape for name, x in ask("predict_tails", **inputs, k=[0, -1, 0]).items()} == {
        **dict.fromkeys(("tail", "score", "probability", "seen"), (3, 0)),
        "known": (3,),
    }


@pytest.mark.parametrize(
    ("signature", "inputs"),
    [
        ("predict_tails", {"head": ["0", "0"], "relation": ["relation 1"], "k": [1, 1]}),
        ("predict_new_heads", {"relation": ["relation 1"] * 2, "tail": ["0", "0"], "k": [1]}),
        ("serving_default", {"head": ["0"], "relation": ["relation 1"], "tail": ["0", "0"]}),
        ("score_ids", {"head": [1, 2], "relation": [1], "tail": [2, 3]}),
    ],
)
def test_inputs_of_different_lengths_are_an_error(ask, signature, inputs):
    with pytest.raises(tf.errors.InvalidArgumentError):
        ask(signature, **inputs)


def test_an_empty_batch(ask):
    for signature, (_, inputs, _) in PREDICT.items():
        outputs = ask(signature, **{name: [] for name in (*inputs, "k")})
        assert {x.shape for x in outputs.values()} == {(0, 0), (0,)}
    for signature, inputs in (("serving_default", ("head", "relation", "tail")), ("embed", ("entity",))):
        assert all(len(x) == 0 for x in ask(signature, **{name: [] for name in inputs}).values())
