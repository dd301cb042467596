"""The rows that the paper's tables and figures are made of: scales, seeds, and rows that are kept.

A `Part` is a table or figure: the keys of its rows, how a row is measured, and the section of the
page that is made from rows. Rows go to ``<folder>/<name>.csv`` as they come; those that are there
already are not computed again, so an interrupted run resumes. Beside it is ``<name>.json`` with the
seed, the sizes, the versions and machines that took part, and the datasets that were missing. Rows
of another seed or of other sizes are never mixed with new ones. The seed of a row follows from the
seed of the run and the row's own key, so the order of rows does not matter.

Seconds are those of the processor, so that other work on the machine counts for little. They and
what is computed from them differ from run to run; all other columns are the same for the same seed.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from page import Row, Section

sys.path.insert(0, str(Path(__file__).parents[1]))
from measure import machine, versions

from conenmf.atomic import written_whole
from conenmf.datasets import available

Key = dict[str, object]
SCALES = ("tiny", "quick", "full")  # for the tests, in minutes, with the paper's repetitions


class Part(NamedTuple):
    """A table or figure of the page."""

    title: str
    sizes: Mapping[str, Any]  # what is measured, by scale
    cases: Callable[[Experiment], Iterable[dict[str, Any]]]  # the keys of the rows, in order
    measure: Callable[..., Mapping[str, object]]  # of the experiment and a key
    show: Callable[[list[Row]], Section]
    rows: str = ""  # the part whose rows it takes, if they are not its own


class Experiment:
    """The rows of one part, in a folder, at one scale and from one seed."""

    def __init__(self, name: str, part: Part, scale: str, seed: int, folder: Path) -> None:
        self.name, self.scale, self.seed = name, scale, seed
        self.part, self.size, self.folder = part, part.sizes[scale], folder
        folder.mkdir(parents=True, exist_ok=True)
        self.rows = kept(folder, name)
        wanted = {"seed": seed, "scale": scale, "sizes": str(self.size)}
        self.facts = facts(folder, name) if self.rows else wanted | {"runs": [], "missing": []}
        if not wanted.items() <= self.facts.items():
            raise SystemExit(
                f"{folder / name}.csv holds rows of another seed or of other sizes; "
                "delete it, or name another folder with --rows"
            )
        took_part = {"versions": versions(), "machine": machine()}
        if took_part not in self.facts["runs"]:
            self.facts["runs"].append(took_part)

    def at_hand(self, names: Collection[str]) -> list[str]:
        """Those of the datasets that are on this machine; missing ones are printed and kept."""
        here = [name for name in names if name.partition(" / ")[0] in available()]
        self.facts["missing"] = [name for name in names if name not in here]
        for name in self.facts["missing"]:
            print(f"{self.name}: {name} is not on this machine; see conenmf.datasets", flush=True)
        return here

    def rng(self, **key: object) -> np.random.Generator:
        """A generator that depends on the seed of the run and on this key alone."""
        text = json.dumps([self.name, self.seed, {k: str(v) for k, v in key.items()}])
        digest = hashlib.sha256(text.encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "big"))

    def run(self, minutes: float = np.inf) -> None:
        """Compute the rows that are missing, and keep each; begin none after so many minutes."""
        until = time.monotonic() + 60 * minutes
        for key in self.part.cases(self):
            wanted = {name: str(value) for name, value in key.items()}
            if any(wanted.items() <= row.items() for row in self.rows):
                continue
            if time.monotonic() >= until:
                print("The time is up; the rows so far are kept.")
                break
            found = self.part.measure(self, **key)
            texts = (f"{v:.6g}" if isinstance(v, float) else str(v) for v in found.values())
            row = wanted | dict(zip(found, texts, strict=True))
            self.rows.append(row)
            put(self.folder / f"{self.name}.csv", pd.DataFrame(self.rows).to_csv(index=False))
            put(self.folder / f"{self.name}.json", json.dumps(self.facts, indent=2) + "\n")
            print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)


def every(**values: Iterable[object]) -> list[dict[str, Any]]:
    """The keys of rows for all combinations; the last value changes fastest."""
    return [dict(zip(values, one, strict=True)) for one in product(*values.values())]


def kept(folder: Path, name: str) -> list[Row]:
    """The rows of a part in a folder, none if there are none."""
    path = folder / f"{name}.csv"
    if not path.exists():
        return []
    return pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")


def facts(folder: Path, name: str) -> dict[str, Any]:
    """How the rows of a part were computed."""
    return json.loads((folder / f"{name}.json").read_text())


def put(path: Path, content: str | bytes) -> None:
    """Write a file that is complete or not there at all."""
    with written_whole(path) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
