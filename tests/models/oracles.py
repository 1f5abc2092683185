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


def rescal(h, r, t):
    matrix = r.reshape(*r.shape[:-1], h.shape[-1], h.shape[-1])
    return (h[..., :, None] * matrix * t[..., None, :]).sum((-2, -1))


def tucker(h, r, t, core):
    """`core`: [d of the relation, d of the head times d of the tail]."""
    size = h.shape[-1]
    return np.einsum("kij,...i,...k,...j->...", core.reshape(-1, size, size), h, r, t)


def transe(h, r, t):
    return -np.linalg.norm(h + r - t, axis=-1)


def rotate(h, r, t):
    (h_re, h_im), (t_re, t_im) = map(halves, (h, t))
    distance = (h_re + 1j * h_im) * np.exp(1j * r) - (t_re + 1j * t_im)
    return -np.sqrt((abs(distance) ** 2).sum(-1))


def typecomplex(h, r, t):
    """20 (p(h, r, t) p(h suits r) p(t suits r) - 1/2); types have a tenth of d numbers, rounded up, and length 1."""
    types = h.shape[-1] - 2 * (10 * h.shape[-1] // 21)
    u_h, u_t, v, w = (
        x / np.linalg.norm(x, axis=-1, keepdims=True)
        for x in (h[..., -types:], t[..., -types:], *halves(r[..., -2 * types :]))
    )
    logits = (complex_(h[..., :-types], r[..., : -2 * types], t[..., :-types]), (u_h * v).sum(-1), (u_t * w).sum(-1))
    return 20 * (np.prod([1 / (1 + np.exp(-x)) for x in np.broadcast_arrays(*logits)], 0) - 0.5)


def convolved(h, r, convolution_kernel, dense_kernel, training=False, **norms):
    """ConvE's [q, 1] of h and r, [N, d] each; in training with the means and variances of the batch, and these too."""
    statistics, norms = {}, {"norm_gamma": 1, "norm_beta": 0, **norms}

    def normed(x, name):
        gamma, beta, mean, variance = (
            norms[f"{name}_{y}"] for y in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        if training:
            axes = tuple(range(x.ndim - 1))
            mean, variance = statistics[name] = x.mean(axes), x.var(axes)
        return gamma * (x - mean) / np.sqrt(variance + 1e-5) + beta

    width = max(i for i in range(1, h.shape[-1]) if h.shape[-1] % i == 0 and i * i <= h.shape[-1])
    pictures = np.concatenate([x.reshape(len(x), -1, width) for x in (h, r)], 1)[..., None]
    windows = np.lib.stride_tricks.sliding_window_view(normed(pictures, "norm")[..., 0], (3, 3), (1, 2))
    maps = np.maximum(normed(np.einsum("nhwij,ijf->nhwf", windows, convolution_kernel[:, :, 0]), "norm_of_maps"), 0)
    q = np.maximum(normed(maps.reshape(len(h), -1) @ dense_kernel, "norm_of_query"), 0)
    q = np.concatenate([q, np.ones((len(q), 1))], 1)
    return (q, statistics) if training else q


def conve(h, r, t, **net):
    """An entity is [e, b]."""
    return (convolved(h[:, :-1], r, **net) * t).sum(-1)


ORACLES = {
    "distmult": distmult,
    "complex": complex_,
    "simple": simple,
    "rescal": rescal,
    "tucker": tucker,
    "transe": transe,
    "rotate": rotate,
    "typecomplex": typecomplex,
    "conve": conve,
}

# Real numbers of an entity and of a relation for d = 5.
WIDTHS = {
    "distmult": (5, 5),
    "complex": (10, 10),
    "simple": (10, 10),
    "rescal": (5, 25),
    "tucker": (5, 5),
    "transe": (5, 5),
    "rotate": (10, 5),
    "typecomplex": (11, 12),
}


def shared_weights(model, head=0):
    """The weights that the relations of a model head share, in float64; those of a net as `layer_weight`."""
    layer = model.heads[head]
    weights = dict(layer.shared)
    for name in ("norm", "convolution", "norm_of_maps", "dense", "norm_of_query") if layer.net else ():
        weights |= {f"{name}_{weight.name}": weight for weight in getattr(layer.net, name).weights}
    return {name: weight.numpy().astype(np.float64) for name, weight in weights.items()}


def tables(model, head=0):
    """The embeddings of entities and of the relations of a model head, in float64."""
    return tuple(x.table.numpy().astype(np.float64) for x in (model.entities, model.heads[head].relations))


def oracle_scores(model, triples, side=1, head=0):
    """Scores of triples by the tables of a model, in float64: [N, 3] → [N].

    With reciprocal relations those of the tails; of the heads with `side` 0.
    """
    entity, relation = tables(model, head)
    h, r, t = entity[triples[:, 0]], relation[triples[:, 1]], entity[triples[:, 2]]
    if model.reciprocal and not side:
        h, r, t = t, relation[model.num_relations + triples[:, 1]], h
    return ORACLES[model.scorer.name](h, r, t, **shared_weights(model, head))


def moduli(scorer, rows, types=1):
    """The numbers whose sizes a penalty keeps small: [..., width] → [..., d]. Without so many types of one number."""
    if scorer == "conve":  # a bias behind the 12 numbers of an entity
        return abs(rows[..., :12])
    if scorer == "typecomplex":
        return moduli("complex", rows[..., :-types])
    if scorer in ("complex", "rotate"):
        re, im = halves(rows)
        return abs(re + 1j * im)
    return abs(rows)
