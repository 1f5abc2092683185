import errno
import os

import numpy as np
import pytest

from jobi_tf.data.graph import Graph
from jobi_tf.datasets import cache, load_graph, prepare, reading
from jobi_tf.errors import DataError, JobiError
from jobi_tf.files import new_folder

from .files import write_folder


def test_second_call_reads_no_text(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "mine")
    first = prepare(folder)
    monkeypatch.setattr(reading.TripleReader, "read", None)
    second = prepare(str(folder))
    assert (first.cached, second.cached) == (False, True)
    assert first.folder == second.folder
    assert isinstance(second.graph.train, np.memmap)
    assert second.graph.sources["test"].where(0) == f"{folder}/test.tsv:1"


def test_changed_files_and_options_are_other_graphs(tmp_path):
    folder = write_folder(tmp_path / "mine")
    before = prepare(folder)
    assert prepare(folder, columns=["3", "2", "1"]).folder != before.folder
    (folder / "valid.tsv").write_text("c\tr\tb\n")
    os.utime(folder / "valid.tsv", ns=(1, 1))
    after = prepare(folder)
    assert after.folder != before.folder
    assert after.graph.fingerprint != before.graph.fingerprint


def test_damaged_copy_is_made_again(tmp_path):
    folder = write_folder(tmp_path / "mine")
    first = prepare(folder)
    for name, content in (
        ("graph.json", '{"format": 0}'),
        ("graph.json", "{"),
        ("train.npy", ""),
        ("entities.txt", None),
    ):
        path = first.folder / name
        path.unlink()
        if content is not None:
            path.write_text(content)
        again = prepare(folder)
        assert not again.cached
        assert again.graph.fingerprint == first.graph.fingerprint


def test_a_copy_that_cannot_be_opened_stays_until_it_is_made_again(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "mine")
    first = prepare(folder)

    def failing(path) -> Graph:
        raise DataError("too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(Graph, "open", failing)
        patched.setattr(reading.TripleReader, "read", None)
        with pytest.raises(TypeError):
            prepare(folder)
    assert prepare(folder).cached
    assert prepare(folder).folder == first.folder


def test_killed_preparation_is_removed(tmp_path, home):
    folder = write_folder(tmp_path / "mine")
    writings = [new_folder(home / "graphs" / name) for name in ("mine", "other")]
    running, killed = (writing.__enter__() for writing in writings)  # and never left, as if the process were killed
    os.utime(killed, (1, 1))
    prepared = prepare(folder)
    assert {*(home / "graphs").iterdir()} == {prepared.folder, running}


def test_two_preparations_at_once(tmp_path, home):
    files = reading.find_splits(write_folder(tmp_path / "mine"))

    def build() -> Graph:
        return reading.read_folder("mine", files, reading.Columns())

    def build_while_another_one_ends() -> Graph:
        cache.open_or_build("mine", build)
        return build()

    graph, *_ = cache.open_or_build("mine", build_while_another_one_ends)
    assert len(graph.train) == 3
    assert [path.name for path in (home / "graphs").iterdir()] == ["mine"]


def test_home_that_cannot_be_written(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "mine")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JOBI_TF_HOME", str(tmp_path / "file"))
    with pytest.raises(JobiError, match=r"file/graphs.*JOBI_TF_HOME"):
        load_graph(folder)
    (tmp_path / "locked" / "graphs").mkdir(parents=True)
    monkeypatch.setenv("JOBI_TF_HOME", str(tmp_path / "locked"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(JobiError, match=r"locked/graphs.*JOBI_TF_HOME"):
        load_graph(folder)


@pytest.mark.parametrize(
    "problem",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        OSError("8000 requested and 36 written"),  # how NumPy reports it
    ],
)
def test_full_disk(tmp_path, home, monkeypatch, problem):
    def full(*_: object) -> None:
        raise problem

    folder = write_folder(tmp_path / "mine")
    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(JobiError, match=r"mine-.*JOBI_TF_HOME"):
            load_graph(folder)
    assert not list((home / "graphs").iterdir())
    assert len(load_graph(folder).train) == 3


def test_a_graph_whose_name_looks_temporary_is_kept(tmp_path):
    first = prepare(write_folder(tmp_path / "tmpdata"))
    os.utime(first.folder, (1, 1))
    prepare(write_folder(tmp_path / "other"))
    assert prepare(tmp_path / "tmpdata").cached


def test_a_name_is_not_a_folder_of_that_name(tmp_path, monkeypatch, tiny):
    monkeypatch.chdir(tmp_path)
    load_graph(write_folder(tmp_path / "mine")).save(tmp_path / "umls")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_graph("umls", archive=tiny[1]).name == "umls"
    for path in ("./umls", "~/umls"):
        assert load_graph(path).name == "mine"


@pytest.mark.parametrize("content", ["{", "[]", '{"nodes": []}'])
def test_a_damaged_folder_is_named(tmp_path, content):
    (tmp_path / "graph.json").write_text(content)
    with pytest.raises(DataError, match=str(tmp_path)):
        load_graph(tmp_path)
