"""What an experiment's YAML may say."""

import re

import pytest
import yaml

from jobi_tf.errors import UsageError
from jobi_tf.experiments.reproduce.experiment import built_in, parse_experiment, read_experiment
from jobi_tf.experiments.reproduce.plan import Source, make_plan, name_of
from jobi_tf.training.config import TrainConfig

NAMES = (
    *("ablation", "batch-sweep", "full-softmax", "negatives-sweep", "qualitative", "runtime"),
    *("table2", "table3", "typecomplex"),
)
GOOD = """
title: T
shows: S
datasets: [umls, wn18rr]
seeds: 2
settings: {dim: 8, p: 0.0}
by_dataset: {umls: {dim: 4, negatives: 7}}
rows:
  - name: plain
    settings: {joint: false}
    paper: {umls: [.1, .2, .3, null]}
  - name: JoBi
    settings: {p: 0.3}
    by_dataset: {wn18rr: {alpha: 0.5}}
  - name: quoted
    paper: {umls: [.4, .5, .6, .7]}
"""


def experiment(**changes):
    return parse_experiment(yaml.safe_load(GOOD) | changes, "mine", "mine.yaml")


def rows(**changes):
    return [yaml.safe_load(GOOD)["rows"][0] | changes]


def plan(experiment, tmp_path, seeds=1, quick=False, datasets=None):
    sources = [Source(name, name) for name in datasets or experiment.datasets]
    return make_plan(experiment, sources, tmp_path, seeds, quick)


def test_all_of_the_paper_can_be_read():
    assert set(built_in()) >= set(NAMES)
    for name in built_in():
        assert read_experiment(name).name == name


# Figures of the paper: the first and the last of each table.
@pytest.mark.parametrize(
    ("name", "row", "dataset", "figures"),
    [
        ("table2", "SimplE", "fb15k-237", [0.160, 0.268, 0.430, 0.248]),
        ("table2", "JoBi ComplEx", "yago3-10", [0.333, 0.477, 0.617, 0.428]),
        ("table3", "JoBi ComplEx", "fb1.9m", [0.452, 0.615, 0.726, 0.550]),
        ("ablation", "BiasedNeg", "yago3-10", [0.276, 0.427, 0.568, 0.375]),
        ("batch-sweep", "JoBi", "yago3-10", [0.535, 0.564, 0.566, 0.589, 0.591, 0.593]),
        ("negatives-sweep", "Baseline", "yago3-10", [0.458, 0.499, 0.528, 0.548, 0.564, 0.566]),
        ("full-softmax", "ComplEx-N3", "fb15k", [None, None, 0.91, 0.86]),
        ("typecomplex", "TypeComplex", "fb15k-237", [0.296, None, 0.575, 0.389]),
        ("qualitative", "JoBi ComplEx", "yago3-10", [0.86, 0.02]),
    ],
)
def test_figures_of_the_paper(name, row, dataset, figures):
    found = read_experiment(name)
    assert found.paper(found.row(row), dataset) == figures


def test_runtime_of_the_paper():
    found = read_experiment("runtime")
    plain, joint = (found.paper(row, "fb1.9m") for row in found.rows)
    days = {"plain": 5 * 24 + 5 + 8 / 60, "joint": 4 * 24 + 19 / 60}
    assert (plain[2:], joint[2:]) == (
        [70, pytest.approx(days["plain"], abs=0.01)],
        [30, pytest.approx(days["joint"], abs=0.01)],
    )
    assert plain[0] == pytest.approx(days["plain"] * 3600 / 70, rel=0.001)
    assert joint[0] / plain[0] == pytest.approx(1.80, abs=0.005)


def test_later_settings_win():
    found = experiment()
    assert (found.config(found.rows[1], "umls").dim, found.config(found.rows[1], "wn18rr").dim) == (4, 8)
    assert found.config(found.rows[1], "wn18rr").alpha == 0.5
    assert found.config(found.rows[1], "umls").negatives == 7
    assert [found.config(row, "umls").p for row in found.rows[:2]] == [0.0, 0.3]
    assert found.config(found.rows[1], "world").dim == 8  # a data set that the experiment does not know


def test_like_another_row():
    found = experiment(rows=[{"name": "as there", "like": "ablation/JoBi", "settings": {"negatives": 9}}])
    config = found.config(found.rows[0], "umls")
    there = read_experiment("table2")
    assert config.replace(negatives=50) == there.config(there.row("JoBi ComplEx"), "umls")
    assert config.negatives == 9


def test_what_another_row_leaves_to_the_default_stays_so():
    found = experiment(rows=[{"name": "as there", "like": "best/ComplEx, 100 negatives"}])
    there = read_experiment("best")
    assert there.settings.keys().isdisjoint(found.settings)
    for dataset in found.datasets:
        assert found.config(found.rows[0], dataset) == there.config(there.row("ComplEx, 100 negatives"), dataset)


def test_equal_settings_make_equal_runs(tmp_path):
    paths = {
        name: {run.path for run in plan(read_experiment(name), tmp_path, datasets=["fb15k-237"]).all_runs}
        for name in ("table2", "ablation", "qualitative", "runtime")
    }
    assert len(paths["ablation"]) == 4
    assert paths["qualitative"] == paths["runtime"] == paths["table2"] & paths["ablation"]
    large = [plan(read_experiment(name), tmp_path, datasets=["fb1.9m"]) for name in ("table3", "runtime")]
    assert len({run.path for p in large for run in p.all_runs}) == 2


