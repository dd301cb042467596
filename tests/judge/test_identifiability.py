import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import factorize, from_columns
from conenmf.errors import DataError
from conenmf.judge.identifiability import UNIQUE_RADIUS, uniqueness_radii
from conenmf.judge.scores import match_components, unit_columns
from conenmf.judge.uniqueness import component_freedom

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests import pairs

SEEDS = st.integers(0, 2**32 - 1)


def radii_of(W, H):
    return uniqueness_radii(from_columns(W @ H + 1.0), W, H)


def unique_of(W, H):
    return radii_of(W, H) <= UNIQUE_RADIUS


@st.composite
def sparse_factors(draw):
    """Factors with so many zeros that some components are unique and others are not."""
    rng = np.random.default_rng(draw(SEEDS))
    K = draw(st.integers(1, 5))
    W, H = rng.integers(1, 9, (2 * K + 3, K)), rng.integers(1, 9, (K, 2 * K + 4))
    W = W * (rng.random(W.shape) < draw(st.sampled_from([0.35, 0.5, 0.7])))
    H = H * (rng.random(H.shape) < draw(st.sampled_from([0.35, 0.5, 0.7])))
    return W.astype(float), H.astype(float), rng


@given(sparse_factors())
def test_other_factors_of_the_same_product_have_a_unique_component(drawn):
    W, H, rng = drawn
    radii = radii_of(W, H)
    product, other, other_H = W @ H, W, H
    for _ in range(6):  # turns one after the other: each component, and so the others' freedom
        freedom = component_freedom(from_columns(product + 1.0), other, other_H)
        movable = np.flatnonzero(~freedom.spare & (freedom.angles > 0.01))
        if not movable.size:
            break
        k = int(rng.choice(movable))
        share = freedom.exchange * rng.choice([0.3, 1.0])
        turned = replace(freedom, exchange=share).turned(other, other_H, k)
        np.testing.assert_allclose(turned[0] @ turned[1], product, 0, 1e-9 * (product.max() or 1))
        other, other_H = turned
    assert (pairs.nearest(W, other)[W.any(axis=0)] <= radii[W.any(axis=0)] + 1e-9).all()


@given(sparse_factors())
@settings(max_examples=40)
def test_a_unique_component_cannot_be_turned_and_is_not_spare(drawn):
    W, H, _ = drawn
    freedom = component_freedom(from_columns(W @ H + 1.0), W, H)
    np.testing.assert_array_equal(freedom.radii, radii_of(W, H))
    assert not freedom.spare[np.isfinite(freedom.radii)].any()
    assert (freedom.angles <= freedom.radii).all()


@given(SEEDS)
@settings(max_examples=30)
def test_pure_samples_and_anchor_features_prove_all(seed):
    rng = np.random.default_rng(seed)
    K = int(rng.integers(1, 6))
    W = np.vstack([np.diag(rng.random(K) + 0.1), rng.random((7, K))])[rng.permutation(K + 7)]
    H = np.hstack([np.diag(rng.random(K) + 0.1), rng.random((K, 9))])[:, rng.permutation(K + 9)]
    scale = 10.0 ** rng.integers(-9, 9, K)
    assert unique_of(W * scale, H / scale[:, None]).all()
    assert unique_of(W, H.astype(np.float32)).all()


@given(SEEDS)
@settings(max_examples=8)
def test_a_solver_that_reaches_the_product_finds_unique_components(seed):
    rng = np.random.default_rng(seed)
    W = np.vstack([np.eye(3), rng.random((5, 3))])
    H = np.hstack([np.eye(3)[:, [0, 1]], rng.random((3, 12)) + 0.2])  # component 2 is never pure
    V, unique = from_columns(W @ H), unique_of(W, H)
    assert unique.tolist() == [True, True, False]
    result = factorize(V, 3, init="random", tol=0, max_iter=400, sketch=None, rng=rng)
    if result.relative_error < 1e-6:
        assert (match_components(W, result.W)[1][unique] > 1 - 1e-6).all()


# --- each condition is needed -----------------------------------------------------------------


EYE = np.eye(3)
MIXED = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 1.0], [1.0, 1.0, 2.0], [1.0, 1.0, 1.0]])


def test_strictly_positive_factors_prove_nothing():
    assert not unique_of(MIXED, MIXED.T).any()


def test_one_component_is_unique():
    assert unique_of(np.array([[1.0], [2.0]]), np.array([[3.0, 1.0]])).tolist() == [True]


def test_a_window_of_full_rank_serves_as_well_as_anchor_features():
    # No feature is in one component alone, but those without component 0 have rank 2.
    W = np.vstack([MIXED, [[0, 1, 2], [0, 2, 1]]])
    H = np.hstack([EYE[:, :1], MIXED.T])
    assert unique_of(W, H).tolist() == [True, False, False]
    assert not unique_of(W[:-1], H).any()  # rank 1


def test_a_component_is_unique_if_the_coefficients_of_all_others_are():
    # Rows 1 and 2 of H: anchors, and samples without them of rank 2. Component 0 is never pure.
    W = np.vstack([EYE[1:], MIXED])
    H = np.vstack([EYE[1:], MIXED]).T[[0, 1, 2]]
    H = np.hstack([H, [[1, 2], [0, 0], [1, 1]], [[1, 2], [1, 1], [0, 0]]])
    assert unique_of(W, H)[0]
    assert not unique_of(W[1:], H)[0]  # without the anchor of component 1


def test_rank_matters():
    # The fourth component is the sum of two others: then no pure sample proves anything.
    W = np.hstack([np.vstack([EYE, MIXED]), np.vstack([EYE, MIXED])[:, :1] * 0])
    W[:, 3] = W[:, 0] + W[:, 1]
    H = np.hstack([np.eye(4), np.ones((4, 3))])
    assert not unique_of(W, H).any()


