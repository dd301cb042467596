"""Places are checked before there is work; files of a result appear together."""

import csv
import json

import pytest

from conenmf.cli.places import (
    check_folder,
    earlier_files,
    write_csv,
    write_summary,
)
from conenmf.cli.results import new_result
from conenmf.errors import OutputError


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
    with new_result(tmp_path) as new:
        (new.folder / "history.csv").write_text("new")
        new.move_into_place()
    for name in ("result.npz", "labels.csv", "report.html"):
        assert (tmp_path / name).read_text() == "mine"


def test_a_summary_cannot_name_files_elsewhere(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "precious").write_text("mine")
    summary = {"made_by": "conenmf", "files": ["../precious", "/etc/passwd", "a.csv", "labels.csv"]}
    (tmp_path / "out" / "summary.json").write_text(json.dumps(summary))
    assert earlier_files(tmp_path / "out") == {"labels.csv"}


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


def test_cells_of_a_table_are_quoted(tmp_path):
    rows = [["a", "b"], ['x, "y"', "0.1"]]
    write_csv(tmp_path / "a.csv", rows[0], rows[1:])
    with open(tmp_path / "a.csv", newline="") as stream:
        assert list(csv.reader(stream)) == rows
    with pytest.raises(OutputError, match="cannot be written"):
        write_csv(tmp_path / "no" / "a.csv", rows[0], rows[1:])


def test_no_cell_of_a_table_is_a_formula(tmp_path):
    write_csv(tmp_path / "a.csv", ["name", "x"], [["=1+1", -0.5], ["@SUM(1)", "-0.5"]])
    with open(tmp_path / "a.csv", newline="") as stream:
        assert list(csv.reader(stream))[1:] == [["'=1+1", "-0.5"], ["'@SUM(1)", "-0.5"]]
