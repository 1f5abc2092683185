import dataclasses
import time
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import jobi_tf
from jobi_tf.data.occurrences import SIDES, KnownAnswers
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.datasets import load_graph
from jobi_tf.errors import DataError, JobiError, UsageError
from jobi_tf.evaluation import ranker
from jobi_tf.evaluation.evaluate import evaluate, unseen_triples
from jobi_tf.evaluation.ranker import PartsRanker, Ranker
from jobi_tf.evaluation.ranks import Ranks, rank_metrics
from tests.graphs import named_graph, random_graph

from .oracle import brute_force_ranks, triple_set

BYTES = 4  # that a block takes for each candidate of a query, on a CPU

COLUMNS = {"head": 0, "tail": 2}
RULES = ["realistic", "optimistic", "pessimistic"]


@pytest.fixture(autouse=True)
def cpu(monkeypatch):
    """Blocks have the size that they have on a CPU."""
    monkeypatch.setattr(ranker, "on_gpu", lambda: False)


def run(graph, **options):
    return SimpleNamespace(graph=graph, model=jobi_tf.JoBi(graph.num_entities, graph.num_relations, 8, **options))


def constant(model, value):
    for table in model.weights:
        table.assign(np.full(table.shape, value, np.float32))


@pytest.fixture(scope="module")
def umls(tmp_path_factory, shared):
    """A coarse model: rounded embeddings score exactly in float32, and many scores are equal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBI_TF_HOME", str(tmp_path_factory.mktemp("home")))
        umls = run(load_graph("umls", archive=shared / "data" / "umls.tar.gz"))
    for table in umls.model.weights:
        table.assign(np.round(table.numpy() * 8) / 4)
    return umls


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("side", SIDES)
def test_umls_ranks_equal_brute_force(umls, side, raw):
    graph, every = umls.graph, slice(None, None, 6)
    known = set() if raw else triple_set(graph.train, graph.valid, graph.test)
    found = evaluate(umls, split="test", side=side, raw=raw).ranks[side]
    assert (found.equal > 0).mean() > 0.3  # ties are there to be broken
    for ties in RULES:
        expected = brute_force_ranks(umls.model, graph.test[every], COLUMNS[side], ties, known)
        np.testing.assert_array_equal(found.ranks(ties)[every], expected)


@pytest.mark.parametrize("side", SIDES)
def test_ranks_over_parts_of_the_table_are_those_over_the_whole(umls, side, monkeypatch):
    graph, whole = umls.graph, umls.model.entities.table.numpy()
    monkeypatch.setattr(
        "jobi_tf.evaluation.ranker.parts_of", lambda _: [tf.Variable(x) for x in np.split(whole, [50, 99])]
    )
    known, number = KnownAnswers.of_graph(graph, ("train", "valid"), graph.valid), SIDES.index(side)
    found, expected = (x(umls.model, known).rank(graph.valid, number) for x in (PartsRanker, Ranker))
    np.testing.assert_array_equal(found.greater, expected.greater)
    np.testing.assert_array_equal(found.equal, expected.equal)


@pytest.mark.parametrize("smallest", [0, ranker.WORTH_COMPILING])
@pytest.mark.parametrize("scorer", ["complex", "distmult", "simple"])
@pytest.mark.parametrize("side", SIDES)
def test_ranks_of_each_scorer_equal_brute_force(scorer, side, smallest, monkeypatch):
    monkeypatch.setattr(ranker, "WORTH_COMPILING", smallest)
    tiny = run(random_graph(), scorer=scorer)
    known = triple_set(tiny.graph.train, tiny.graph.valid)
    expected = brute_force_ranks(tiny.model, tiny.graph.valid, COLUMNS[side], "realistic", known)
    np.testing.assert_array_equal(evaluate(tiny, split="valid", side=side).ranks[side].ranks(), expected)


@pytest.mark.parametrize("value", [0.0, 0.5])
@pytest.mark.parametrize("raw", [False, True])
def test_a_constant_model_ranks_at_chance(value, raw):
    graph = random_graph(entities=40)
    flat = run(graph)
    constant(flat.model, value)
    known = set() if raw else triple_set(graph.train, graph.valid, graph.test)
    evaluation = evaluate(flat, raw=raw)
    for side, column in COLUMNS.items():
        answers = [{t[column] for t in known if t[1] == q[1] and t[2 - column] == q[2 - column]} for q in graph.test]
        # The true answer is left, and all that are not known.
        left = np.array([40 - len(x - {q[column]}) for x, q in zip(answers, graph.test, strict=True)])
        ranks = evaluation.ranks[side]
        np.testing.assert_array_equal(ranks.ranks("realistic"), (left + 1) / 2)
        np.testing.assert_array_equal(ranks.ranks("optimistic"), np.ones(len(left)))
        np.testing.assert_array_equal(ranks.ranks("pessimistic"), left)


def test_a_constant_model_whose_scores_are_rounded_ranks_at_chance():
    graph = random_graph(entities=40, valid=0, test=2000)
    flat = run(graph)
    for table in flat.model.weights:
        table.assign(np.tile(table.numpy()[:1], (table.shape[0], 1)))
    mean = evaluate(flat, raw=True).metrics()["mean_rank"]
    assert mean == pytest.approx(20.5, abs=1)


def test_ranking_changes_neither_weights_nor_filter():
    graph = random_graph()
    model = run(graph).model
    known = KnownAnswers.of_graph(graph, ["train", "valid", "test"])
    watched = [known.keys, known.answers.offsets, known.answers.entities, graph.test]
    before = [x.copy() for x in (*watched, *(w.numpy() for w in model.weights))]
    ranker = Ranker(model, known)
    first, second = (ranker.rank(graph.test, 1) for _ in range(2))
    for old, new in zip(before, (*watched, *model.weights), strict=True):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(first.ranks(), second.ranks())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("table", ["entity", "relation"])
def test_weights_that_are_not_finite_are_an_error(value, table):
    tiny = run(random_graph())
    weights = tiny.model.entities.table if table == "entity" else tiny.model.heads[0].relations.table
    broken = weights.numpy()
    broken[3 if table == "entity" else tiny.graph.test[0, 1], 0] = value
    weights.assign(broken)
    with pytest.raises(JobiError, match="finite"):
        evaluate(tiny)


def test_scores_that_overflow_are_an_error():
    tiny = run(random_graph())
    constant(tiny.model, 1e20)
    with pytest.raises(JobiError, match="finite"):
        evaluate(tiny)


def test_validation_ranks_do_not_know_the_test_split():
    graph = random_graph(entities=8, relations=2, train=30, valid=20, test=40)
    dense = run(graph)
    expected = brute_force_ranks(dense.model, graph.valid, 2, "realistic", triple_set(graph.train, graph.valid))
    asked = brute_force_ranks(dense.model, graph.valid, 2, "realistic", triple_set(*graph.splits.values()))
    assert (expected != asked).any()
    np.testing.assert_array_equal(evaluate(dense, split="valid").ranks["tail"].ranks(), expected)
    every = evaluate(dense, split="valid", filter_with=["train", "valid", "test"])
    np.testing.assert_array_equal(every.ranks["tail"].ranks(), asked)
    assert evaluate(dense, filter_with=[]).metrics() == evaluate(dense, raw=True).metrics()
    one, the_same = (evaluate(dense, split="valid", filter_with=x).metrics() for x in ("train", ["train"]))
    assert one == the_same


def test_unseen_triples_are_ranked_and_counted():
    splits = {
        "train": np.array([[0, 0, 1], [1, 0, 2]], np.int32),
        "valid": np.empty((0, 3), np.int32),
        "test": np.array([[0, 0, 2], [3, 0, 1], [1, 0, 3], [0, 1, 1], [3, 1, 4]], np.int32),
    }
    graph = named_graph(splits, 5, 2)
    assert unseen_triples(graph, graph.test).tolist() == [False, True, True, True, True]
    found = evaluate(run(graph)).to_dict()
    assert (found["triples"], found["unseen_triples"]) == (5, 4)
    with pytest.raises(DataError, match="valid"):
        evaluate(run(graph), split="valid")


def test_the_json_object():
    tiny = run(random_graph())
    evaluation = evaluate(tiny)
    found = evaluation.to_dict("pessimistic")
    metrics = {"mrr", "hits@1", "hits@3", "hits@10", "mean_rank"}
    counts = {"triples", "unseen_triples", "triples_per_second", "ties", "side", "split"}
    assert found.keys() == metrics | counts | {"head", "tail"}
    assert found["head"].keys() == found["tail"].keys() == metrics
    assert [found[x] for x in ("ties", "side", "split", "triples")] == ["pessimistic", "both", "test", 25]
    for name in metrics:
        assert found[name] == pytest.approx((found["head"][name] + found["tail"][name]) / 2)
    assert found["mrr"] <= evaluation.metrics("optimistic")["mrr"]
    one_side = evaluate(tiny, side="tail").to_dict("pessimistic")
    assert one_side["side"] == "tail"
    assert "head" not in one_side
    assert one_side["mrr"] == one_side["tail"]["mrr"] == found["tail"]["mrr"]


def test_metrics_of_each_relation_add_up():
    evaluation = evaluate(run(random_graph()))
    by_relation = evaluation.by_relation()
    counts = [x["triples"] for x in by_relation.values()]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == 25
    assert sum(x["mrr"] * x["triples"] for x in by_relation.values()) / 25 == pytest.approx(evaluation.metrics()["mrr"])


def test_metrics_by_hand():
    found = rank_metrics(np.array([1, 2, 4, 10.5]))
    assert found == pytest.approx(
        {"mrr": (1 + 1 / 2 + 1 / 4 + 1 / 10.5) / 4, "hits@1": 0.25, "hits@3": 0.5, "hits@10": 0.75, "mean_rank": 4.375}
    )
    assert np.isnan(rank_metrics(np.empty(0))["mrr"])


def test_progress_counts_every_triple():
    seen: list[int] = []
    evaluate(run(random_graph()), side="head", memory_budget=BYTES * 30 * 10, progress=seen.append)
    assert seen == [10, 9, 3, 3]  # nineteen triples have a query of their own; scores of the others are copied twice


def test_wrong_arguments_are_refused():
    tiny = run(random_graph())
    with pytest.raises(UsageError, match=r"side .*'left'"):
        evaluate(tiny, side="left")
    with pytest.raises(UsageError, match=r"raw .*filter_with"):
        evaluate(tiny, raw=True, filter_with=["train"])
    with pytest.raises(UsageError, match=r"graph .*'test'"):
        evaluate(tiny.model, "test")
    others = dataclasses.replace(tiny.graph, entities=Vocabulary(tiny.graph.entities.names[::-1], "entity"))
    with pytest.raises(UsageError, match="other ids"):
        evaluate(tiny, others)
    with pytest.raises(DataError, match="''"):
        evaluate(tiny, split="")
    with pytest.raises(UsageError, match=r"ties .*'fair'"):
        Ranks(np.zeros(1), np.zeros(1)).ranks("fair")


@pytest.mark.parametrize("side", SIDES)
def test_triples_of_one_query_are_ranked_as_alone(side):
    """Many triples for each query, in blocks that end within a query."""
    tiny = run(random_graph(entities=12, relations=2, train=20, valid=0, test=150))
    known = triple_set(*tiny.graph.splits.values())
    ranker = Ranker(tiny.model, KnownAnswers.of_graph(tiny.graph, tiny.graph.splits), memory_budget=BYTES * 12 * 7)
    assert ranker.block == 7
    expected = brute_force_ranks(tiny.model, tiny.graph.test, COLUMNS[side], "realistic", known)
    np.testing.assert_array_equal(ranker.rank(tiny.graph.test, SIDES.index(side)).ranks(), expected)


@pytest.mark.parametrize("side", SIDES)
def test_ranks_do_not_depend_on_where_a_block_ends(side):
    """Such as after the first triple of a query that has several, when all others in the block have one."""
    tiny, number = run(random_graph(test=60)), SIDES.index(side)
    known = KnownAnswers.of_graph(tiny.graph, tiny.graph.splits)
    whole = Ranker(tiny.model, known).rank(tiny.graph.test, number)
    for block in range(1, 9):
        found = Ranker(tiny.model, known, memory_budget=BYTES * 30 * block).rank(tiny.graph.test, number)
        np.testing.assert_array_equal(found.greater, whole.greater)
        np.testing.assert_array_equal(found.equal, whole.equal)


@pytest.mark.parametrize("side", SIDES)
def test_ranks_are_the_same_with_two_blocks_at_once(side, monkeypatch):
    tiny, number = run(random_graph(test=60)), SIDES.index(side)
    known = KnownAnswers.of_graph(tiny.graph, tiny.graph.splits)
    whole = Ranker(tiny.model, known).rank(tiny.graph.test, number)
    monkeypatch.setattr(ranker, "FAST_BYTES", 0)
    monkeypatch.setattr(ranker, "LEAST_QUERIES", 7)  # of a block
    done = []
    several = Ranker(tiny.model, known)
    assert several._at_once == 2
    found = several.rank(tiny.graph.test, number, done.append)
    np.testing.assert_array_equal([found.greater, found.equal], [whole.greater, whole.equal])
    assert (sum(done), max(done)) == (60, 7)


def test_no_further_blocks_are_ranked_after_an_interruption(monkeypatch):
    tiny, counted = run(random_graph(test=60)), []
    monkeypatch.setattr(ranker, "FAST_BYTES", 0)
    monkeypatch.setattr(ranker, "LEAST_QUERIES", 1)
    several = Ranker(tiny.model, KnownAnswers.of_graph(tiny.graph, ()))
    prepare = several._arguments

    def slowly(*block):
        counted.append(block)
        time.sleep(0.05)
        return prepare(*block)

    def interrupt(done):
        raise KeyboardInterrupt

    monkeypatch.setattr(several, "_arguments", slowly)
    with pytest.raises(KeyboardInterrupt):
        several.rank(tiny.graph.test, 0, interrupt)
    assert len(counted) < 60


@pytest.mark.parametrize("smallest", [0, ranker.WORTH_COMPILING])
@pytest.mark.parametrize("side", SIDES)
def test_ranks_among_candidates(side, smallest, monkeypatch):
    monkeypatch.setattr(ranker, "WORTH_COMPILING", smallest)
    tiny, chosen = run(random_graph()), np.array([1, 4, 7, 20, 29])
    found = evaluate(tiny, side=side, candidates=chosen).ranks[side]
    known, column = triple_set(*tiny.graph.splits.values()), COLUMNS[side]
    for triple, rank in zip(tiny.graph.test, found.ranks(), strict=True):
        others = [e for e in chosen if e != triple[column]]
        others = [e for e in others if (*triple[:column], e, *triple[column + 1 :]) not in known]
        rows = np.array([(*triple[:column], e, *triple[column + 1 :]) for e in (triple[column], *others)])
        scores = tiny.model.score(rows).numpy()
        assert rank == 1 + (scores[1:] > scores[0]).sum()
    names = [tiny.graph.entities[i] for i in chosen]
    by_name = evaluate(tiny, side=side, candidates=names).ranks[side]
    np.testing.assert_array_equal(by_name.ranks(), found.ranks())


def test_given_triples_and_a_model_with_its_graph():
    tiny = run(random_graph())
    chosen = tiny.graph.test[3:9]
    names = [(f"entity {h}", f"relation {r}", f"entity {t}") for h, r, t in chosen]
    whole = evaluate(tiny.model, tiny.graph).ranks["tail"].ranks()
    for triples in (chosen, names):
        found = evaluate(tiny.model, tiny.graph, triples=triples)
        np.testing.assert_array_equal(found.triples, chosen)
        np.testing.assert_array_equal(found.ranks["tail"].ranks(), whole[3:9])
    without = dataclasses.replace(tiny.graph, splits=tiny.graph.splits | {"test": tiny.graph.test[:0]})
    found = evaluate(tiny.model, without, triples=tiny.graph.test)  # which are known answers nevertheless
    np.testing.assert_array_equal(found.ranks["tail"].ranks(), whole)
    with pytest.raises(DataError, match="entity 99"):
        evaluate(tiny, triples=[("entity 99", "relation 0", "entity 1")])
    with pytest.raises(UsageError, match="both"):
        evaluate(tiny, split="valid", triples=chosen)
    with pytest.raises(UsageError, match="'runs/tiny'"):
        evaluate("runs/tiny")


def test_ranking_turns_tensor_float_32_off_and_on_again(monkeypatch):
    tiny, states = run(random_graph()), []
    enabled = tf.config.experimental.tensor_float_32_execution_enabled
    count = Ranker._counts
    monkeypatch.setattr(Ranker, "_counts", lambda *x: states.append(enabled()) or count(*x))
    evaluate(tiny)
    assert not any(states)
    assert enabled()


def test_an_evaluation_is_a_line_and_a_table():
    evaluation = evaluate(run(random_graph()))
    assert repr(evaluation).count("\n") == 0
    assert f"{evaluation.metrics()['mrr']:.4f}" in repr(evaluation)
    assert evaluation._repr_html_().startswith("<table>")
    frame = evaluation.to_frame()
    assert frame.loc["head", "mrr"] == evaluation.to_dict()["head"]["mrr"]
    assert list(frame.index) == ["both", "head", "tail"]
