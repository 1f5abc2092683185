"""`jobi-tf reproduce`, from an experiment to its files. The runs are made once, each in a process of its own."""

import csv
import json
import re
import shutil
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import jobi_tf
from jobi_tf.report.runs import stored_evaluation
from jobi_tf.reproduce.record import Record, measure
from jobi_tf.training.run import load_run
from tests.graphs import write_towns

pytestmark = pytest.mark.processes
SETTINGS = {"tensorboard": "none", "dim": 4, "batch_size": 20, "negatives": 5, "epochs": 2, "eval_every": 1}
ROWS = [
    {"name": "plain", "settings": {"joint": False, "p": 0.0}, "paper": {"towns": [0.125, None]}},
    {"name": "JoBi", "settings": {"p": 0.3}, "paper": {"towns": [0.25, 0.5]}},
]
TABLE = {
    **{"title": "A table", "shows": "What it shows.", "metrics": ["hits@10", "mrr"], "datasets": ["towns", "fb15k"]},
    **{"seeds": 1, "settings": SETTINGS, "rows": ROWS},
}


@pytest.fixture(scope="module")
def triples(tmp_path_factory) -> Path:
    """90 triples over 15 towns and 3 relations."""
    return write_towns(tmp_path_factory.mktemp("data") / "towns")


class Bench:
    """A folder with runs, and the command on it."""

    def __init__(self, folder, call, triples):
        self.folder, self._call, self.triples = folder, call, triples
        self.runs, self.out = folder / "runs", folder / "results"

    def write(self, name="table", **changes):
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(TABLE | {"datasets": ["towns"]} | changes))
        return path

    def __call__(self, *arguments, status=0):
        folders = ("--runs", self.runs, "--out", self.out)
        return self._call("reproduce", *arguments, "--dataset", self.triples, *folders, status=status)

    def run(self, which):
        return next(self.runs.glob(f"towns-*/complex-{which}-*/seed-0"))

    def record(self, which):
        return json.loads((self.run(which) / "evaluation.json").read_text())

    def figures(self, name):
        with (self.out / f"{name}.csv").open() as file:
            return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def made(tmp_path_factory, call, triples):
    """Two runs that succeed, one that cannot, and a data set that is out of reach; with what was said."""
    bench = Bench(tmp_path_factory.mktemp("reproduce"), call, triples)
    bad = {"name": "too large", "settings": {"batch_size": 1000}}
    path = bench.write("first", datasets=TABLE["datasets"], rows=[*ROWS, bad])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JOBI_TF_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("https_proxy", "http://127.0.0.1:9")
        bench.said = bench(path, "--dataset", "fb15k", "--jobs", 2, status=1)
    return bench


def test_a_run_that_fails_and_a_data_set_that_is_missing_stop_nothing(made):
    words = made.said.stderr
    assert words.count("fb15k is left out: ") == 1
    assert words.splitlines()[-1].startswith("failed: towns: too large, seed 0: ")
    page = (made.out / "first.md").read_text()
    assert "**2 of 3 runs are complete; the others are missing in these tables.**" in page
    assert "fb15k is missing: " in page
    assert "| too large | – | – | – | – | 0 of 1 |" in page
    assert "2 of 3 runs complete; written: " in made.said.stdout


def test_how_far_the_runs_are(made):
    words = made.said.stderr
    assert "first: 3 left\n" in words
    for place, row in enumerate(("plain", "JoBi"), 1):
        begins = rf"first \[{place}/3\] towns: {row}, seed 0: "
        for epoch, left in ((1, r", left ≤ \d.*"), (2, "")):
            value = r"validation MRR 0\.\d{4}"
            assert re.search(rf"^{begins}epoch {epoch}/2, {value}{left}$", words, re.MULTILINE)
        assert re.search(rf"^{begins}test MRR .*; [012] left", words, re.MULTILINE)
    assert "; 0 left\n" in words


