"""Views: unit samples, subsets of samples and features, shuffles, other precisions."""

import numpy as np
import pytest
import scipy.sparse as sp
from tests.entries import entries

from conenmf import factorize, from_columns, from_rows
from conenmf.cones.clustering import cluster_cones
from conenmf.data.prepare import to_sums
from conenmf.data.views import (
    hold_copy,
    in_single,
    shuffle_samples,
    take_features,
    take_samples,
    unit_samples,
)
from conenmf.linalg.svd import Spectrum
from conenmf.names import Names


@pytest.fixture
def unit(sample_matrix):
    norms = np.linalg.norm(sample_matrix, axis=0)
    return sample_matrix / np.where(norms > 0, norms, 1.0)


def test_unit_samples_are_a_view(backend, small_blocks, sample_matrix, unit, holds):
    V = backend(sample_matrix)
    U = unit_samples(V)
    before = V.passes
    holds(U, unit)
    assert U.passes == V.passes - before == 2 + 5 / 40  # a sweep, the norms and five samples
    assert (U.dtype, U.is_remote, U.nonzero) == (np.float64, V.is_remote, V.nonzero)


def test_aligned_arrays_of_a_view_are_those_of_v(main_backend, sample_matrix):
    V = main_backend(sample_matrix)
    U = unit_samples(V)
    doubled, _ = U.map(lambda index, squared: (2 * squared, None), V.norms_squared)
    np.testing.assert_allclose(doubled, 2 * np.asarray(V.norms_squared))


def test_algorithms_take_views(main_backend, small_blocks, sample_matrix, unit):
    U = unit_samples(main_backend(sample_matrix))
    copy = from_columns(unit)
    np.testing.assert_allclose(
        Spectrum(U).singular_values(4), Spectrum(copy).singular_values(4), rtol=1e-10
    )
    labels = np.asarray(cluster_cones(U, 3, rng=np.random.default_rng(0)).labels)
    expected = cluster_cones(copy, 3, rng=np.random.default_rng(0)).labels
    assert labels.tolist() == expected.tolist()


@pytest.mark.parametrize("store", [np.asarray, sp.csr_array])
def test_whole_numbers_are_scaled_as_other_numbers_are(store, rng):
    counts = rng.poisson(3.0, (30, 20))
    shares = to_sums(from_rows(store(counts)), 1.0)
    expected = counts / counts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares.held_rows(10**4) @ np.eye(20), expected, rtol=1e-15)
    start = Spectrum(shares).truncated_svd(3)[1]
    np.testing.assert_allclose(start, np.linalg.svd(expected)[1][:3], rtol=1e-10)


def test_a_view_of_a_view(main_backend, sample_matrix, unit):
    V = main_backend(3 * sample_matrix)
    U = unit_samples(unit_samples(V))
    before = V.passes
    (total,) = U.sweep(lambda block: (float(block.sum()),))
    assert total == pytest.approx(unit.sum())
    assert V.passes - before == 1


def test_a_subset_holds_the_samples_in_the_order_asked_for(main_backend, sample_matrix):
    V = main_backend(sample_matrix)
    before = V.passes
    indices = np.array([7, 3, 21])
    part = take_samples(V, indices)
    assert (part.shape, part.n_threads, part.is_remote) == ((12, 3), V.n_threads, False)
    np.testing.assert_array_equal(part.columns([0, 1, 2]) @ np.eye(3), sample_matrix[:, indices])
    np.testing.assert_allclose(part.norms_squared, (sample_matrix[:, indices] ** 2).sum(axis=0))
    assert V.passes - before == pytest.approx(3 / 40)


def test_shuffling_keeps_features_and_breaks_samples_alike(main_backend, sample_matrix):
    dense, expected = (
        entries(shuffle_samples(V, np.random.default_rng(0)))
        for V in (main_backend(sample_matrix), from_columns(sample_matrix))
    )
    np.testing.assert_array_equal(dense, expected)
    np.testing.assert_allclose(np.sort(dense, axis=1), np.sort(sample_matrix, axis=1))
    assert not np.allclose(dense, sample_matrix)


def test_a_view_of_features_is_the_matrix_of_these(main_backend):
    X = np.random.default_rng(0).poisson(1.0, (40, 9)).astype(float)
    V = main_backend(X.T)
    factors = np.array([1.0, 0.5, 2.0])
    view = take_features(V, np.array([1, 4, 8]), factors=factors)
    expected = X[:, [1, 4, 8]] * factors
    assert (view.shape, view.n_entries) == ((3, 40), np.count_nonzero(expected))
    np.testing.assert_allclose(np.asarray(view.norms_squared), (expected**2).sum(axis=1))
    np.testing.assert_allclose(entries(view, [3, 30]), expected[[3, 30]].T)
    direct = factorize(from_rows(expected), 2, init="nndsvd", max_iter=20, tol=0)
    result = factorize(view, 2, init="nndsvd", max_iter=20, tol=0)
    assert result.relative_error == pytest.approx(direct.relative_error, rel=1e-6)


def test_all_features_in_another_precision():
    X = np.random.default_rng(0).poisson(1.0, (30, 5)).astype(float)
    view = take_features(from_rows(sp.csr_array(X)), np.arange(5), dtype="float32")
    assert view.dtype == view.columns([0]).dtype == np.float32
    np.testing.assert_array_equal(view.columns(np.arange(30)).toarray(), X.T)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_view_can_be_held(make):
    X = np.random.default_rng(0).poisson(1.0, (50, 6)).astype(float)
    names = Names.of(range(50), list("abcdef"))
    view = take_features(from_rows(make(X), block_samples=7, names=names), np.array([0, 3]))
    passes = view.passes
    kept = hold_copy(view)
    assert view.passes - passes == 1
    assert kept.names.feature_names == view.names.feature_names == ("a", "d")
    np.testing.assert_array_equal(entries(kept), X[:, [0, 3]].T)


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e35])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_single_precision_is_for_large_data_of_ordinary_sizes(make, scale):
    X = np.random.default_rng(0).random((400, 200)) + 0.1
    single = in_single(from_rows(make(scale * X)))
    if scale != 1.0:  # squares would leave the range of the type
        assert single is None
        return
    assert single.dtype == single.columns([0]).dtype == np.float32
    np.testing.assert_array_equal(entries(single, [3, 390]), X[[3, 390]].T.astype(np.float32))
    assert in_single(from_rows(make(X[:100]))) is None  # too few to save time
    assert in_single(single) is None
