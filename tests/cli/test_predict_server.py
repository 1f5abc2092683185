"""`jobi-tf predict --server` gives what `jobi-tf predict RUN` gives, and probabilities."""

import json
import subprocess
import sys

import pytest

import jobi_tf
from jobi_tf.export import export_run
from tests.serving.conftest import running

TOP_K = 12  # of the export
QUERY = ("--head", "town 1", "--relation", "near")


@pytest.fixture(scope="module")
def server(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "towns"
    export_run(jobi_tf.load_run(run), folder, top_k=TOP_K, warmup=False)
    with running(folder) as server:
        yield server


@pytest.fixture(scope="module")
def url(server) -> str:
    return server.url


def test_json(run, url, call):
    for query in (QUERY, ("--relation", "near", "--tail", "town 1")):
        here = json.loads(call("predict", run, *query, "-k", 3, "--json").stdout)
        there = json.loads(call("predict", "--server", url, *query, "-k", 3, "--json").stdout)
        for row in here["answers"]:
            del row["split"]
        probabilities = [row.pop("probability") for row in there["answers"]]
        assert all(0 < probability < 1 for probability in probabilities)
        assert [row["score"] for row in there["answers"]] == pytest.approx(
            [row["score"] for row in here["answers"]], rel=1e-4
        )
        for row in (*here["answers"], *there["answers"]):
            del row["score"]
        assert there == here


def test_table(run, url, call):
    here = call("predict", run, *QUERY).stdout.splitlines()
    there = call("predict", "--server", url, *QUERY).stdout.splitlines()
    assert there[0] == f"town 1, near, ?   (towns at {url})"
    assert there[1].split() == ["rank", "tail", "score", "probability"]
    assert len(there) == len(here) == 2 + 10
    for mine, theirs in zip(here[2:], there[2:], strict=True):
        assert theirs.split()[:3] == mine.split()[:3]
        assert ("known fact" in theirs) == ("known fact" in mine)


def test_files(run, url, call, tmp_path):
    source, here, there = tmp_path / "queries.tsv", tmp_path / "here.tsv", tmp_path / "there.tsv"
    source.write_text("town 1\tnear\t?\n?\tnorth of\ttown 2\ntown 1\tnear\t?\n")
    call("predict", run, "--input", source, "--out", here, "-k", 2)
    call("predict", "--server", url, "--model", "towns", "--input", source, "--out", there, "-k", 2)
    mine, theirs = ([line.split("\t") for line in path.read_text().splitlines()] for path in (here, there))
    assert theirs[0] == [*mine[0], "probability"]
    assert len(theirs) == len(mine) == 1 + 6
    for row, other in zip(mine[1:], theirs[1:], strict=True):
        assert other[:3] + other[4:6] == row[:3] + row[4:6]
        assert float(other[3]) == pytest.approx(float(row[3]), rel=1e-4)
        assert 0 < float(other[6]) < 1


def test_score_of_a_triple(run, url, call):
    triple = ("--head", "town 1", "--relation", "near", "--tail", "town 2")
    here = json.loads(call("predict", run, *triple, "--json").stdout)
    there = json.loads(call("predict", "--server", url, *triple, "--json").stdout)
    assert sorted(there) == ["head", "probability", "relation", "score", "tail"]
    assert there["score"] == pytest.approx(here["score"], rel=1e-4)
    lines = call("predict", "--server", url, *triple).stdout.splitlines()
    assert lines[0] == f"town 1, near, town 2   (towns at {url})"
    assert lines[1] == f"score {there['score']:.3f}, probability {there['probability']:.4f}"


def test_new_only(run, url, call):
    trained = jobi_tf.load_run(run)
    entity = max((f"town {i}" for i in range(15)), key=lambda x: sum(a.known for a in trained.tails(x, "near", TOP_K)))
    expected = trained.answers(1, [(entity, "near")], TOP_K, new_only=True)[0]
    query = ("--server", url, "--head", entity, "--relation", "near", "--new-only", "-k", TOP_K, "--json")
    answers = json.loads(call("predict", *query).stdout)["answers"]
    assert [row["entity"] for row in answers] == [answer.entity for answer in expected]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        (("twon 1", "near", None), "entity: twon 1"),
        (("town 1", "naer", None), "relation: naer"),
        (("town 1", "naer", "town 2"), "relation: naer"),
        (("town 1", "near", "twon 2"), "entity: twon 2; did you mean 'town 2'"),
    ],
)
def test_unknown_names(url, call, query, name):
    names = zip(("--head", "--relation", "--tail"), query, strict=True)
    options = [part for option, value in names if value is not None for part in (option, value)]
    assert name in call("predict", "--server", url, *options, status=1).stderr


def test_unknown_names_of_a_file(url, call, tmp_path):
    source, target = tmp_path / "queries.tsv", tmp_path / "answers.tsv"
    source.write_text("town 1\tnear\t?\ntwon 1\tnear\t?\n")
    target.write_text("mine")
    said = call("predict", "--server", url, "--input", source, "--out", target, status=1).stderr
    assert "queries.tsv:2: unknown entity: twon 1" in said
    assert target.read_text() == "mine"


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://127.0.0.1:PORT"])
def test_wrong_servers(server, url):
    url = url.replace("PORT", str(server.address[1]))
    command = [sys.executable, "-m", "jobi_tf", "predict", "--server", url, "--model", "towns", *QUERY]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert url in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "status", "word"),
    [
        (["--run-dir", ".", "--server", "http://x", *QUERY], 2, "--server"),
        ([*QUERY], 2, "--server"),
        (["--server", "URL", "--typed", *QUERY], 2, "--typed"),
        (["--server", "URL", "-k", TOP_K + 1, *QUERY], 2, str(TOP_K)),
        (["--server", "URL", "--model", "nope", *QUERY], 1, "nope"),
        (["RUN", "--model", "x", *QUERY], 2, "--model"),
        (["RUN", "--token-file", "TOKEN", *QUERY], 2, "--token-file"),
        (["RUN", "--certificate", __file__, *QUERY], 2, "--certificate"),
        (["--server", "here", *QUERY], 2, "'here'"),
        (["--server", "grpc://127.0.0.1:1", *QUERY], 2, "grpc://127.0.0.1:1"),
        (["--server", "http://x", "--token-file", "nowhere", *QUERY], 2, "nowhere"),
        (["--server", "https://x", "--certificate", "nowhere", *QUERY], 2, "nowhere"),
        (["--server", "http://x"], 2, "--relation"),
    ],
)
def test_what_cannot_work(run, url, call, tmp_path, options, status, word):
    places = {"URL": url, "RUN": run, "TOKEN": tmp_path / "token"}
    places["TOKEN"].write_text("secret")
    assert word in call("predict", *[places.get(option, option) for option in options], status=status).stderr


def test_needs_no_tensorflow(url):
    code = """if True:
        import sys
        from jobi_tf.cli.main import cli
        try:
            cli.main(sys.argv[1:], prog_name="jobi-tf")
        except SystemExit as end:
            assert not end.code
        print(sorted({"tensorflow", "keras", "tensorflow_serving", "grpc", "starlette"} & set(sys.modules)))
    """
    command = [sys.executable, "-c", code, "predict", "--server", url, *QUERY]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "[]"
    assert len(said.splitlines()) == 1 + 2 + 10
