"""What an experiment's YAML may say."""

import re

import pytest
import yaml

from jobi_tf.errors import UsageError
from jobi_tf.reproduce.experiment import Experiment
from jobi_tf.reproduce.runs import Source, make_plan, name_of
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
    return Experiment.parse(yaml.safe_load(GOOD) | changes, "mine", "mine.yaml")


def rows(**changes):
    return [yaml.safe_load(GOOD)["rows"][0] | changes]


def plan(experiment, tmp_path, seeds=1, quick=False, datasets=None):
    sources = [Source(name, name) for name in datasets or experiment.datasets]
    return make_plan(experiment, sources, tmp_path, seeds, quick)


def test_all_experiments_can_be_read():
    assert set(Experiment.built_in()) >= set(NAMES)
    for name in Experiment.built_in():
        assert Experiment.read(name).name == name


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
    found = Experiment.read(name)
    assert found.paper(found.row(row), dataset) == figures


def test_runtime_of_the_paper():
    found = Experiment.read("runtime")
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
    there = Experiment.read("table2")
    assert config.replace(negatives=50) == there.config(there.row("JoBi ComplEx"), "umls")
    assert config.negatives == 9


def test_what_another_row_leaves_to_the_default_stays_so():
    found = experiment(rows=[{"name": "as there", "like": "best/ComplEx, 100 negatives"}])
    there = Experiment.read("best")
    assert there.settings.keys().isdisjoint(found.settings)
    for dataset in found.datasets:
        assert found.config(found.rows[0], dataset) == there.config(there.row("ComplEx, 100 negatives"), dataset)


def test_equal_settings_make_equal_runs(tmp_path):
    paths = {
        name: {run.path for run in plan(Experiment.read(name), tmp_path, datasets=["fb15k-237"]).distinct}
        for name in ("table2", "ablation", "qualitative", "runtime")
    }
    assert len(paths["ablation"]) == 4
    assert paths["qualitative"] == paths["runtime"] == paths["table2"] & paths["ablation"]
    large = [plan(Experiment.read(name), tmp_path, datasets=["fb1.9m"]) for name in ("table3", "runtime")]
    assert len({run.path for p in large for run in p.distinct}) == 2


def test_settings_of_the_experiment_without_effect_change_no_run():
    row = {"name": "plain", "settings": {"joint": False}}
    configs = [
        found.config(found.rows[0], "umls")
        for x in (0.5, 1.0)
        for found in [experiment(settings={"alpha": x}, rows=[row])]
    ]
    assert name_of(configs[0]) == name_of(configs[1])
    config = TrainConfig(dataset="umls")
    same = config.replace(seed=3, run_dir="x", devices="0", dataset="world")
    assert name_of(config) == name_of(same) != name_of(config.replace(dim=100))
    # Folders of earlier versions are found again.
    assert (
        name_of(
            TrainConfig(dataset="fb15k-237", model="simple", joint=False, p=0.0, batch_size=1000, learning_rate=0.0008)
        )
        == "simple-plain-p0-67e2d22d"
    )


def test_quick_runs_are_small(tmp_path):
    for name in NAMES:
        for run in plan(Experiment.read(name), tmp_path, quick=True, datasets=["umls"]).distinct:
            assert (run.config.dim, run.config.epochs) == (32, 10)


def test_rows_of_some_data_sets_only(tmp_path):
    found = experiment(rows=rows(datasets=["umls"]))
    assert [len(plan(found, tmp_path, datasets=[name]).distinct) for name in ("umls", "wn18rr", "world")] == [1, 0, 1]
    names = [[row.name for row in experiment().rows_on(dataset)] for dataset in ("umls", "world")]
    assert names == [["plain", "JoBi", "quoted"], ["plain", "JoBi"]]


