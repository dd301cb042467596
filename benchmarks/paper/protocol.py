"""What the scripts of the paper's tables and figures share: scales, rows that are kept, seeds.

Each script has ``run(rows)``, which computes rows, and ``show(rows)``, which makes a section of the
page from them. Rows are appended to ``<results>/<scale>/<name>.csv`` as they come; those that are
there already are not computed again, so a run that was interrupted goes on. Beside it is
``<name>.json`` with the seed, the versions and the machine. The seed of a row follows from the seed
of the run and the row's own key, so the order of rows does not matter.

Columns in seconds, and what is computed from them, differ from run to run; all others are the
same for the same seed.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from presentation import Row, Section, verdict_table

sys.path.insert(0, str(Path(__file__).parents[1]))
from measure import machine, versions

from conenmf.datasets import available

SCALES = ("tiny", "quick", "full")
STARTS = {"rand": "random", "cr1-nmf": "cr1", "spkm": "spkm", "nndsvd": "nndsvd"}


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
    """

    def __init__(self, name: str, scale: str, seed: int, folder: Path) -> None:
        self.name, self.scale, self.seed = name, scale, seed
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{name}.csv"
        self.rows: list[Row] = []
        about = self._path.with_suffix(".json")
        if self._path.exists() and json.loads(about.read_text())["seed"] == seed:
            self.rows = self._kept()
        else:
            self._path.unlink(missing_ok=True)
        facts = {"seed": seed, "scale": scale, "versions": versions(), "machine": machine()}
        about.write_text(json.dumps(facts, indent=2) + "\n")

    def _kept(self) -> list[Row]:
        """The rows of an earlier run; a last one that was cut off is forgotten."""
        text = self._path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            self._path.write_bytes(whole)
        with open(self._path, newline="") as stream:
            return list(csv.DictReader(stream))

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
        row = wanted | {name: _text(value) for name, value in compute().items()}
        new = not self._path.exists()
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


def at_hand(names: Sequence[str], experiment: str) -> list[str]:
    """Those of the datasets that are on this machine; says which are not."""
    here = available()
    for name in names:
        if name not in here:
            print(f"{experiment}: {name} is not on this machine; see conenmf.datasets", flush=True)
    return [name for name in names if name in here]


def main(
    name: str,
    description: str | None,
    run: Callable[[Experiment], None],
    show: Callable[[list[Row]], Section],
) -> None:
    """Compute the rows that are missing, then print the section made of them."""
    rows = experiment(name, description)
    run(rows)
    if not rows.rows:
        return  # what it needs is not here, which has been told
    section = show(rows.rows)
    for part in (*section.body, verdict_table(section.verdicts)):
        print(f"\n{part.markdown()}")


def command_line(description: str | None) -> argparse.ArgumentParser:
    """The scale, ``--seed`` and ``--results``."""
    parser = argparse.ArgumentParser(description=description)
    scale = parser.add_mutually_exclusive_group()
    for choice in SCALES:
        scale.add_argument(f"--{choice}", dest="scale", action="store_const", const=choice)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    parser.set_defaults(scale="quick")
    return parser


def folder_of(given: argparse.Namespace) -> Path:
    """Where rows and page of a scale are kept."""
    return given.results / given.scale


def experiment(
    name: str, description: str | None, arguments: list[str] | None = None
) -> Experiment:
    given = command_line(description).parse_args(arguments)
    return Experiment(name, given.scale, given.seed, folder_of(given))


def first_time(errors: np.ndarray, seconds: np.ndarray, target: float) -> float:
    """When an error was first at most the target; infinity if it never was."""
    reached = np.flatnonzero(errors <= target)
    return float(seconds[reached[0]]) if reached.size else float("inf")