@pytest.mark.parametrize("factor", ["W", "H"])
def test_zero_components_prove_nothing(factor):
    W, H = np.vstack([EYE, MIXED]), np.hstack([EYE, MIXED.T])
    assert unique_of(W, H).all()
    if factor == "W":
        W[:, 1] = 0
    else:
        H[1] = 0
    assert not unique_of(W, H).any()


@pytest.mark.parametrize("noise", [1e-7, 1e-5, 1e-3])
def test_small_numbers_in_place_of_zeros_make_the_radius_larger(noise):
    W, H = np.vstack([EYE, MIXED]), np.hstack([EYE, MIXED.T])
    radii = radii_of(np.maximum(W, noise), np.maximum(H, noise))
    assert (radii < 30 * noise).all()
    assert (radii > noise).all()  # W' and H' with zeros again are that far away


def test_the_rounding_of_single_precision_is_in_the_radius():
    W, H = np.vstack([EYE, MIXED]), np.hstack([EYE, MIXED.T])
    assert (radii_of(W, H) < 1e-8).all()
    assert (radii_of(W, H.astype(np.float32)) > 1e-6).all()
    assert unique_of(W, H.astype(np.float32)).all()


# --- factors that are known to be others ------------------------------------------------------


def test_a_small_sample_that_mixes_all_components_is_not_pure():
    # Two triangles round the same points of a plane: no vertex of one is near one of the other.
    # The last sample has little weight, but is no less mixed for that.
    plane = [(1, 0, 0), (0, 1, 0), (-0.45, -0.45, 1), (1, 0, 0.05), (0, 1, 0.05), (0.5, 0.5, 0.05)]
    points = [(0.3, 0), (0, 0.3), (0.5, 0.1), (0.4, 0.2), (0.9, 0), (0.9, 0.1), (0.75, 0.18)]
    points += [(0.35, 0.12), (0.2, 0.25), (0.25, 0.2)]
    weights = np.array([1, 1, 1, 1, 1, 10, 20, 1, 1, 4e-6])
    triangles = [(0, 0), (1, 0), (0, 1)], [(0.2, 0), (2, 0), (0, 0.3)]

    def lifted(places):
        return np.vstack([np.transpose(places), np.ones(len(places))])

    product = np.array(plane) @ lifted(points) * weights
    factors = []
    for triangle in triangles:
        H = np.linalg.solve(lifted(triangle), lifted(points)) * weights
        assert H.min() > -1e-15
        factors.append((np.array(plane) @ lifted(triangle), np.maximum(H, 0)))
        np.testing.assert_allclose(factors[-1][0] @ factors[-1][1], product, 0, 1e-14)
    assert pairs.nearest(factors[0][0], factors[1][0]).min() > np.radians(17)
    for W, H in factors:
        assert np.isinf(radii_of(W, H)).all()


def test_a_sample_of_two_components_is_not_pure_however_small():
    W = np.vstack([np.eye(2), np.ones((3, 2))])
    H = np.array([[2e-6, 1.0, 3.0], [1e-6, 2.0, 1.0]])
    assert np.isinf(radii_of(W, H)).all()


@given(SEEDS)
@settings(max_examples=300)
def test_no_component_that_differs_between_pairs_is_within_its_radius(seed):
    assert pairs.broken_radii(pairs.draw_pair(np.random.default_rng(seed))) == []


def should_be_proved(W, H):
    """Which components have a pure sample, and all others anchors, of weight above 1e-3."""
    A, Y = unit_columns(W), (H * np.linalg.norm(W, axis=0)[:, None]).T
    pure, anchored = alone(Y), alone(A)
    ranks = {np.linalg.matrix_rank(unit_columns(rows.T)) for rows in (A, Y)}
    return (ranks == {len(H)}) & pure & (anchored.sum() - anchored == len(H) - 1)


def alone(rows):
    sizes = np.linalg.norm(rows, axis=1)
    heavy = sizes > 1e-3 * sizes.max()
    return (rows[heavy & ((rows > 0).sum(axis=1) == 1)] > 0).any(axis=0)


def test_pairs_with_pure_samples_and_anchors_are_proved():
    proved = []
    for number in range(400):
        pair = pairs.draw_pair(np.random.default_rng([0, number]))
        assert pairs.broken_radii(pair) == []
        for W, H in pair:
            if W.dtype == np.float64:
                proved += (pairs.radii_of(W, H) <= UNIQUE_RADIUS)[should_be_proved(W, H)].tolist()
    assert len(proved) >= 50  # so that there is something to count
    assert np.mean(proved) >= 0.9


# --- storages, bad input ----------------------------------------------------------------------


def test_every_storage_proves_the_same_and_is_not_read(main_backend, small_blocks):
    rng = np.random.default_rng(0)
    W = np.vstack([np.eye(4), rng.random((16, 4))])
    H = rng.random((4, 90))
    H[:, 70], H[:, 3], H[:2, 80:] = [0, 0, 2, 0], [0, 0, 0, 1], 0
    V = main_backend(W @ H)
    passes = V.passes
    radii = uniqueness_radii(V, W, V.align(np.ascontiguousarray(H.T)).T)
    assert V.passes == passes
    assert np.isfinite(radii).tolist() == [False, False, True, True]
    np.testing.assert_allclose(radii, radii_of(W, H), 1e-6)


def test_bad_arguments():
    V = from_columns(np.ones((4, 5)))
    with pytest.raises(DataError):
        uniqueness_radii(V, np.ones((3, 1)), np.ones((1, 5)))