SWEEP = {"kind": "sweep", "metrics": ["mrr"]}
DIMS = {"setting": "dim", "values": [1, 2]}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"titel": "x"}, "titel"),
        ({"rows": [{"settings": {}}]}, "name"),
        ({"rows": rows(setting={})}, "setting"),
        ({"kind": "tabel"}, "kind"),
        ({"seeds": 0}, "seeds"),
        ({"rows": []}, "rows"),
        ({"rows": rows(settings={"dims": 3})}, "row 'plain': .*dims"),
        ({"rows": rows(settings={"dim": 0})}, "row 'plain': .*dim"),
        ({"rows": rows(settings={"loss": "full-softmax", "negatives": 3})}, "row 'plain': negatives"),
        ({"rows": rows(settings={"joint": False, "alpha": 0.5})}, "row 'plain': alpha"),
        ({"rows": rows(settings={"seed": 1})}, "seed"),
        ({"rows": rows() * 2}, "plain"),
        ({"rows": rows(paper={"umls": [0.1]})}, "row 'plain': paper: umls"),
        ({"rows": rows(paper={"uml": [0.1]})}, "row 'plain': paper: .*'uml'"),
        ({"by_dataset": {"uml": {}}}, "by_dataset: .*'uml'"),
        ({"metrics": ["hits@2"]}, "metrics: .*hits@2"),
        ({"metrics": ["implausible"]}, "metrics: .*implausible"),
        ({"sweep": {"setting": "p", "values": [0.1]}}, "sweep"),
        (SWEEP, "sweep"),
        (SWEEP | {"sweep": {"setting": "dims", "values": [1]}, "rows": rows(paper={})}, "dims"),
        (SWEEP | {"sweep": DIMS}, "paper"),
        ({"baseline": "base"}, "baseline: .*'base'"),
        ({"kind": "relations"}, "baseline"),
        ({"kind": "relations", "rows": rows(paper={}), "baseline": "plain"}, "beside the baseline on umls"),
        ({"rows": rows(like="best/rules")}, "like: .*best/rules"),
        ({"rows": rows(like="table2/JoBi")}, "like: .*table2/JoBi"),
        ({"rows": rows(like="table9/JoBi")}, "like: .*table9/JoBi"),
        ({"rows": rows(pool=["JoBi"])}, "pool: .*'JoBi'"),
        ({"rows": [*rows(), {"name": "taught", "settings": {}, "pool": ["plain"]}]}, "'taught': soft_labels .*effect"),
        ({"rows": [*rows(), {"name": "x", "pool": ["plain"], "rules": True, "by_dataset": {"umls": {}}}]}, "settings"),
        ({"rows": [*rows(), {"name": "pool", "pool": ["plain"]}]}, "'pool': pool: .*'plain'"),
        ({"rows": [*rows(), {"name": "pool", "pool": ["plane"], "rules": True}]}, "'pool': pool: .*'plane'"),
        (SWEEP | {"sweep": DIMS, "rows": [*rows(paper={}), {"name": "rules", "rules": True}]}, "rules: .*sweep"),
        ({"rows": [{"name": "x", "merge": ["plain", "JoBi"]}, *rows()]}, "'x': merge: .*above.*'plain'"),
        ({"rows": [*rows(), {"name": "x", "merge": ["plain"]}]}, "'x': merge: .*'plain'"),
        ({"rows": [*rows(), {"name": "x", "merge": ["plain", "plain"], "settings": {}}]}, "'x': merge: .*settings"),
        ({"rows": [*rows(), {"name": "x", "warm_start": "plain"}]}, "'x': warm_start: .*settings"),
        ({"rows": [*rows(), {"name": "x", "by_dataset": {"umls": {}}}]}, "'x': by_dataset: .*settings"),
        (
            {"rows": [*rows(), {"name": "x", "merge": ["plain"] * 2, "by_dataset": {"umls": {}}}]},
            "'x': merge: .*by_dat",
        ),
        ({"rows": rows(settings={"warm_start": "runs/mine"})}, "warm_start"),
        (
            {"rows": [*rows(settings={"model": "transe"}), {"name": "x", "merge": ["plain"] * 2}]},
            "'x': merge: .*complex.*transe",
        ),
        ({"rows": [*rows(), {"name": "x", "settings": {}, "warm_start": "x"}]}, "'x': warm_start: .*'x'"),
        ({"rows": [*rows(), {"name": "x", "settings": {"dim": 9}, "warm_start": "plain"}]}, "warm_start: .*dim 4.* 9"),
        (
            {
                "rows": [
                    *rows(),
                    {"name": "rescal", "settings": {"model": "rescal"}},
                    {"name": "x", "merge": ["plain", "rescal"]},
                ]
            },
            "'x': merge: .*complex and rescal",
        ),
        ({"metrics": []}, "metrics"),
        (SWEEP | {"sweep": {"setting": "tensorboard", "values": ["all", "none"]}, "rows": rows(paper={})}, "results"),
        (SWEEP | {"sweep": DIMS | {"values": [1, 2, 1]}, "rows": rows(paper={})}, "sweep: .*once"),
        (SWEEP | {"sweep": DIMS, "rows": rows(paper={}, settings={"dim": 3})}, "dim"),
        ({"rows": rows(datasets=["umls"], by_dataset={"wn18rr": {}})}, "by_dataset: .*'wn18rr'"),
        ({"rows": rows(datasets=[])}, "datasets"),
    ],
)
def test_invalid_experiments_are_refused_with_file_and_key(changes, key):
    with pytest.raises(UsageError, match=rf"^mine\.yaml: .*{key}"):
        experiment(**changes)


