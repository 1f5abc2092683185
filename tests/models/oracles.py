"""The score functions of the papers, in NumPy. Arguments: [..., width] → scores [...]."""

import numpy as np


def halves(x):
    return np.split(x, 2, -1)


def distmult(h, r, t):
    return (h * r * t).sum(-1)


def complex_(h, r, t):
    h, r, t = (re + 1j * im for re, im in map(halves, (h, r, t)))
    return (h * r * t.conj()).sum(-1).real


def simple(h, r, t):
    (h_head, h_tail), (r, r_inverse), (t_head, t_tail) = map(halves, (h, r, t))
    return 0.5 * (h_head * r * t_tail).sum(-1) + 0.5 * (t_head * r_inverse * h_tail).sum(-1)


ORACLES = {"distmult": distmult, "complex": complex_, "simple": simple}


def oracle_scores(model, triples):
    """Scores of triples by the tables of a model, in float64: [N, 3] → [N]."""
    entity, relation = (np.asarray(x.numpy(), np.float64) for x in (model.entity, model.triple_relation))
    return ORACLES[model.scorer](entity[triples[:, 0]], relation[triples[:, 1]], entity[triples[:, 2]])
