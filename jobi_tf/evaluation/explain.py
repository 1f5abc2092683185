"""Why a model believes a triple, what its graph says for it, and which triples the model believes most."""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import HEAD, SIDES, TAIL, KnownAnswers, Occurrences, distinct_triples
from jobi_tf.data.shards import blocks
from jobi_tf.evaluation.edges import Edges
from jobi_tf.evaluation.metrics import rank_text
from jobi_tf.evaluation.ranker import Ranker, check_finite, full_float32
from jobi_tf.evaluation.rules import confidence
from jobi_tf.models.jobi import HEADS, JoBi
from jobi_tf.models.products import all_scores
from jobi_tf.tables import html_table

BLOCK = 2**24  # scores at once
SHOWN = 5  # paths, and similar triples


class RulePath(NamedTuple):
    """A path from head to tail in the training triples, and the rule behind it.

    The path is a text such as `Bern -[capital of]-> Switzerland`. The support is the number of pairs of entities with
    such a path for which the relation holds in training. `Rule` defines the confidence.
    """

    path: str
    confidence: float
    support: int


class Similar(NamedTuple):
    """A training triple of the same relation, and the mean cosine similarity of its head and tail to the given ones."""

    head: str
    tail: str
    similarity: float


@dataclass(frozen=True)
class Explanation:
    """What a model and its graph say about a triple.

    Args:
        triple: names of head, relation and tail.
        split: the split that contains the triple; None for a new one.
        scores: the scores of the triple head and of the pair head, by name.
        probability: the calibrated probability of the triple.
        ranks: the filtered rank on each side among all entities, from 1, with realistic ties.
        candidates: number of entities.
        occurrences: numbers of training triples with the head, and with the tail, on its side of the relation.
        similar: training triples of the relation with the most similar entities.
        paths: paths from head to tail by the most confident rules.
    """

    triple: tuple[str, str, str]
    split: str | None
    scores: dict[str, float]
    probability: float
    ranks: dict[str, float]
    candidates: int
    occurrences: dict[str, int]
    similar: list[Similar]
    paths: list[RulePath]

    @property
    def title(self) -> str:
        """The triple, and the split that contains it."""
        where = f"a fact of the {self.split} split" if self.split else "not in the graph"
        return f"({', '.join(self.triple)}): {where}"

    def tables(self) -> list[tuple[tuple[str, ...], list[list[str]]]]:
        """Returns columns and rows of three tables: scores, ranks and counts; paths; similar triples."""
        values = [[f"score of the {name} head", f"{score:.3f}"] for name, score in self.scores.items()]
        values.append(["probability", _percent(self.probability)])
        values += [
            [f"rank of the {side}", f"{rank_text(rank)} of {self.candidates:,}"] for side, rank in self.ranks.items()
        ]
        for side, count in self.occurrences.items():
            values.append([f"training triples with this {side} and relation", f"{count:,}"])
        paths = [[x.path, f"{x.confidence:.0%}", f"{x.support:,}"] for x in self.paths]
        similar = [[x.head, x.tail, f"{x.similarity:.2f}"] for x in self.similar]
        return [
            (("", "value"), values),
            (("path from head to tail", "confidence", "hits"), paths),
            (("similar training triples: head", "tail", "similarity"), similar),
        ]

    def _repr_html_(self) -> str:
        titles = self.title, "", ""
        return "".join(html_table(title, *table) for title, table in zip(titles, self.tables(), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as a JSON object."""
        rows = {name: [row._asdict() for row in getattr(self, name)] for name in ("similar", "paths")}
        return asdict(self) | rows


def _percent(probability: float) -> str:
    if 0 < probability < 0.001:
        return "< 0.1%"
    return "> 99.9%" if 0.999 < probability < 1 else f"{probability:.1%}"


def explain(model: JoBi, graph: Graph, triple: np.ndarray, probability: float) -> Explanation:
    """Explains the scores of a triple, int [3], of ids."""
    triple = np.asarray(triple, np.int32)
    head, relation, tail = triple.tolist()
    known = KnownAnswers.of_graph(graph, SPLITS, triple[None])
    ranker = Ranker(model, known)
    train = _of_relation(graph, relation)
    return Explanation(
        (graph.entities[head], graph.relations[relation], graph.entities[tail]),
        next((name for name in SPLITS if (graph.split(name) == triple).all(1).any()), None),
        {name: float(model.score(triple[None], name)[0]) for name in HEADS[: len(model.heads)]},
        probability,
        {name: float(ranker.rank(triple[None], side).ranks()[0]) for side, name in enumerate(SIDES)},
        graph.num_entities,
        {"head": int((train[:, 0] == head).sum()), "tail": int((train[:, 2] == tail).sum())},
        similar_triples(model, graph, triple),
        paths(graph, triple),
    )


def paths(graph: Graph, triple: np.ndarray) -> list[RulePath]:
    """Returns paths of length 1 and 2 that speak for a triple, int [3], those of the most confident rules first.

    The triple itself is not an edge. The rules are those of `jobi_tf.RuleModel`. Of several paths by one rule the first
    is returned.
    """
    train = np.asarray(graph.train)
    edges = Edges(train[(train != np.asarray(triple)).any(1)], graph.num_entities, graph.num_relations)
    head, relation, tail = np.asarray(triple, np.int64).tolist()
    names, found = graph.entities, []  # texts, bodies and hits
    pairs, joined = edges.one_step
    _, rows = edges.rows_of(np.array([head]))
    for label in edges.label[rows][edges.targets[rows][:, [tail]].toarray()[:, 0] > 0].tolist():
        text = f"{names[head]} {_edge(graph, label)} {names[tail]}"
        found.append((text, pairs[label], joined[label, relation]))
    count = lru_cache(1)(edges.count_two_steps)  # paths by one first edge come one after the other
    for place, seconds, target in edges.two_steps(rows):
        for row, second in zip(rows[place[target == tail]].tolist(), seconds[target == tail].tolist(), strict=True):
            first = int(edges.label[row])
            pairs, joined = count(first)
            last = edges.row(tail, (second + graph.num_relations) % edges.labels)
            between = np.intersect1d(edges.targets[row].indices, edges.targets[last].indices)[0]
            steps = names[head], _edge(graph, first), names[between], _edge(graph, second), names[tail]
            found.append((" ".join(steps), pairs[second], joined[second, relation]))
    rated = [RulePath(text, float(confidence(hits, body)), int(hits)) for text, body, hits in found if hits]
    return sorted(rated, key=lambda x: (-x.confidence, -x.support))[:SHOWN]


def _edge(graph: Graph, label: int) -> str:
    """Returns an edge as text, such as `-[capital]->`, or `<-[capital]-` against its direction."""
    inverse, relation = divmod(int(label), graph.num_relations)
    return f"<-[{graph.relations[relation]}]-" if inverse else f"-[{graph.relations[relation]}]->"


def _of_relation(graph: Graph, relation: int) -> np.ndarray:
    """Returns the training triples of a relation, [n, 3], which are read once if they are in files."""
    return np.concatenate([rows[rows[:, 1] == relation] for rows in blocks(graph.train)])


def similar_triples(model: JoBi, graph: Graph, triple: np.ndarray) -> list[Similar]:
    """Returns the training triples of the same relation whose head and tail are most like those of a triple."""
    triples = _of_relation(graph, triple[1])
    triples = triples[(triples != triple).any(1)]
    triples = triples[np.sort(distinct_triples(triples)[0])]
    if not len(triples):
        return []
    ends = (model.entities.rows(np.append(triples[:, x], triple[x])).numpy() for x in (0, 2))
    similarity = np.mean([cosines(rows[:-1], rows[-1]) for rows in ends], 0)
    best, names = np.argsort(-similarity, kind="stable")[:SHOWN], graph.entities
    return [Similar(names[triples[i, 0]], names[triples[i, 2]], float(similarity[i])) for i in best]


def cosines(rows: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Returns the cosine of each row with another one, [N, width] and [width] → [N]."""
    return rows @ row / np.maximum(np.linalg.norm(rows, axis=1) * np.linalg.norm(row), 1e-30)


def best_new_triples(
    model: JoBi, graph: Graph, relation: int | None = None, k: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the triples with the highest scores that the graph does not contain.

    Training saw head and tail on their side of the relation. They differ, unless training has a triple of the relation
    with equal head and tail. Scores of different relations are only roughly comparable, since training compares the
    candidates of a query.

    Returns:
        At most k triples, int32 [k, 3], of one relation or of all, and their scores, float32 [k], best first.

    Raises:
        JobiError: a score is not finite.
    """
    occurrences, known = Occurrences.of_graph(graph), KnownAnswers.of_graph(graph, SPLITS)
    candidates = model.candidates()
    reflexive = {r for rows in blocks(graph.train) for r in rows[rows[:, 0] == rows[:, 2], 1].tolist()}
    best, scores = np.empty((0, 3), np.int32), np.empty(0, np.float32)

    @tf.function(autograph=False, reduce_retracing=True)  # without it the operations of 20,000 relations take a minute
    def scores_of(queries: tf.Tensor, tails: tf.Tensor) -> tf.Tensor:
        rows = tf.gather(candidates, tails)
        return all_scores(model.scorer, model.queries(queries, TAIL, candidates=candidates), rows)

    for r in range(graph.num_relations) if relation is None else [relation]:
        heads, tails = occurrences.of(HEAD, r), occurrences.of(TAIL, r)
        for block in np.array_split(heads, max(1, len(heads) * len(tails) // BLOCK)):
            queries = np.stack([block, np.full_like(block, r), np.zeros_like(block)], 1)
            with full_float32():
                found = scores_of(tf.constant(queries), tf.constant(tails)).numpy()
            check_finite(np.isfinite(found).all())
            at, answers = known.lookup(TAIL, queries)
            here = np.isin(answers, tails)
            found[at[here], np.searchsorted(tails, answers[here])] = -np.inf
            if r not in reflexive:
                found[block[:, None] == tails] = -np.inf
            chosen = np.flatnonzero(found > (scores[-1] if len(scores) == k else -np.inf))
            if len(chosen) > k:
                chosen = chosen[np.argpartition(-found.ravel()[chosen], k - 1)[:k]]
            row, place = np.unravel_index(chosen, found.shape)
            best = np.concatenate([best, np.stack([block[row], np.full(len(row), r), tails[place]], 1)])
            scores = np.append(scores, found[row, place])
            order = np.argsort(-scores, kind="stable")[:k]
            best, scores = best[order], scores[order]
    finite = np.isfinite(scores)
    return best[finite].astype(np.int32), scores[finite]
