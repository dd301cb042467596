"""Places are checked before there is work; a result is replaced as a whole, by one at a time."""

import csv
import json
import os
import shutil
import signal
import warnings

import pytest

from conenmf.cli.output import (
    check_complete,
    check_folder,
    earlier_files,
    new_result,
    write_summary,
)
from conenmf.errors import OutputError
from conenmf.export import write_csv

FILES = ("components.csv", "labels.csv", "result.npz")


def write(folder, text, names=FILES):
    for name in names:
        (folder / name).write_text(text)
    write_summary(folder, {"text": text}, names)


def replace(target, text, names=FILES):
    with new_result(target) as new:
        write(new, text, names)


def fail_to_replace(target, names=FILES):
    with new_result(target) as new:
        write(new, "second", names)
        raise KeyError


def texts(folder):
    """What the visible files say, for each of them."""
    return {
        path.name: json.loads(path.read_text()).get("text")
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
        write(new, "first")
        assert texts(target) == {}
    (target / "notes.txt").write_text("mine")
    replace(target, "second", FILES[1:])
    assert texts(target) == {
        **dict.fromkeys((*FILES[1:], "summary.json"), "second"),
        "notes.txt": "mine",
    }
    assert os.listdir(target.parent) == ["out"]
    assert not [name for name in os.listdir(target) if name.startswith(".")]


def test_a_result_that_fails_changes_nothing(target, refuses):
    replace(target, "first")
    before = texts(target)
    refuses(KeyError, None, lambda: fail_to_replace(target, FILES[:1]))
    assert texts(target) == before
    assert sorted(os.listdir(target)) == sorted(before)
    shutil.rmtree(target)
    refuses(KeyError, None, lambda: fail_to_replace(target, FILES[:1]))
    assert not target.exists()


def test_a_result_that_was_saved_before_an_error_is_kept(target):
    replace(target, "first")
    with pytest.raises(KeyError) as error:
        fail_to_replace(target)
    kept = target / "unfinished-result"
    assert error.value.__notes__ == [f"the new result is kept in {kept}"]
    assert texts(kept) == dict.fromkeys((*FILES, "summary.json"), "second")
    assert texts(target) == dict.fromkeys((*FILES, "summary.json"), "first")
    check_folder(target, force=False)
    replace(target, "third")
    assert set(texts(target).values()) == {"third"}
    assert not kept.exists()


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
            write(new, "second")
            for name in ("replace", "unlink"):
                setattr(os, name, counted(getattr(os, name)))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.nightly
@pytest.mark.parametrize("survived", range(MOVES))
def test_killed_between_any_two_moves(target, survived, refuses):
    """The folder holds a whole result, or none; the next command replaces it."""
    replace(target, "first")
    (target / "notes.txt").write_text("mine")
    status = killed_while_moving(target, survived)
    assert status in (-signal.SIGKILL, 0)
    found = texts(target)
    if "text" in json.loads((target / "summary.json").read_text()):
        assert found.pop("notes.txt") == "mine"
        assert found == dict.fromkeys((*FILES, "summary.json"), found["result.npz"])
    else:
        refuses(OutputError, "not complete", lambda: check_complete(target))
    check_folder(target, force=False)
    replace(target, "third")
    assert texts(target) == dict.fromkeys((*FILES, "summary.json"), "third") | {"notes.txt": "mine"}
    assert not [name for name in os.listdir(target) if name.startswith(".")]
    assert os.listdir(target.parent) == ["out"]


# --- places and tables ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "summary", [None, "{}", "[1]", "not json", '{"made_by": "me", "files": ["labels.csv"]}']
)
def test_files_of_others_stay(tmp_path, summary, refuses):
    for name in ("result.npz", "labels.csv", "report.html"):
        (tmp_path / name).write_text("mine")
    if summary is not None:
        (tmp_path / "summary.json").write_text(summary)
    refuses(OutputError, "holds other files", lambda: check_folder(tmp_path, force=False))
    with new_result(tmp_path) as new:
        (new / "history.csv").write_text("new")
    for name in ("result.npz", "labels.csv", "report.html"):
        assert (tmp_path / name).read_text() == "mine"


def test_places_are_checked_before_there_is_work(tmp_path, refuses):
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("precious")
    for name, message in (
        ("file", "is a file: name a folder"),
        ("no/where", "does not exist"),
        ("full", "holds other files"),
    ):
        refuses(OutputError, message, check_folder, tmp_path / name, force=False)
    check_folder(tmp_path / "full", force=True)
    check_folder(tmp_path / "new", force=False)
    write_summary(tmp_path / "full", {}, [])
    check_folder(tmp_path / "full", force=False)


def test_a_summary_cannot_name_files_elsewhere(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("mine")
    summary = {"made_by": "conenmf", "files": ["../precious", "/etc/passwd", "a.csv", "labels.csv"]}
    (tmp_path / "out" / "summary.json").write_text(json.dumps(summary))
    assert earlier_files(tmp_path / "out") == {"labels.csv"}


def test_no_cell_of_a_table_is_a_formula(tmp_path):
    write_csv(tmp_path / "a.csv", ["name", "x"], [["=1+1", -0.5], ["@SUM(1)", "-0.5"]])
    with open(tmp_path / "a.csv", newline="") as stream:
        assert list(csv.reader(stream))[1:] == [["'=1+1", "-0.5"], ["'@SUM(1)", "-0.5"]]
