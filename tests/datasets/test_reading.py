import csv
import gzip
import io
import random

import numpy as np
import pytest

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.datasets import load_graph
from jobi_tf.errors import DataError, UsageError
from jobi_tf.training.config import TrainConfig

from .files import LINES, named_triples, write_folder

TRAIN = [("a", "r", "b"), ("b", "r", "c"), ("a", "s", "c")]
GOOD = "a\tr\tb\n"


@pytest.mark.parametrize("suffix", [".tsv", ".txt", ".tsv.gz", ".txt.gz"])
def test_reads_tab_separated_files(tmp_path, suffix):
    pack = gzip.compress if suffix.endswith(".gz") else bytes
    folder = write_folder(tmp_path / "mine", suffix, **{split: pack(text.encode()) for split, text in LINES.items()})
    graph = load_graph(folder)
    assert graph.name == "mine"
    assert named_triples(graph, "train") == TRAIN
    assert list(graph.entities.names) == ["a", "b", "c", "d"]  # d is in test only
    assert graph.sources["train"].where(2) == f"{folder}/train{suffix}:3"
    assert graph.train.dtype == np.int32
    assert not graph.weights


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


@pytest.mark.parametrize(
    "first", ["head\trelation\ttail", "Subject\tPredicate\tObject", "h\tr\tt", "S\tP\tO", "From\tRelationship\tTo"]
)
def test_known_header_is_detected(tmp_path, first):
    graph = load_graph(write_folder(tmp_path, train=f"{first}\na\tr\tb\nb\tr\tc\na\ts\tc\n"))
    assert named_triples(graph, "train") == TRAIN
    assert graph.sources["train"].where(0).endswith("train.tsv:2")


def test_known_header_gives_the_order(tmp_path):
    graph = load_graph(write_folder(tmp_path, train="tail\thead\trelation\nb\ta\tr\nc\tb\tr\nc\ta\ts\n"))
    assert named_triples(graph, "train") == TRAIN


def test_header_can_be_set(tmp_path):
    folder = write_folder(tmp_path, train="x\ty\tz\na\tr\tb\n", valid="h\tr\tt\n", test="1\t2\t3\n")
    with pytest.raises(DataError, match=r"valid.tsv"):
        load_graph(folder, header=True)
    graph = load_graph(folder, header=False)
    assert named_triples(graph, "train") == [("x", "y", "z"), ("a", "r", "b")]
    assert named_triples(graph, "valid") == [("h", "r", "t")]


def test_ids_are_those_of_the_same_triples_in_memory(tmp_path):
    graph = load_graph(write_folder(tmp_path))
    assert Graph.from_triples(*(named_triples(graph, split) for split in SPLITS)).fingerprint == graph.fingerprint


@pytest.mark.parametrize(
    "columns", [("from", "how", "to"), ("FROM", "How", "to"), ("2", "4", "1"), (2, "how", 1), "from,how,to"]
)
def test_columns_are_selected(tmp_path, columns):
    text = "to,from,note,how\n"
    rows = {"train": "b,a,x,r\nc,b,,r\nc,a,x,s\n", "valid": "a,c,x,r\n", "test": "d,b,x,s\n"}
    folder = write_folder(tmp_path, ".csv", **{s: text + t for s, t in rows.items()})
    graph = load_graph(folder, columns=columns, header=True)
    assert named_triples(graph, "train") == TRAIN