def test_figures_are_those_of_evaluate(made):
    for which, name, paper in (("plain", "plain", ["0.125", ""]), ("joint", "JoBi", ["0.25", "0.5"])):
        run = load_run(made.run(which))
        expected = jobi_tf.evaluate(run).to_dict()
        rows = [row for row in made.figures("first") if row["row"] == name]
        assert [row["metric"] for row in rows] == ["hits@10", "mrr"]
        assert [float(row["mean"]) for row in rows] == [expected["hits@10"], expected["mrr"]]
        assert [row["paper"] for row in rows] == paper
        assert made.record(which)["test"]["tail"] == expected["tail"]
        assert made.record(which)["test"]["mrr"] == pytest.approx(
            statistics.mean(expected[side]["mrr"] for side in ("head", "tail"))
        )
        line = f"| {name} | {expected['hits@10']:.3f} | {float(paper[0]):.3f} | {expected['mrr']:.3f} |"
        assert line in (made.out / "first.md").read_text()


def test_what_is_kept_of_a_run(made):
    record = made.record("joint")
    run = load_run(made.run("joint"))
    assert (record["epochs"], record["steps"], record["jobs"]) == (2, 3, 2)
    rows = [json.loads(line) for line in (made.run("joint") / "metrics.jsonl").read_text().splitlines()]
    best = max(rows, key=lambda row: row["val_mrr"])
    assert record["valid"]["mrr"] == best["val_mrr"]
    assert record["valid"]["hits@10"] == best["val_hits@10"]
    assert stored_evaluation(made.run("joint"))["mrr"] == record["test"]["mrr"]
    assert record["best_epoch"] == best["epoch"]
    assert record["train_seconds"] == pytest.approx(sum(row["seconds"] for row in rows))
    assert record["settings"]["learning_rate"] == run.config.learning_rate > 0
    assert not (made.run("joint") / "checkpoints").exists()


def test_relations_and_implausible_answers(made):
    run = load_run(made.run("joint"))
    test, content = np.asarray(run.graph.test), made.record("joint")["relations"]
    facts = [{tuple(x) for x in split.tolist()} for split in run.graph.splits.values()]
    every = set().union(*facts)
    names = run.graph.relations.names
    counted = {
        name: {s: dict.fromkeys(("triples", "wrong", "implausible", "wrong_implausible"), 0) for s in ("head", "tail")}
        for name in {names[r] for r in test[:, 1]}
    }
    seen = {(side, r, t[side]) for t in facts[0] for side in (0, 2) for r in [t[1]]}
    for triple in test.tolist():
        for side, name in ((0, "head"), (2, "tail")):
            candidates = [(*triple[:side], e, *triple[side + 1 :]) for e in range(run.graph.num_entities)]
            candidates = [c for c in candidates if c == tuple(triple) or c not in every]
            scores = run.model.score(np.array(candidates)).numpy()
            first = candidates[int(np.argmax(scores))]
            row = counted[names[triple[1]]][name]
            wrong, implausible = first != tuple(triple), (side, triple[1], first[side]) not in seen
            for key, holds in (("triples", True), ("wrong", wrong), ("implausible", implausible)):
                row[key] += holds
            row["wrong_implausible"] += wrong and implausible
    assert {
        r: {s: {k: x[k] for k in counted[r][s]} for s, x in sides.items()} for r, sides in content.items()
    } == counted
    assert content == measure(run)["relations"]
    total = {k: sum(x[k] for sides in counted.values() for x in sides.values()) for k in ("wrong", "wrong_implausible")}
    share = Record(made.record("joint")).value("wrong_implausible")
    assert share == total["wrong_implausible"] / total["wrong"]


def test_nothing_is_trained_twice(made):
    files = {path: path.stat().st_mtime_ns for path in made.runs.rglob("*") if path.is_file()}
    one, two = made.write("again"), made.write("renamed", rows=[row | {"name": "x" + row["name"]} for row in ROWS])
    result = made(one, two)
    assert result.stderr == ""
    assert {path: path.stat().st_mtime_ns for path in made.runs.rglob("*") if path.is_file()} == files
    assert result.stdout.count("2 of 2 runs complete") == 2
    assert (made.out / "again.png").read_bytes().startswith(b"\x89PNG")
    assert "All 2 runs are complete." in (made.out / "renamed.md").read_text()


