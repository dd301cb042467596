"""Places are checked before there is work; files of a result appear together."""

import csv
import json
from pathlib import Path

import pytest

from conenmf.cli.places import (
    check_folder,
    earlier_files,
    new_folder,
    write_csv,
    write_summary,
    writing,
)
from conenmf.errors import DiskFullError, OutputError


def test_files_move_into_place_together(tmp_path):
    target = tmp_path / "out"
    with new_folder(target) as folder:
        (folder / "a.txt").write_text("a")
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["a.txt"]
    with pytest.raises(FileNotFoundError), new_folder(target) as folder:
        (folder / "b.txt").rename(folder / "no" / "b.txt")
    assert [path.name for path in target.iterdir()] == ["a.txt"]
    assert list(tmp_path.iterdir()) == [target]


def test_files_of_an_earlier_result_do_not_stay(tmp_path):
    target = tmp_path / "out"
    for text in ("old", "new"):
        with new_folder(target) as folder:
            for name in ("report.html", "labels.csv")[text == "new" :]:
                (folder / name).write_text(text)
            write_summary(folder, {}, [path.name for path in folder.iterdir()])
        (target / "components.csv").write_text("mine")
    files = {path.name for path in target.iterdir()}
    assert files == {"labels.csv", "summary.json", "components.csv"}
    assert (target / "labels.csv").read_text() == "new"
    assert (target / "components.csv").read_text() == "mine"


@pytest.mark.parametrize(
    "summary", [None, "{}", "[1]", "not json", '{"made_by": "me", "files": ["labels.csv"]}']
)
def test_files_of_others_stay(tmp_path, summary):
    for name in ("result.npz", "labels.csv", "report.html"):
        (tmp_path / name).write_text("mine")
    if summary is not None:
        (tmp_path / "summary.json").write_text(summary)
    with pytest.raises(OutputError, match="holds other files"):
        check_folder(tmp_path, force=False)
    with new_folder(tmp_path) as folder:
        (folder / "history.csv").write_text("new")
    for name in ("result.npz", "labels.csv", "report.html"):
        assert (tmp_path / name).read_text() == "mine"


def test_a_summary_cannot_name_files_elsewhere(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("mine")
    summary = {"made_by": "conenmf", "files": ["../precious", "/etc/passwd", "a.csv"]}
    (tmp_path / "out" / "summary.json").write_text(json.dumps(summary))
    assert earlier_files(tmp_path / "out") == {"a.csv"}


def test_places_are_checked_before_there_is_work(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("precious")
    for name, message in (
        ("file", "is a file: name a folder"),
        ("no/where", "does not exist"),
        ("full", "holds other files"),
    ):
        with pytest.raises(OutputError, match=message):
            check_folder(tmp_path / name, force=False)
    check_folder(tmp_path / "full", force=True)
    check_folder(tmp_path / "new", force=False)
    write_summary(tmp_path / "full", {}, [])
    check_folder(tmp_path / "full", force=False)


def test_what_cannot_be_written_is_named(tmp_path):
    message = r"a\.csv cannot be written: Permission denied"
    with pytest.raises(OutputError, match=message), writing(Path("a.csv")):
        raise PermissionError(13, "Permission denied")
    with pytest.raises(DiskFullError), writing(Path("a.csv")):
        raise DiskFullError("no room")


def test_cells_of_a_table_are_quoted(tmp_path):
    rows = [["a", "b"], ['x, "y"', "0.1"]]
    write_csv(tmp_path / "a.csv", rows[0], rows[1:])
    with open(tmp_path / "a.csv", newline="") as stream:
        assert list(csv.reader(stream)) == rows
    with pytest.raises(OutputError, match="cannot be written"):
        write_csv(tmp_path / "no" / "a.csv", rows[0], rows[1:])