@pytest.mark.parametrize(
    ("first", "options"),
    [
        ("head,relation,tail,score\n", {"weights": "Score"}),
        ("head,relation,tail,score\n", {"weights": 4}),
        ("", {"weights": "4"}),
        ("x,y,z,score\n", {"columns": ["x", "y", "z"], "weights": "score"}),
        ("x,y,z,score\n", {"columns": [1, 2, 3], "weights": "score"}),
    ],
)
def test_weights(tmp_path, first, options):
    rows = {"train": "a,r,b,1\nb,r,c,0.1\na,s,c, 2e3\n", "valid": "c,r,a,0\n", "test": "b,s,d,1.5\n"}
    folder = write_folder(tmp_path / "mine", ".csv", **{split: first + text for split, text in rows.items()})
    for _ in range(2):  # read, then from the cache
        graph = load_graph(folder, **options)
        assert named_triples(graph, "train") == TRAIN
        assert graph.weights["train"].dtype == np.float32
        assert graph.weights["train"].tolist() == [1, np.float32(0.1), 2000]
        assert graph.weights["test"].tolist() == [1.5]


def test_weights_go_with_their_triples(tmp_path):
    path = tmp_path / "all.tsv"
    path.write_text("".join(f"e{i}\tr\te{i + 1}\t{i}\n" for i in range(100)))
    graph = load_graph(path, split="0.8/0.1/0.1", weights=4)
    for split in graph.splits:
        heads = [head for head, _, _ in named_triples(graph, split)]
        assert [f"e{weight:.0f}" for weight in graph.weights[split]] == heads


@pytest.mark.parametrize("weight", ["-1", "nan", "inf", "1e39", "x", ""])
def test_bad_weights(tmp_path, weight):
    folder = write_folder(tmp_path, train=f"a\tr\tb\t1\na\tr\tc\t{weight}\n")
    with pytest.raises(DataError, match=rf"train.tsv:2: .*{weight!r}"):
        load_graph(folder, weights=4)
    zeros = dict.fromkeys(("train", "valid", "test"), "a\tr\tb\t0\n")
    with pytest.raises(DataError, match="all 0"):
        load_graph(write_folder(tmp_path / "zeros", **zeros), weights=4)


def test_csv_has_quotes(tmp_path):
    graph = load_graph(write_folder(tmp_path, ".csv", train='"a, b","r ""x""",c\n', valid="c,s,c\n", test="c,s,c\n"))
    assert named_triples(graph, "train") == [("a, b", 'r "x"', "c")]


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".csv.gz"])
def test_names_come_back(tmp_path, suffix):
    """Any text without tabs and line breaks is a name, and survives the cache."""
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


@pytest.mark.parametrize(
    ("suffix", "train", "line"),
    [
        (".tsv", GOOD + "a\tb\n", 2),
        (".tsv", GOOD + "a\tr\tb\tc\n", 2),
        (".tsv", GOOD + "a,r,b\n", 2),
        (".tsv", "a\tr\tb\ra\tr\tc\r", 1),
        (".tsv", GOOD + "\tr\tb\n", 2),
        (".tsv", GOOD + "a\t \tb\n", 2),
        (".tsv", GOOD + "\n" + GOOD, 2),
        (".tsv", "\n" + GOOD, 1),
        (".tsv", "head\trelation\ttail\n\tr\tb\n", 2),
        (".tsv", "head\trelation\ttail\nx\ty\rz\n", 2),
        (".tsv", "head\trelation\ttail\tweight\n", 1),
        (".tsv", GOOD.encode() * 9000 + b"a\tr\tcaf\xe9\n" + GOOD.encode() * 9, 9001),
        (".tsv", GOOD.encode("utf-16"), 1),
        (".tsv", GOOD.encode("utf-16-le"), 1),
        (".tsv", b"\x7fELF\x01\x00\x00\x02junk\n", 1),
        (".tsv", b"\x89PNG\r\n\x1a\n", 1),
        (".tsv", gzip.compress(GOOD.encode(), mtime=0), 1),
        (".tsv", b"PK\x03\x04junk", 1),
        (".tsv", "x" * 200_000, 1),
        (".tsv.gz", gzip.compress(GOOD.encode() * 9000 + b"\xff\n", mtime=0), 9001),
        (".csv", "a,r\n", 1),
        (".csv", 'a,r,b\n"a\tx",r,b\n', 2),
        (".csv", 'a,r,b\n"a\n",r,b\n', 2),
        (".csv", 'a,r,b\n"a,r,b\na,r,b\n', 2),
        (".csv", 'h,r,t\n"a,r,b\na,r,b\n', 2),
        (".csv", 'a,r,"b"c\n', 1),
    ],
)
def test_bad_lines_are_named(tmp_path, home, suffix, train, line):
    with pytest.raises(DataError, match=rf"train{suffix}:{line}: ") as caught:
        load_graph(write_folder(tmp_path / "mine", suffix, train=train))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert not list(home.glob("graphs/*"))


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ("a,r,b\n", "commas"),
        ("a\tr\tb\tc\n", "'columns'"),
        ("a\tr\tb\ra\tr\tc\r", "CR alone"),
        (GOOD.encode("utf-16"), "UTF-16"),
        ("r\tcafé\tb\n".encode("latin-1"), "caf\ufffd"),
    ],
)
def test_what_may_be_wrong_is_suggested(tmp_path, train, words):
    with pytest.raises(DataError, match=words):
        load_graph(write_folder(tmp_path, train=train))


