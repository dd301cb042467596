"""Fits with several options at once, compared with plain NumPy; attack/options.py draws them."""

from collections import Counter

import numpy as np
import pytest
from attack import options
from attack.cases import Case, run_case
from scipy.optimize import nnls
from tests.reference import Reference

SEED, CASES, AT_A_TIME = 30, 200, 20
GROUPS = range(0, CASES, AT_A_TIME)
LONG = (20, 160)  # they take 7 and 3 s, the others about 1 s
BY_DAY = [first for first in GROUPS if first not in LONG]
BY_NIGHT = [pytest.param(first, marks=pytest.mark.nightly) for first in LONG]


def endings(numbers):
    return {number: run_case(options.attack, "options", SEED, number) for number in numbers}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [*BY_DAY, *BY_NIGHT])
def test_fits_are_those_of_the_reference(first, tmp_path):
    ended = endings(range(first, first + AT_A_TIME))
    again = f"python -m attack options --seed {SEED} --cases 1 --first"
    assert [f"{again} {n}: {e.note}" for n, e in ended.items() if e.failed] == []
    assert sum(ending.compared for ending in ended.values()) >= AT_A_TIME / 2


def test_every_option_meets_others(tmp_path):
    """So that no fit is left out because its storage or its options are never drawn."""
    numbers = [first + n for first in BY_DAY for n in range(AT_A_TIME)]
    fits = [options.draw(Case("options", SEED, number, tmp_path)) for number in numbers]
    storages = (*options.IN_MEMORY, *options.ELSEWHERE, *options.OPENED)
    assert {fit.storage for fit in fits} == set(storages)
    assert {tuple(fit.penalties) for fit in fits} >= {tuple(one) for one in options.PENALTIES}
    refused = Counter(options.not_available(fit) for fit in fits)
    assert len(refused) >= 7
    assert refused[""] >= len(numbers) / 2
    computed = [fit for fit in fits if not options.not_available(fit)]
    for one in ("mask", "door_mask", "weights", "door_weights", "sample_weight", "fixed"):
        for other in ("penalties", "fixed", "sample_weight", "weights"):
            both = (f for f in computed if getattr(f, one) is not None)
            both = [f for f in both if np.size(getattr(f, other)) and getattr(f, other) is not None]
            assert both, (one, other)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("attribute", ["relative_error_", "reconstruction_err_"])
def test_a_wrong_number_is_noticed(attribute, monkeypatch, tmp_path):
    true = options.conenmf.ConeNMF.fit_transform

    def flattered(model, *data, **given):
        A = true(model, *data, **given)
        setattr(model, attribute, (1 - 1e-6) * getattr(model, attribute))
        return A

    monkeypatch.setattr(options.conenmf.ConeNMF, "fit_transform", flattered)
    ended = endings(range(AT_A_TIME)).values()
    assert "different" in {ending.outcome for ending in ended}


def test_the_reference_agrees_with_least_squares_of_scipy(rng):
    C, X, P = rng.random((3, 7)), rng.random((9, 7)), rng.random((9, 7))
    P[rng.random(P.shape) < 0.3] = 0
    roots = np.sqrt(P)
    A = np.array([nnls(r[:, None] * C.T, r * x)[0] for x, r in zip(X, roots, strict=True)])
    true, worse = Reference(X, P, np.ones(9)), 1.01 * A
    assert abs(true.excess_A(A, C)) < 1e-12
    assert true.excess_A(worse, C) == pytest.approx(true.value(worse, C) - true.value(A, C))


def test_the_reference_knows_the_best_coefficients_that_sum_to_one(rng):
    """Also beside a feature that is hidden where its huge entry would matter."""
    C, X, P = rng.random((3, 7)), rng.random((9, 7)), rng.random((9, 7))
    heavy = np.full((1, 3), 1e4)
    rows = zip(X, np.sqrt(P), strict=True)
    A = np.array([nnls(np.vstack([r[:, None] * C.T, heavy]), [*(r * x), 1e4])[0] for x, r in rows])
    A /= A.sum(axis=1, keepdims=True)
    true, worse = Reference(X, P, np.ones(9), sum_to_one=True), (A + 1 / 3) / 2
    assert abs(true.excess_A(A, C)) < 1e-6
    rise = true.value(worse, C) - true.value(A, C)
    assert true.excess_A(worse, C) == pytest.approx(rise, abs=1e-6)
    C[0, 1], P[:3, 1] = 6e11, 0
    A[3:, 0] = 0
    gaps = C[2] - C[1]
    shares = (P * gaps * (X - C[1])).sum(axis=1) / (P * gaps**2).sum(axis=1)
    A[3:, 2] = np.clip(shares[3:], 0, 1)
    A[3:, 1] = 1 - A[3:, 2]
    A[3:, 0] = 1e-13  # nearly nothing, and far better than nothing
    assert 0 < true.excess_A(A, C) < true.value(A, C)
