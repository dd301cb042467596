"""tf-idf and logarithms of counts."""

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer

from conenmf.datasets import log_counts, tf_idf


def test_weights_agree_with_scikit_learn(rng):
    X = sp.csr_array(rng.poisson(0.4, (20, 30)))
    # Its idf is log(N / df) + 1: the difference of two of its results has no 1.
    theirs = TfidfTransformer(norm=None, smooth_idf=False).fit(X).idf_ - 1
    expected = X.toarray() * np.where(np.isfinite(theirs), theirs, 0)
    lengths = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(tf_idf(X).toarray(), expected / lengths)


def test_weights_of_words_in_all_texts_or_none():
    X = np.array([[1, 0, 0], [2, 0, 1], [1, 0, 0]])
    before = X.copy()
    np.testing.assert_array_equal(tf_idf(X).toarray(), [[0, 0, 0], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(X, before)


def test_logarithms_of_counts_agree_with_their_definition(rng):
    X = rng.poisson(1.0, (9, 6))
    X[4] = 0
    before = X.copy()
    expected = np.log1p(1e4 * X / X.sum(1, keepdims=True).clip(1))
    np.testing.assert_allclose(log_counts(X).toarray(), expected)
    np.testing.assert_allclose(log_counts(sp.csr_array(X)).toarray(), expected)
    np.testing.assert_array_equal(X, before)


def test_weighted_texts_suit_scikit_learn():
    counts = sp.csr_array(np.array([[2, 1, 0], [2, 0, 3]]))
    counts.indices, counts.indptr = counts.indices.astype(np.int64), counts.indptr.astype(np.int64)
    weighted = tf_idf(counts)
    assert weighted.indices.dtype == weighted.indptr.dtype == np.int32
