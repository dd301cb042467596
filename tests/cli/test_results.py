"""A result is replaced as a whole: not by half of another, by two at once, or by a killed one."""

import json
import os
import signal
import warnings
from pathlib import Path

import pytest

from conenmf.cli.places import check_folder, is_complete, write_summary
from conenmf.cli.results import new_result, settle
from conenmf.errors import OutputError

FILES = ("components.csv", "labels.csv", "result.npz")


def write(folder, text, names=FILES):
    for name in names:
        (folder / name).write_text(text)
    write_summary(folder, {"text": text}, names)


def replace(target, text, names=FILES):
    with new_result(target) as new:
        write(new.folder, text, names)
        new.move_into_place()


def texts(folder):
    """What the visible files say, for each of them."""
    return {
        path.name: json.loads(path.read_text())["text"]
        if path.name == "summary.json"
        else path.read_text()
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.fixture
def target(tmp_path):
    return tmp_path / "out"


def test_files_move_into_place_together(target):
    with new_result(target) as new:
        write(new.folder, "first")
        assert not target.exists()
        new.move_into_place()
    (target / "notes.txt").write_text("mine")
    replace(target, "second", FILES[1:])
    assert texts(target) == {
        **dict.fromkeys((*FILES[1:], "summary.json"), "second"),
        "notes.txt": "mine",
    }
    assert os.listdir(target.parent) == ["out"]
    assert not [name for name in os.listdir(target) if name.startswith(".")]


def test_a_result_that_fails_changes_nothing(target):
    replace(target, "first")
    before = texts(target)

    def fail():
        with new_result(target) as new:
            write(new.folder, "second")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert texts(target) == before
    assert sorted(os.listdir(target)) == sorted(before)


def test_what_is_kept_of_a_failed_result_has_a_place_of_its_own(target):
    replace(target, "first")
    for number in ("", "-2"):
        with new_result(target) as new:
            write(new.folder, "second")
            assert new.keep() == target / f"unfinished-result{number}"
    assert texts(target / "unfinished-result") == dict.fromkeys((*FILES, "summary.json"), "second")
    assert texts(target) == dict.fromkeys((*FILES, "summary.json"), "first")
    check_folder(target, force=False)


def test_a_file_that_appears_meanwhile_is_not_overwritten(target):
    replace(target, "first", FILES[1:])
    before = texts(target)

    def late():
        with new_result(target) as new:
            write(new.folder, "second")
            (target / FILES[0]).write_text("mine")
            new.move_into_place()

    with pytest.raises(
        OutputError, match=r"holds another components\.csv now; the new result is in .*/unfinished-"
    ):
        late()
    assert texts(target) == before | {FILES[0]: "mine"}
    assert set(texts(target / "unfinished-result").values()) == {"second"}


def test_a_folder_that_appears_meanwhile(target):
    with new_result(target) as new:
        write(new.folder, "first")
        target.mkdir()
        (target / "notes.txt").write_text("mine")
        new.move_into_place()
    assert texts(target) == dict.fromkeys((*FILES, "summary.json"), "first") | {"notes.txt": "mine"}
    assert os.listdir(target.parent) == ["out"]


def test_a_file_that_appears_in_the_place_of_the_folder(target):
    def late():
        with new_result(target) as new:
            write(new.folder, "first")
            target.write_text("mine")
            new.move_into_place()

    with pytest.raises(OutputError, match=r"the new result is in .*out-unfinished-result"):
        late()
    assert target.read_text() == "mine"
    kept = target.with_name("out-unfinished-result")
    assert texts(kept) == dict.fromkeys((*FILES, "summary.json"), "first")
    assert sorted(os.listdir(target.parent)) == ["out", "out-unfinished-result"]


@pytest.mark.parametrize("exists", [False, True])
def test_only_one_at_a_time(target, exists):
    if exists:
        replace(target, "first")
    refused = pytest.raises(OutputError, match="out is in use by another process: wait")
    with new_result(target), refused, new_result(target):
        pass
    replace(target, "second")
    assert os.listdir(target.parent) == ["out"]


MOVES = len(FILES) + 3  # the first summary and its flush, the files, the last summary


def killed_while_moving(target, survived):
    """Fork a process that replaces the result, and is killed after so many moves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries are idle
        child = os.fork()
    if child == 0:
        moves = []

        def counted(original):
            def move(*arguments, **options):
                if len(moves) == survived:
                    os.kill(os.getpid(), signal.SIGKILL)
                moves.append(arguments)
                return original(*arguments, **options)

            return move

        with new_result(target) as new:
            write(new.folder, "second")
            for name in ("replace", "unlink"):
                setattr(os, name, counted(getattr(os, name)))
            new.move_into_place()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("survived", range(MOVES))
def test_killed_between_any_two_moves(target, survived):
    """The folder holds a whole result, or none; the next command replaces it."""
    replace(target, "first")
    (target / "notes.txt").write_text("mine")
    status = killed_while_moving(target, survived)
    assert status in (-signal.SIGKILL, 0)
    found = texts(target) if is_complete(target) else {}
    if found:
        assert found.pop("notes.txt") == "mine"
        assert set(found) == {*FILES, "summary.json"}
        assert len(set(found.values())) == 1
    else:
        with pytest.raises(OutputError, match="not complete"):
            settle(target)
    check_folder(target, force=False)
    replace(target, "third")
    assert texts(target) == dict.fromkeys((*FILES, "summary.json"), "third") | {"notes.txt": "mine"}
    assert not [name for name in os.listdir(target) if name.startswith(".")]
    assert os.listdir(target.parent) == ["out"]


def test_a_move_that_fails_says_where_the_new_result_is(target, monkeypatch):
    replace(target, "first")
    original = os.replace

    def broken(one, other):
        if Path(other) == target / FILES[1]:
            raise OSError(5, "Input/output error")
        original(one, other)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", broken)
        with pytest.raises(OutputError, match=r"Input/output error; the new result is in .*result"):
            replace(target, "second")
    replace(target, "third")
    assert set(texts(target).values()) == {"third"}


def test_folders_named_by_a_summary_are_not_removed(target):
    replace(target, "first")
    (target / "precious").mkdir()
    (target / "precious" / "thesis.tex").write_text("mine")
    write_summary(target, {}, [*FILES, "precious"])
    replace(target, "second")
    assert (target / "precious" / "thesis.tex").read_text() == "mine"