@pytest.mark.parametrize("train", ["", "\n\n", "head\trelation\ttail\n"])
def test_files_without_triples(tmp_path, train):
    with pytest.raises(DataError, match=r"train.tsv"):
        load_graph(write_folder(tmp_path, train=train))


@pytest.mark.parametrize(
    ("options", "train", "words"),
    [
        ({"columns": ["x", "y", "z"]}, "a,y,b\n", r":1: .*'x'"),
        ({"columns": ["x", "y", "z"]}, "x,y,z,x\n", r":1: .*'x'"),
        ({"columns": ["x", "y", "z"]}, "x,y,z,w\na,r,b,0\na,r,b\n", r":3: .*4 fields"),
        ({"columns": ["x", "y", "z"]}, 'x,y,z,w\na,r,b,"0\n1"\n', r":2: "),
        ({"columns": ["1", "2", "5"]}, "a,r,b\n", r":1: .*5 columns, got 3"),
        ({"columns": ["1", "2", "y"]}, "x,y,z\n", r":1: .*different"),
        ({}, ",head,relation,tail\n0,a,r,b\n", r":1: .*'columns', such as head,relation,tail"),
        ({"weights": "w"}, "head,relation,tail\na,r,b\n", r":1: .*'w'"),
        ({"weights": 2}, "a,r,b\n", r":1: .*different"),
        ({"weights": "w"}, "id,e1,r,e2,w\n1,a,r,b,1\n", r":1: .*4 columns, got 5"),
    ],
)
def test_columns_that_a_file_does_not_have(tmp_path, options, train, words):
    with pytest.raises(DataError, match=f"train.csv{words}"):
        load_graph(write_folder(tmp_path, ".csv", train=train), **options)