def test_some_rows_with_those_that_they_need(tmp_path):
    more = [{"name": "other", "settings": {"p": 0.3}}, {"name": "merged", "datasets": ["umls"], "merge": ["plain"] * 2}]
    whole = experiment(rows=[*rows(datasets=["umls"]), *more])
    found = whole.only(["merged"])
    assert [row.name for row in found.rows] == ["plain", "merged"]
    assert [source.name for source in plan(found, tmp_path).sources] == ["umls"]
    assert not plan(found, tmp_path, datasets=["wn18rr"]).runs
    with pytest.raises(UsageError, match="merged, got 'merge'"):
        whole.only(["merge"])
    with pytest.raises(UsageError, match="beside the baseline"):
        Experiment.read("qualitative").only(["ComplEx"])


def test_runs_of_a_row_that_is_merged_with_itself_have_seeds_of_their_own(tmp_path):
    merged = {"name": "merged", "datasets": ["umls"], "merge": ["plain"] * 2}
    found = plan(experiment(rows=[*rows(), merged]), tmp_path, seeds=2, datasets=["umls"])
    members = [{path.rpartition("-")[2] for path in run.merge} for run in found.runs if run.merge]
    assert members == [{"0", "1"}, {"2", "3"}]
    assert [run.level for run in found.runs] == [0, 0, 0, 0, 1, 1]


def test_a_quick_run_is_as_large_as_the_merged_runs_that_it_starts_from(tmp_path):
    more = [
        {"name": "merged", "merge": ["plain"] * 2},
        {"name": "longer", "settings": {"dim": 80}, "warm_start": "merged"},
    ]
    found = experiment(datasets=["umls"], by_dataset={}, rows=[*rows(settings={"dim": 40}), *more])
    dims = [[run.config.dim for run in plan(found, tmp_path, quick=x).runs if run.is_trained] for x in (False, True)]
    assert dims == [[40, 40, 80], [32, 32, 64]]


def test_no_such_experiment():
    with pytest.raises(UsageError, match="table9"):
        Experiment.read("table9")


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
    with pytest.raises(UsageError, match="umls"):
        Source.parse("uml")
    with pytest.raises(UsageError, match="nothing"):
        Source.parse(f"fb1.9m={tmp_path / 'nothing'}")
    for text in ("=umls", "umls=", f"fb1.9m={triples / 'train.tsv'}"):
        with pytest.raises(UsageError, match=re.escape(text.removeprefix("fb1.9m="))):
            Source.parse(text)
