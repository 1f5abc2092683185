import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import jobi_tf
from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import SIDES, KnownAnswers, Occurrences
from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import DataError, MissingExtraError, UsageError
from jobi_tf.evaluation.calibration import Bin
from jobi_tf.evaluation.evaluate import evaluate
from jobi_tf.report.charts import Axis
from jobi_tf.report.measured import FILTERS, breakdown, first_answers, measure
from jobi_tf.report.page import calibration, categories, gains, shown, write_report
from jobi_tf.report.runs import find_runs, labels
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.run_folder import RunFolder, run_path
from tests.evaluation.oracle import triple_set
from tests.graphs import random_graph
from tests.models.oracles import oracle_scores

EVIL = '<script>alert("entity")</script>'
EVIL_RELATION = "</table>&amp;<b>_relation"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def evil_graph() -> Graph:
    graph = random_graph()
    entities = [EVIL, "entity\u202e 1", *(f"entity {i}" for i in range(2, 30))]
    relations = [EVIL_RELATION, *(f"relation {i}" for i in range(1, 4))]
    return Graph("<i>tiny</i>", Vocabulary(entities, "entity"), Vocabulary(relations, "relation"), graph.splits)


GRAPH = evil_graph()


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    options = {"batch_size": 40, "negatives": 5, "epochs": 3, "eval_every": 1, "callbacks": ()}
    jobi_tf.train(GRAPH, run_dir=folder / "plain", dim=8, joint=False, p=0, **options)
    jobi_tf.train(GRAPH, run_dir=folder / "joint <b>", dim=6, **options)
    return [folder / "plain", folder / "joint <b>"]


@pytest.fixture(scope="module")
def runs(paths):
    return [measure(path, "valid") for path in paths]


@pytest.fixture(scope="module")
def page(paths, tmp_path_factory) -> str:
    return write_report(paths, tmp_path_factory.mktemp("page") / "report.html").read_text(encoding="utf-8")


class Page(HTMLParser):
    """The cells of the tables by the label of what holds them, all tags, and the text outside of tags."""

    def __init__(self, text: str):
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[tuple[str, dict]] = []
        self.words = ""
        self._label, self._cell = "", False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if attributes.get("role") == "region":
            self._label = attributes["aria-label"]
            self.tables[self._label] = []
        if tag == "tr":
            self.tables[self._label].append([])
        if tag in ("td", "th"):
            self.tables[self._label][-1].append("")
            self._cell = True
        if "delta" in attributes.get("class", ""):
            self._cell = False

    def handle_endtag(self, tag):
        self._cell = self._cell and tag not in ("td", "th")

    def handle_data(self, data):
        self.words += data
        if self._cell:
            self.tables[self._label][-1][-1] += data.strip()


def test_first_answers_equal_numpy(paths):
    run = jobi_tf.load_run(paths[0])
    triples, train = GRAPH.test, GRAPH.train
    known = triple_set(*GRAPH.splits.values())
    found = evaluate(run, split="test")
    occurrences = Occurrences.from_triples(train, GRAPH.num_entities, GRAPH.num_relations)
    filters = KnownAnswers.of_graph(GRAPH, FILTERS["test"])
    got = first_answers(run.model, found, filters, occurrences)
    assert got["side"].tolist() == ["head"] * len(triples) + ["tail"] * len(triples)
    for (_, row), triple in zip(got.iterrows(), np.tile(triples, (2, 1)), strict=True):
        column = 2 * SIDES.index(row["side"])
        every = np.repeat(triple[None], GRAPH.num_entities, 0)
        every[:, column] = np.arange(GRAPH.num_entities)
        left = [j for j, t in enumerate(map(tuple, every.tolist())) if j == triple[column] or t not in known]
        scores = oracle_scores(run.model, every[left])
        first = left[scores.argmax()]
        seen = {x[column] for x in train.tolist() if x[1] == triple[1]}
        assert (row["relation"], row["entity"]) == (triple[1], first)
        assert row["right"] == (first == triple[column])
        assert row["confidence"] == pytest.approx(np.exp(scores.max()) / np.exp(scores).sum(), rel=1e-4)
        assert (row["plausible"], row["true_plausible"]) == (first in seen, triple[column] in seen)
    for side in SIDES:
        assert breakdown(got[got["side"] == side]).items() >= found.to_dict()[side].items()


