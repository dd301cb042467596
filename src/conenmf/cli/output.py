"""What commands write: places are checked before there is work, and results appear whole.

A folder of results is recognised by its ``summary.json``, which lists the files of the result. The
next result replaces or removes these; all other files in the folder are left alone. A new result
is written to the folder ``unfinished-result`` in it, while the folder is locked, and its files are
moved when all of them are complete. Before that ``summary.json`` says that the result is not
complete, and its final form is moved last: a command that is killed in between leaves a folder that
`check_complete` refuses, and that the next command can replace.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..atomic import (
    flush_folder,
    in_use,
    output_file,
    output_folder,
    remove_temporaries,
    writing,
    written_whole,
)
from ..errors import OptionError, OutputError
from ..export import ANNOTATED_FILE, REPORT_FILE, RESULT_FILE, TABLE_NAMES, TABLES, no_formula
from ..text import Facts

_SUMMARY_FILE = "summary.json"
STABILITY_FILE = "stability.npz"
LIMITS_FILE = "limits.csv"
RUNS_FILE = "runs.csv"
RECOMMENDATIONS_FILE = "recommendations.csv"
RESIDUALS_FILE = "residuals.csv"
Q_FILE = "q.csv"
RUNS_FOLDER = "runs"  # where the fits of stability are saved as they end
_NEW_FOLDER = "unfinished-result"
_RESULT_FILES = {
    *(f"{name}.{kind}" for name in TABLE_NAMES for kind in TABLES),
    RESULT_FILE,
    ANNOTATED_FILE,
    REPORT_FILE,
    STABILITY_FILE,
    LIMITS_FILE,
    RUNS_FILE,
    RECOMMENDATIONS_FILE,
    RESIDUALS_FILE,
    Q_FILE,
    _SUMMARY_FILE,
}
_PICTURE_SUFFIXES = (".png", ".pdf", ".svg")
_DOTS_PER_INCH = 150


def check_folder(target: Path, force: bool) -> None:
    """Refuse a folder that cannot be written to, or that holds other files.

    Other files are left alone, so even with `force` none may have the name of a file of a result.
    """
    if not output_folder(target).is_dir():
        return
    earlier = earlier_files(target)
    ours = {RUNS_FOLDER, _NEW_FOLDER}
    others = {path.name for path in target.iterdir() if not path.name.startswith(".")} - ours
    if others and not (earlier or force):
        raise OutputError(f"{target} holds other files: name another folder, or add --force")
    for name in sorted(others & _RESULT_FILES - earlier):
        raise OutputError(f"{target} holds another {name}: move it, or name another folder")


@contextmanager
def new_result(target: Path) -> Iterator[Path]:
    """Lock a folder, yield one for the files of a new result, and move these into place.

    If the result itself was saved before an error, the error says where it is kept.
    """
    new = target / _NEW_FOLDER
    with locked_folder(target):
        with writing(target):
            shutil.rmtree(new, ignore_errors=True)  # of a command that was killed
            remove_temporaries(target, _SUMMARY_FILE)
            new.mkdir()
        try:
            yield new
            with writing(target):
                _replace_files(new, target)
        except BaseException as problem:
            if isinstance(problem, Exception) and (new / RESULT_FILE).is_file():
                problem.add_note(f"the new result is kept in {new}")
            else:
                shutil.rmtree(new, ignore_errors=True)
            raise


@contextmanager
def locked_folder(target: Path) -> Iterator[None]:
    """Make a folder, and refuse it while another command writes there."""
    try:
        with writing(target):
            target.mkdir(exist_ok=True)
        with in_use(target):
            yield
    finally:
        with suppress(OSError):
            target.rmdir()  # if nothing is in it


def _replace_files(new: Path, target: Path) -> None:
    names = {*os.listdir(new)}
    earlier = earlier_files(target)
    write_summary(target, {"complete": False}, names | earlier)
    for name in earlier - names:
        (target / name).unlink(missing_ok=True)
    for name in sorted(names, key=lambda name: (name in (RESULT_FILE, _SUMMARY_FILE), name)):
        os.replace(new / name, target / name)
    new.rmdir()
    flush_folder(target)


def _summary(folder: Path) -> Facts:
    """The summary of the result in a folder; empty if there is no result."""
    try:
        summary = json.loads((folder / _SUMMARY_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    is_ours = isinstance(summary, dict) and summary.get("made_by") == "conenmf"
    return summary if is_ours else {}


def earlier_files(folder: Path) -> set[str]:
    """The files of the result in a folder; none if there is no result."""
    return {*_summary(folder).get("files", ())} & _RESULT_FILES


def check_complete(folder: Path) -> None:
    """Refuse a folder whose result was being replaced when the command was killed."""
    if not _summary(folder).get("complete", True):
        raise OutputError(
            f"{folder} holds a result that is not complete, since the command that wrote it was "
            "killed: run that again"
        )


def write_summary(folder: Path, facts: Facts, files: Iterable[str]) -> list[str]:
    """Write the facts about a result as JSON, with a list of its files; return that list."""
    names = sorted({*files, _SUMMARY_FILE})
    content = {"made_by": "conenmf", **facts, "files": names}
    with written_whole(folder / _SUMMARY_FILE) as stream:
        stream.write(json.dumps(content, indent=2, allow_nan=False).encode())
    return names


def list_in_summary(folder: Path, name: str) -> None:
    """Add a file to those of the result in a folder, so that the next result replaces it."""
    if summary := _summary(folder):
        write_summary(folder, summary, [*summary["files"], name])


def write_csv(target: Path, header: Iterable[object], rows: Iterable[Iterable[object]]) -> None:
    """Write a table; a cell with a comma or a quote in it is quoted, and none is a formula."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(
        [no_formula(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
    )
    with written_whole(target) as stream:
        stream.write(text.getvalue().encode())


def check_picture(path: str | None) -> None:
    """Refuse a picture of an unknown kind, or whose folder does not exist."""
    if path is not None:
        if Path(path).suffix.lower() not in _PICTURE_SUFFIXES:
            raise OptionError(f"{path}: a picture ends in .png, .pdf or .svg")
        output_file(path)


def save_picture(figure: Any, path: str) -> None:
    """Save a figure of matplotlib in the format that the name of the file ends with."""
    target = Path(path)
    with written_whole(target) as stream:
        figure.savefig(stream, format=target.suffix.lower().removeprefix("."), dpi=_DOTS_PER_INCH)
