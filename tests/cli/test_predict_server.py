"""`jobi-tf predict --server` gives what `jobi-tf predict RUN` gives, and probabilities."""

import json
import subprocess
import sys

import pytest

import jobi_tf
from jobi_tf.export import export_run
from jobi_tf.serving.settings import ServedModel
from tests.serving.conftest import running

TOP_K = 12
QUERY = ("--head", "town 1", "--relation", "near")


@pytest.fixture(scope="module")
def server(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "towns"
    export_run(jobi_tf.load_run(run), folder, top_k=TOP_K, warmup=False)
    with running(ServedModel("towns", folder)) as server:
        yield server


@pytest.fixture(scope="module")
def url(server) -> str:
    return server.rest


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


def test_files(run, server, call, tmp_path):
    source, here, there = tmp_path / "queries.tsv", tmp_path / "here.tsv", tmp_path / "there.tsv"
    source.write_text("town 1\tnear\t?\n?\tnorth of\ttown 2\ntown 1\tnear\t?\n")
    call("predict", run, "--input", source, "--output", here, "-k", 2)
    said = call(
        "predict",
        "--server",
        f"grpc://{server.grpc}",
        "--model",
        "towns",
        "--input",
        source,
        "--output",
        there,
        "-k",
        2,
    )
    assert said.stderr == f"3 queries answered in {there}\n"
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


def test_new_only_says_what_is_missing(run, url, call):
    trained = jobi_tf.load_run(run)
    entity = max((f"town {i}" for i in range(15)), key=lambda x: sum(a.known for a in trained.tails(x, "near", TOP_K)))
    best = trained.tails(entity, "near", TOP_K)
    new = [answer.entity for answer in best if not answer.known]
    assert len(new) < TOP_K
    query = ("--server", url, "--head", entity, "--relation", "near", "--new-only", "--json")
    result = call("predict", *query, "-k", TOP_K)
    assert [row["entity"] for row in json.loads(result.stdout)["answers"]] == new
    dropped = f"known facts are dropped from the {TOP_K} best of towns at {url}"
    assert result.stderr == f"one query has fewer answers: {dropped}\n"
    result = call("predict", *query, "-k", 2)
    assert [row["entity"] for row in json.loads(result.stdout)["answers"]] == new[:2]
    assert result.stderr == ""


def test_failures(url, call, tmp_path):
    said = call("predict", "--server", url, "--head", "twon 1", "--relation", "near", status=1).stderr
    assert said == "Error: unknown entity: twon 1\n"
    for triple, words in (
        (("town 1", "naer", "town 2"), "relation: naer"),
        (("town 1", "near", "twon 2"), "entity: twon 2"),
        (("twon 1", "naer", "twon 2"), "entity: twon 1"),
    ):
        options = [part for pair in zip(("--head", "--relation", "--tail"), triple, strict=True) for part in pair]
        said = call("predict", "--server", url, *options, status=1).stderr
        assert said == f"Error: unknown {words}\n"
    said = call("predict", "--server", url, *QUERY, "-k", TOP_K + 1, status=2).stderr
    assert (
        said == f"Error: expected -k to be at most {TOP_K}, as towns at {url} gives no more answers, got {TOP_K + 1}\n"
    )
    source, target = tmp_path / "queries.tsv", tmp_path / "answers.tsv"
    source.write_text("town 1\tnear\t?\ntwon 1\tnear\t?\n")
    target.write_text("mine")
    said = call("predict", "--server", url, "--input", source, "--output", target, status=1).stderr
    assert said == "Error: unknown entity: twon 1\n"
    assert target.read_text() == "mine"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1", "cannot reach http://127.0.0.1:1: "),
        ("grpc://127.0.0.1:1", "cannot reach grpc://127.0.0.1:1: "),
        ("https://127.0.0.1:PORT", "cannot reach https://127.0.0.1:PORT: "),
        ("grpcs://127.0.0.1:PORT", "cannot reach grpcs://127.0.0.1:PORT: "),
        ("grpc://127.0.0.1:PORT", "cannot reach grpc://127.0.0.1:PORT: "),
    ],
)
def test_wrong_servers(server, url, words):
    """One line each, in a process of its own, as gRPC writes past Python's stderr."""
    url, words = (text.replace("PORT", str(server.port)) for text in (url, words))
    command = [sys.executable, "-m", "jobi_tf.cli", "predict", "--server", url, "--model", "towns", *QUERY]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {words}")
    assert done.stderr.endswith(" (4 attempts)\n")
    assert done.stderr.count("\n") == 1


def test_wrong_model(server, url, call):
    for at, code in (url, "404"), (f"grpc://{server.grpc}", "NOT_FOUND"):
        said = call("predict", "--server", at, "--model", "nope", *QUERY, status=1).stderr
        assert said == f"Error: {at} answered {code}: Servable not found for request: Latest(nope)\n"


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["RUN", "--server", "http://x", *QUERY], 2, "expected RUN or --server, got both"),
        ([*QUERY], 2, "expected RUN or --server, got neither"),
        (["--server", "URL", "--typed", *QUERY], 2, "--typed is for RUN: of a server, the export decides"),
        (["RUN", "--model", "x", *QUERY], 2, "--model is for --server, which is missing"),
        (["RUN", "--token-file", "x", *QUERY], 2, "--token-file is for --server, which is missing"),
        (["RUN", "--certificate", "x", *QUERY], 2, "--certificate is for --server, which is missing"),
        (["--server", "here", *QUERY], 2, "expected the address of a server, such as grpc://127.0.0.1:8500"),
        (["--server", "grpc://127.0.0.1:1", *QUERY], 2, "expected the name of a model at grpc://127.0.0.1:1"),
        (
            ["--server", "http://x", "--token-file", "nowhere", *QUERY],
            1,
            "a file with a token at nowhere: No such file",
        ),
        (["--server", "http://x", "--certificate", "y", *QUERY], 2, "a certificate is for grpcs:// and https://"),
        (["--server", "http://x"], 2, "expected --relation with --head or --tail, or --input"),
    ],
)
def test_refuses(call, options, status, words):
    assert words in call("predict", *options, status=status).stderr


def test_needs_no_tensorflow(url):
    code = """if True:
        import sys
        from jobi_tf.cli.main import cli
        try:
            cli.main(sys.argv[1:], prog_name="jobi-tf")
        except SystemExit as end:
            assert not end.code
        print(sorted({"tensorflow", "keras", "tensorflow_serving"} & set(sys.modules)))
    """
    command = [sys.executable, "-c", code, "predict", "--server", url, *QUERY]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "[]"
    assert len(said.splitlines()) == 1 + 2 + 10
