import json

import pytest
import yaml

from jobi_tf.training.config import TrainConfig

from .conftest import SMALL


def settings(folder) -> dict:
    return yaml.safe_load((folder / "config.yaml").read_text())


def test_tells_before_and_after(triples, call, tmp_path):
    result = call("train", "--dataset", triples, "--run-dir", tmp_path / "a run", *SMALL)
    for words in (
        "towns: 16 entities, 3 relations",
        "70 train, 10 valid, 10 test triples",
        "complex, triple and pair head; d = 4, 8 real numbers an entity",
        "176 parameters: entities 128, relations 48",
        "batches of 20; 5 negatives a triple, p 0.3",
        "2 at most, of 3 steps; ranked every 5",
        "devices   CPU:0",
        "epoch 2/2  loss",
        "validation: MRR",
        "training ended after epoch 2, the last one",
        f"jobi-tf evaluate '{tmp_path}/a run'",
        "tensorboard --logdir",
    ):
        assert words in result.stderr
    assert "best epoch 2 of 2, by Hits@10 on the validation split:\n  MRR 0." in result.stdout
    assert result.stdout.endswith(f"run folder {tmp_path}/a run\n")
    assert "\x1b" not in result.output
    assert "\r" not in result.output


def test_later_sources_win(triples, call, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(f"dataset: {triples}\ndim: 3\np: 0.1\nnegatives: 2\nepochs: 1\nbatch_size: 70\njoint: false\n")
    folder = tmp_path / "run"
    quiet = call(
        "train",
        "-q",
        "--config",
        file,
        "--set",
        "p=0.2",
        "--set",
        "eval-every=0",
        "--negatives",
        4,
        "--run-dir",
        folder,
    )
    assert quiet.stderr == ""
    assert "no epoch was ranked" in quiet.stdout
    chosen = settings(folder)
    defaults = TrainConfig.create({"dataset": "any"})
    assert (chosen["dim"], chosen["p"], chosen["negatives"], chosen["eval_every"]) == (3, 0.2, 4, 0)
    assert (chosen["joint"], chosen["alpha"], chosen["seed"]) == (False, defaults.alpha, defaults.seed)
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 1


def test_every_setting_is_an_option(call):
    said = call("train", "--help").stdout
    for name in TrainConfig.model_fields:
        assert f"--{name.replace('_', '-')}" in said
    assert "[default: 0.3; 0<=x<=1]" in " ".join(said.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--p", "1.5"], "1.5 is not in the range 0<=x<=1"),
        (["--p", "nan"], "expected p to be less than or equal to 1, got nan"),
        (["--dim", "0"], "0 is not in the range x>=1"),
        (["--negatives", "-3"], "-3 is not in the range x>=1"),
        (["--learning-rate", "0"], "0.0 is not in the range x>0"),
        (["--model", "transh"], "'transh' is not one of 'complex', 'distmult', 'simple', 'rescal'"),
        (["--batch-size", "71"], "expected a batch size from 1 to the 70 training triples, got 71"),
        (["--joint", "--no-joint"], "expected --joint/--no-joint at most once, got it 2 times"),
        (["--dim", "3", "--dim", "4"], "expected --dim at most once"),
        (["--no-joint", "--alpha", "1"], "--alpha weighs the pair head, which --no-joint leaves out"),
        (["--eval-every", "0", "--patience", "3"], "--patience counts rankings"),
        (["--devices", "5"], "expected distinct devices out of CPU:0"),
        (["--devices", "x"], "expected devices to be all, or numbers such as 0,1, got 'x'"),
        (["--set", "p"], "expected KEY=VALUE after --set, got 'p'"),
        (["--set", "p=2"], "--set: expected p to be less than or equal to 1, got 2"),
        (["--set", "width=2"], "--set: expected one of the settings dataset, split"),
        (["--set", "p=0", "--set", "p=1"], "expected --set p=… at most once"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
        (["--split", "0.8/0.1/0.1"], "is for one file"),
    ],
)
def test_refuses(triples, call, tmp_path, options, words):
    result = call("train", "--dataset", triples, "--run-dir", tmp_path / "run", *options, status=2)
    assert words in result.stderr
    assert not (tmp_path / "run").exists()


def test_refuses_other_data_sets_and_folders(triples, call, tmp_path):
    assert "did you mean umls" in call("train", "--dataset", "umlz", status=2).stderr
    assert "expected a data set: --dataset" in call("train", status=2).stderr
    (tmp_path / "file").touch()
    assert "holds files already" in call("train", "--dataset", triples, "--run-dir", tmp_path, status=2).stderr
    below = call("train", "--dataset", triples, "--run-dir", tmp_path / "file" / "run", *SMALL, status=1)
    assert f"{tmp_path}/file/run: Not a directory" in below.stderr


@pytest.mark.parametrize("text", ["p: 1.5", "width: 3", "- 1", "a: ["])
def test_names_the_file_of_settings(triples, call, tmp_path, text):
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    assert str(file) in call("train", "--dataset", triples, "--config", file, status=2).stderr


def test_nan_is_told(triples, call, tmp_path):
    result = call(
        "train", "--dataset", triples, "--run-dir", tmp_path / "run", "--learning-rate", "1e30", *SMALL, status=1
    )
    assert "Error: the loss became" in result.stderr
    assert not (tmp_path / "run" / "model.keras").exists()


def test_resume_keeps_the_settings(run, call, tmp_path):
    assert "where dim is 4, got 5" in call("train", "--resume", run, "--dim", 5, status=2).stderr
    assert "where p is 0.3, got 0.5" in call("train", "--resume", run, "--set", "p=0.5", status=2).stderr
    assert "leave out --run-dir" in call("train", "--resume", run, "--run-dir", tmp_path, status=2).stderr
    assert "expected 2 epochs at least" in call("train", "--resume", run, "--epochs", 1, status=2).stderr
    assert "found no config.yaml" in call("train", "--resume", tmp_path, status=1).stderr
    assert "training had ended after epoch 2" in call("train", "--resume", run).stderr
    assert [json.loads(row)["epoch"] for row in (run / "metrics.jsonl").open()] == [1, 2]
