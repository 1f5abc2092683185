import pytest

from jobi_tf.errors import UsageError
from jobi_tf.training.config import TrainConfig, parse_assignment, read_settings


def test_a_written_config_reads_back_with_every_setting(tmp_path):
    config = TrainConfig.create({"dataset": "umls", "p": 0.25, "joint": False, "columns": "a,b,c", "run_dir": tmp_path})
    config.write(tmp_path / "config.yaml")
    settings = read_settings(tmp_path / "config.yaml")
    assert settings.keys() == TrainConfig.model_fields.keys() - {"run_dir"}
    assert TrainConfig.create(settings) == config.replace(run_dir=None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dataset: umls\nlr: 1", "config.yaml: expected one of the settings .*, got 'lr'"),
        ("dataset: umls\n1: 2", "config.yaml: expected one of the settings .*, got '1'"),
        ("p: 0.5", "config.yaml: expected the setting 'dataset', which is missing"),
        ("dataset: umls\np: much", "config.yaml: expected p to be a valid number.*, got 'much'"),
        ("dataset: umls\nnegatives: 2.5", "config.yaml: expected negatives to be a valid integer"),
        ("dataset: umls\nlearning_rate: .inf", "config.yaml: expected learning_rate to be a finite number"),
        ("- umls", "expected `key: value` lines in .*config.yaml, got a list"),
        ("", "expected `key: value` lines in .*config.yaml, got an empty file"),
        ("a: [", "expected YAML in .*config.yaml"),
    ],
)
def test_a_file_that_cannot_be_used(text, words, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words):
        TrainConfig.create(read_settings(path), str(path))


def test_a_missing_file_and_one_that_is_no_text(tmp_path):
    with pytest.raises(UsageError, match=r"expected a YAML file of settings: .*absent.yaml: No such file"):
        read_settings(tmp_path / "absent.yaml")
    (tmp_path / "junk.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"expected YAML in .*junk.yaml"):
        read_settings(tmp_path / "junk.yaml")


def test_assignments():
    assert parse_assignment("eval-every=3") == ("eval_every", 3)
    assert parse_assignment("joint = false") == ("joint", False)
    assert parse_assignment("dataset=a=b") == ("dataset", "a=b")
    for text, words in (
        ("joint", "expected KEY=VALUE after --set, got 'joint'"),
        ("p=[", "expected a YAML value after p="),
    ):
        with pytest.raises(UsageError, match=words):
            parse_assignment(text)
