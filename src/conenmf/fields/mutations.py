"""Signatures of mutations: the consensus of many fits of a catalogue, named after known ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ..data.blocks import exact
from ..data.matrix import DataMatrix
from ..export import write_csv
from ..judge.matching import named_after
from ..judge.stability import Stability
from ..pipeline import factorize
from ..result import Factorization
from ..solve.problem import Problem
from ..types import Array, Texts

STABILITY_FILE = "stability.npz"
LIMITS_FILE = "limits.csv"
RUNS_FILE = "runs.csv"


def consensus_of(V: DataMatrix, found: Stability, problem: Problem | None = None) -> Factorization:
    """Return the consensus of many fits as a result for other commands and the report.

    `problem` is that of the fits; by default they minimised the loss alone.
    """
    problem = Problem(found.loss) if problem is None else problem
    result = factorize(
        V,
        found.K,
        init=found.W,
        loss=found.loss,
        solver=None,
        penalties=problem.penalties,
        fixed=problem.fixed,
    )
    how = {"init": "consensus", "n_runs": found.n_runs, "resample": found.resample}
    return replace(result, settings={**result.settings, **how}, init_used="consensus")


def name_components(result: Factorization, reference: Array, names: Texts) -> Factorization:
    """Name the components of a result after known ones."""
    names, matches = named_after(exact(result.W), reference, names)
    more = {"component_names": list(names), "known_as": list(matches)}
    return replace(result, settings={**result.settings, **more})


def write_runs(folder: Path, found: Stability) -> None:
    """Write statistics of all fits."""
    found.save(folder / STABILITY_FILE)
    limits = []
    for k, f in np.ndindex(found.K, len(found.W)):
        name = found.names.feature(f)
        ends = (found.lower[f, k], found.upper[f, k])
        limits.append((k, name, found.W[f, k], *ends, found.withheld[k]))
    header = ("component", "feature", "value", "lower", "upper", "withheld")
    write_csv(folder / LIMITS_FILE, header, limits)
    runs = []
    for n, error in enumerate(found.run_errors):
        runs.append((n, error, int(found.is_kept[n]), *found.cosines[n]))
    names = (f"cosine of component {k}" for k in range(found.K))
    write_csv(folder / RUNS_FILE, ("run", "relative_error", "is_kept", *names), runs)