def test_pools_and_rules_are_rows(made):
    names = ["plain", "JoBi"]
    pools = [{"name": "both", "pool": names}, {"name": "one", "pool": names[:1], "rules": True}]
    result = made(made.write("pools", rows=[*ROWS, *pools, {"name": "rules", "rules": True}]))
    runs, rules = (
        [load_run(made.run(x)) for x in ("plain", "joint")],
        jobi_tf.RuleModel(jobi_tf.load_graph(made.triples)),
    )
    expected = {"both": jobi_tf.Pool(runs), "one": jobi_tf.Pool(runs[:1], rules), "rules": rules}
    found = {row["row"]: float(row["mean"]) for row in made.figures("pools") if row["metric"] == "mrr"}
    for name, model in expected.items():
        assert found[name] == pytest.approx(jobi_tf.evaluate(model).metrics()["mrr"])
    assert "5 of 5 runs complete" in result.stdout
    settings = yaml.safe_load(re.search(r"```yaml\n(.*)```", (made.out / "pools.md").read_text(), re.DOTALL)[1])
    assert settings["one"] == {"pool": ["plain"], "rules": True}
    assert "0 left" not in made(made.write("pools", rows=[*ROWS, *pools])).stderr  # nothing is ranked twice


def test_a_row_learns_from_a_pool(made):
    taught = {"settings": {"joint": False, "loss": "full-softmax"}, "pool": ["plain"], "rules": True}
    result = made(made.write("taught", rows=[*ROWS, {"name": "taught"} | taught]))
    assert "3 of 3 runs complete" in result.stdout
    (folder,) = (path.parent for path in made.runs.rglob("config.yaml") if load_run(path.parent).config.soft_labels)
    assert [path.name for path in folder.parent.iterdir() if path.suffix == ".npz"] == []
    settings = yaml.safe_load(re.search(r"```yaml\n(.*)```", (made.out / "taught.md").read_text(), re.DOTALL)[1])
    assert settings["taught"].items() >= {"pool": ["plain"], "rules": True, "loss": "full-softmax"}.items()


