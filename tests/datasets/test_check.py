import itertools
import random

import pytest

from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import entity_degrees
from jobi_tf.datasets import load_graph
from jobi_tf.datasets.check import check
from jobi_tf.datasets.statistics import statistics

from .files import named_triples, write_folder


def _found(report) -> dict[tuple[str, str], int]:
    return {(finding.check, finding.where): finding.count for finding in report.findings if finding.count}


def _text(*triples: str) -> str:
    return "".join("\t".join(triple.split()) + "\n" for triple in triples)


def test_clean(tmp_path):
    graph = load_graph(write_folder(tmp_path, train=_text("a r b", "b r c"), valid=_text("c r a"), test=_text("b r a")))
    report = check(graph)
    assert report.clean
    assert not _found(report)


def test_names_that_look_alike():
    graph = Graph.from_triples([("é", "r", "b c"), ("e\u0301", " r", "b  c"), ("B C", "R", "b\xa0c ")])
    found = _found(check(graph))
    assert found["near-duplicate names", "entities"] == 3
    assert found["near-duplicate names", "relations"] == 1


def test_repeats_and_unseen_names(tmp_path):
    folder = write_folder(
        tmp_path,
        train=_text("a r b", "b r c", "a r b", "a r b"),
        valid=_text("b r c", "x r a", "a r x"),
        test=_text("x r a", "a s b", "b r c"),
    )
    report = check(load_graph(folder))
    assert not report.clean
    assert _found(report) == {
        ("duplicate triples", "train"): 2,
        ("triples shared with train", "valid"): 1,
        ("triples shared with train", "test"): 1,
        ("triples shared with valid", "test"): 2,
        ("entities unseen in training", "valid"): 1,
        ("triples with unseen entities", "valid"): 2,
        ("entities unseen in training", "test"): 1,
        ("triples with unseen entities", "test"): 1,
        ("relations unseen in training", "test"): 1,
        ("triples with unseen relations", "test"): 1,
    }
    examples = {(finding.check, finding.where): finding.examples for finding in report.findings}
    assert examples["duplicate triples", "train"] == (
        f"{folder}/train.tsv:3 repeats {folder}/train.tsv:1: (a, r, b)",
        f"{folder}/train.tsv:4 repeats {folder}/train.tsv:1: (a, r, b)",
    )
    assert examples["triples shared with train", "test"] == (
        f"{folder}/test.tsv:3 repeats {folder}/train.tsv:2: (b, r, c)",
    )
    assert examples["entities unseen in training", "valid"] == (f"{folder}/valid.tsv:2: x",)
    assert examples["relations unseen in training", "test"] == (f"{folder}/test.tsv:2: s",)


def test_leaks(tmp_path):
    children = [f"p{i} parent_of c{i}" for i in range(10)]
    inverse = [f"c{i} child_of p{i}" for i in range(8)]
    married = [line for i in range(6) for line in (f"p{i} married q{i}", f"q{i} married p{i}")]
    same = [f"p{i} wed q{i}" for i in range(5)]
    loops = [f"c{i} likes c{i}" for i in range(10)]
    folder = write_folder(
        tmp_path,
        train=_text(*children, *inverse, *married[:-1], *same, *loops),
        valid=_text("c8 child_of p8"),
        test=_text("c9 child_of p9", "q5 married p5", "p5 wed q5", "c3 likes p3"),
    )
    report = check(load_graph(folder), min_support=5)
    pairs = [(pair.relation, pair.kind, pair.other, pair.support, pair.share) for pair in report.relation_pairs]
    assert pairs == [
        ("married", "symmetric", "married", 12, 1.0),
        ("parent_of", "inverse", "child_of", 10, 1.0),
        ("wed", "duplicate", "married", 6, 1.0),
        ("wed", "inverse", "married", 6, 1.0),
    ]
    assert report.relation_pairs[2].share_of_other == 0.5
    assert _found(report) == {("answers leaked by training", "valid"): 1, ("answers leaked by training", "test"): 3}
    leaked = next(f for f in report.findings if f.where == "test" and f.check.startswith("answers"))
    assert leaked.examples[0] == (
        f"{folder}/test.tsv:1: (c9, child_of, p9), given by {folder}/train.tsv:10: (p9, parent_of, c9)"
    )
    assert not check(load_graph(folder), min_support=13).relation_pairs


