import pytest
import yaml

from jobi_tf.errors import UsageError
from jobi_tf.experiments.spaces import parse_space, read_space, ready_made

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
    return parse_space({**SPACE, **changes}, "mine", "mine.yaml")


def test_a_grid_leaves_out_what_its_condition_leaves_out():
    points = list(parse().points())
    assert points[:2] == [{"joint": True, "alpha": 0.5, "p": 0.1}, {"joint": True, "alpha": 1.0, "p": 0.1}]
    assert [point for point in points if not point["joint"]] == [{"joint": False, "p": p} for p in (0.1, 0.2, 0.3)]
    assert len(points) == 2 * 3 + 3


@pytest.mark.parametrize("name", ready_made())
def test_ready_made_spaces_pass_their_own_checks(name):
    space = read_space(name).changed({"dataset": "world"})
    space.check()
    assert space.description
    assert parse_space(yaml.safe_load(yaml.safe_dump(space.as_mapping(), sort_keys=False)), name, name) == space


def test_the_grids_of_the_paper():
    sizes = {name: len(list(read_space(name).points())) for name in ready_made() if name.startswith("paper")}
    assert sizes == {
        "paper-ablation": 3 * 2 * 4 * (1 + 2),  # batch sizes, negatives, p; plain or an alpha
        "paper-batch-sweep": 6 * 4,
        "paper-fb15k": 8,
        "paper-fb15k-237": 3 * 8,
        "paper-negatives-sweep": 6 * 4,
        "paper-yago3-10": 8,
    }
    point = {"batch_size": 500, "negatives": 100, "alpha": 0.5}
    config = read_space("paper-yago3-10").config(point)
    assert (config.model, config.dim, config.p, config.joint, config.negatives) == ("complex", 200, 0.3, True, 100)


def test_a_setting_that_is_given_is_not_searched():
    space = parse().changed({"joint": False, "epochs": 9}, trials=2)
    assert [parameter.name for parameter in space.parameters] == ["alpha", "p"]
    assert list(space.points()) == [{"p": 0.1}, {"p": 0.2}, {"p": 0.3}]
    assert (space.settings["epochs"], space.trials) == (9, 2)
    with pytest.raises(UsageError, match=r"mine\.yaml: expected settings that vary under search, found none"):
        parse(search={"dim": [4]}).changed({"dim": 8})


def test_numbers_that_yaml_takes_for_texts(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(
        "settings: {n3: 1e-3}\nsearch:\n  learning_rate: {low: 1e-4, high: 1e-1, log: true}\n  l2: [0, 1e-5]"
    )
    rate, l2 = read_space(path).parameters
    assert (rate.low, rate.high, rate.log, l2.choices) == (1e-4, 0.1, True, (0.0, 1e-5))
    assert read_space(path).settings == {"n3": 0.001}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trails": 3}, r"expected one of the keys description, .*, got 'trails'"),
        ({"search": {"dims": [4]}}, r"search\.dims: expected one of the settings dataset, "),
        ({"search": {"dim": [0, 4]}}, r"search\.dim: expected dim to be greater than or equal to 1, got 0"),
        ({"search": {"dim": [4, 4]}}, r"search\.dim: expected each choice once, got 4 twice"),
        ({"search": {"dim": []}}, r"search\.dim: expected a list of choices"),
        ({"search": {"dim": {"low": 9, "high": 4}}}, r"low and a high that is not below"),
        ({"search": {"dim": {"low": 4}}}, r"low and a high that is not below"),
        ({"search": {"dim": {"low": 4, "high": "many"}}}, r"search\.dim\.high: expected a whole number, got 'many'"),
        ({"search": {"dim": {"low": 0.5, "high": 4}}}, r"search\.dim\.low: expected a whole number, got 0\.5"),
        ({"search": {"p": {"low": 0, "high": 2, "step": 1}}}, r"search\.p: expected p to be less than or equal to 1"),
        ({"search": {"p": {"low": 0, "high": 1, "log": True}}}, r"search\.p\.low: expected a number above 0"),
        ({"search": {"p": {"low": 0.1, "high": 1, "log": True, "step": 0.1}}}, r"search\.p\.step: .* without log"),
        ({"search": {"p": {"low": 0, "high": 1}}}, r"search\.p: expected choices or a step, for the sampler grid"),
        ({"search": {"p": {"low": 0, "height": 1}}}, r"search\.p: expected one of the keys .*, got 'height'"),
        ({"search": {"p": {"choices": [0], "low": 0}}}, r"expected choices or a range, got choices and low"),
        ({"search": {"joint": {"low": 0, "high": 1}}}, r"search\.joint: expected a list of choices, since joint is no"),
        ({"search": {"dataset": ["umls", "world"]}}, r"search\.dataset: expected it under settings"),
        ({"search": {"epochs": [3, 4]}}, r"search\.epochs: expected it under search or under settings, got it under"),
        ({"search": {"dim": {"choices": [4], "when": {"dim": 4}}}}, r"search\.dim\.when: expected the name of another"),
        ({"search": {"dim": {"choices": [4], "when": {"joint": "so"}}}}, r"search\.dim\.when: expected joint to be"),
        (
            {"search": SPACE["search"] | {"dim": {"choices": [4], "when": {"alpha": 1}}}},
            r"search\.dim\.when: expected a setting without a condition of its own, got alpha",
        ),
        ({"settings": {"epoch": 3}}, r"settings: expected one of the settings"),
        ({"settings": {"eval_every": 0}}, r"expected settings\.eval_every above 0"),
        ({"settings": {"monitor": "mrr"}}, r"expected no settings\.monitor: metric tells what chooses"),
        ({"settings": {"run_dir": "x"}}, r"expected no settings\.run_dir"),
        ({"settings": ["epochs"]}, r"settings: expected `setting: value` lines"),
        ({"sampler": "gird"}, r"sampler: expected one of grid, tpe, random, got 'gird'"),
        ({"metric": "accuracy"}, r"metric: expected one of mrr, hits@1, hits@3, hits@10, got 'accuracy'"),
        ({"trials": 0}, r"trials: expected a whole number of 1 or more, got 0"),
        ({"prune": "early"}, r"prune: expected one of none, median, halving, got 'early'"),
        ({"prune": {"method": "median", "factor": 3}}, r"prune: expected one of the keys method, startup, warmup"),
        ({"prune": {"method": "halving", "factor": 1}}, r"prune\.factor: expected a whole number of 2 or more, got 1"),
    ],
)
def test_what_cannot_work_is_told_with_its_place(changes, message):
    with pytest.raises(UsageError, match=rf"^mine\.yaml: .*{message}"):
        parse(**changes)


def test_settings_without_effect_are_refused_before_anything_is_trained():
    space = parse(search={"loss": ["softmax", "full-softmax"], "negatives": [10, 20]})
    with pytest.raises(UsageError, match=r"mine\.yaml: with loss full-softmax, negatives 10: .*`when:` can tie"):
        space.check()
    parse(search={"loss": ["softmax", "full-softmax"], "dim": [10, 20]}).check()
    with pytest.raises(UsageError, match=r"mine\.yaml: expected a data set: settings\.dataset, or --dataset"):
        parse(settings={}).check()


def test_no_such_space(tmp_path):
    with pytest.raises(UsageError, match=r"expected a YAML file or one of paper-ablation, .*, got 'mine'"):
        read_space("mine")