def test_without_matplotlib_there_is_no_picture(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = made(made.write("bare"))
    assert result.stderr.startswith("bare.png is left out")
    assert sorted(path.name for path in made.out.glob("bare*")) == ["bare.csv", "bare.md"]
    assert "bare.png" not in (made.out / "bare.md").read_text()


def test_a_dry_run_changes_nothing(made):
    before = sorted(made.folder.rglob("*"))
    path = made.write("dry", seeds=3)
    result = made(path, "--dry-run")
    assert result.stdout.count("1 of 3") == 2
    only = made(path, "--row", "plain", "--dry-run").stdout
    assert ("plain" in only, "JoBi" in only) == (True, False)
    assert re.search(r"2 of 6 runs complete; 4 are missing.* in about \d", result.stdout)
    assert set(made.folder.rglob("*")) - {path} == set(before)
    result = made(path, "--dry-run", "--quick")
    assert "reproduce-quick" not in result.stdout
    assert str(made.folder / "runs-quick") in "".join(result.stdout.split())
    assert "0 of 2 runs complete" in result.stdout
    assert "towns" in made(made.write("none", rows=[{"name": "x", "paper": {"towns": [1, 1]}}]), status=1).stderr


@pytest.fixture
def three(made, tmp_path):
    """The runs with three seeds: those of the second and third have figures of their own."""
    bench = Bench(tmp_path, made._call, made.triples)
    shutil.copytree(made.runs, bench.runs)
    for run in bench.runs.glob("towns-*/*/seed-0"):
        for seed in (1, 2):
            other = run.with_name(f"seed-{seed}")
            shutil.copytree(run, other)
            record = json.loads((other / "evaluation.json").read_text())
            for side in (record["test"], record["test"]["head"], record["test"]["tail"]):
                side["mrr"] += 0.01 * seed**2
            (other / "evaluation.json").write_text(json.dumps(record))
    return bench


def test_mean_and_standard_deviation_over_seeds(three):
    three(three.write("seeds", seeds=3), "--tables-only")
    for which, name in (("plain", "plain"), ("joint", "JoBi")):
        first = three.record(which)["test"]["mrr"]
        values = [first, first + 0.01, first + 0.04]
        row = next(x for x in three.figures("seeds") if (x["row"], x["metric"]) == (name, "mrr"))
        assert float(row["mean"]) == pytest.approx(statistics.mean(values))
        assert float(row["sd"]) == pytest.approx(statistics.stdev(values))
        assert row["seeds"] == "3"
        assert (
            f"| {statistics.mean(values):.3f} ± {statistics.stdev(values):.3f} |"
            in (three.out / "seeds.md").read_text()
        )


def test_tables_of_what_is_there(three):
    for path in three.runs.glob("towns-*/*plain*/seed-[12]"):
        shutil.rmtree(path)
    result = three(three.write("part", seeds=3), "--tables-only")
    assert "4 of 6 runs complete" in result.stdout
    page = (three.out / "part.md").read_text()
    assert "**4 of 6 runs are complete" in page
    assert page.count("| 1 of 3 |") == 1
    three.runs = three.folder / "none"
    result = three(three.write("none"), "--tables-only", status=1)
    assert result.stderr == "none: no run is complete, so there is no table\n"
    assert not (three.out / "none.md").exists()


def test_a_sweep(three):
    sweep = {"setting": "negatives", "values": [5, 6]}
    rows = [row | {"paper": {"towns": [0.1, 0.2]}} for row in ROWS]
    three(three.write("sweep", kind="sweep", sweep=sweep, metrics=["mrr"], rows=rows, seeds=3), "--tables-only")
    page, figures = (three.out / "sweep.md").read_text(), three.figures("sweep")
    mean = three.record("plain")["test"]["mrr"] + 0.05 / 3
    assert f"| plain | {mean:.3f} ± 0.021 | – | 0 to 3 of 3 |" in page
    assert "| plain, paper | 0.100 | 0.200 |  |" in page
    assert [(row["row"], row["at"], row["seeds"], row["paper"]) for row in figures][:2] == [
        ("plain", "5", "3", "0.1"),
        ("plain", "6", "0", "0.2"),
    ]
    assert (three.out / "sweep.png").exists()
    sweep = {"setting": "eval_first", "values": [None, 2]}  # a point that is nothing
    three(three.write("first", kind="sweep", sweep=sweep, metrics=["mrr"], seeds=3), "--tables-only")
    assert [row["at"] for row in three.figures("first")] == ["none", "none", "2"]  # without empty ones


def test_ratios_to_a_baseline(made):
    rows = [row | {"paper": {"towns": [paper]}} for row, paper in zip(ROWS, (10, 18), strict=True)]
    made(made.write("times", baseline="plain", metrics=["epoch_seconds"], rows=rows))
    plain, joint = (made.record(which)["epoch_seconds"] for which in ("plain", "joint"))
    page = (made.out / "times.md").read_text()
    assert "| model | s an epoch | ÷ plain | paper ÷ | seeds |" in page
    assert f"| JoBi | {joint:.3g} | {joint / plain:.2f} | 1.80 | 1 |" in page
    rows[0] = ROWS[0] | {"paper": {}}  # without the baseline there is no ratio
    made(made.write("times", baseline="plain", metrics=["epoch_seconds"], rows=rows), "--tables-only")
    page = (made.out / "times.md").read_text()
    assert "| model | s an epoch | ÷ plain | paper | seeds |" in page
    assert f"| JoBi | {joint:.3g} | {joint / plain:.2f} | 18 | 1 |" in page


def test_gains_by_relation(three):
    path = next(three.runs.glob("towns-*/*joint*/seed-0")) / "evaluation.json"
    for seed in range(3):  # JoBi becomes right about half of the heads of `near`
        path = path.parents[1] / f"seed-{seed}" / "evaluation.json"
        record = json.loads(path.read_text())
        record["relations"]["near"]["head"] |= {"hits@1": 0.5, "wrong": 4, "wrong_implausible": seed}
        path.write_text(json.dumps(record))
    before = three.record("plain")["relations"]["near"]["head"]
    focus = {"towns": {"relation": "near", "side": "head"}}
    kind = {"kind": "relations", "baseline": "plain", "focus": focus, "metrics": ["hits@1", "wrong_implausible"]}
    three(three.write("gains", seeds=3, **kind), "--tables-only")
    page = (three.out / "gains.md").read_text()
    share = before["wrong_implausible"] / before["wrong"]
    assert f"| near | head | {before['triples']} | 0.500 | {before['hits@1']:.3f} | " in page
    assert f" | 0.250 | {share:.3f} |" in page
    focus = page.split("## towns: near, head side")[1]
    assert f"| plain | {before['hits@1']:.3f} ± 0.000 | 0.125 | {share:.3f} ± 0.000 | – | 3 |" in focus
    assert "| JoBi | 0.500 ± 0.000 | 0.250 | 0.250 ± 0.250 | 0.500 | 3 |" in focus
    assert (three.out / "gains.png").exists()


def test_a_folder_with_other_settings_or_damaged_is_not_believed(three):
    run, path = next(three.runs.glob("towns-*/*joint*/seed-1")), three.write("seeds", seeds=3)
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("negatives: 5", "negatives: 6"))
    said = three(path, status=1).stderr
    assert str(run / "config.yaml") in said
    assert "negatives 5" in said
    (run / "config.yaml").write_text(config)
    (run / "evaluation.json").write_text('{"test": ')
    assert str(run / "evaluation.json") in three(path, status=1).stderr


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("--dry-run", "--tables-only"), "--tables-only"),
        (("--tables-only", "--jobs", 2), "--jobs"),
        (("--dataset", "umls=nowhere/at/all"), "nowhere/at/all"),
        (("--dataset", "uml"), "'uml'"),
        (("table9",), "'table9'"),
    ],
)
def test_options_that_cannot_work(made, arguments, key):
    assert key in made(made.write("bad"), *arguments, status=2).stderr