def test_a_tie_with_the_true_answer_is_no_right_first_answer():
    model = jobi_tf.JoBi(GRAPH.num_entities, GRAPH.num_relations, 4)
    for table in model.weights:
        table.assign(np.zeros(table.shape, np.float32))
    filters = KnownAnswers.of_graph(GRAPH, FILTERS["test"])
    found = evaluate(SimpleNamespace(model=model, graph=GRAPH))
    got = first_answers(model, found, filters, Occurrences.of_graph(GRAPH))
    assert not got["right"].any()
    assert (got["entity"] != np.concatenate([GRAPH.test[:, 0], GRAPH.test[:, 2]])).all()
    equal = np.concatenate([found.ranks[side].equal for side in SIDES])
    np.testing.assert_allclose(got["confidence"], 1 / (1 + equal), rtol=1e-5)


def test_shares_and_reliability_by_hand():
    right, plausible = np.array([1, 1, 0, 0], bool), np.array([1, 0, 0, 1], bool)
    columns = {"rank": [1, 1, 2, 4], "confidence": [0.95, 1.0, 0.12, 0.18], "right": right, "plausible": plausible}
    answers = pd.DataFrame({**columns, "true_plausible": plausible})
    assert breakdown(answers).items() >= {"mrr": 0.6875, "hits@1": 0.5, "triples": 4, "implausible": 2}.items()
    assert [shown(answers)[f"share{of}"] for of in ("", "_of_wrong", "_of_true")] == [0.5, 0.5, 0.5]
    assert shown(answers[1:3])["share_of_wrong"] == 1
    assert np.isnan(shown(answers[right])["share_of_wrong"])
    error, bins = calibration(SimpleNamespace(answers=answers))
    assert bins == (Bin(0.1, 0.2, 2, pytest.approx(0.15), 0.0), Bin(0.9, 1.0, 2, pytest.approx(0.975), 1.0))
    assert error == pytest.approx((0.15 + 0.025) / 2)


def test_figures_are_those_of_evaluate(paths, page):
    rows = [row for row in Page(page).tables["Results"] if len(row) > 1]
    assert rows[0] == ["side that is sought", "MRR", "Hits@1", "Hits@3", "Hits@10", "mean rank"]
    found = [evaluate(jobi_tf.load_run(path), split="valid") for path in paths]
    dicts = [x.to_dict() for x in found]
    expected = []
    for side in (None, *SIDES):
        for name, evaluation in zip(("plain", "joint <b>"), dicts, strict=True):
            metrics = evaluation[side] if side else evaluation
            hits = [f"{metrics[x]:.4f}" for x in ("mrr", "hits@1", "hits@3", "hits@10")]
            expected.append([name, *hits, f"{metrics['mean_rank']:.1f}"])
    assert rows[1:] == expected


def test_figures_of_each_relation_are_those_of_evaluate(paths, page):
    tables = Page(page).tables
    for side in ("both", *SIDES):
        found = [evaluate(jobi_tf.load_run(path), split="valid", side=side).by_relation() for path in paths]
        rows = tables[f"Metrics by relation, {side}"][2:]
        assert [row[0] for row in rows] == [GRAPH.relations[i] for i in found[0]]
        for row in rows:
            metrics = [x[GRAPH.relations.id(row[0])] for x in found]
            expected = [[f"{x[name]:.3f}" for name in ("mrr", "hits@1", "hits@10")] for x in metrics]
            assert row[2] == str(metrics[0]["triples"])
            assert [row[3:6], row[7:10]] == expected


