import errno

import pytest

from jobi_tf.errors import UsageError
from jobi_tf.files import check_new, new_folder, written_beside


@pytest.mark.parametrize("writing", [written_beside, new_folder])
def test_a_full_disk_names_what_was_to_be_written(tmp_path, writing):
    path = tmp_path / "made" / "here"
    with pytest.raises(OSError, match="No space") as failure, writing(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert failure.value.filename == str(path)


def test_new_folders_are_absent_or_empty(tmp_path):
    check_new(tmp_path)
    check_new(tmp_path / "absent")
    file = tmp_path / "file"
    file.touch()
    for path in (tmp_path, file):
        with pytest.raises(UsageError, match=str(path)):
            check_new(path)