def test_damaged_gzip(tmp_path):
    packed = gzip.compress(b"".join(b"a%d\tr\tb\n" % i for i in range(5000)))
    for damaged in (packed[: len(packed) // 2], packed[:100] + b"\0\0\0\0" + packed[104:], b"plain text"):
        with pytest.raises(DataError, match=r"train.tsv.gz: .*gzip"):
            load_graph(write_folder(tmp_path, ".tsv.gz", train=damaged))


def test_missing_and_doubled_files(tmp_path):
    folder = write_folder(tmp_path)
    (folder / "train.csv").write_text("a,r,b\n")
    with pytest.raises(DataError, match=r"train.tsv and train.csv"):
        load_graph(folder)
    (folder / "train.csv").unlink()
    (folder / "valid.tsv").unlink()
    with pytest.raises(DataError, match=r"valid"):
        load_graph(folder)
    (folder / "config.yaml").touch()
    with pytest.raises(DataError, match=r"folder of a run"):
        load_graph(folder)


def test_one_file_is_split(tmp_path):
    path = tmp_path / "all.tsv"
    path.write_text("head\trelation\ttail\n" + "".join(f"e{i}\tr\te{i + 1}\n" for i in range(100)))
    graph = load_graph(path, split=(0.8, 0.1, 0.1))
    assert [len(triples) for triples in graph.splits.values()] == [80, 10, 10]
    for split in graph.splits:
        for row, (head, _, _) in enumerate(named_triples(graph, split)):
            assert graph.sources[split].where(row) == f"{path}:{int(head[1:]) + 2}"
    everything = sorted(triple for split in graph.splits for triple in named_triples(graph, split))
    assert everything == sorted((f"e{i}", "r", f"e{i + 1}") for i in range(100))
    again, other = (load_graph(path, split="0.8/0.1/0.1", seed=seed) for seed in (0, 1))
    assert again.fingerprint == graph.fingerprint != other.fingerprint
    config = TrainConfig(dataset=str(path), split="0.8/0.1/0.1", seed=1)
    assert config.load_graph().fingerprint == graph.fingerprint  # runs with other seeds can be compared


def test_rows_that_repeat_a_triple_go_to_one_split(tmp_path):
    path = tmp_path / "dated.csv"
    rows = [f"e{i},r,e{i + 1},{year}\n" for year in (2001, 2002, 2003) for i in range(50)]
    path.write_text("subject,predicate,object,year\n" + "".join(rows))
    graph = load_graph(path, split="0.8/0.1/0.1", columns="subject,predicate,object")
    assert [len(triples) for triples in graph.splits.values()] == [120, 15, 15]
    splits = [set(named_triples(graph, split)) for split in graph.splits]
    assert [len(x) for x in splits] == [40, 5, 5]
    assert len(set().union(*splits)) == 50


@pytest.mark.parametrize(
    "options",
    [
        {"split": "0.8/0.1/0.1"},
        {"archive": "x.tar.gz"},
        {"columns": ["a", "b"]},
        {"columns": ["a", "b", "A"]},
        {"columns": ["1", "01", "2"]},
        {"columns": ["0", "1", "2"]},
        {"columns": ["a", "b", "c"], "header": False},
        {"columns": ["1", "2", "3"], "weights": "3"},
        {"weights": "w", "header": False},
        {"header": 0},
    ],
)
def test_options_that_cannot_apply_to_a_folder(tmp_path, options):
    with pytest.raises(UsageError):
        load_graph(write_folder(tmp_path), **options)


@pytest.mark.parametrize(
    "split", [None, "0.8/0.2", "0.8/0.1/0.2", "0/0.5/0.5", "1.1/0/-0.1", "a/b/c", "0.8 0.1 0.1", "nan/0.1/0.1"]
)
def test_one_file_needs_shares(tmp_path, split):
    (tmp_path / "all.tsv").write_text("a\tr\tb\n" * 10)
    with pytest.raises(UsageError, match=r"0\.8/0\.1/0\.1"):
        load_graph(tmp_path / "all.tsv", split=split)


def test_one_file_needs_triples_and_a_known_suffix(tmp_path):
    (tmp_path / "all.tsv").write_text("a\tr\tb\n" * 3 + "a\tr\tc\na\tr\td\n")
    with pytest.raises(DataError, match=r"got 3"):
        load_graph(tmp_path / "all.tsv", split="0.8/0.1/0.1")
    (tmp_path / "all.json").write_text("{}")
    with pytest.raises(UsageError, match=r"\.tsv.*all\.json"):
        load_graph(tmp_path / "all.json", split="0.8/0.1/0.1")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("fb15k237", {}, r"'fb15k237'.*fb15k-237\?"),
        ("no/such", {}, "no/such"),
        ("umls", {"columns": ["h", "r", "t"]}, "'columns'"),
        ("umls", {"weights": 4}, "'weights'"),
        ("world", {"archive": "world.tar.gz"}, "world"),
    ],
)
def test_names_and_options_that_do_not_fit(name, options, words):
    with pytest.raises(UsageError, match=words):
        load_graph(name, **options)
