import numpy as np
import pytest

import jobi_tf
from jobi_tf.export import export_run
from tests.export.asking import load, named
from tests.models.oracles import oracle_scores


@pytest.fixture(scope="module", params=["world", "umls"])
def trained(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "umls":
            patch.setenv("JOBI_TF_ARCHIVES", str(request.getfixturevalue("shared") / "data"))
        patch.setenv("JOBI_TF_HOME", str(tmp_path_factory.mktemp("home")))
        folder = tmp_path_factory.mktemp("runs") / request.param
        return jobi_tf.train(request.param, run_dir=folder, dim=16, epochs=3, eval_every=0, callbacks=())


def test_answers_rank_as_the_evaluator_does(trained, tmp_path):
    graph, count = trained.graph, trained.graph.num_entities
    ask = load(export_run(trained, tmp_path, top_k=count, warmup=False).path)
    head, relation, tail = zip(*named(graph, graph.test), strict=True)
    evaluation = jobi_tf.evaluate(trained, split="test")
    answers = {
        "tail": ask("predict_tails", head=head, relation=relation),
        "head": ask("predict_heads", relation=relation, tail=tail),
    }
    for side, column in (("tail", 2), ("head", 0)):
        names, scores, seen = (answers[side][name] for name in (side, "score", "seen"))
        entities = np.stack([graph.entities.ids(row) for row in names])  # [N, E]
        assert (np.sort(entities, 1) == np.arange(count)).all()
        assert (np.diff(scores, axis=1) <= 0).all()
        candidates = np.repeat(graph.test[:, None], count, 1)
        candidates[..., column] = entities
        expected = oracle_scores(trained.model, candidates.reshape(-1, 3)).reshape(scores.shape)
        np.testing.assert_allclose(scores, expected, atol=1e-5)

        target = entities == graph.test[:, column, None]
        assert seen[target].all()
        # A filtered rank: the target among those answers that are no known facts.
        rivals = np.where(seen, -np.inf, scores)
        true = scores[target][:, None]
        np.testing.assert_array_equal((rivals > true).sum(1), evaluation.ranks[side].greater)
        np.testing.assert_array_equal((rivals == true).sum(1), evaluation.ranks[side].equal)
