"""Made-up graphs of any size that resemble real ones: typed entities, hubs, and facts that follow from others."""

import math

import numpy as np

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.data.occurrences import triple_keys
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import UsageError

COMMUNITIES = 16  # a power of two, so that multiplying by an odd number permutes them
_REGULAR = 0.85
_SKEW = 3.0
_ROUNDS = 50


def synthesize(entities: int, relations: int, triples: int, seed: int = 0) -> Graph:
    """Makes up a graph with entities named e0, e1 … and relations r0, r1 …; equal seeds give equal graphs.

    Every entity has a type and, within it, one of 16 communities. A relation links one type to one type, so few
    entities occur with it. In 85 of 100 of its triples, the community of the tail follows from that of the head by a
    rule of the relation, which can be learned. If entities have many triples, the numbers of triples of the relations
    are roughly Zipf-distributed. How often an entity occurs falls with its rank k in its type as k^(-2/3), so there are
    hubs. Every entity occurs in training.

    The distinct `triples` are those of all splits; valid and test have a hundredth of them each, at most 5,000. A
    number too small for every entity to occur, or larger than such a graph can hold, raises a `UsageError`.
    """
    if entities < COMMUNITIES or relations < 1:
        raise UsageError(f"expected at least {COMMUNITIES} entities and a relation, got {entities} and {relations}")
    held_out = min(5000, max(1, triples // 100))
    if triples < (least := entities + 2 * held_out):
        raise UsageError(f"expected at least {least:,} triples for {entities:,} entities, got {triples:,}")
    random = np.random.default_rng(seed)
    plan = _Plan(entities, relations, random)
    every = plan.distinct_triples(triples, random)
    # The first E triples hold every entity: they stay in training.
    order = np.concatenate([np.arange(entities), entities + random.permutation(triples - entities)])
    ends = [triples - 2 * held_out, triples - held_out]
    splits = dict(zip(SPLITS, np.split(every[order], ends), strict=True))
    shuffled = random.permutation(len(splits["train"]))
    return Graph(
        f"synthetic-{entities}-{relations}-{triples}-{seed}",
        Vocabulary([f"e{i}" for i in range(entities)], "entity"),
        Vocabulary([f"r{i}" for i in range(relations)], "relation"),
        {**splits, "train": splits["train"][shuffled]},
    )


class _Plan:
    """What is drawn before the triples.

    Entities of a type are a range of places, and community c is every 16th of them: places of type i are `bounds[i]` to
    `bounds[i + 1]`, and `ids` has the entity in each place. Relations have a type of heads, `domain`, a type of tails,
    `range`, a `share` of the triples, and a rule: a tail's community is `factor * head's community + shift`.
    """

    def __init__(self, entities: int, relations: int, random: np.random.Generator):
        types = max(1, min(relations, entities // (4 * COMMUNITIES), round(math.sqrt(entities) / 12)))
        weights = np.arange(1, types + 1) ** -0.7
        spare = entities - types * COMMUNITIES
        sizes = COMMUNITIES + np.floor(spare * weights / weights.sum()).astype(np.int64)
        sizes[0] += entities - sizes.sum()
        share = 1 / np.arange(1, relations + 1)
        self.domain = random.choice(types, relations, p=sizes / entities)
        self.domain[random.permutation(relations)[:types]] = np.arange(types)  # every type is some relation's domain
        self.bounds = np.concatenate([[0], np.cumsum(sizes)])
        self.ids = random.permutation(entities).astype(np.int32)
        self.range = random.choice(types, relations, p=sizes / entities)
        self.factor = 2 * random.integers(0, COMMUNITIES // 2, relations) + 1
        self.shift = random.integers(0, COMMUNITIES, relations)
        self.share = share / share.sum()

    def distinct_triples(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Returns int32 [count, 3]; the first E of them have every entity as a head."""
        places = np.arange(len(self.ids))
        types = np.searchsorted(self.bounds, places, "right") - 1
        by_domain = np.argsort(self.domain, kind="stable")
        starts = np.searchsorted(self.domain[by_domain], np.arange(len(self.bounds)))
        picks = starts[types] + (random.random(len(places)) * (starts[types + 1] - starts[types])).astype(np.int64)
        parts = [self._complete(places, by_domain[picks], random)]
        keys = np.sort(self._keys(parts[0]))
        missing = count - len(keys)
        for _ in range(_ROUNDS):
            if not missing:
                return np.concatenate(parts)
            drawn = self._draw(int(missing * 1.1) + 100, random)
            new, first = np.unique(self._keys(drawn), return_index=True)
            fresh = np.sort(first[~np.isin(new, keys, assume_unique=True)])[:missing]
            parts.append(drawn[fresh])
            keys = np.sort(np.concatenate([keys, self._keys(drawn[fresh])]))
            missing -= len(fresh)
        raise UsageError(
            f"expected fewer triples for {len(self.ids):,} entities and {len(self.domain):,} relations, got {count:,}: "
            f"only {count - missing:,} distinct ones were found"
        )

    def _draw(self, count: int, random: np.random.Generator) -> np.ndarray:
        relations = random.choice(len(self.domain), count, p=self.share)
        communities = random.integers(0, COMMUNITIES, count)
        return self._complete(self._place(self.domain[relations], communities, random), relations, random)

    def _complete(self, heads: np.ndarray, relations: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draws tails for heads (places) and relations, and returns triples of ids."""
        communities = (heads - self.bounds[self.domain[relations]]) % COMMUNITIES
        ruled = (self.factor[relations] * communities + self.shift[relations]) % COMMUNITIES
        chosen = np.where(random.random(len(heads)) < _REGULAR, ruled, random.integers(0, COMMUNITIES, len(heads)))
        tails = self._place(self.range[relations], chosen, random)
        return np.stack([self.ids[heads], relations.astype(np.int32), self.ids[tails]], 1)

    def _place(self, types: np.ndarray, communities: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """Draws an entity of each type and community, hubs first: density falls as rank^(1/skew - 1)."""
        sizes = self.bounds[types + 1] - self.bounds[types]
        members = (sizes - communities + COMMUNITIES - 1) // COMMUNITIES
        ranks = (members * random.random(len(types)) ** _SKEW).astype(np.int64)
        return self.bounds[types] + ranks * COMMUNITIES + communities

    def _keys(self, triples: np.ndarray) -> np.ndarray:
        head, relation, tail = triples.astype(np.int64).T
        return triple_keys(head, relation, tail, len(self.ids), len(self.domain))
