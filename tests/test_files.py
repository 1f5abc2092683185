import errno
import os
from pathlib import Path

import pytest

from jobi_tf.errors import UsageError
from jobi_tf.files import check_new, new_folder, remove_abandoned, run_lock, written_beside


@pytest.mark.parametrize("writing", [new_folder, written_beside])
@pytest.mark.parametrize("file", [None, "part"])
def test_errors_name_what_was_to_be_written(tmp_path, writing, file):
    def write() -> None:
        with writing(tmp_path / "whole") as beside:
            beside.mkdir(exist_ok=True)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([str(beside / file)] if file else []))

    with pytest.raises(OSError, match="No space") as caught:
        write()
    assert caught.value.filename == str(tmp_path / "whole")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_folder_is_replaced_or_stays(tmp_path, monkeypatch, interrupted):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def write(text: str) -> None:
        with written_beside(tmp_path / "model") as beside:
            beside.mkdir()
            (beside / "part").write_text(text)

    write("old")
    if interrupted:
        monkeypatch.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write("new")
    else:
        write("new")
    assert (tmp_path / "model" / "part").read_text() == ("old" if interrupted else "new")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_comes_back_whose_replacement_was_killed(tmp_path):
    for name in ("model", ".tmp-01234567-model", ".tmp-01234567-model.before", ".tmp-01234567-a-b.before"):
        (tmp_path / "run" / name).mkdir(parents=True)
    remove_abandoned(tmp_path)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["a-b", "model"]


def test_a_lock_is_in_the_folder_if_nothing_can_be_written_beside_it(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with run_lock(tmp_path / "run"):
        check_new(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_new_folders_are_absent_or_empty(tmp_path):
    check_new(tmp_path)
    check_new(tmp_path / "absent")
    file = tmp_path / "file"
    file.touch()
    for path in (tmp_path, file):
        with pytest.raises(UsageError, match=str(path)):
            check_new(path)


def test_a_pipe_is_written_to_and_a_link_is_followed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "link").symlink_to("file")
    for name in ("pipe", "link"):
        with written_beside(tmp_path / name) as beside:
            beside.write_text("text")
    assert os.read(reader, 9) == b"text"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"


def test_a_file_does_not_replace_a_folder(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").touch()
    with pytest.raises(UsageError, match="folder"), written_beside(tmp_path / "folder") as beside:
        beside.write_text("text")
    assert sorted(x.name for x in tmp_path.rglob("*")) == ["folder", "kept"]


def test_a_new_folder_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"'\.'"):
        check_new(Path())