def test_gains_are_differences_of_mrr_by_relation(paths, runs):
    found = gains(runs[0], runs[1], GRAPH)
    before, after = (evaluate(jobi_tf.load_run(path), split="valid").by_relation() for path in paths)
    assert len(found["rows"]) == found["compared"] == len(before)  # none has 10 triples
    for row in found["rows"]:
        i = GRAPH.relations.id(row["name"])
        assert row["gain"] == pytest.approx(after[i]["mrr"] - before[i]["mrr"])
        assert (row["before"], row["after"]) == pytest.approx((before[i]["mrr"], after[i]["mrr"]))
    values = [row["gain"] for row in found["rows"]]
    assert values == sorted(values, reverse=True)
    assert found["mrr"] == pytest.approx(sum(row["gain"] * row["triples"] for row in found["rows"]) / 20)
    assert gains(runs[0], runs[0], GRAPH)["margin"] == 0


def test_categories_by_bordes(runs):
    """Every relation of this graph has about 7 triples for each of its 30 heads and tails seen."""
    rows = categories(runs, GRAPH)
    assert [row["name"] for row in rows] == ["N-N"]
    star = np.array([[0, 0, i] for i in range(1, 6)] + [[i, 1, 0] for i in range(1, 6)] + [[1, 2, 2]], np.int32)
    graph = Graph("star", GRAPH.entities, GRAPH.relations, {**GRAPH.splits, "train": star})
    rows = categories(runs, graph)
    names = {0: "1-N", 1: "N-1", 2: "1-1", 3: "unseen"}
    assert [row["name"] for row in rows] == ["1-1", "1-N", "N-1", "unseen"]
    for number, run in enumerate(runs):
        for relation, metrics in run.evaluation.by_relation().items():
            row = next(row for row in rows if row["name"] == names[relation])
            assert row["triples"] == metrics["triples"]
            assert row["both"][number]["mrr"] == pytest.approx(metrics["mrr"])


def test_predictions_are_those_of_the_run(paths, runs):
    run, found = jobi_tf.load_run(paths[0]), runs[0]
    ranks = [x["rank"] for x in found.worst]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[0] == max(runs[0].evaluation.ranks[side].ranks().max() for side in SIDES)
    assert max([x["relation"] for x in found.worst].count(name) for name in GRAPH.relations.names) == 2
    known = triple_set(GRAPH.train, GRAPH.valid)
    for x in (*found.worst, *found.best):
        tails = x["side"] == "tail"
        every = run.tails(x["head"], x["relation"], 30) if tails else run.heads(x["relation"], x["tail"], 30)
        asked, true = (x["head"], x["tail"]) if tails else (x["tail"], x["head"])
        ids = [GRAPH.entities.id(name) for name in (asked, *(y.entity for y in every))]
        relation = GRAPH.relations.id(x["relation"])
        facts = [((ids[0], relation, i) if tails else (i, relation, ids[0])) in known for i in ids[1:]]
        left = [y.entity for y, fact in zip(every, facts, strict=True) if y.entity == true or not fact]
        assert [y["entity"] for y in x["answers"]] == left[:5]
        assert [y["entity"] for y in x["answers"] if y["true"]] == ([true] if x["rank"] <= 5 else [])
        assert left.index(true) + 1 == x["rank"]


def test_names_are_escaped(page):
    read = Page(page)
    assert EVIL in read.words
    assert EVIL_RELATION in read.words
    assert "<script>alert" not in page
    assert [tag for tag, _ in read.tags].count("script") == 1
    assert "<b>_relation" not in page
    assert "joint <b>" not in page
    assert "<i>tiny" not in page


def test_nothing_comes_from_elsewhere(page):
    links = [x for _, attributes in Page(page).tags for name, x in attributes.items() if name in ("href", "src")]
    ids = {attributes.get("id") for _, attributes in Page(page).tags}
    assert links
    assert all(link == "data:," or link.removeprefix("#") in ids for link in links)
    assert not re.search(r"https?:|@import|url\(", page)


