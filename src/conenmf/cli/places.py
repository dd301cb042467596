"""Where commands write: places are checked before any work is done, files appear complete.

A folder of results is recognised by its ``summary.json``, which lists the files of the result.
These are replaced or removed by the next result; all other files in the folder are left alone.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..atomic import is_temporary, output_file, writing, written_whole
from ..errors import OptionError, OutputError
from ..export import ANNOTATED_FILE, REPORT_FILE, RESULT_FILE, TABLE_NAMES, TABLES, no_formula

__all__ = [
    "LIMITS_FILE",
    "RUNS_FILE",
    "RUNS_FOLDER",
    "STABILITY_FILE",
    "SUMMARY_FILE",
    "check_folder",
    "check_name",
    "check_parent",
    "check_picture",
    "earlier_files",
    "files_of_result",
    "is_complete",
    "list_in_summary",
    "save_picture",
    "write_csv",
    "write_summary",
]

SUMMARY_FILE = "summary.json"
STABILITY_FILE, LIMITS_FILE, RUNS_FILE = "stability.npz", "limits.csv", "runs.csv"
RUNS_FOLDER = "runs"  # where runs are kept as they end
_PICTURE_SUFFIXES = (".png", ".pdf", ".svg")
_DOTS_PER_INCH = 150


def check_name(target: Path) -> None:
    """Refuse a name that no folder can have, such as one that is too long."""
    try:
        os.lstat(target)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as problem:
        raise OutputError(f"{target}: {problem.strerror}; name another folder") from problem


def check_folder(
    target: Path, force: bool, names: Iterable[str] = (), ours: Iterable[str] = ()
) -> None:
    """Refuse a folder that cannot be written to, or that holds other files than `ours`.

    Other files are left alone, so even with `force` none may have one of the names that will be
    written.
    """
    if os.path.lexists(target) and not target.is_dir():
        raise OutputError(f"{target} is a file: name a folder with --output")
    if not target.exists() and not target.absolute().parent.is_dir():
        raise OutputError(f"{target}: the folder {target.absolute().parent} does not exist")
    if not target.is_dir():
        return
    earlier = earlier_files(target)
    others = (path.name for path in target.iterdir() if path.name not in {*ours})
    if not (earlier or force or all(map(is_temporary, others))):
        raise OutputError(f"{target} holds other files: name another folder, or add --force")
    for name in sorted({*names} - earlier):
        if (target / name).exists():
            raise OutputError(f"{target} holds another {name}: move it, or name another folder")


def check_parent(path: str | None) -> None:
    """Refuse a file that cannot be written: one whose folder does not exist, or a folder."""
    if path is not None:
        output_file(path)


def check_picture(path: str | None) -> None:
    """Refuse a picture of an unknown kind, or whose folder does not exist."""
    if path is not None and Path(path).suffix.lower() not in _PICTURE_SUFFIXES:
        raise OptionError(f"{path}: a picture ends in .png, .pdf or .svg")
    check_parent(path)


def files_of_result(tables: str, *, anndata: bool, report: bool) -> list[str]:
    """The names of the files that a result is written to."""
    names = [f"{name}.{tables}" for name in TABLE_NAMES if tables in TABLES]
    return [
        RESULT_FILE,
        SUMMARY_FILE,
        *names,
        *([ANNOTATED_FILE] * anndata),
        *([REPORT_FILE] * report),
    ]


_NAMES = {name for kind in TABLES for name in files_of_result(kind, anndata=True, report=True)} | {
    STABILITY_FILE,
    LIMITS_FILE,
    RUNS_FILE,
}  # of all files that a result may have


def earlier_files(folder: Path) -> set[str]:
    """The files of an earlier result in a folder; none if there is no result.

    Of those that its summary lists, only names that are written here count: others are not removed.
    """
    try:
        summary = json.loads((folder / SUMMARY_FILE).read_bytes())
        is_ours = summary["made_by"] == "conenmf"
        names = {str(name) for name in summary["files"]} if is_ours else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    return names & _NAMES


def is_complete(folder: Path) -> bool:
    """Whether no command was killed while it replaced the result in a folder."""
    try:
        return bool(json.loads((folder / SUMMARY_FILE).read_bytes()).get("complete", True))
    except (OSError, ValueError, AttributeError):
        return True


def write_summary(folder: Path, facts: dict[str, Any], files: Iterable[str]) -> list[str]:
    """Write the facts about a result as JSON, with a list of its files; return that list."""
    names = sorted({*files, SUMMARY_FILE})
    content = {"made_by": "conenmf", **facts, "files": names}
    with written_whole(folder / SUMMARY_FILE) as stream:
        stream.write(json.dumps(content, indent=2, allow_nan=False).encode())
    return names


def list_in_summary(folder: Path, name: str) -> None:
    """Add a file to those of the result in a folder, so that the next result replaces it."""
    names = earlier_files(folder)
    if names and name not in names:
        facts = json.loads((folder / SUMMARY_FILE).read_bytes())
        write_summary(folder, facts, [*names, name])


def write_csv(target: Path, header: Iterable[object], rows: Iterable[Iterable[object]]) -> None:
    """Write a table; a cell with a comma or a quote in it is quoted, and none is a formula."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(
        [no_formula(cell) if isinstance(cell, str) else cell for cell in row] for row in rows
    )
    with writing(target), written_whole(target) as stream:
        stream.write(text.getvalue().encode())


def save_picture(figure: Any, path: str) -> None:
    """Save a figure of matplotlib in the format that the name of the file ends with."""
    target = Path(path)
    with writing(target), written_whole(target) as stream:
        figure.savefig(stream, format=target.suffix.lower().removeprefix("."), dpi=_DOTS_PER_INCH)
