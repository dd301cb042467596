"""Signatures of mutations: the consensus of many fits of a catalogue, named after known ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ..data.blocks import exact
from ..data.matrix import DataMatrix
from ..errors import DataError
from ..export import write_csv
from ..judge.matching import named_after, repeated_names
from ..judge.stability import Stability
from ..names import CATALOGUE_SIZES, MUTATION_CLASSES, are_types, looks_like_type, mutation_types
from ..pipeline import factorize
from ..result import Factorization
from ..solve.problem import Problem
from ..types import Array, Facts, Texts

STABILITY_FILE = "stability.npz"
LIMITS_FILE = "limits.csv"
RUNS_FILE = "runs.csv"


def check_catalogue(V: DataMatrix) -> str:
    """Reject impossible types of mutations; question samples that may be types without names."""
    names = V.names
    for name in (*(names.sample_names or ()), *(names.feature_names or ())):
        if looks_like_type(name) and name not in MUTATION_CLASSES:
            raise DataError(
                f"{name!r} is no type of mutation: expected a base, C or T and its substitute, and "
                "a base, such as A[C>A]A"
            )
    is_named = are_types(names.feature_names)
    if is_named and mutation_types(names.feature_names) is None:
        raise DataError(
            f"the {V.n_features} types of mutations are no catalogue of 96 substitutions, 83 "
            "indels or 78 doublets: give each type one row, of zeros where none was counted"
        )
    if V.n_samples not in CATALOGUE_SIZES or is_named:
        return ""
    return (
        f"are the {V.n_samples} rows types of mutations? They have no names of types and are taken "
        "for samples: name them as COSMIC does, such as A[C>A]A, or use --samples-in columns"
    )


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
    W = exact(result.W)
    own, matches = named_after(W, reference, names)
    more: Facts = {"component_names": list(own), "known_as": list(matches)}
    more["repeated"] = repeated_names(W, reference, names, own)
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