def test_settings_come_by_how_they_differ(page):
    tables = Page(page).tables
    assert [row[:3] for row in tables["Where the runs differ"][1:]] == [
        ["joint", "no", "yes"],
        ["p", "0", "0.3"],
        ["dim", "8", "6"],
    ]
    assert {row[0]: row[1:3] for row in tables["At their defaults"][1:]}["alpha"] == ["–", "1"]  # without a pair head
    alike = {row[0]: row[1:3] for row in tables["Other than the default, the same in all runs that have it"][1:]}
    assert alike["epochs"] == ["3", "3"]
    assert alike["batch_size"] == ["40", "40"]
    assert "learning_rate" not in alike
    assert {row[0]: row[1] for row in tables["At their defaults"][1:]}["learning_rate"] == "0.0008"
    names = {row[0] for label in tables if "efault" in label or "differ" in label for row in tables[label][1:]}
    assert names == set(TrainConfig.model_fields) - {"run_dir"}


def test_curves_and_environment(page, runs):
    read = Page(page)
    told = [attributes["aria-label"] for tag, attributes in read.tags if tag == "svg"]
    assert [x.split(" by epoch")[0] for x in told[:5]] == [
        *("triple loss", "pair loss", "validation MRR", "validation Hits@1", "validation Hits@10")
    ]
    row = runs[0].epochs[-1]
    assert f"plain, epoch 3: {row['val_mrr']:.4f}" in read.words
    ranked = {row["epoch"]: row["val_mrr"] for row in runs[1].epochs}
    assert "best validation MRR." in read.words
    assert ranked[runs[1].best_epoch] == max(ranked.values())
    environment = {row[0]: row[1:] for row in read.tables["Environment"]}
    assert f"epoch {runs[1].best_epoch}" in environment["epochs"][1]
    assert environment["parameters"][0] == str((30 + 4) * 16)


