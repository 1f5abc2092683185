import csv
import gzip
import io
import random

import numpy as np
import pytest

from jobi_tf.datasets import load_graph
from jobi_tf.errors import DataError, UsageError

from .files import named_triples, write_folder

TRAIN = [("a", "r", "b"), ("b", "r", "c"), ("a", "s", "c")]


@pytest.mark.parametrize("suffix", [".tsv", ".txt", ".tsv.gz", ".txt.gz"])
def test_reads_tab_separated_files(tmp_path, suffix):
    pack = gzip.compress if suffix.endswith(".gz") else bytes
    folder = write_folder(tmp_path / "mine", suffix, **{s: pack(t) for s, t in _plain().items()})
    graph = load_graph(folder)
    assert graph.name == "mine"
    assert named_triples(graph, "train") == TRAIN
    assert list(graph.entities.names) == ["a", "b", "c", "d"]  # d is in test only
    assert graph.sources["train"].where(2) == f"{folder}/train{suffix}:3"
    assert graph.train.dtype == np.int32


def _plain() -> dict[str, bytes]:
    return {"train": b"a\tr\tb\nb\tr\tc\na\ts\tc\n", "valid": b"c\tr\ta\n", "test": b"b\ts\td\n"}


@pytest.mark.parametrize(
    "train",
    [
        "a\tr\tb\r\nb\tr\tc\r\na\ts\tc\r\n",
        "a\tr\tb\nb\tr\tc\na\ts\tc",
        "a\tr\tb\nb\tr\tc\na\ts\tc\n\n  \n\n",
        "\ufeffa\tr\tb\nb\tr\tc\na\ts\tc\n",
    ],
    ids=["CRLF", "no line break at the end", "blank lines at the end", "byte order mark"],
)
def test_line_ends_do_not_matter(tmp_path, train):
    assert named_triples(load_graph(write_folder(tmp_path, train=train)), "train") == TRAIN


@pytest.mark.parametrize("first", ["head\trelation\ttail", "Subject\tPredicate\tObject", "h\tr\tt", "S\tP\tO"])
def test_known_header_is_found(tmp_path, first):
    graph = load_graph(write_folder(tmp_path, train=f"{first}\na\tr\tb\nb\tr\tc\na\ts\tc\n"))
    assert named_triples(graph, "train") == TRAIN
    assert graph.sources["train"].where(0).endswith("train.tsv:2")


def test_known_header_gives_the_order(tmp_path):
    graph = load_graph(write_folder(tmp_path, train="tail\thead\trelation\nb\ta\tr\nc\tb\tr\nc\ta\ts\n"))
    assert named_triples(graph, "train") == TRAIN


def test_header_can_be_said(tmp_path):
    folder = write_folder(tmp_path, train="x\ty\tz\na\tr\tb\n", valid="h\tr\tt\n", test="1\t2\t3\n")
    with pytest.raises(DataError, match=r"valid.tsv: expected triples, found only a header"):
        load_graph(folder, header=True)
    graph = load_graph(folder, header=False)
    assert named_triples(graph, "train") == [("x", "y", "z"), ("a", "r", "b")]
    assert named_triples(graph, "valid") == [("h", "r", "t")]


@pytest.mark.parametrize("columns", [("from", "how", "to"), ("FROM", "How", "to"), ("2", "4", "1")])
def test_columns_are_picked(tmp_path, columns):
    text = "to,from,note,how\n"
    rows = {"train": "b,a,x,r\nc,b,,r\nc,a,x,s\n", "valid": "a,c,x,r\n", "test": "d,b,x,s\n"}
    folder = write_folder(tmp_path, ".csv", **{s: text + t for s, t in rows.items()})
    graph = load_graph(folder, columns=columns, header=True)
    assert named_triples(graph, "train") == TRAIN


