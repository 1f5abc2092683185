import pytest
import yaml

pytest.importorskip("optuna", reason="needs the extra search")

from jobi_tf.errors import UsageError
from jobi_tf.tuning.spaces import Space

SPACE = {
    "settings": {"dataset": "world", "epochs": 3},
    "search": {
        "joint": [True, False],
        "alpha": {"choices": [0.5, 1], "when": {"joint": True}},
        "p": {"low": 0.1, "high": 0.3, "step": 0.1},
    },
    "sampler": "grid",
}


def parse(**changes):
    return Space.parse({**SPACE, **changes}, "mine", "mine.yaml")


def test_a_grid_leaves_out_what_its_condition_leaves_out():
    points = list(parse().points())
    assert points[0] == {"joint": True, "alpha": 0.5, "p": 0.1}
    assert [point for point in points if not point["joint"]] == [{"joint": False, "p": p} for p in (0.1, 0.2, 0.3)]
    assert len(points) == parse().size == 2 * 3 + 3
    assert parse(trials=4).size == 4


@pytest.mark.parametrize("name", Space.built_in())
def test_built_in_spaces_pass_their_own_checks(name):
    space = Space.read(name).changed({"dataset": "world"})
    space.check()
    assert space.description
    again = Space.parse(yaml.safe_load(yaml.safe_dump(space.as_mapping(), sort_keys=False)), name, name)
    assert again.as_mapping() == space.as_mapping()


def test_a_setting_that_is_given_is_not_searched():
    space = parse().changed({"joint": False, "epochs": 9}, trials=2)
    assert list(space.search) == ["p"]  # alpha is for joint trials
    assert list(space.points()) == [{"p": 0.1}, {"p": 0.2}, {"p": 0.3}]
    assert (space.settings["epochs"], space.trials) == (9, 2)
    with pytest.raises(UsageError, match="search"):
        parse(search={"dim": [4]}).changed({"dim": 8})


def test_numbers_that_yaml_reads_as_texts(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(
        "settings: {n3: 1e-3}\nsearch:\n  learning_rate: {low: 1e-4, high: 1e-1, log: true}\n  l2: [0, 1e-5]"
    )
    space = Space.read(path)
    rate, l2 = space.search.values()
    assert (rate.low, rate.high, rate.log, l2.choices) == (1e-4, 0.1, True, [0.0, 1e-5])
    assert space.settings == {"n3": 0.001}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"trails": 3}, "trails"),
        ({"search": {}}, "search"),
        ({"search": {"dims": [4]}}, "dims"),
        ({"search": {"dim": [0, 4]}}, "dim"),
        ({"search": {"dim": [4, 4]}}, "dim"),
        ({"search": {"dim": [4, "4"]}}, "once"),
        ({"search": {"dim": []}}, r"search\.dim\.choices"),
        ({"search": {"dim": {"low": 9, "high": 4}}}, r"dim: .*low=9, high=4"),
        ({"search": {"dim": {"low": 4}}}, "dim"),
        ({"search": {"dim": {"low": 4, "high": "many"}}}, r"search\.dim\.high"),
        ({"search": {"dim": {"low": 0.5, "high": 4}}}, "dim"),
        ({"search": {"p": {"low": 0, "high": 2, "step": 1}}}, "p"),
        ({"search": {"p": {"low": 0, "high": 1, "log": True}}}, "p"),
        (
            {"search": {"p": {"low": 0.1, "high": 1, "log": True, "step": 0.1}}},
            r"p: .*step.* is not supported when .log",
        ),
        ({"search": {"p": {"low": 0, "high": 1}}}, "p"),  # no step, for a grid
        ({"search": {"p": {"low": 0, "height": 1}}}, "height"),
        ({"search": {"p": {"choices": [0], "low": 0}}}, "p"),
        ({"search": {"joint": {"low": 0, "high": 1}}}, "joint"),
        ({"search": {"dataset": ["umls", "world"]}}, "dataset"),
        ({"search": {"epochs": [3, 4]}}, "epochs"),  # which is in settings too
        ({"search": {"dim": {"choices": [4], "when": {"dim": 4}}}}, "dim"),
        ({"search": {"dim": {"choices": [4], "when": {"joint": "so"}}}}, "joint"),
        ({"search": SPACE["search"] | {"dim": {"choices": [4], "when": {"alpha": 1}}}}, "alpha"),
        ({"search": {"p": {"choices": [0.1], "when": {"joint": False}}}}, "joint"),  # which is True
        ({"search": SPACE["search"] | {"dim": {"choices": [4], "when": {"p": 0.5}}}}, "p"),
        ({"search": {"dimm": [4]}}, "did you mean dim"),
        ({"search": {"merged_from": [["a"]]}}, "merged_from cannot"),
        ({"settings": {"epoch": 3}}, "epoch"),
        ({"settings": {"eval_every": 0}}, "eval_every"),
        ({"settings": {"monitor": "mrr"}}, "monitor"),
        ({"settings": {"run_dir": "x"}}, "run_dir"),
        ({"settings": ["epochs"]}, "settings"),
        ({"sampler": "gird"}, "sampler"),
        ({"metric": "accuracy"}, "metric"),
        ({"trials": 0}, "trials"),
        ({"prune": "early"}, r"prune\.method"),
        ({"prune": {"method": "median", "factor": 3}}, "prune"),
        ({"prune": {"method": "halving", "factor": 1}}, r"prune\.factor"),
    ],
)
def test_invalid_spaces_are_refused_with_file_and_key(changes, key):
    with pytest.raises(UsageError, match=rf"^mine\.yaml: .*\b{key}\b"):
        parse(**changes)


def test_settings_without_effect_are_refused_before_anything_is_trained():
    with pytest.raises(UsageError, match="negatives"):
        parse(search={"loss": ["softmax", "full-softmax"], "negatives": [10, 20]}).check()
    with pytest.raises(UsageError, match=r"settings\.margin"):
        parse(settings={"dataset": "world", "margin": 2.0}).check()
    with pytest.raises(UsageError, match=r"settings\.dataset"):
        parse(settings={}).check()


def test_a_fixed_setting_may_have_no_effect_in_some_trials():
    space = parse(settings={"dataset": "world", "alpha": 0.5}, search={"joint": [True, False]})
    space.check()
    assert [space.config(point).alpha for point in space.points()] == [0.5, 1.0]


def test_no_such_space():
    with pytest.raises(UsageError, match="'mine'"):
        Space.read("mine")
