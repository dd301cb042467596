"""Tables for measurements with uncertainties: residuals, Q, and how far components can move."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..export import write_csv
from ..judge.displacement import displacement
from ..result import Factorization

RESIDUALS_FILE = "residuals.csv"
Q_FILE = "q.csv"
DISPLACEMENT_FILE = "displacement.csv"
RATIO = "Q / expected Q"


def write_residuals(folder: Path, result: Factorization) -> None:
    """Write the residuals in units of sigma, and Q of each sample and of each feature."""
    left = result.residuals()
    names = result.names
    features = [names.feature(f) for f in range(result.n_features)]
    rows = []
    for n, ratio in enumerate(left.by_sample.tolist()):
        scaled = left.scaled[n].tolist()
        rows.append((names.sample(n), ratio, *scaled))
    write_csv(folder / RESIDUALS_FILE, ("sample", RATIO, *features), rows)
    by_feature = zip(features, left.by_feature.tolist(), strict=True)
    write_csv(folder / Q_FILE, ("feature", RATIO), by_feature)


def write_displacement(folder: Path, result: Factorization, rises: Sequence[float]) -> None:
    """Write how far each entry of each component can move, for each rise of Q."""
    assert result.data is not None
    found = displacement(result.data, result.W, result.H, rises, problem=result.problem)
    rows = []
    for rise, low, high in zip(found.rises, found.lower, found.upper, strict=True):
        for k, f in np.ndindex(result.W.T.shape):
            ends = (low[f, k], high[f, k])
            rows.append((k, result.names.feature(f), found.W[f, k], rise, *ends))
    header = ("component", "feature", "value", "rise of Q", "lower", "upper")
    write_csv(folder / DISPLACEMENT_FILE, header, rows)
