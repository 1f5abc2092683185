import dataclasses
import json

import numpy as np
import pytest
from scipy.optimize import minimize

from jobi_tf.data.occurrences import Occurrences
from jobi_tf.evaluation import calibration
from jobi_tf.evaluation.calibration import BINS, balanced_weights, calibrate, corrupt, expected_calibration_error, fit
from jobi_tf.export.card import model_card
from tests.evaluation.oracle import triple_set
from tests.graphs import huge_graph, random_graph


def labelled(scores, true):
    return np.array(scores, float), np.array(true, bool)


def drawn(positives, negatives, seed, shift=1.0, scale=1.0):
    rng = np.random.default_rng(seed)
    scores = np.concatenate([rng.normal(shift, scale, positives), rng.normal(-shift, scale, negatives)])
    return labelled(scores, np.arange(positives + negatives) < positives)


@pytest.mark.parametrize(
    "data",
    [
        drawn(50, 100, 0),
        drawn(300, 20, 1, shift=-3),
        drawn(40, 80, 2, shift=300, scale=100),
        drawn(40, 80, 3, shift=1e-3, scale=1e-3),
        labelled([1, 2, 3, -1, -2, -3], [1, 1, 1, 0, 0, 0]),  # separable: only Platt's targets keep the slope finite
        labelled([5, -5], [1, 0]),
    ],
)
def test_the_fit_is_the_optimum(data):
    scores, labels = data
    positives, negatives = labels.sum(), (~labels).sum()

    def loss(point, scale):
        logits = point[0] * scores / scale + point[1]
        total = 0.0
        for logit, true in zip(logits, labels, strict=True):
            target = (positives + 1) / (positives + 2) if true else 1 / (negatives + 2)
            weight = 0.5 / positives if true else 0.5 / negatives
            total += weight * (np.logaddexp(0, logit) - target * logit)
        return total

    scale = np.abs(scores).max()
    best = minimize(
        loss, [0, 0], args=(scale,), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14, "maxiter": 5000}
    )
    slope, intercept = fit(*data)
    assert loss([slope * scale, intercept], scale) <= best.fun + 1e-9
    np.testing.assert_allclose([slope * scale, intercept], best.x, rtol=1e-3, atol=1e-4)


def test_scores_that_say_nothing():
    assert fit(*labelled([2, 2, 2, 2], [1, 0, 1, 0])) == pytest.approx((0, 0), abs=1e-6)


def test_expected_calibration_error_by_hand():
    # Two triples weigh 1/4 each, four corruptions 1/8 each.
    true = np.array([1, 1, 0, 0, 0, 0], bool)
    probabilities = np.array([0.95, 0.62, 0.61, 0.05, 0.04, 1.0])
    error, bins = expected_calibration_error(probabilities, true, balanced_weights(true), BINS)
    # Bins: [0, 1/15) holds .05 and .04; [9/15, 10/15) holds .62 and .61; [14/15, 1] holds .95 and 1.
    assert [(round(15 * x.low), round(15 * x.high)) for x in bins] == [(0, 1), (9, 10), (14, 15)]
    assert [x.weight for x in bins] == pytest.approx([1 / 4, 3 / 8, 3 / 8])
    assert [x.true for x in bins] == pytest.approx([0, 2 / 3, 2 / 3])
    means = [0.045, (2 * 0.62 + 0.61) / 3, (2 * 0.95 + 1.0) / 3]
    assert [x.probability for x in bins] == pytest.approx(means)
    expected = 0.25 * 0.045 + 0.375 * abs(means[1] - 2 / 3) + 0.375 * abs(means[2] - 2 / 3)
    assert error == pytest.approx(expected)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_corruptions(p):
    graph = random_graph(valid=60)
    known = triple_set(*graph.splits.values())
    corruptions, owner = corrupt(graph.valid, graph, p, seed=2**61)
    again, _ = corrupt(graph.valid, graph, p, seed=2**61)
    np.testing.assert_array_equal(corruptions, again)
    assert (corruptions != corrupt(graph.valid, graph, p, seed=1)[0][: len(corruptions)]).any()
    changed = corruptions != graph.valid[owner]
    assert (changed.sum(1) == 1).all()
    assert not changed[:, 1].any()
    assert len(set(zip(owner.tolist(), changed[:, 0].tolist(), strict=True))) == len(owner) == 120  # one a side
    assert not triple_set(corruptions) & known
    if p == 1:
        seen = Occurrences.of_graph(graph)
        for triple, (head, _, _) in zip(corruptions, changed, strict=True):
            side = 0 if head else 1
            assert triple[2 * side] in seen.of(side, triple[1])