def test_list(call):
    assert {line.split()[0] for line in call("reproduce", "--list").stdout.splitlines()} >= {
        "table2",
        "runtime",
        "best",
    }
    call("reproduce", status=2)


def test_all_with_a_data_set_leaves_out_experiments_about_others(call, tmp_path):
    folders = ("--runs", tmp_path / "runs", "--out", tmp_path / "out")
    result = call("reproduce", "all", "--dataset", "fb15k-237", "--dry-run", *folders)
    assert "Link prediction on FB15K-237" in result.stdout
    assert "Link prediction on FB1.9M" not in result.stdout
    assert not list(tmp_path.iterdir())


def test_a_row_merges_others_and_one_continues_its_training(made):
    merge = {"name": "merged", "merge": ["plain", "plain", "JoBi"]}
    settings = {"joint": False, "loss": "full-softmax", "dim": 12, "learning_rate": 1e-9}
    longer = {"name": "longer", "settings": settings, "warm_start": "merged", "pool": ["merged"], "rules": True}
    result = made(made.write("merged", rows=[*ROWS, merge, longer]))
    assert "5 of 5 runs complete" in result.stdout  # with the second seed of the row plain
    merged, longer = (load_run(next(made.runs.glob(f"towns-*/*{kind}-*/seed-0"))) for kind in ("merge", "warm-start"))
    plain = made.run("plain")
    assert merged.config.merged_from == [str(path) for path in (plain, plain.with_name("seed-1"), made.run("joint"))]
    assert longer.config.soft_labels is not None
    assert longer.config.warm_start == str(merged.path)
    np.testing.assert_allclose(longer.model.entities.table, merged.model.entities.table, atol=1e-6)
    assert made.figures("merged")[-1]["row"] == "longer"
    assert stored_evaluation(merged.path)
    settings = yaml.safe_load(re.search(r"```yaml\n(.*)```", (made.out / "merged.md").read_text(), re.DOTALL)[1])
    assert settings["longer"]["warm_start"] == "merged"