def test_csv_has_quotes(tmp_path):
    graph = load_graph(write_folder(tmp_path, ".csv", train='"a, b","r ""x""",c\n', valid="c,s,c\n", test="c,s,c\n"))
    assert named_triples(graph, "train") == [("a, b", 'r "x"', "c")]


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".csv.gz"])
def test_names_come_back(tmp_path, suffix):
    """Any text without TAB and line breaks is a name, and survives the cache."""
    draw = random.Random(suffix)
    letters = "ab \"',;#\\/é日🙂\u00a0\u2028\u0085\u000b\u001c[bold]{}%"
    names = ["".join(draw.choices(letters, k=draw.randint(0, 6))) + "x" for _ in range(300)]
    triples = [tuple(draw.choices(names, k=3)) for _ in range(500)]
    if suffix == ".tsv":
        text = "".join("\t".join(triple) + "\n" for triple in triples)
    else:
        buffer = io.StringIO()
        csv.writer(buffer).writerows(triples)
        text = buffer.getvalue()
    content = gzip.compress(text.encode()) if suffix.endswith(".gz") else text.encode()
    folder = write_folder(tmp_path, suffix, train=content, valid=content, test=content)
    for _ in range(2):
        graph = load_graph(folder)
        assert named_triples(graph, "train") == triples
        assert named_triples(graph, "test") == triples


def test_one_file_is_split(tmp_path):
    path = tmp_path / "all.tsv"
    path.write_text("head\trelation\ttail\n" + "".join(f"e{i}\tr\te{i + 1}\n" for i in range(100)))
    graph = load_graph(path, split="0.8/0.1/0.1")
    assert [len(triples) for triples in graph.splits.values()] == [80, 10, 10]
    for split in graph.splits:
        for row, (head, _, _) in enumerate(named_triples(graph, split)):
            assert graph.sources[split].where(row) == f"{path}:{int(head[1:]) + 2}"
    everything = sorted(triple for split in graph.splits for triple in named_triples(graph, split))
    assert everything == sorted((f"e{i}", "r", f"e{i + 1}") for i in range(100))
    again, other = (load_graph(path, split="0.8/0.1/0.1", seed=seed) for seed in (0, 1))
    assert again.fingerprint == graph.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "0.8/0.1/0.1"}, "a folder with splits of its own"),
        ({"archive": "x.tar.gz"}, "an archive is for a data set out of fb15k-237"),
        ({"columns": ["a", "b"]}, "three different columns"),
        ({"columns": ["a", "b", "A"]}, "three different columns"),
        ({"columns": ["1", "01", "2"]}, "three different columns"),
        ({"columns": ["a", "2", "3"]}, "a mixture"),
        ({"columns": ["0", "1", "2"]}, "count from 1"),
        ({"columns": ["a", "b", "c"], "header": False}, "looked up in a header"),
    ],
)
def test_options_that_cannot_apply_to_a_folder(tmp_path, options, words):
    with pytest.raises(UsageError, match=words):
        load_graph(write_folder(tmp_path), **options)


@pytest.mark.parametrize("split", ["0.8/0.2", "0.8/0.1/0.2", "1/0/0", "a/b/c", "0.8 0.1 0.1", "nan/0.1/0.1"])
def test_shares_must_make_sense(tmp_path, split):
    (tmp_path / "all.tsv").write_text("a\tr\tb\n" * 10)
    with pytest.raises(UsageError, match="expected shares of train, valid and test with the sum 1"):
        load_graph(tmp_path / "all.tsv", split=split)


def test_one_file_needs_shares_and_triples(tmp_path):
    (tmp_path / "all.tsv").write_text("a\tr\tb\n" * 3)
    with pytest.raises(UsageError, match="say how to split it"):
        load_graph(tmp_path / "all.tsv")
    with pytest.raises(DataError, match="got only 3"):
        load_graph(tmp_path / "all.tsv", split="0.8/0.1/0.1")
    (tmp_path / "all.json").write_text("{}")
    with pytest.raises(UsageError, match=r"whose name ends in \.tsv"):
        load_graph(tmp_path / "all.json", split="0.8/0.1/0.1")


def test_unknown_name_and_options_of_named_data():
    with pytest.raises(UsageError, match=r"unknown data set 'fb15k237'.*did you mean fb15k-237\?"):
        load_graph("fb15k237")
    with pytest.raises(UsageError, match="expected a folder or a file of triples at no/such, found nothing there"):
        load_graph("no/such")
    with pytest.raises(UsageError, match="'columns' is for files of your own"):
        load_graph("umls", columns=["h", "r", "t"])
    with pytest.raises(UsageError, match="world comes with the package"):
        load_graph("world", archive="world.tar.gz")
