import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from jobi_tf.datasets import load_graph
from jobi_tf.datasets.catalogue import DATASETS
from jobi_tf.datasets.preparation import read_archive
from jobi_tf.errors import DataError, UsageError

from .files import dummy_members, named_triples, write_archive


def test_archive_is_given_or_found(tiny, tmp_path, monkeypatch):
    _, path = tiny
    graph = load_graph("umls", archive=path)
    assert named_triples(graph, "test") == [("Ben", "knows", "Ann")]
    assert graph.sources["valid"].where(1) == "umls.tar.gz/valid.txt:2"
    monkeypatch.setenv("JOBI_TF_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("JOBI_TF_ARCHIVES", str(path.parent))
    assert load_graph("umls").fingerprint == graph.fingerprint


def test_given_archive_is_verified_even_if_prepared(tiny, tmp_path):
    _, path = tiny
    load_graph("umls", archive=path)
    other = tmp_path / "other.tar.gz"
    other.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(DataError, match=r"other.tar.gz: expected umls.tar.gz with sha256 \w{64}, got \w{64}"):
        load_graph("umls", archive=other)


def test_paths_that_are_no_archive(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="found nothing there"):
        load_graph("umls", archive=tmp_path / "no.tar.gz")
    with pytest.raises(UsageError, match="found a folder there"):
        load_graph("umls", archive=tmp_path)
    monkeypatch.setenv("JOBI_TF_ARCHIVES", str(tmp_path / "no"))
    with pytest.raises(UsageError, match="expected a folder of archives in JOBI_TF_ARCHIVES"):
        load_graph("umls")


@pytest.mark.parametrize("name", ["umls", "fb15k", "yago3-10"])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda content: content[:200], "truncated or corrupt"),
        (lambda content: b"<html>not found</html>", "truncated or corrupt"),
        (lambda content: b"", "truncated or corrupt"),
    ],
    ids=["truncated", "another file", "empty"],
)
def test_corrupt_archive(tmp_path, home, name, damage, words):
    path = tmp_path / "x.tar.gz"
    write_archive(path, DATASETS[name], dummy_members(DATASETS[name]))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=rf"x.tar.gz: expected .*{words}"):
        load_graph(name, archive=path)
    assert not list(home.glob("graphs/*"))


@pytest.mark.parametrize(("name", "kind"), [("umls", "sha256"), ("yago3-10", "git blob id"), ("fb15k", "git blob id")])
def test_whole_archive_of_other_content(tmp_path, name, kind):
    path = tmp_path / "x.tar.gz"
    write_archive(path, DATASETS[name], dummy_members(DATASETS[name]))
    with pytest.raises(DataError, match=rf"x.tar.gz: expected .* with {kind} \w+, got \w+"):
        load_graph(name, archive=path)


def test_git_blob_ids_are_those_of_git(tmp_path):
    path = tmp_path / "fb15k.tgz"
    facts = write_archive(path, DATASETS["fb15k"], dummy_members(DATASETS["fb15k"], "FB15k/"))
    blobs = {"test": "41ebd297fc88cbbb9551b2c213662e1e2a855666"}  # git hash-object dummy_data/test.txt
    assert len(read_archive(replace(facts, sha256=None, member_blobs=blobs), path).train) == 4
    with pytest.raises(
        DataError, match=r"expected FB15k/freebase_mtr100_mte100-test.txt of FB15K with git blob id 0000"
    ):
        read_archive(replace(facts, sha256=None, member_blobs={"test": "0000"}), path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"triples": {"train": 5, "valid": 2, "test": 1}}, r"umls.tar.gz/train.txt: expected 5 triples, got 4"),
        ({"entities": 1234}, r"umls.tar.gz: expected 1,234 entities, got 5"),
        ({"relations": 3}, r"umls.tar.gz: expected 3 relations, got 2"),
    ],
)
def test_wrong_counts(tiny, change, words):
    facts, path = tiny
    with pytest.raises(DataError, match=words):
        read_archive(replace(facts, **change), path)


def _link(name: str, kind: bytes, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "evil",
    [
        ("../evil.txt", b"x"),
        ("/tmp/evil.txt", b"x"),
        ("data/../../evil.txt", b"x"),
        _link("evil", tarfile.SYMTYPE, "/etc/passwd"),
        _link("data/evil", tarfile.SYMTYPE, "../../evil"),
        _link("evil", tarfile.LNKTYPE, "../evil"),
    ],
    ids=lambda evil: evil[0] if isinstance(evil, tuple) else f"{evil.name} -> {evil.linkname}",
)
def test_members_that_point_outside(tmp_path, evil):
    path = tmp_path / "umls.tar.gz"
    before = set(Path("/tmp").glob("evil*"))
    facts = write_archive(path, DATASETS["umls"], [*dummy_members(DATASETS["umls"]), evil])
    with pytest.raises(DataError, match=r"umls.tar.gz: refused, as its member .*evil.* points outside the archive"):
        read_archive(facts, path)
    with pytest.raises(DataError, match=r"with sha256 .* refused, as its member"):
        load_graph("umls", archive=path)
    assert set(Path("/tmp").glob("evil*")) == before
    assert not list(tmp_path.parent.glob("evil*"))


REST = dummy_members(DATASETS["umls"])[1:]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([], r"expected one train.txt in umls.tar.gz, found 0 \(it holds nothing\)"),
        ([("train.txt", b"a\tr\tb\n")], r"expected one valid.txt in umls.tar.gz, found 0 \(it holds train.txt\)"),
        ([("train.txt", b""), ("old/train.txt", b"")], r"expected one train.txt in umls.tar.gz, found 2"),
        ([_link("train.txt", tarfile.SYMTYPE, "other.txt"), *REST], "expected train.txt to be a regular file"),
        ([_link("train.txt", tarfile.FIFOTYPE, ""), *REST], "expected train.txt to be a regular file"),
        ([("train.txt", b"a\tr\n"), *REST], r"umls.tar.gz/train.txt:1: expected 3 fields"),
    ],
)
def test_members_that_are_not_there(tmp_path, members, words):
    path = tmp_path / "umls.tar.gz"
    facts = write_archive(path, DATASETS["umls"], members)
    with pytest.raises(DataError, match=words):
        read_archive(facts, path)
