import gzip

import pytest

from jobi_tf.datasets import load_graph
from jobi_tf.errors import DataError

from .files import write_folder

GOOD = "a\tr\tb\n"


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (GOOD + "a\tb\n", r"train.tsv:2: expected 3 fields \(head, relation, tail\) separated by TABs, got 2: 'a\\tb'"),
        (GOOD + "a\tr\tb\tc\n", r"train.tsv:2: expected 3 fields .* got 4: 'a\\tr\\tb\\tc'"),
        (GOOD + "a,r,b\n", r"train.tsv:2: .* got 1 \(are they separated by commas\?\): 'a,r,b'"),
        ("a r b\n", r"train.tsv:1: .* got 1 \(are they separated by spaces\?\)"),
        ("a\tr\tb\ra\tr\tc\r", r"train.tsv:1: .* got 5 \(do lines end in CR only\?\)"),
        (GOOD + "\tr\tb\n", r"train.tsv:2: expected a head, a relation and a tail, got an empty field: '\\tr\\tb'"),
        (GOOD + "a\t \tb\n", r"train.tsv:2: .* got an empty field"),
        (GOOD + "a\tr\t\n", r"train.tsv:2: .* got an empty field"),
        (GOOD + "\n" + GOOD, r"train.tsv:2: expected a triple, got a blank line inside the file"),
        ("\n" + GOOD, r"train.tsv:1: expected a triple, got a blank line"),
        ("", r"train.tsv: expected triples, the file is empty"),
        ("\n\n", r"train.tsv: expected triples, found only blank lines"),
        ("head\trelation\ttail\n", r"train.tsv: expected triples, found only a header"),
        ("head\trelation\ttail\tweight\n", r"train.tsv:1: expected 3 columns, got 4 .* name those of head"),
        (GOOD.encode() + b"a\tr\tcaf\xe9\n", r"train.tsv:2: expected UTF-8, got byte 0xe9 at position 8 of the line"),
        (GOOD.encode("utf-16"), r"train.tsv:1: expected text in UTF-8, got UTF-16 \(convert it"),
        (GOOD.encode("utf-16-le"), r"train.tsv:1: .*got NUL bytes \(a binary file, or UTF-16\?\)"),
        (b"\x7fELF\x01\x00\x00\x02junk\n", r"train.tsv:1: .*it holds NUL bytes: a binary file"),
        (b"\x89PNG\r\n\x1a\n", r"train.tsv:1: expected UTF-8, got byte 0x89 at position 1"),
        (
            gzip.compress(GOOD.encode(), mtime=0),
            r"train.tsv:1: expected text in UTF-8, got gzip data \(name the file .gz\)",
        ),
        (b"PK\x03\x04junk", r"train.tsv:1: expected text in UTF-8, got a zip archive"),
        ("x" * 5000, r"got 1: 'x{77}\.\.\.'$"),
    ],
)
def test_tsv(tmp_path, home, train, words):
    with pytest.raises(DataError, match=words):
        load_graph(write_folder(tmp_path / "mine", train=train))
    assert not list(home.glob("graphs/*"))


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ("a,r\n", r"train.csv:1: expected 3 fields \(head, relation, tail\) separated by commas, got 2"),
        ("a;r;b\n", r"train.csv:1: .* got 1 \(are they separated by semicolons\?\)"),
        ('a,r,b\n"a\n",r,b\n', r"train.csv:2: expected one row a line, got quotes that are closed only in line 3"),
        ('a,r,b\n"a,r,b\na,r,b\n', r"train.csv:2: expected CSV, got a line that is not \(unexpected end of data\)"),
        ('a,r,"b"c\n', r"train.csv:1: expected CSV, got a line that is not"),
    ],
)
def test_csv(tmp_path, train, words):
    with pytest.raises(DataError, match=words):
        load_graph(write_folder(tmp_path, ".csv", train=train))


@pytest.mark.parametrize(
    ("columns", "train", "words"),
    [
        (
            ["x", "y", "z"],
            "a,y,b\n",
            r"train.csv:1: expected a header with the columns x, y, z, found no x and no z in",
        ),
        (["x", "y", "z"], "x,y,z,x\n", r"train.csv:1: expected one column 'x', found 2"),
        (["x", "y", "z"], "x,y,z,w\na,r,b,0\na,r,b\n", r"train.csv:3: expected 4 fields as in line 1 .* got 3"),
        (["1", "2", "5"], "a,r,b\n", r"train.csv:1: expected at least 5 columns, got 3"),
    ],
)
def test_columns(tmp_path, columns, train, words):
    with pytest.raises(DataError, match=words):
        load_graph(write_folder(tmp_path, ".csv", train=train), columns=columns)


def test_damaged_gzip(tmp_path):
    packed = gzip.compress(b"".join(b"a%d\tr\tb\n" % i for i in range(5000)))
    for damaged in (packed[: len(packed) // 2], packed[:100] + b"\0\0\0\0" + packed[104:], b"plain text"):
        with pytest.raises(DataError, match=r"train.tsv.gz: expected a whole gzip file, got one that is truncated"):
            load_graph(write_folder(tmp_path, ".tsv.gz", train=damaged))


def test_missing_and_doubled_files(tmp_path):
    folder = write_folder(tmp_path)
    (folder / "train.csv").write_text("a,r,b\n")
    with pytest.raises(DataError, match=r"expected one file for train, found train.tsv and train.csv"):
        load_graph(folder)
    (folder / "train.csv").unlink()
    (folder / "valid.tsv").unlink()
    (folder / "test.tsv").unlink()
    with pytest.raises(DataError, match=r"expected files for train, valid and test .* found none for valid and test"):
        load_graph(folder)


def test_error_in_a_later_split(tmp_path):
    with pytest.raises(DataError, match=r"test.tsv:1: expected 3 fields"):
        load_graph(write_folder(tmp_path, test="one\n"))
