"""What the paper's tables and figures share: scales, seeds, and rows that are kept.

A `Part` is a table or figure: the keys of its rows, how a row is measured, and the section of the
page that is made from rows. Rows are appended to ``<results>/<scale>/<name>.csv`` as they come;
those that are there already are not computed again, so an interrupted run resumes. Beside it is
``<name>.json`` with the seed, the sizes, the versions and machines that took part, and the datasets
that were missing. Rows of another seed or of other sizes are never mixed with new ones. The seed of
a row follows from the seed of the run and the row's own key, so the order of rows does not matter.

Seconds are those of the processor, so that other work on the machine counts for little. They and
what is computed from them differ from run to run; all other columns are the same for the same seed.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from presentation import Row, Section

sys.path.insert(0, str(Path(__file__).parents[1]))
from measure import machine, versions

from conenmf.atomic import written_whole
from conenmf.datasets import available

SCALES = ("tiny", "quick", "full")  # for the tests, in minutes, with the paper's repetitions


class Part(NamedTuple):
    """A table or figure of the page."""

    title: str
    sizes: Mapping[str, Any]  # what is measured, by scale
    cases: Callable[[Experiment], Iterable[dict[str, Any]]]  # the keys of the rows, in order
    measure: Callable[..., Mapping[str, object]]  # of the experiment and a key
    show: Callable[[list[Row]], Section]
    repeated: tuple[tuple[str, ...], str] | None = None  # columns of a case; the paper's number
    rows: str = ""  # the part whose rows it takes, if they are not its own
    is_ours: bool = False  # no claims of the paper


class TimeIsUp(Exception):  # noqa: N818 - no error
    """The minutes given are over; the rows so far are kept, and a later run resumes."""


class Experiment:
    """The rows of one part, in a folder, at one scale and from one seed.

    After so many `minutes` no further row is begun. Of several datasets, or sizes, only the one
    named `only` is measured now.
    """

    def __init__(
        self,
        name: str,
        part: Part,
        scale: str,
        seed: int,
        folder: Path,
        minutes: float | None = None,
        only: str | None = None,
    ) -> None:
        self.name, self.scale, self.seed = name, scale, seed
        self.folder, self.size, self._part, self._only = folder, part.sizes[scale], part, only
        self._until = np.inf if minutes is None else time.monotonic() + 60 * minutes
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._about = folder / f"{name}.csv", folder / f"{name}.json"
        self.rows: list[Row] = kept(self._path)
        wanted = {"seed": seed, "scale": scale, "sizes": str(self.size)}
        self._facts = wanted | {"runs": [], "missing": []}
        if self.rows:
            self._facts = json.loads(self._about.read_text())
            other = [key for key, value in wanted.items() if self._facts[key] != value]
            if other:
                raise SystemExit(
                    f"{self._path} holds rows of another {' and '.join(other)}; "
                    "delete it, or name another folder with --results"
                )
        else:
            self._path.unlink(missing_ok=True)
        took_part = {"versions": versions(), "machine": machine()}
        if took_part not in self._facts["runs"]:
            self._facts["runs"].append(took_part)
        self._write_facts()

    def _write_facts(self) -> None:
        put(self._about, f"{json.dumps(self._facts, indent=2)}\n".encode())

    def at_hand(self, names: Collection[str]) -> list[str]:
        """Those of the datasets that are on this machine; missing ones are printed and kept."""
        here = [name for name in names if name.partition(" / ")[0] in available()]
        self._facts["missing"] = [name for name in names if name not in here]
        self._write_facts()
        for name in self._facts["missing"]:
            print(f"{self.name}: {name} is not on this machine; see conenmf.datasets", flush=True)
        return here

    def rng(self, **key: object) -> np.random.Generator:
        """A generator that depends on the seed of the run and on this key alone."""
        text = json.dumps([self.name, self.seed, {k: str(v) for k, v in key.items()}])
        digest = hashlib.sha256(text.encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "big"))

    def run(self) -> None:
        """Compute the rows that are missing, and keep each."""
        for key in self._part.cases(self):
            wanted = {name: str(value) for name, value in key.items()}
            if self._only not in (None, *wanted.values()):
                continue
            if any(wanted.items() <= row.items() for row in self.rows):
                continue
            if time.monotonic() >= self._until:
                raise TimeIsUp
            found = self._part.measure(self, **key)
            self._keep(wanted | {name: _text(value) for name, value in found.items()})

    def _keep(self, row: Row) -> None:
        if self.rows and list(self.rows[0]) != list(row):
            raise SystemExit(f"{self._path} holds rows with other columns; delete it")
        with open(self._path, "a", newline="") as stream:
            writer = csv.DictWriter(stream, list(row))
            if not self.rows:
                writer.writeheader()
            writer.writerow(row)
        self.rows.append(row)
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)


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


def curve(values: Iterable[float]) -> str:
    """Numbers for one cell; `numbers` reads them."""
    return " ".join(f"{value:.5g}" for value in values)


def numbers(cell: str) -> np.ndarray:
    return np.array(cell.split(), dtype=float)


def column(rows: Sequence[Row], name: str) -> list[float]:
    """The numbers that rows have in a column."""
    return [float(row[name]) for row in rows]