def test_corruptions_in_a_graph_whose_triples_need_more_than_64_bits():
    graph = huge_graph([[0, 0, 5], [2**21, 0, 6]])
    corruptions, owner = corrupt(graph.train, graph, p=1, seed=0)
    assert sorted(map(tuple, corruptions)) == [(0, 0, 6), (0, 0, 6), (2**21, 0, 5), (2**21, 0, 5)]
    assert sorted(owner) == [0, 0, 1, 1]


def test_a_score_that_is_calibrated_stays_so():
    graph = random_graph(entities=200, train=2000, valid=3000)
    rng = np.random.default_rng(0)

    def scores(triples):
        true = np.arange(len(triples)) < 3000
        return np.where(true, rng.normal(0.5, 1, len(triples)), rng.normal(-0.5, 1, len(triples)))

    # Two normal distributions of variance 1 at ±½: the log odds of x are x itself.
    found = calibrate(scores, graph, p=0.3, seed=0)
    assert (found.slope, found.intercept) == pytest.approx((1, 0), abs=0.1)
    assert found.ece_before < 0.03
    assert found.ece_after < 0.03
    wild = calibrate(lambda triples: 20 * scores(triples) + 7, graph, p=0.3, seed=0)
    assert wild.slope == pytest.approx(1 / 20, rel=0.1)
    assert wild.ece_before > 0.2
    assert wild.ece_after < 0.03
    assert (wild.split, wild.triples, wild.warnings()) == ("valid", 3000, [])
    assert sum(x.weight for x in wild.bins) == pytest.approx(1)


def test_the_error_is_measured_on_triples_that_its_fit_did_not_see(monkeypatch):
    graph = random_graph(valid=41)
    rows = {tuple(triple): row for row, triple in enumerate(calibration.sample(graph, 0)[1].tolist())}
    fitted, measured = [], []
    monkeypatch.setattr(calibration, "sigmoid", lambda scores: measured.append(scores) or np.full(len(scores), 0.5))
    monkeypatch.setattr(calibration, "fit", lambda scores, true: fitted.append(scores[true]) or (1, 0))
    # The score of a triple is its row in the sample; that of a corruption is -1.
    calibrate(lambda triples: np.array([rows.get(tuple(x), -1) for x in triples.tolist()]), graph, 0.3, 0)
    half, every = (set(scores) for scores in fitted)
    before, after = (set(scores[scores >= 0]) for scores in measured)
    assert half.isdisjoint(before)
    assert before == after
    assert half | before == every == set(range(41))


def test_a_large_split_is_sampled():
    graph = random_graph()
    split, triples = calibration.sample(graph, seed=1, most=7)
    assert (split, triples.shape) == ("valid", (7, 3))
    assert len(triple_set(triples) & triple_set(graph.valid)) == 7


@pytest.mark.parametrize("valid", [0, 1])
def test_without_validation_triples_training_triples_serve(run, exported, valid):
    graph = dataclasses.replace(run.graph, splits={**run.graph.splits, "valid": run.graph.valid[:valid]})
    found = calibrate(run.score, graph, 0.3, 0)
    assert (found.split, found.triples) == ("train", 200)
    assert len(found.warnings()) == 1
    interface = json.loads((exported.path / "signature.json").read_text("utf-8"))
    card = model_card(run, dataclasses.replace(exported, calibration=found), interface)
    assert found.warnings()[0] in card
    assert f"{found.ece_after:.3f} after" in found._repr_html_()


def test_triples_of_a_relation_without_training_are_left_out(run):
    triples = run.graph.valid.copy()
    triples[:5, 1] = 4
    graph = dataclasses.replace(run.graph, splits={**run.graph.splits, "valid": triples})
    split, kept = calibration.sample(graph, 0)
    assert (split, len(kept)) == ("valid", 15)
    assert (kept[:, 1] < 4).all()


def test_a_model_without_knowledge_is_warned_of():
    graph = random_graph(valid=100)
    backwards = calibrate(lambda x: -(np.arange(len(x)) < 100).astype(float), graph, 0.3, 0)
    assert backwards.slope < 0
    assert "no better than chance" in backwards.warnings()[0]


def test_a_fit_that_makes_probabilities_worse_is_warned_of():
    for after, count in ((0.2, 1), (0.1, 0)):
        assert len(calibration.Calibration(1.0, 0.0, 0.1, after, (), "valid", 20).warnings()) == count