def test_settings_without_effect_change_no_run():
    found = experiment(rows=[{"name": x, "settings": {"joint": False, "alpha": x}} for x in ("0.5", "1.0")])
    assert len({name_of(found.config(row, "umls")) for row in found.rows}) == 1
    config = TrainConfig(dataset="umls")
    same = config.replace(seed=3, run_dir="x", devices="0", dataset="world")
    assert name_of(config) == name_of(same) != name_of(config.replace(dim=100))


def test_quick_runs_are_small(tmp_path):
    for name in NAMES:
        for run in plan(read_experiment(name), tmp_path, quick=True, datasets=["umls"]).all_runs:
            assert (run.config.dim, run.config.epochs) == (32, 10)


def test_rows_of_some_data_sets_only(tmp_path):
    found = experiment(rows=rows(datasets=["umls"]))
    assert [len(plan(found, tmp_path, datasets=[name]).all_runs) for name in ("umls", "wn18rr", "world")] == [1, 0, 1]
    names = [[row.name for row in experiment().rows_on(dataset)] for dataset in ("umls", "world")]
    assert names == [["plain", "JoBi", "quoted"], ["plain", "JoBi"]]


SWEEP = {"kind": "sweep", "metrics": ["mrr"]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"titel": "x"}, "mine.yaml: expected one of the keys title, shows, .*, got 'titel'"),
        ({"rows": [{"settings": {}}]}, r"mine.yaml: rows\[0\]: expected the key 'name', which is missing"),
        ({"rows": rows(setting={})}, r"mine.yaml: rows\[0\]: expected one of the keys name, like, .*, got 'setting'"),
        ({"kind": "tabel"}, "mine.yaml: expected kind to be 'table', 'sweep' or 'relations', got 'tabel'"),
        ({"seeds": 0}, "mine.yaml: expected seeds to be greater than or equal to 1, got 0"),
        ({"rows": []}, "mine.yaml: expected rows to be .* at least 1 item"),
        ({"rows": rows(settings={"dims": 3})}, "mine.yaml: row 'plain': expected one of the settings .*, got 'dims'"),
        ({"rows": rows(settings={"dim": 0})}, "mine.yaml: row 'plain': expected dim to be .* got 0"),
        ({"rows": rows(settings={"loss": "full-softmax"})}, "row 'plain': expected p to be left at 0.3, got 0.0"),
        ({"rows": rows(settings={"seed": 1})}, "expected no setting 'seed': the command decides it"),
        ({"rows": rows() * 2}, "expected each row once, got 'plain' 2 times"),
        ({"rows": rows(paper={"umls": [0.1]})}, "row 'plain': paper: umls: expected 4 numbers, .* metric, got 1"),
        (
            {"rows": rows(paper={"uml": [0.1]})},
            "row 'plain': paper: expected one of the data sets umls, wn18rr, got 'uml'",
        ),
        ({"by_dataset": {"uml": {}}}, "by_dataset: expected one of the data sets umls, wn18rr, got 'uml'"),
        ({"metrics": ["hits@2"]}, "metrics: expected some of mrr, .*, got 'hits@2'"),
        ({"metrics": ["implausible"]}, "metrics: expected some of .*, got 'implausible'"),
        ({"sweep": {"setting": "p", "values": [0.1]}}, "expected `sweep` where kind is sweep, and only there"),
        (SWEEP, "expected `sweep` where kind is sweep, and only there; kind is sweep"),
        (SWEEP | {"sweep": {"setting": "dims", "values": [1]}, "rows": rows(paper={})}, "row 'plain': .* got 'dims'"),
        (
            SWEEP | {"sweep": {"setting": "dim", "values": [1, 2]}},
            "expected 2 numbers, one for each value of the sweep",
        ),
        ({"baseline": "base"}, "baseline: expected a row that is run on all data sets, plain, JoBi, got 'base'"),
        ({"kind": "relations"}, "expected a `baseline`"),
        ({"rows": rows(like="table2/JoBi")}, re.escape("like: expected table2/ and one of ['SimplE',")),
        ({"rows": rows(like="table9/JoBi")}, "like: expected EXPERIMENT/ROW of ablation, .*, got 'table9/JoBi'"),
    ],
)
def test_what_cannot_work_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        experiment(**changes)


def test_no_such_experiment():
    with pytest.raises(UsageError, match=r"expected a YAML file or one of ablation, .*, got 'table9'"):
        read_experiment("table9")


def test_data_sets_by_name_and_path(tmp_path):
    triples = tmp_path / "towns"
    triples.mkdir()
    for split in ("train", "valid", "test"):
        (triples / f"{split}.tsv").write_text("a\tnear\tb\n")
    assert Source.parse("umls") == Source("umls", "umls")
    assert Source.parse("fb1.9m", ["fb1.9m"]) == Source("fb1.9m", "fb1.9m")
    assert "--dataset fb1.9m=PATH" in str(Source.parse("fb1.9m", ["fb1.9m"]).obtain())
    local, named = Source.parse(str(triples)), Source.parse(f"fb1.9m={triples}", ["fb1.9m"])
    assert (local.name, named.name, local.place) == ("towns", "fb1.9m", named.place)
    assert re.fullmatch("towns-[0-9a-f]{8}", local.folder)
    assert local.folder.removeprefix("towns") == named.folder.removeprefix("fb1.9m")
    with pytest.raises(UsageError, match=r"unknown data set 'uml'.*did you mean umls"):
        Source.parse("uml")
    with pytest.raises(UsageError, match="found nothing there"):
        Source.parse(f"fb1.9m={tmp_path / 'nothing'}")
