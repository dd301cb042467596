"""Preparation (totals, logarithms, tf-idf): formulas, every storage, and new samples."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf import ConeNMF, factorize, from_columns, from_rows, open_data, prepare
from conenmf.data.blocks import is_sparse
from conenmf.data.prepare import apply_preparation
from conenmf.datasets import tf_idf

ALL = {"normalize_total": 50.0, "log1p": True, "tfidf": True}


def by_hand(V, normalize_total=None, log1p=False, tfidf=False, normalize=False):
    V = V.astype(float)
    if normalize_total is not None:
        V = V * normalize_total / np.where(V.any(axis=0), V.sum(axis=0), 1.0)
    if log1p:
        V = np.log(1 + V)
    if tfidf:
        df = np.count_nonzero(V, axis=1)
        V = V * np.log(V.shape[1] / np.where(df, df, V.shape[1]))[:, None]
    if tfidf or normalize:
        norms = np.linalg.norm(V, axis=0)
        V = V / np.where(norms > 0, norms, 1.0)
    return V


def test_it_is_a_view_in_every_storage(backend, small_blocks, sample_matrix, holds):
    V = backend(sample_matrix)
    before = V.passes
    P = prepare(V, **ALL)
    assert V.passes - before == 3  # df, sums, norms
    assert (P.dtype, P.is_remote) == (V.dtype, V.is_remote)
    holds(P, by_hand(sample_matrix, **ALL))


@pytest.mark.parametrize("step", [{"log1p": True}, {"normalize": True}, {"tfidf": True}])
def test_new_samples_get_the_same_in_every_storage(main_backend, sample_matrix, step, holds):
    kept = prepare(from_columns(sample_matrix), **step).preparation
    again = apply_preparation(main_backend(sample_matrix[:, 5:20]), kept)
    holds(again, by_hand(sample_matrix, **step)[:, 5:20])


def test_features_in_another_order_keep_their_weights(sample_matrix):
    kept = prepare(from_columns(sample_matrix), tfidf=True).preparation
    order = np.arange(len(sample_matrix))[::-1]
    again = apply_preparation(from_columns(sample_matrix[order]), kept.reordered(order))
    expected = by_hand(sample_matrix, tfidf=True)[order]
    np.testing.assert_allclose(again.columns(np.arange(again.n_samples)), expected)


def test_sparse_data_stay_sparse_and_types_stay():
    X = sp.random_array((40, 12), density=0.2, rng=np.random.default_rng(0), dtype=np.float32)
    P = prepare(from_rows(X), **ALL)
    (block,) = P.sweep(lambda block: ((is_sparse(block), block.dtype == np.float32),))
    assert (P.dtype, *block) == (np.float32, True, True)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_the_formulas_of_counts(seed):
    counts = np.random.default_rng(seed).poisson(0.5, (30, 10))
    if counts.all(axis=0).all() or not counts.any():
        return
    weighted = counts * np.log(30 / np.count_nonzero(counts, axis=0).clip(1))
    lengths = np.linalg.norm(weighted, axis=1, keepdims=True)
    scaled = 1e4 * counts / counts.sum(axis=1, keepdims=True).clip(1)
    for V, expected in (
        (prepare(from_rows(counts), tfidf=True), weighted / np.where(lengths > 0, lengths, 1)),
        (prepare(from_rows(counts), normalize_total=1e4, log1p=True), np.log1p(scaled)),
    ):
        rows = V.columns(np.arange(30)).T
        np.testing.assert_allclose(rows, expected, rtol=1e-12, atol=1e-300)


def test_a_file_larger_than_its_memory_is_factored_as_in_memory(tmp_path, rng):
    counts = rng.poisson(rng.gamma(0.3, size=(3000, 4)) @ rng.gamma(0.3, size=(4, 100)))
    np.save(tmp_path / "counts.npy", counts.astype(float))
    V = open_data(tmp_path / "counts.npy", max_memory="1MB")
    far = factorize(prepare(V, tfidf=True), 4, max_iter=10, tol=0)
    near = factorize(from_rows(tf_idf(counts)), 4, max_iter=10, tol=0)
    assert far.relative_error == pytest.approx(near.relative_error, rel=1e-8)
    np.testing.assert_allclose(far.W, near.W, atol=1e-8)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept <= {"counts.npy", "counts.npy.H.npy"}  # coefficients, which are part of the result


def test_a_result_keeps_it(reloaded, sample_matrix):
    V = from_columns(sample_matrix)
    result = factorize(prepare(V, **ALL), 2, max_iter=2, tol=0)
    loaded = reloaded(result).preparation
    again = apply_preparation(V, loaded)
    np.testing.assert_array_equal(again.columns([0, 5]), prepare(V, **ALL).columns([0, 5]))
    assert loaded.in_words() == (
        "each sample scaled to a sum of 50, then log(1 + x) of each entry, then each feature times "
        "log(N / df), if df of N samples have it, then each sample scaled to unit length"
    )
    assert again.remarks == (f"prepared: {loaded.in_words()}",)


def test_an_estimator_prepares_new_samples_in_the_same_way(sample_matrix):
    model = ConeNMF(2, max_iter=2, tol=0).fit(prepare(from_columns(sample_matrix), **ALL))
    A = model.transform(sample_matrix.T[5:20])
    np.testing.assert_allclose(A, model.result_.H.T[5:20], atol=1e-12)
    again = apply_preparation(from_columns(sample_matrix[:, 5:20]), model.result_.preparation)
    np.testing.assert_allclose(model.transform(again), A)


def test_words_that_no_text_has_count_nothing_in_new_texts(sample_matrix):
    preparation = prepare(from_columns(sample_matrix), tfidf=True).preparation
    assert preparation.idf[5] == 0  # a row of zeros
    new = apply_preparation(from_columns(np.ones((12, 2))), preparation).columns([0, 1])
    assert (new[5] == 0).all()


def test_a_floor_is_a_share_of_the_mean_entry_and_serves_new_samples(backend):
    X = np.round(9 * np.random.default_rng(3).random((30, 6)) ** 4, 3)
    V = backend(X.T)
    raised = prepare(V, floor=0.01)
    floor = 0.01 * X.mean()
    single = V.dtype == np.float32
    expected = X.T + floor
    np.testing.assert_allclose(raised.columns(range(30)), expected, rtol=1e-5 if single else 1e-12)
    assert raised.preparation.floor == pytest.approx(floor, rel=1e-6)
    assert "added to each entry" in raised.preparation.in_words()
    result = factorize(raised, 2, loss="itakura-saito", max_iter=5)
    new = apply_preparation(from_rows(X[:3]), result.preparation)
    np.testing.assert_allclose(new.columns(range(3)), expected[:, :3], rtol=1e-5)
