import numpy as np
import pytest
import tensorflow as tf

from tests.evaluation.oracle import triple_set
from tests.export.asking import load, named, random_ids
from tests.models.oracles import oracle_scores

LOWEST = np.float32(-3.4028234663852886e38)
QUERY = {"predict_tails": ("head", "relation"), "predict_heads": ("relation", "tail")}


@pytest.fixture(scope="module")
def ask(exported):
    return load(exported.path)


def probability(exported, scores):
    fit = exported.calibration
    return 1 / (1 + np.exp(-(fit.slope * scores.astype(float) + fit.intercept)))


def test_scores_by_name_and_id(run, exported, ask):
    triples = random_ids(run.graph, 500)
    head, relation, tail = zip(*named(run.graph, triples), strict=True)
    got = ask("serving_default", head=head, relation=relation, tail=tail)
    expected = oracle_scores(run.model, triples)
    np.testing.assert_allclose(got["score"], expected, atol=1e-5)
    np.testing.assert_allclose(got["probability"], probability(exported, expected), atol=1e-5)
    assert got["known"].all()
    by_id = ask("score_ids", head=triples[:, 0], relation=triples[:, 1], tail=triples[:, 2])
    assert by_id.keys() == {"score", "probability"}
    np.testing.assert_array_equal(by_id["score"], got["score"])
    np.testing.assert_array_equal(by_id["probability"], got["probability"])


def test_an_unknown_name_is_never_row_0(ask):
    known = ("entity 0", "relation 0", "entity 1")
    rows = [known, ("who", *known[1:]), (known[0], "how", known[2]), (*known[:2], "Entity 1"), ("", "", "")]
    head, relation, tail = zip(*rows, strict=True)
    got = ask("serving_default", head=head, relation=relation, tail=tail)
    assert got["known"].tolist() == [True, False, False, False, False]
    assert (got["score"][1:] == LOWEST).all()
    assert got["score"][0] > -1e3
    assert (got["probability"][1:] == 0).all()
    assert 0 < got["probability"][0] < 1


def test_embeddings(run, ask):
    got = ask("embed", entity=["東京", "nowhere", "entity 0"])
    table = run.model.entity.numpy()
    np.testing.assert_array_equal(got["embedding"], [table[23], np.zeros(16), table[0]])
    assert got["known"].tolist() == [True, False, True]


@pytest.mark.parametrize("signature", QUERY)
def test_answers_equal_a_numpy_ordering(run, exported, ask, signature):
    graph, column = run.graph, 2 if signature == "predict_tails" else 0
    known = triple_set(*graph.splits.values())
    triples = random_ids(graph, 40, seed=1)
    triples[:20] = graph.test[:20]
    names = dict(zip(("head", "relation", "tail"), zip(*named(graph, triples), strict=True), strict=True))
    got = ask(signature, **{name: names[name] for name in QUERY[signature]})
    assert {name: x.shape for name, x in got.items()} == dict.fromkeys(
        ("tail" if column else "head", "score", "probability", "seen"), (40, 31)
    )
    for row, triple in enumerate(triples):
        candidates = np.repeat(triple[None], 31, 0)
        candidates[:, column] = np.arange(31)
        order = graph.entities.ids(got["tail" if column else "head"][row])
        assert sorted(order) == list(range(31))
        expected = oracle_scores(run.model, candidates)
        np.testing.assert_allclose(got["score"][row], expected[order], atol=1e-5)
        np.testing.assert_allclose(got["score"][row], np.sort(expected)[::-1], atol=1e-5)
        assert got["seen"][row].tolist() == [tuple(x) in known for x in candidates[order].tolist()]
    np.testing.assert_allclose(got["probability"], probability(exported, got["score"]), atol=1e-5)
    assert got["seen"].any()


@pytest.mark.parametrize(
    ("signature", "inputs", "words"),
    [
        ("predict_tails", {"head": ["entity 1", "who"], "relation": ["relation 1"] * 2}, r"unknown entity:\] \[who\]"),
        ("predict_heads", {"relation": ["how", "why"], "tail": ["0", "0"]}, r"unknown relation:\] \[how why\]"),
        ("predict_tails", {"head": ["0", "0"], "relation": ["relation 1"]}, r"each of head, relation, got\] \[2\] \[1"),
        ("serving_default", {"head": ["0"], "relation": ["relation 1"], "tail": ["0", "0"]}, r"got\] \[1\] \[1\] \[2"),
        ("score_ids", {"head": [1], "relation": [5], "tail": [2]}, r"relation ids from 0 to 4, got\] \[5\]"),
        ("score_ids", {"head": [1, -1], "relation": [1, 1], "tail": [2, 2]}, r"entity ids from 0 to 30, got\] \[-1\]"),
        ("score_ids", {"head": [1], "relation": [1], "tail": [31]}, r"entity ids from 0 to 30, got\] \[31\]"),
    ],
)
def test_refuses(ask, signature, inputs, words):
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        ask(signature, **inputs)


def test_an_empty_batch(ask):
    for signature, names in (*QUERY.items(), ("serving_default", ("head", "relation", "tail")), ("embed", ("entity",))):
        assert all(len(x) == 0 for x in ask(signature, **{name: [] for name in names}).values())
