"""Ranks by plain loops."""

import numpy as np

from tests.models.oracles import oracle_scores


def brute_force_ranks(model, triples, column, ties, known):
    """Ranks of the entities in `column` (0 or 2); other answers that make a triple of `known` are no candidates."""
    ranks = []
    for triple in triples:
        candidates = np.repeat(triple[None], model.num_entities, 0)
        candidates[:, column] = np.arange(model.num_entities)
        scores = oracle_scores(model, candidates)
        true = scores[triple[column]]
        greater = equal = 0
        for candidate, score in zip(map(tuple, candidates.tolist()), scores, strict=True):
            if candidate[column] != triple[column] and candidate not in known:
                greater += score > true
                equal += score == true
        ranks.append(1 + greater + {"optimistic": 0, "pessimistic": equal, "realistic": equal / 2}[ties])
    return np.array(ranks, float)


def triple_set(*splits):
    return {tuple(t) for split in splits for t in split.tolist()}
