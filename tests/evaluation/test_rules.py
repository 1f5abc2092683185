"""Rules, compared with rules that are counted triple by triple."""

import itertools
import math

import numpy as np
import pytest

import jobi_tf
from jobi_tf.errors import UsageError
from tests.graphs import named_graph, random_graph

GRAPH = random_graph(entities=25, relations=3, train=240, valid=20, test=40)


def confidence(hits, body):
    return hits / (body + 5)


def rules_by_hand(graph):
    """Yields (head relation, inverse, group, predictions by entity, confidence) of each rule with two hits."""
    entities, count = range(graph.num_entities), graph.num_relations
    facts = {r: {(h, t) for h, x, t in graph.train.tolist() if x == r and h != t} for r in range(count)}
    edges = facts | {r + count: {(t, h) for h, t in pairs} for r, pairs in facts.items()}
    bodies = [(a, None, edges[a]) for a in edges]
    bodies += [
        (a, b, {(x, y) for x, z in edges[a] for w, y in edges[b] if z == w and x != y})
        for a, b in itertools.product(edges, edges)
    ]
    for label in edges:
        for a, b, pairs in bodies:
            hits = len(pairs & edges[label])
            if hits > 1 and (a, b) != (label, None):
                yield label, a, lambda x, pairs=pairs: {y for w, y in pairs if w == x}, confidence(hits, len(pairs))
        for other, d in itertools.product(edges, [None, *entities]):
            body = {x for x, y in edges[other] if d in (None, y)}
            for c in entities:
                hits = len({x for x in body if (x, c) in edges[label]})
                if hits > 1 and (other, d) != (label, c):
                    always = other == label and d is None
                    fires = lambda x, body=body, c=c, always=always: {c} if always or x in body else set()  # noqa: E731
                    yield label, "constant", fires, confidence(hits, len(body))
                    fires = lambda x, body=body, c=c: body if x == c else set()  # noqa: E731
                    yield (label + count) % (2 * count), "X", fires, confidence(hits, len(body))


RULES = list(rules_by_hand(GRAPH))
MODEL = jobi_tf.RuleModel(GRAPH)


def scores_by_hand(entity, label):
    groups = [{} for _ in range(GRAPH.num_entities)]
    for of, group, fires, value in RULES:
        if of == label and value >= 0.01:
            for candidate in fires(entity):
                groups[candidate][group] = max(value, groups[candidate].get(group, 0))
    return [-sum(math.log1p(-x) for x in sorted(best.values())[-5:]) for best in groups]


@pytest.mark.parametrize("side", [0, 1])
def test_scores_are_those_of_rules_counted_by_hand(side):
    triples = np.concatenate([GRAPH.test, GRAPH.train[:20]])
    expected = [scores_by_hand(x[2 - 2 * side], x[1] + (1 - side) * GRAPH.num_relations) for x in triples.tolist()]
    np.testing.assert_allclose(MODEL.parts[0].scores(triples, side), expected, atol=2e-5)


def test_relations_that_never_meet_exclude_each_others_pairs():
    rng = np.random.default_rng(0)
    pairs = rng.permutation([(h, t) for h in range(16) for t in range(16) if h != t])
    names = [("older", *pairs[i]) if i % 2 else ("owns", *pairs[i]) for i in range(200)]
    graph = jobi_tf.Graph.from_triples([(f"e{h}", name, f"e{t}") for name, h, t in names])
    rules, facts = jobi_tf.RuleModel(graph), {(h, r, t) for h, r, t in graph.train.tolist()}
    assert {"not owns(X, Y) <- older(X, Y)", "not owns(X, X)"} < {x.rule for x in rules.excluding(100)}
    assert all(x.expected > 5 for x in rules.excluding(100))
    queries = np.array([(e, r, e) for e in range(graph.num_entities) for r in (0, 1)])
    for side in (0, 1):
        excluded = rules.exclusions.scores(queries, side).numpy()
        for row, (e, r, _) in zip(excluded, queries.tolist(), strict=True):
            others = [(e, 1 - r, x) if side else (x, 1 - r, e) for x in range(graph.num_entities)]
            known = [other in facts or x == e for x, other in enumerate(others)]
            np.testing.assert_array_equal(row, -np.array(known, np.float32))
        rules_alone = rules.parts[0].scores(queries, side)
        np.testing.assert_allclose(rules.scores(queries, side), rules_alone + 100 * excluded, atol=1e-4)
    with pytest.raises(UsageError, match=r"\bk\b"):
        rules.excluding(0)


