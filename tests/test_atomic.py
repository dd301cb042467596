"""Files and folders appear as a whole or not at all."""

import errno
import os

import pytest

from conenmf.atomic import (
    files_written_whole,
    folder_written_whole,
    output_file,
    written_whole,
)
from conenmf.errors import OutputError


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def full():
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_appears_whole_or_not_at_all(tmp_path, refuses):
    target = tmp_path / "a.json"
    with written_whole(target) as stream:
        stream.write(b"first")
        assert not target.exists()

    def fail():
        with written_whole(target) as stream:
            stream.write(b"half")
            raise KeyError

    refuses(KeyError, None, fail)
    assert contents(tmp_path) == {"a.json": "first"}
    with written_whole(target) as stream:
        stream.write(b"second")
    assert contents(tmp_path) == {"a.json": "second"}


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_several_files_appear_together(tmp_path, failing, refuses):
    targets = [tmp_path / name for name in "abc"]
    for target in targets:
        target.write_text("old")

    def write(then):
        with files_written_whole(targets) as streams:
            for number, stream in enumerate(streams):
                if number == failing:
                    then()
                stream.write(b"new")

    refuses(OSError, "No space left", write, full)
    assert contents(tmp_path) == dict.fromkeys("abc", "old")
    write(lambda: None)
    assert contents(tmp_path) == dict.fromkeys("abc", "new")


def test_a_folder_appears_whole_or_not_at_all(tmp_path, refuses):
    target = tmp_path / "out"

    def write(then=lambda: None):
        with folder_written_whole(target) as folder:
            (folder / "a").write_text("new")
            (folder / "b").write_text("new")
            then()

    refuses(OutputError, "not enough disk space to write .*out: free some", write, full)
    assert list(tmp_path.iterdir()) == []
    write()
    assert contents(target) == {"a": "new", "b": "new"}
    refuses(OutputError, "out cannot be written: Directory not empty", write)
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("before", [{}, {"out": "old"}])
def test_a_full_disk_leaves_what_was_there(tmp_path, before, refuses):
    def fill():
        with written_whole(tmp_path / "out"):
            full()

    for name, text in before.items():
        (tmp_path / name).write_text(text)
    refuses(OutputError, "not enough disk space to write .*out: free some", fill)
    assert contents(tmp_path) == before


def test_places_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    for path, message in (
        ("", "is a folder: name a file"),
        (".", "is a folder: name a file"),
        ("/", "is a folder: name a file"),
        (tmp_path, "is a folder: name a file"),
        (tmp_path / "no" / "a", "its folder does not exist"),
        (tmp_path / "file" / "a", "its folder does not exist"),
        ("/proc/a", None),
        (tmp_path / ("x" * 300), None),
    ):
        with pytest.raises(OutputError, match=message), written_whole(output_file(path)):
            pass
    assert output_file(os.fsencode(tmp_path / "a")) == tmp_path / "a"


def test_files_are_on_the_disk_before_they_are_moved(tmp_path, monkeypatch):
    done = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *a, name=name, original=original: (done.append(name), original(*a))
        )
    with written_whole(tmp_path / "a") as stream:
        stream.write(b"a")
    assert done == ["fsync", "replace", "fsync"]  # the file, then the name in its folder
    done.clear()
    with folder_written_whole(tmp_path / "b"):
        pass
    assert done == ["fsync", "replace", "fsync"]
