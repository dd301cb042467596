"""What the scripts of the paper's tables and figures share: scales, rows that are kept, seeds.

Each script has ``run(rows)``, which computes rows, and ``show(rows)``, which makes a section of the
page from them. Rows are appended to ``<results>/<scale>/<name>.csv`` as they come; those that are
there already are not computed again, so an interrupted run resumes. Beside it is
``<name>.json`` with the seed, the sizes, the versions and machines that took part, and the datasets
that were missing. Rows of another seed or of other sizes are never mixed with new ones. The seed of
a row follows from the seed of the run and the row's own key, so the order of rows does not matter.
Repetitions are an outer loop of every script, so that with ``--minutes`` cases have about as many.

Seconds are those of the processor, so that other work on the machine counts for little. They and
what is computed from them differ from run to run; all other columns are the same for the same seed.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from presentation import Row, Section, verdict_table

sys.path.insert(0, str(Path(__file__).parents[1]))
from measure import machine, versions

from conenmf.atomic import written_whole
from conenmf.datasets import available

SCALES = ("tiny", "quick", "full")


Choice = TypeVar("Choice", str, int)


class TimeIsUp(Exception):  # noqa: N818 - no error
    """The minutes given are over; the rows so far are kept, and a later run resumes."""


class Experiment:
    """The rows of one table or figure.

    Parameters
    ----------
    name : str
    scale : {"tiny", "quick", "full"}
        For the tests, in minutes, or with the paper's repetitions.
    seed : int
    folder : path
        Where rows are kept.
    sizes : object
        What is measured at this scale, as the script says.
    minutes : float, optional
        After so many no further row is begun.
    only : str, optional
        Of several datasets, or sizes, this one for now.
    """

    def __init__(
        self,
        name: str,
        scale: str,
        seed: int,
        folder: Path,
        sizes: object = None,
        minutes: float | None = None,
        only: str | None = None,
    ) -> None:
        self.name, self.scale, self.seed = name, scale, seed
        self._only = only
        self._until = np.inf if minutes is None else time.monotonic() + 60 * minutes
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._about = folder / f"{name}.csv", folder / f"{name}.json"
        self.rows: list[Row] = kept(self._path)
        wanted = {"seed": seed, "scale": scale, "sizes": str(sizes)}
        facts = wanted | {"runs": [], "missing": []}
        if self.rows:
            facts = json.loads(self._about.read_text())
            other = [key for key, value in wanted.items() if facts[key] != value]
            if other:
                raise SystemExit(
                    f"{self._path} holds rows of another {' and '.join(other)}; "
                    "delete it, or name another folder with --results"
                )
        else:
            self._path.unlink(missing_ok=True)
        took_part = {"versions": versions(), "machine": machine()}
        if took_part not in facts["runs"]:
            facts["runs"].append(took_part)
        self._facts = facts
        self._write_facts()

    def _write_facts(self) -> None:
        put(self._about, f"{json.dumps(self._facts, indent=2)}\n".encode())

    def at_hand(self, names: Sequence[str]) -> list[str]:
        """Those of the datasets that are on this machine; missing ones are printed and kept."""
        here = [name for name in names if name.partition(" / ")[0] in available()]
        self._facts["missing"] = [name for name in names if name not in here]
        self._write_facts()
        for name in self._facts["missing"]:
            print(f"{self.name}: {name} is not on this machine; see conenmf.datasets", flush=True)
        return self.chosen(here)

    def chosen(self, values: Sequence[Choice]) -> list[Choice]:
        """All of them, or the one that the command line asks for now."""
        return [value for value in values if self._only in (None, str(value))]

    def rng(self, **key: object) -> np.random.Generator:
        """A generator that depends on the seed of the run and on this key alone."""
        text = json.dumps([self.name, self.seed, {k: str(v) for k, v in key.items()}])
        digest = hashlib.sha256(text.encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "big"))

    def row(self, compute: Callable[[], Mapping[str, object]], **key: object) -> dict[str, str]:
        """The row of this key: as it was kept, or computed and kept."""
        wanted = {name: str(value) for name, value in key.items()}
        for row in self.rows:
            if wanted.items() <= row.items():
                return row
        if time.monotonic() >= self._until:
            raise TimeIsUp
        row = wanted | {name: _text(value) for name, value in compute().items()}
        new = not self.rows
        if not new and list(self.rows[0]) != list(row):
            raise SystemExit(f"{self._path} holds rows with other columns; delete it")
        with open(self._path, "a", newline="") as stream:
            writer = csv.DictWriter(stream, list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)
        self.rows.append(row)
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        return row


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def kept(path: Path) -> list[Row]:
    """The rows in a file, none if there is none; a last one that was cut off is forgotten."""
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        put(path, whole)
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def put(path: Path, content: bytes) -> None:
    """Write a file that is complete or not there at all."""
    with written_whole(path) as stream:
        stream.write(content)


def main(
    name: str,
    description: str | None,
    run: Callable[[Experiment], None],
    show: Callable[[list[Row]], Section],
    sizes: Mapping[str, object],
) -> None:
    """Compute the rows that are missing, then print the section made of them."""
    rows = experiment(name, description, sizes)
    with suppress(TimeIsUp):
        run(rows)
    if not rows.rows:
        return  # what it needs is not here, which has been printed
    section = show(rows.rows)
    for part in (*section.body, verdict_table(section.verdicts)):
        print(f"\n{part.markdown()}")


def command_line(description: str | None) -> argparse.ArgumentParser:
    """The scale, ``--seed``, ``--minutes``, and where rows are kept."""
    parser = argparse.ArgumentParser(description=description)
    scale = parser.add_mutually_exclusive_group()
    for choice in SCALES:
        scale.add_argument(f"--{choice}", dest="scale", action="store_const", const=choice)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--rows", type=Path, help="keep rows in this folder, for every scale")
    parser.add_argument("--minutes", type=float, help="begin no row after so many minutes")
    parser.add_argument("--only", help="for now, this one of several datasets or sizes")
    parser.set_defaults(scale="quick")
    return parser


def folder_of(given: argparse.Namespace) -> Path:
    """Where rows and page of a scale are kept."""
    return given.rows or given.results / given.scale


def experiment(
    name: str,
    description: str | None,
    sizes: Mapping[str, object],
    arguments: list[str] | None = None,
) -> Experiment:
    """The experiment that the command line asks for."""
    given = command_line(description).parse_args(arguments)
    folder = folder_of(given)
    size, options = sizes[given.scale], {"minutes": given.minutes, "only": given.only}
    return Experiment(name, given.scale, given.seed, folder, size, **options)


def first_time(errors: np.ndarray, seconds: np.ndarray, target: float) -> float:
    """When an error was first at most the target; infinity if it never was."""
    reached = np.flatnonzero(errors <= target)
    return float(seconds[reached[0]]) if reached.size else float("inf")
