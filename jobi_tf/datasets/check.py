"""What in a data set makes results better or worse than they should be: repeats, strangers, leaks."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import triple_keys
from jobi_tf.datasets.relation_pairs import RelationPair, flagged_codes, joined, pair_keys, relation_pairs, where

if TYPE_CHECKING:
    from rich.table import Table

_EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """The outcome of one check on one split.

    Args:
        check: what was looked for.
        where: the split.
        count: how many were found.
        total: out of how many.
        examples: some of them, with the file and the line they stand on.
    """

    check: str
    where: str
    count: int
    total: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The outcome of all checks on one graph.

    Args:
        name: the graph.
        findings: one for each check and split, also where nothing was found.
        relation_pairs: relations that mostly repeat, reverse or mirror another one.
        threshold: the share from which on they were listed.
        min_support: the number of shared entity pairs from which on they were listed.
    """

    name: str
    findings: tuple[Finding, ...]
    relation_pairs: tuple[RelationPair, ...]
    threshold: float
    min_support: int

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.relation_pairs and not any(finding.count for finding in self.findings)

    def as_dict(self) -> dict:
        """Returns everything as plain values, for JSON."""
        return {**asdict(self), "clean": self.clean}

    def tables(self, rows: int = 20) -> "list[Table]":
        """Returns the report for people, the list of relation pairs cut after `rows`."""
        return [_findings_table(self), *([_pairs_table(self, rows)] if self.relation_pairs else [])]


def check(graph: Graph, *, threshold: float = 0.8, min_support: int = 10) -> Report:
    """Looks for repeated triples, names unseen in training, and relations through which answers leak.

    A triple of valid or test counts as leaked where training holds the same two entities, in the same or the other
    order, under a relation that is listed in `relation_pairs` together with its own.

    Args:
        graph: the graph.
        threshold: list relations where this share of the entity pairs of one is also linked by the other.
        min_support: and where at least so many entity pairs are.
    """
    pairs = relation_pairs(graph, threshold, min_support)
    findings = [
        *(_duplicates(graph, split) for split in SPLITS),
        *(_shared(graph, first, second) for first, second in combinations(SPLITS, 2)),
    ]
    for split in SPLITS[1:]:
        findings += [*_unseen(graph, split, "entities"), *_unseen(graph, split, "relations")]
    findings += [_leaks(graph, split, pairs) for split in SPLITS[1:]]
    return Report(graph.name, tuple(findings), tuple(pairs), threshold, min_support)


def _spelled(graph: Graph, split: str, row: int) -> str:
    """Returns a triple in names."""
    head, relation, tail = graph.splits[split][row].tolist()
    return f"({graph.entities[head]}, {graph.relations[relation]}, {graph.entities[tail]})"


def _codes(graph: Graph, split: str) -> np.ndarray:
    """Returns one number a triple, equal for equal triples: int64 [N]."""
    head, relation, tail = graph.splits[split].astype(np.int64).T
    return triple_keys(head, relation, tail, graph.num_entities, graph.num_relations)


def _examples(rows: np.ndarray, text: Callable[[int], str]) -> tuple[str, ...]:
    return tuple(text(row) for row in rows[:_EXAMPLES].tolist())


def _duplicates(graph: Graph, split: str) -> Finding:
    codes = _codes(graph, split)
    order = np.argsort(codes, kind="stable")
    again = np.flatnonzero(codes[order][1:] == codes[order][:-1]) + 1

    def text(place: int) -> str:
        first, second = order[place - 1], order[place]
        return f"{where(graph, split, second)} repeats {where(graph, split, first)}: {_spelled(graph, split, second)}"

    return Finding("duplicate triples", split, len(again), len(codes), _examples(again, text))


def _shared(graph: Graph, first: str, second: str) -> Finding:
    codes, others = _codes(graph, second), _codes(graph, first)
    rows = np.flatnonzero(np.isin(codes, others))

    def text(row: int) -> str:
        other = int(np.flatnonzero(others == codes[row])[0])
        return f"{where(graph, second, row)} repeats {where(graph, first, other)}: {_spelled(graph, second, row)}"

    return Finding(f"triples shared with {first}", second, len(rows), len(codes), _examples(rows, text))


