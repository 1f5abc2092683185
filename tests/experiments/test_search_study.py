"""What is tried next: the samplers, without trainings. A killed search is one whose `Study` is made anew."""

import random

import pytest

pytest.importorskip("optuna", reason="needs the extra search")

from jobi_tf.errors import DataError, UsageError
from jobi_tf.experiments.search_results import SearchFolder, results_of
from jobi_tf.experiments.search_study import Study
from jobi_tf.experiments.spaces import parse_space

SEARCH = {
    "dim": {"low": 4, "high": 400, "log": True},
    "joint": [True, False],
    "alpha": {"low": 0.1, "high": 2, "when": {"joint": True}},
}


def space(search=SEARCH, **more):
    return parse_space({"settings": {"dataset": "world"}, "search": search, "trials": 13, **more}, "mine", "mine.yaml")


def finish(study, number):
    params = study.params(number)
    metrics = dict.fromkeys(("mrr", "hits@1", "hits@3"), 0.0) | {"hits@10": 1 / params["dim"] + 0.1 * params["joint"]}
    study.note(number, {"metrics": metrics, "best_epoch": 1, "epochs": 1, "seconds": 1.0})
    study.tell(number)


def search_through(open_study, killed=lambda: False):
    study = open_study()
    while (number := study.ask()) is not None:
        if killed():
            study = open_study()
            assert study.unfinished() == [number]
        finish(study, number)
    return study


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_search_that_is_killed_again_and_again_tries_the_same(tmp_path, sampler):
    chosen, rng = space(sampler=sampler), random.Random(0)
    folders = [SearchFolder(tmp_path / name) for name in ("once", "killed")]
    for folder in folders:
        folder.path.mkdir()
    once = search_through(lambda: Study(chosen, folders[0], "graph"))
    killed = search_through(lambda: Study(chosen, folders[1], "graph"), lambda: rng.random() < 0.5)
    trials = [results_of(study.optuna, chosen, folders[0]).trials for study in (once, killed)]
    assert trials[0] == trials[1]
    assert len(trials[0]) == 13
    assert len({str(trial.params) for trial in trials[0]}) == 13
    assert all(("alpha" in trial.params) == trial.params["joint"] for trial in trials[0])


def test_more_trials_may_be_asked_for_later(tmp_path):
    folder = SearchFolder(tmp_path)
    first = search_through(lambda: Study(space(trials=3), folder, "graph"))
    more = search_through(lambda: Study(space(trials=5), folder, "graph"))
    assert (len(first.optuna.trials), len(more.optuna.trials)) == (5, 5)
    assert [trial.number for trial in results_of(more.optuna, space(), folder).trials] == [0, 1, 2, 3, 4]


def test_nothing_is_tried_twice(tmp_path):
    small = space({"dim": [4], "p": {"low": 0.1, "high": 0.3, "step": 0.2}, "joint": [True, False]})
    study = search_through(lambda: Study(small, SearchFolder(tmp_path), "graph"))
    results = results_of(study.optuna, small, SearchFolder(tmp_path))
    assert len(results.trials) == 4  # all that there are, though 13 were asked for
    assert sorted(trial.params["p"] for trial in results.trials) == [0.1, 0.1, 0.3, 0.3]


def test_a_grid_is_gone_through_once_whatever_happens(tmp_path):
    grid = space({"joint": [True, False], "dim": [4, 8, 16]}, sampler="grid", trials=5)
    rng = random.Random(1)
    study = search_through(lambda: Study(grid, SearchFolder(tmp_path), "graph"), lambda: rng.random() < 0.5)
    assert [trial.params for trial in study.optuna.trials] == list(grid.points())[:5]


def test_killed_between_a_proposal_and_its_settings(tmp_path):
    folder, grid = SearchFolder(tmp_path), space({"joint": [True, False], "dim": [4, 8]}, sampler="grid", trials=None)
    study = Study(grid, folder, "graph")
    study.optuna.enqueue_trial(next(grid.points()), user_attrs={"point": 0})
    study = Study(grid, folder, "graph")
    assert study.unfinished() == []
    study.optuna.ask()
    study = Study(grid, folder, "graph")
    assert study.unfinished() == [0]
    assert study.params(0) == {"joint": True, "dim": 4}
    finish(study, 0)
    assert study.params(study.ask()) == {"joint": True, "dim": 8}


def test_pruning(tmp_path):
    chosen = space(prune={"method": "median", "startup": 2})
    study = Study(chosen, SearchFolder(tmp_path), "graph")
    for value in (0.5, 0.6):
        number = study.ask()
        assert not study.report(number, 5, value, last=False)
        finish(study, number)
    number = study.ask()
    assert not study.report(number, 5, 0.1, last=True)  # it has ended anyway
    assert study.report(number, 5, 0.1, last=False)
    study = Study(chosen, SearchFolder(tmp_path), "graph")
    assert study.is_pruned(number)
    study.tell(number)
    assert [trial.state for trial in results_of(study.optuna, chosen, SearchFolder(tmp_path)).trials] == [
        *("complete", "complete", "pruned")
    ]


def test_halving(tmp_path):
    study = Study(space(prune={"method": "halving", "first": 2, "factor": 2}), SearchFolder(tmp_path), "graph")
    stopped = []
    for value in (0.5, 0.6, 0.1, 0.2):
        number = study.ask()
        assert not study.report(number, 1, value, last=False)
        stopped.append(study.report(number, 2, value, last=False))
        finish(study, number)
    assert stopped == [False, False, True, True]


def test_other_data_and_a_damaged_file(tmp_path):
    folder = SearchFolder(tmp_path)
    Study(space(), folder, "graph")
    with pytest.raises(UsageError, match=r"expected the data that the search .* began with, world has changed"):
        Study(space(), folder, "other")
    folder.database.write_bytes(b"no database" * 100)
    with pytest.raises(DataError, match=r"expected the trials of a search in .*search\.db"):
        Study(space(), folder, "graph")
