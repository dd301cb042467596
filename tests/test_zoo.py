"""A small part of the zoo (benchmarks/zoo.py): the default against scikit-learn's best."""

import csv
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from conenmf import ConeNMF

FOLDER = Path(__file__).parents[1] / "benchmarks"
# of each kind one that is small, odd numbers: no constant was chosen on these
NUMBERS = {
    "cones": 11,
    "noisy_cones": 19,
    "scenes": 9,
    "uneven_scenes": 13,
    "near_separable": 9,
    "blocks": 11,
    "low_rank_noise": 17,
    "sparse_counts": 13,
    "texts": 9,
    "cells": 17,
    "images": 19,
    "near_duplicates": 9,
    "heavy_tails": 13,
    "rank_deficient": 13,
    "tall": 11,
    "wide": 11,
    "tiny": 11,
    "one_component": 9,
    "full_rank": 11,
}


@pytest.fixture(scope="module")
def matrices():
    sys.path.insert(0, str(FOLDER))
    try:
        import zoo_matrices
    finally:
        sys.path.remove(str(FOLDER))
    return zoo_matrices


@pytest.fixture(scope="module")
def reference():
    with (FOLDER / "zoo_reference.csv").open(newline="") as file:
        rows = csv.DictReader(line for line in file if line[0] != "#")
        return {row["name"]: row for row in rows}


def test_the_zoo_is_as_large_as_promised(matrices, reference):
    drawn = [one for one in matrices.zoo() if one.kind != "real"]
    assert len(drawn) >= 300
    assert set(NUMBERS) == {one.kind for one in drawn}
    assert all(one.name in reference for one in drawn)
    sizes = [int(row["samples"]) * int(row["features"]) for row in reference.values()]
    assert sum(size >= 10**6 for size in sizes) >= len(sizes) / 3


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "number"), NUMBERS.items())
def test_the_default_is_as_good_as_the_best_of_scikit_learn(kind, number, matrices, reference):
    X, K = matrices.draw(getattr(matrices, kind), number)
    row = reference[f"{kind}-{number:02}"]
    values = X.data if hasattr(X, "tocsr") else X
    assert np.linalg.norm(values) == pytest.approx(float(row["norm"]), rel=1e-9)
    best = min(float(row[name]) for name in row if name.startswith("error_"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # images take more iterations
        error = ConeNMF(K).fit(X).relative_error_
    assert max(error, 1e-6) <= 1.005 * best