def _unseen(graph: Graph, split: str, kind: str) -> tuple[Finding, Finding]:
    """Returns which names of a split do not occur in training, and how many triples hold one."""
    vocabulary, columns = (graph.entities, [0, 2]) if kind == "entities" else (graph.relations, [1])
    used = graph.splits[split][:, columns]
    seen = np.zeros(len(vocabulary), bool)
    seen[graph.train[:, columns]] = True
    here, first = np.unique(used, return_index=True)
    names = np.flatnonzero(~seen[here])
    touched = np.flatnonzero(~seen[used].all(axis=1))

    def name(place: int) -> str:
        row = int(first[place]) // len(columns)  # np.unique counts through all columns of a row, then the next
        return f"{where(graph, split, row)}: {vocabulary[int(here[place])]}"

    def triple(row: int) -> str:
        return f"{where(graph, split, row)}: {_spelled(graph, split, row)}"

    return (
        Finding(f"{kind} unseen in training", split, len(names), len(here), _examples(names, name)),
        Finding(f"triples with unseen {kind}", split, len(touched), len(used), _examples(touched, triple)),
    )


def _leaks(graph: Graph, split: str, pairs: list[RelationPair]) -> Finding:
    triples, train = graph.splits[split], graph.train
    order = np.argsort(pair_keys(graph, train), kind="stable")
    keys = pair_keys(graph, train)[order]
    evidence: dict[int, int] = {}
    for turned in (False, True):
        flagged = flagged_codes(graph, pairs, turned)
        for rows, places in joined(pair_keys(graph, triples, turned), keys):
            known = order[places]
            codes = triples[rows, 1].astype(np.int64) * graph.num_relations + train[known, 1]
            # A loop is its own reverse, which tells nothing.
            hit = np.isin(codes, flagged) & ~(turned & (triples[rows, 0] == triples[rows, 2]))
            evidence |= dict(zip(rows[hit].tolist(), known[hit].tolist(), strict=True))
    rows = np.array(sorted(evidence), np.int64)

    def text(row: int) -> str:
        known = evidence[row]
        return (
            f"{where(graph, split, row)}: {_spelled(graph, split, row)}, "
            f"given by {where(graph, 'train', known)}: {_spelled(graph, 'train', known)}"
        )

    return Finding("answers leaked by training", split, len(rows), len(triples), _examples(rows, text))


def _findings_table(report: Report) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"Checks of {escape(report.name)}", title_justify="left")
    for column in ("check", "split", "found", "of", "share", "for example"):
        table.add_column(column, justify="right" if column in ("found", "of", "share") else "left", overflow="fold")
    for finding in report.findings:
        share = f"{finding.count / finding.total:.2%}" if finding.count else ""
        example = escape(finding.examples[0]) if finding.examples else ""
        style = "bold" if finding.count else "dim"
        count, total = f"{finding.count:,}", f"{finding.total:,}"
        table.add_row(finding.check, finding.where, count, total, share, example, style=style)
    return table


def _pairs_table(report: Report, rows: int) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    hidden = len(report.relation_pairs) - rows
    table = Table(
        title=f"Relations of which {report.threshold:.0%} or more of the entity pairs are linked by another one, too",
        title_justify="left",
        caption=f"and {hidden:,} more, which --json lists" if hidden > 0 else None,
    )
    for column in ("relation", "is", "other relation", "share", "of the other", "pairs", "for example"):
        right = column in ("share", "of the other", "pairs")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for pair in report.relation_pairs[:rows]:
        table.add_row(
            escape(pair.relation),
            pair.kind,
            escape(pair.other) if pair.other != pair.relation else "itself",
            f"{pair.share:.1%}",
            f"{pair.share_of_other:.1%}",
            f"{pair.support:,}",
            escape(pair.example),
        )
    return table
