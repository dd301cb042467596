"""The benchmark of donors: its draws, its measures, and its integrative NMF."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

_PLACE = Path(__file__).parents[1] / "benchmarks" / "donors.py"


@pytest.fixture(scope="module")
def donors():
    spec = importlib.util.spec_from_file_location("donors", _PLACE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_integrative_nmf_decreases_the_published_objective(donors):
    """Welch et al. (2019): the sum of |X - H (W + V)|^2 + 5 |H V|^2."""
    rng = np.random.default_rng(0)
    Xs = [rng.random((30, 20)), rng.random((40, 20))]
    found = donors.inmf(Xs, 3, 5.0, n_iter=15)
    assert (np.diff(found.objectives) <= 1e-9 * found.objectives[0]).all()
    total = 0.0
    for X, H, V in zip(Xs, found.H, found.V, strict=True):
        total += np.linalg.norm(X - H @ (found.W + V)) ** 2 + 5 * np.linalg.norm(H @ V) ** 2
    assert found.objectives[-1] == pytest.approx(total)


def test_the_truth_has_no_error_and_every_draw_sums_to_one(donors):
    for draw in (donors.draw_donors(0, D=3, n_cells=20), donors.draw_identities(0, n_cells=20)):
        np.testing.assert_allclose(draw.usages.sum(axis=1), 1)
        np.testing.assert_allclose(draw.spectra.sum(axis=0), 1)
        figures = donors.measures(draw, draw.usages, draw.spectra)
        assert (figures["rmse"], figures["donors"]) == pytest.approx((0, 0))
        assert figures["markers"] == 1
        few = donors.measures(draw, draw.usages[:, 1:], draw.spectra[:, 1:])
        assert few["rmse"] > 0.01  # a program without a partner counts as 0