@pytest.mark.parametrize("seed", range(5))
def test_relation_pairs_equal_brute_force(tmp_path, seed):
    draw = random.Random(seed)
    lines = [f"{draw.randrange(8)} r{draw.randrange(4)} {draw.randrange(8)}" for _ in range(160)]
    folder = write_folder(tmp_path, train=_text(*lines[:120]), valid=_text(*lines[120:140]), test=_text(*lines[140:]))
    graph = load_graph(folder)
    report = check(graph, threshold=0.6, min_support=3)

    linked: dict[str, set] = {}
    for head, relation, tail in itertools.chain.from_iterable(named_triples(graph, split) for split in graph.splits):
        linked.setdefault(relation, set()).add((head, tail))
    flagged = set()
    for (first, pairs), (second, others) in itertools.product(linked.items(), repeat=2):
        turned = {(tail, head) for head, tail in others if head != tail}
        straight = {pair for pair in pairs if pair[0] != pair[1]}
        if first != second and len(pairs & others) >= max(3, 0.6 * min(len(pairs), len(others))):
            flagged.add((False, first, second))
        if len(straight & turned) >= max(3, 0.6 * min(len(straight), len(turned))):
            flagged.add((True, first, second))
    names = {(pair.kind != "duplicate", pair.relation, pair.other) for pair in report.relation_pairs}
    assert names | {(turned, b, a) for turned, a, b in names} == flagged

    train = set(named_triples(graph, "train"))
    for finding in report.findings:
        if finding.check == "answers leaked by training":
            expected = sum(
                any(
                    ((False, r, other) in flagged and (h, other, t) in train)
                    or ((True, r, other) in flagged and h != t and (t, other, h) in train)
                    for other in linked
                )
                for h, r, t in named_triples(graph, finding.where)
            )
            assert finding.count == expected


def test_one_and_a_half_partners_are_many(tmp_path):
    triples = _text("a0 half b0", "a0 half b1", "a1 half b2")
    folder = write_folder(tmp_path, train=triples, valid=_text("a0 half b2"), test=_text("a1 half b0"))
    assert statistics(load_graph(folder)).by_relation[0].category == "1-N"


def test_a_repeated_triple_adds_no_partner():
    graph = Graph.from_triples([("a", "one", "b")] * 3)
    assert statistics(graph).by_relation[0].category == "1-1"


def test_statistics(tmp_path):
    one = [f"a{i} one b{i}" for i in range(4)]
    fan = [f"a0 fan c{i}" for i in range(4)]
    sink = [f"c{i} sink a0" for i in range(4)]
    both = [f"{x} both {y}" for x in ("a1", "a2") for y in ("b1", "b2")]
    folder = write_folder(
        tmp_path, train=_text(*one, *fan, *sink, *both), valid=_text("a0 one b1"), test=_text("a0 fan b1", "z new z")
    )
    figures = statistics(load_graph(folder))
    kinds = {row.name: (row.category, row.triples, row.heads, row.tails) for row in figures.by_relation}
    assert kinds == {
        "one": ("1-1", 4, 4, 4),
        "fan": ("1-N", 4, 1, 4),
        "sink": ("N-1", 4, 4, 1),
        "both": ("N-N", 4, 2, 2),
        "new": ("unseen", 0, 0, 0),
    }
    assert figures.categories["1-N"] == {"relations": 1, "train": 0.25, "valid": 0.0, "test": 0.5}
    assert figures.categories["unseen"]["test"] == 0.5
    assert (figures.degree.max, figures.degree.median) == (9, 2.0)  # a0: once one, four times fan, four times sink
    assert figures.degree.mean == pytest.approx(2 * 16 / 13)
    assert (figures.heads.mean, figures.tails.max) == (11 / 5, 4)


def test_a_triple_of_an_entity_with_itself_counts_once():
    graph = Graph.from_triples([("a", "r", "a"), ("a", "r", "b")])
    assert entity_degrees(graph.train, graph.num_entities).tolist() == [2, 1]
