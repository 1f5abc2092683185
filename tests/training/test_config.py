import pytest

from jobi_tf.errors import UsageError
from jobi_tf.training.config import TrainConfig, read_settings


def test_a_written_config_reads_back_with_every_setting(tmp_path):
    config = TrainConfig.create({"dataset": "umls", "p": 0.25, "joint": False, "columns": "a,b,c", "run_dir": tmp_path})
    config.write(tmp_path / "config.yaml")
    settings = read_settings(tmp_path / "config.yaml")
    assert settings.keys() == TrainConfig.model_fields.keys() - {"run_dir"} - config.without_effect().keys()
    assert "alpha" in config.without_effect()
    read = TrainConfig.create(settings)
    assert read == config.replace(run_dir=None)
    read.check()


def test_names_of_models_may_have_capitals():
    assert TrainConfig.create({"dataset": "umls", "model": "RotatE"}) == TrainConfig(dataset="umls", model="rotate")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dataset: umls\nlr: 1", "config.yaml.*'lr'"),
        ("dataset: umls\n1: 2", "config.yaml.*'1'"),
        ("p: 0.5", "config.yaml.*'dataset'"),
        ("dataset: umls\np: much", "config.yaml.* p .*'much'"),
        ("dataset: umls\nnegatives: 2.5", "config.yaml.* negatives .*2.5"),
        ("dataset: umls\nlearning_rate: .inf", "config.yaml.* learning_rate .*inf"),
        ("- umls", "config.yaml.* list"),
        ("", "config.yaml.* empty"),
        ("a: [", "config.yaml"),
        ("a: 1\n b: 2", "config.yaml, line 2: .*not allowed here$"),
    ],
)
def test_a_file_that_cannot_be_used(text, words, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        TrainConfig.create(read_settings(path), str(path))


def test_a_missing_file_and_one_that_is_no_text(tmp_path):
    with pytest.raises(UsageError, match=r"absent\.yaml"):
        read_settings(tmp_path / "absent.yaml")
    (tmp_path / "junk.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"junk\.yaml"):
        read_settings(tmp_path / "junk.yaml")
    (tmp_path / "twice.yaml").write_text("p: 0\ndim: {a: &a {x: 1, y: 2}, b: {<<: *a, x: 3}}\np: 1\n")
    with pytest.raises(UsageError, match=r"twice\.yaml, line 3: .*'p' twice"):
        read_settings(tmp_path / "twice.yaml")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"loss": "full-softmax", "negatives": 100}, "negatives"),
        ({"loss": "full-softmax", "negatives": 50}, "negatives"),  # also if it is the default
        ({"loss": "full-softmax", "p": 0.0}, "p"),
        ({"loss": "full-softmax", "negatives_mode": "shared"}, "negatives_mode"),
        ({"loss": "full-softmax", "chunk": 5}, "chunk"),
        ({"loss": "full-softmax", "filter_negatives": True}, "filter_negatives"),
        ({"chunk": 20}, "chunk"),
        ({"margin": 2.0}, "margin"),
        ({"loss": "full-softmax", "margin": 0.0}, "margin"),
        ({"adversarial_temperature": 1.0}, "adversarial_temperature"),
        ({"loss": "margin", "adversarial_temperature": 1.0}, "adversarial_temperature"),
        ({"loss": "margin", "label_smoothing": 0.1}, "label_smoothing"),
        ({"joint": False, "alpha": 0.25}, "alpha"),
        ({"joint": False, "n3_pair": 0.1}, "n3_pair"),
        ({"model": "rotate", "n3_pair": 0.1}, "n3_pair"),
        ({"soft_labels": "x.npz"}, "soft_labels"),
        ({"soft_weight": 2.0}, "soft_weight"),
        ({"loss": "full-softmax", "soft_weight": 2.0}, "soft_weight"),
        ({"pair_entities": 9}, "pair_entities"),
        ({"answers_per_query": 1}, "answers_per_query"),
        ({"rare_weight": 0.5}, "rare_weight"),
        ({"loss": "full-softmax", "rare_weight": 0.5}, "answers_per_query"),
        ({"loss": "full-softmax", "joint": False, "pair_entities": 9}, "pair_entities"),
        ({"eval_every": 0, "patience": 9}, "patience"),
        ({"eval_every": 0, "monitor": "mrr"}, "monitor"),
        ({"eval_every": 0, "eval_first": 1}, "eval_first"),
        ({"freeze_entities": True}, "freeze_entities"),
        ({"reciprocal": True}, "negatives_mode"),
        ({"loss": "logistic", "reciprocal": True}, "negatives_mode"),
        ({"negatives_mode": "shared", "reciprocal": True}, "negatives_mode"),
        ({"weights": "w", "loss": "full-softmax"}, "weights"),
        ({"warmup_epochs": 1}, "warmup_epochs"),
        ({"warmup_epochs": 3, "epochs": 3, "schedule": "cosine"}, "warmup_epochs"),
    ],
)
def test_settings_without_effect_are_refused(settings, name):
    config = TrainConfig.create({"dataset": "umls"} | settings)
    with pytest.raises(UsageError, match=rf"\b{name}\b"):
        config.check()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss": "logistic", "margin": 0.0, "adversarial_temperature": 1.0, "label_smoothing": 0.1},
        {"loss": "margin", "margin": 2.0},
        {"negatives_mode": "by-side", "reciprocal": True},
        {"negatives_mode": "shared-by-side", "reciprocal": True},
        {"loss": "full-softmax", "label_smoothing": 0.1, "reciprocal": True, "n3": 0.1, "n3_pair": 0.1, "l2": 0.1},
        {"n3": 0.1, "n3_pair": 0.1, "l2": 0.1, "entity_dropout": 0.2, "relation_dropout": 0.2, "optimizer": "adagrad"},
        {"schedule": "cosine", "warmup_epochs": 2, "epochs": 3},
    ],
)
def test_settings_with_an_effect_pass(settings):
    config = TrainConfig.create({"dataset": "umls"} | settings)
    config.check()
    assert config.effective() == config


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"checkpoint_every": "0"}, "checkpoint_every .*'0'"),
        ({"checkpoint_every": "5h"}, "checkpoint_every .*'5h'"),
        ({"devices": "a"}, "devices .*'a'"),
        ({"dataset": ""}, "dataset .*''"),
        ({"run_dir": ""}, "run_dir .*''"),  # a shell's variable without a value
        ({"warm_start": ""}, "warm_start .*''"),
        ({"entity_vectors": ""}, "entity_vectors .*''"),
        ({"label_smoothing": 1.0}, "label_smoothing .*1"),
        ({"entity_dropout": 1.0}, "entity_dropout .*1"),
        ({"relation_dropout": -0.1}, "relation_dropout .*-0.1"),
        ({"relation_prediction": -1.0}, "relation_prediction .*-1"),
        ({"n3": float("inf")}, "n3 .*inf"),
        ({"loss": "hinge"}, "loss .*'softmax'.*'hinge'"),
        ({"optimizer": "sgd"}, "optimizer .*'adam'.*'sgd'"),
        ({"schedule": "steps"}, "schedule .*'cosine'.*'steps'"),
    ],
)
def test_settings_out_of_range(settings, words):
    with pytest.raises(UsageError, match=words):
        TrainConfig.create({"dataset": "umls"} | settings)