def test_limit_ranks_a_sample_that_is_the_same_for_all(paths, tmp_path, call):
    first, second = (measure(path, "test", 9) for path in paths)
    np.testing.assert_array_equal(first.evaluation.triples, second.evaluation.triples)
    whole = evaluate(jobi_tf.load_run(paths[0]))
    places = [GRAPH.test.tolist().index(t) for t in first.evaluation.triples.tolist()]
    assert len(set(places)) == 9
    for side in SIDES:
        np.testing.assert_array_equal(whole.ranks[side].ranks()[places], first.evaluation.ranks[side].ranks())
    result = call("report", *paths, "--split", "test", "--limit", 9, "--out", tmp_path / "page.html")
    assert str(tmp_path / "page.html") in result.stdout
    text = " ".join((tmp_path / "page.html").read_text(encoding="utf-8").split())
    assert "Filtered ranks of 9 of the 25 triples, a random sample, on both sides, among 30 entities" in text
    assert "Do not choose settings by these results" in text
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_one_run_has_no_gains(paths, tmp_path):
    text = write_report(paths[:1], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Gains" not in text
    assert 'class="delta"' not in text


def test_what_cannot_be_reported(paths, tmp_path):
    out = tmp_path / "page.html"
    out.write_text("as before")
    other = tmp_path / "other"
    other.mkdir()
    RunFolder(other).write_config(TrainConfig(dataset="tiny"))
    random_graph(seed=1).save(other / "graph")
    unfinished = tmp_path / "unfinished"
    shutil.copytree(paths[0], unfinished, ignore=shutil.ignore_patterns("model.keras", "checkpoints"))
    for runs, options, error, key in (
        ([paths[0], other], {}, UsageError, str(other)),
        ([*paths, paths[0]], {}, UsageError, str(paths[0])),
        ([], {}, UsageError, "run"),
        (paths[0], {}, UsageError, f"got '{paths[0]}'"),
        (str(paths[0]), {}, UsageError, f"got '{paths[0]}'"),
        ([tmp_path], {}, DataError, str(tmp_path)),
        ([paths[0], unfinished], {}, DataError, str(unfinished)),
        (paths, {"split": "train"}, UsageError, "'train'"),
        (paths, {"limit": 0}, UsageError, "limit"),
    ):
        with pytest.raises(error, match=re.escape(key)):
            write_report(runs, out, **options)
    for target in (tmp_path, tmp_path / "no" / "x.html"):
        with pytest.raises(UsageError, match=re.escape(str(target.parent))):
            write_report(paths, target)
    assert out.read_text() == "as before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "page.html", "unfinished"]


def test_damaged_or_missing_environment(paths, tmp_path):
    shutil.copytree(paths[0], tmp_path / "run")
    (tmp_path / "run" / "environment.json").unlink()
    text = write_report([tmp_path / "run"], tmp_path / "page.html").read_text(encoding="utf-8")
    environment = {row[0]: row[1] for row in Page(text).tables["Environment"]}
    assert environment["command"] == environment["packages"] == "not recorded"
    (tmp_path / "run" / "environment.json").write_text("{")
    with pytest.raises(DataError, match=r"environment\.json"):
        measure(tmp_path / "run", "valid")


def test_missing_extra_is_named(paths, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jobi-tf\[report\]'"):
        write_report(paths, tmp_path / "page.html")


def test_labels_tell_runs_apart():
    assert labels([Path("/a/x"), Path("/b/y")]) == ["x", "y"]
    assert labels([Path("/a/x/run"), Path("/b/x/run")]) == ["a/x/run", "b/x/run"]
    assert labels([Path("/a/x"), Path("/b/x"), Path("/b/y"), Path("/x")]) == ["a/x", "b/x", "y", "//x"]
    assert labels([run_path("world"), Path("/a/run")]) == ["world", "run"]
    assert labels([run_path("world"), Path("/a/world")]) == ["pretrained/world", "a/world"]
    copied = Path("/a/pretrained/world")
    assert labels([run_path("world"), copied]) == ["pretrained/world", "a/pretrained/world"]


@pytest.mark.parametrize(("low", "high"), [(0.212, 0.249), (0, 1), (5, 5), (0, 0), (-0.3, 0.02), (3.2, 17_000)])
def test_axes_hold_their_values_with_round_ticks(low, high):
    axis = Axis.around("x", [low, high])
    assert axis.ticks[0] <= low <= high <= axis.ticks[-1]
    assert 3 <= len(axis.ticks) <= 8
    step = axis.ticks[1] - axis.ticks[0]
    assert step / 10 ** np.floor(np.log10(step) + 1e-9) == pytest.approx(1) or round(
        step / 10 ** np.floor(np.log10(step))
    ) in (2, 5)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_in_a_browser(page, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    said, asked = [], []
    with playwright.sync_playwright() as library:
        browser = library.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto((tmp_path / "report.html").as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") == 390
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 24)"
        tables = tab.locator("#relations table")
        assert [tables.nth(i).is_visible() for i in range(3)] == [True, False, False]
        tab.get_by_text("tails sought").click()
        assert [tables.nth(i).is_visible() for i in range(3)] == [False, False, True]
        values = "table => [...table.tBodies[0].rows].map(row => Number(row.children[3].dataset.value))"
        header = tables.nth(2).get_by_role("button", name="MRR").first
        for direction in ("descending", "ascending"):
            header.click()
            found = tables.nth(2).evaluate(values)
            assert found == sorted(found, reverse=direction == "descending")
            assert tables.nth(2).locator("th[data-column='3']").get_attribute("aria-sort") == direction
        browser.close()
    assert said == []
    assert asked == [(tmp_path / "report.html").as_uri()]


def test_a_run_that_is_being_written_is_not_listed(tmp_path):
    for name in ("runs/a", "runs/.tmp-1-b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.yaml").touch()
    assert find_runs(tmp_path) == [tmp_path / "runs" / "a"]
