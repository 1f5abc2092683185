import numpy as np
import pytest

import jobi_tf
from jobi_tf.data.occurrences import HEAD, TAIL, Occurrences
from jobi_tf.evaluation.explain import best_new_triples, explain, paths, similar_triples
from tests.graphs import random_graph


def test_rules_of_one_and_of_two_steps_have_their_confidence():
    parents = [(f"p{i}", "parent", f"p{i + 1}") for i in range(9)]
    children = [(b, "child", a) for a, _, b in parents[:6]]
    grandparents = [(f"p{i}", "grandparent", f"p{i + 2}") for i in range(6)]
    graph = jobi_tf.Graph.from_triples(parents + children + grandparents)
    (triple,) = graph.ids_of_triples([("p7", "grandparent", "p9")])
    (best, *_) = paths(graph, triple)
    assert best.path == "p7 -[parent]-> p8 -[parent]-> p9"
    assert best.support == 6
    assert best.confidence == pytest.approx(6 / (8 + 5))  # eight pairs are joined, of which six are grandparents
    (triple,) = graph.ids_of_triples([("p1", "child", "p0")])
    (inverse,) = (x for x in paths(graph, triple) if x.path == "p1 <-[parent]- p0")
    assert inverse.confidence == pytest.approx(
        5 / (9 + 5)
    )  # nine have a parent, five children are known without this one


def test_best_new_triples_are_those_of_all_scores():
    graph, model = random_graph(), jobi_tf.JoBi(30, 4, 8)
    triples, scores = best_new_triples(model, graph, k=20)
    occurrences, facts = (
        Occurrences.of_graph(graph),
        {tuple(x) for part in graph.splits.values() for x in part.tolist()},
    )
    reflexive = {r for h, r, t in graph.train.tolist() if h == t}
    every = [
        (h, r, t)
        for r in range(4)
        for h in occurrences.of(HEAD, r).tolist()
        for t in occurrences.of(TAIL, r).tolist()
        if (h, r, t) not in facts and (h != t or r in reflexive)
    ]
    expected = np.sort(model.score(np.array(every)).numpy())[::-1][:20]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    np.testing.assert_allclose(model.score(triples), scores, rtol=1e-5)
    assert all(tuple(x) in set(every) for x in triples.tolist())
    assert len(best_new_triples(model, graph, relation=2, k=10**6)[0]) == sum(r == 2 for _, r, _ in every)


def test_similar_triples_have_similar_ends():
    graph, model = random_graph(), jobi_tf.JoBi(30, 4, 8)
    rows, triples = model.entities.table.numpy().astype(float), np.asarray(graph.train)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    own, *others = triples[triples[:, 1] == triples[0, 1]]
    means = [(rows[x[[0, 2]]] * rows[own[[0, 2]]]).sum() / 2 for x in others if (x != own).any()]
    found = similar_triples(model, graph, own)
    np.testing.assert_allclose([x.similarity for x in found], sorted(means)[::-1][: len(found)], rtol=1e-5)


def test_an_explanation_has_the_scores_of_both_heads_and_the_ranks():
    graph, model = random_graph(), jobi_tf.JoBi(30, 4, 8)
    triple = np.asarray(graph.test[0])
    found = explain(model, graph, triple, 0.5)
    assert found.split == "test"
    assert found.scores["triple"] == pytest.approx(float(model.score(triple[None])[0]))
    assert found.scores["pair"] != found.scores["triple"]
    ranks = jobi_tf.evaluate(model, graph, triples=triple[None]).ranks
    assert found.ranks == {side: x.ranks()[0] for side, x in ranks.items()}
    assert found.occurrences["head"] == (graph.train[:, :2] == triple[:2]).all(1).sum()
    assert found.to_dict()["triple"][1] == graph.relations[triple[1]]
    assert f"{found.scores['pair']:.3f}" in found._repr_html_()
