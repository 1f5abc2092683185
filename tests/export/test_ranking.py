import numpy as np
import pytest

import jobi_tf
from jobi_tf.export import export, export_run
from tests.export.asking import PREDICT, load, query

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["world", "umls"])
def trained(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "umls":
            patch.setenv("JOBI_TF_ARCHIVES", str(request.getfixturevalue("shared") / "data"))
        patch.setenv("JOBI_TF_HOME", str(tmp_path_factory.mktemp("home")))
        folder = tmp_path_factory.mktemp("runs") / request.param
        return jobi_tf.train(request.param, run_dir=folder, dim=16, epochs=3, eval_every=0, callbacks=())


def test_answers_rank_as_the_evaluator_does(trained, tmp_path, monkeypatch):
    graph, count = trained.graph, trained.graph.num_entities
    monkeypatch.setattr(export, "MAX_TOP_K", count)
    ask = load(export_run(trained, tmp_path, top_k=count, warmup=False).path)
    evaluation = jobi_tf.evaluate(trained)
    for signature in ("predict_tails", "predict_heads"):
        side, _, column = PREDICT[signature]
        names, scores, seen = (
            ask(signature, **query(graph, graph.test, signature, count))[x] for x in (side, "score", "seen")
        )
        entities = np.stack([graph.entities.ids(row) for row in names])  # [N, E]
        assert (np.sort(entities, 1) == np.arange(count)).all()
        assert (np.diff(scores, axis=1) <= 0).all()
        target = entities == graph.test[:, column, None]
        assert seen[target].all()
        # A filtered rank: the target among those answers that are not known facts.
        rivals = np.where(seen, -np.inf, scores)
        true = scores[target][:, None]
        np.testing.assert_array_equal((rivals > true).sum(1), evaluation.ranks[side].greater)
        np.testing.assert_array_equal((rivals == true).sum(1), evaluation.ranks[side].equal)
        # The new answers are the rivals.
        new = ask(signature.replace("_", "_new_"), **query(graph, graph.test, signature, count))
        np.testing.assert_array_equal(new["score"] > true, np.sort(rivals)[:, ::-1] > true)
        np.testing.assert_array_equal((new[side] != "").sum(1), (~seen).sum(1))
