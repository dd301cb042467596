import errno

import pytest

from conenmf.data.files.atomic import folder_written_whole, temporary_name, written_whole
from conenmf.errors import DiskFullError


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "a.json"
    with written_whole(target) as stream:
        stream.write(b"first")
        assert not target.exists()

    def fail():
        with written_whole(target) as stream:
            stream.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert contents(tmp_path) == {"a.json": "first"}
    with written_whole(target) as stream:
        stream.write(b"second")
    assert contents(tmp_path) == {"a.json": "second"}


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_appears_whole_or_not_at_all(tmp_path, exists):
    target, before = tmp_path / "out", {}
    if exists:
        before = {"a": "old", "other": "stays"}
        target.mkdir()
        for name, text in before.items():
            (target / name).write_text(text)

    def write(then):
        with folder_written_whole(target) as folder:
            (folder / "a").write_text("new")
            (folder / "b").write_text("new")
            then()

    def fail():
        raise KeyError

    with pytest.raises(KeyError):
        write(fail)
    assert (contents(target) if exists else list(tmp_path.iterdir())) == (before or [])
    write(lambda: None)
    assert contents(target) == before | {"a": "new", "b": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_leaves_what_was_there(tmp_path):
    def fill(opened, path):
        with opened(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    for opened in (written_whole, folder_written_whole):
        with pytest.raises(
            DiskFullError,
            match=r"not enough disk space to write .*out: free some.*earlier one is intact",
        ):
            fill(opened, tmp_path / "out")
        assert list(tmp_path.iterdir()) == []


def test_temporary_names_differ_and_are_hidden(tmp_path):
    first, second = (temporary_name(tmp_path / "a.npy") for _ in range(2))
    assert first != second
    assert first.parent == tmp_path
    assert first.name.startswith(".a.npy.")
