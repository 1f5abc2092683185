import tarfile
from dataclasses import replace

import pytest

from jobi_tf.datasets import load_graph
from jobi_tf.datasets.archives import read_archive
from jobi_tf.datasets.catalogue import DATASETS
from jobi_tf.errors import DataError, UsageError

from .files import members_of, named_triples, write_archive


def test_archive_is_given_or_found(tiny, tmp_path, monkeypatch):
    _, path = tiny
    graph = load_graph("umls", archive=path)
    assert named_triples(graph, "test") == [("b", "s", "d")]
    assert graph.sources["train"].where(1) == "umls.tar.gz/train.txt:2"
    monkeypatch.setenv("JOBI_TF_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("JOBI_TF_ARCHIVES", str(path.parent))
    assert load_graph("umls").fingerprint == graph.fingerprint


def test_given_archive_is_verified_even_if_prepared(tiny, tmp_path, monkeypatch):
    _, path = tiny
    load_graph("umls", archive=path)
    other = tmp_path / "other.tar.gz"
    other.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DataError, match=r"other.tar.gz: .*sha256 \w{64}, got \w{64}"):
        load_graph("umls", archive=other)
    monkeypatch.setitem(DATASETS, "umls", replace(DATASETS["umls"], digests={}, relations=7))
    with pytest.raises(DataError, match=r"umls.tar.gz: .*7 relations"):
        load_graph("umls", archive=path)


def test_paths_that_are_no_archive(tmp_path, monkeypatch):
    for path in (tmp_path, tmp_path / "no.tar.gz"):
        with pytest.raises(UsageError, match=f"umls.tar.gz at {path}"):
            load_graph("umls", archive=path)
    monkeypatch.setenv("JOBI_TF_ARCHIVES", str(tmp_path / "no"))
    with pytest.raises(UsageError, match="JOBI_TF_ARCHIVES"):
        load_graph("umls")


@pytest.mark.parametrize("name", sorted(DATASETS))
@pytest.mark.parametrize(
    "damage",
    [lambda content: content[:100], lambda content: b"<html>not found</html>", lambda content: b"", bytes],
    ids=["truncated", "another file", "empty", "another archive"],
)
def test_what_is_not_the_archive(tmp_path, home, name, damage):
    path = tmp_path / "x.tar.gz"
    write_archive(path, DATASETS[name], members_of(DATASETS[name]))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=r"x.tar.gz.*: expected .*, got|got \d"):
        load_graph(name, archive=path)
    assert not list(home.glob("graphs/*"))


def test_git_ids_are_those_of_git(tmp_path):
    path = tmp_path / "fb15k.tgz"
    facts = write_archive(path, DATASETS["fb15k"], members_of(DATASETS["fb15k"], "FB15k/"))
    name = facts.members["test"]
    good = "git:909c00f5095eda4f7beb1bda6633dcd32cf39cbd"  # git hash-object
    assert len(read_archive(replace(facts, digests={name: good}), path).train) == 3
    with pytest.raises(DataError, match=f"FB15k/{name}.* git 0000, got 909c"):
        read_archive(replace(facts, digests={name: "git:0000"}), path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"triples": {"train": 5, "valid": 1, "test": 1}}, r"5 train triples \(got 3\)"),
        ({"entities": 1234}, r"1,234 entities \(got 4\)"),
        ({"relations": 3}, r"3 relations \(got 2\)"),
    ],
)
def test_counts_are_verified(tiny, change, words):
    facts, path = tiny
    with pytest.raises(DataError, match=words):
        read_archive(replace(facts, **change), path)


def _special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


REST = members_of(DATASETS["umls"])[1:]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([], "train.txt"),
        ([("train.txt", b"a\tr\tb\n")], "valid.txt"),
        ([("train.txt", b""), ("old/train.txt", b""), *REST], "found 2"),
        ([_special("train.txt", tarfile.SYMTYPE, "/etc/passwd"), *REST], "regular file train.txt"),
        ([_special("train.txt", tarfile.LNKTYPE, "valid.txt"), *REST], "regular file train.txt"),
        ([_special("train.txt", tarfile.FIFOTYPE), *REST], "regular file train.txt"),
        ([("train.txt", b"a\tr\n"), *REST], r"umls.tar.gz/train.txt:1: "),
    ],
)
def test_bad_members(tmp_path, members, words):
    path = tmp_path / "umls.tar.gz"
    facts = write_archive(path, DATASETS["umls"], members)
    with pytest.raises(DataError, match=words):
        read_archive(facts, path)


@pytest.mark.parametrize("evil", ["../evil.txt", "/tmp/evil.txt", _special("evil", tarfile.SYMTYPE, "../../evil")])
def test_nothing_is_unpacked(tmp_path, evil):
    path = tmp_path / "umls.tar.gz"
    member = (evil, b"x") if isinstance(evil, str) else evil
    facts = write_archive(path, DATASETS["umls"], [*members_of(DATASETS["umls"]), member])
    assert len(read_archive(facts, path).train) == 3
    assert list(tmp_path.iterdir()) == [path]