def test_what_is_expected_of_frequent_relations_does_not_overflow():
    head, tail = np.divmod(np.random.default_rng(0).choice(400 * 400, 60_000, replace=False), 400)
    triples = np.stack([head, np.zeros_like(head), tail], 1)[head != tail].astype(np.int32)
    graph = named_graph({"train": triples, "valid": triples[:0], "test": triples[:0]}, 400, 1)
    (exclusion,) = jobi_tf.RuleModel(graph, minutes=0.01).excluding(1)
    joined = len({*zip(head, tail, strict=True)} | {*zip(tail, head, strict=True)}) - 400
    assert exclusion.rule == "not relation 0(X, X)"
    assert exclusion.expected == pytest.approx(len(triples) * 400 / (joined + 400), rel=0.01)


def test_ranks_are_filtered_and_share_ties():
    evaluation = jobi_tf.evaluate(MODEL, GRAPH)
    facts = {tuple(x) for part in GRAPH.splits.values() for x in part.tolist()}
    for side, name in enumerate(("head", "tail")):
        scores, expected = MODEL.scores(GRAPH.test, side).numpy(), []
        for row, triple in zip(scores, GRAPH.test.tolist(), strict=True):
            wrong = [tuple(np.where(np.arange(3) == 2 * side, x, triple).tolist()) for x in range(GRAPH.num_entities)]
            others = row[[x not in facts for x in wrong]]
            true = row[triple[2 * side]]
            expected.append(1 + (others > true).sum() + (others == true).sum() / 2)
        np.testing.assert_array_equal(evaluation.ranks[name].ranks(), expected)


def test_the_best_rules_are_text_with_their_counts():
    parents = [(f"p{i}", "parent", f"p{i + 1}") for i in range(9)]
    grandparents = [(f"p{i}", "grandparent", f"p{i + 2}") for i in range(6)]
    people = [(f"p{i}", "is a", "person") for i in range(10)]
    rules = jobi_tf.RuleModel(jobi_tf.Graph.from_triples(parents + grandparents + people))
    found = {rule.rule: rule for rule in rules.best(100)}
    best = found["grandparent(X, Y) <- parent(X, A), parent(A, Y)"]
    assert (best.hits, best.body) == (6, 8)
    assert best.confidence == pytest.approx(6 / 13)
    assert found["is a(X, person) <- parent(X, A)"][2:] == (9, 9)
    assert found["is a(X, person) <- is a(X, A)"][2:] == (10, 10)
    values = [rule.confidence for rule in rules.best(100)]
    assert values == sorted(values, reverse=True)
    assert "11 entities" in repr(rules)
    with pytest.raises(jobi_tf.UsageError, match="'world'"):
        jobi_tf.RuleModel("world")
    assert len(values) == rules.num_rules
    assert rules.tails("p0", "is a", k=1)[0].entity == "person"
    assert rules.score([("p6", "grandparent", "p8")])[0] > rules.score([("p6", "grandparent", "p1")])[0]


def test_without_time_there_are_fewer_rules_and_they_still_rank():
    rules = jobi_tf.RuleModel(GRAPH, minutes=1e-9)
    assert not rules.complete
    assert MODEL.complete
    assert rules.num_rules < MODEL.num_rules
    assert jobi_tf.evaluate(rules).metrics()["mrr"] > 0
    with pytest.raises(UsageError, match="minutes"):
        jobi_tf.RuleModel(GRAPH, minutes=0)
    with pytest.raises(UsageError, match=r"\bk\b"):
        rules.best(0)


def test_the_number_of_rules_is_that_of_the_list():
    model = jobi_tf.RuleModel(jobi_tf.load_graph("world"), minutes=0.005)
    assert len(model.best(10**6)) == model.num_rules
