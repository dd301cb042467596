"""How many singular values are above the edge of the noise.

If V is of rank K but for noise, K is the number of singular values that noise alone does not reach.
Noise of the same variance a in all entries reaches sqrt(a) (sqrt(F) + sqrt(N)), the edge of
Marchenko and Pastur. In cones the "noise" of a sample, what it has beside its axis, is as long as
the sample and its angle say, so every sample has a variance of its own, and the edge is that of a
weighted matrix (`noise_edge`). Variances are estimated from what the leading components leave of
each sample. Theorem and proofs: "Singular values above the edge of noise" in the documentation.

Features are taken to be alike: no variance of a feature is estimated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..arguments import array, integer, number
from ..data.blocks import Array, Block, exact, products
from ..data.matrix import DataMatrix
from ..data.validate import require_data_matrix
from ..linalg.svd import Spectrum

__all__ = ["EdgeCount", "count_above_edge", "noise_edge"]

_FAILURE = 0.01  # probability that noise of the variances assumed is counted
_VECTOR_TOL = 1e-2  # of the singular vectors, most of which are noise
_BINS_PER_OCTAVE, _OCTAVES = 64, 40  # of the variances, which are kept as a histogram
_N_BINS = _BINS_PER_OCTAVE * _OCTAVES
_HALVINGS = 60


class EdgeCount(NamedTuple):
    """How many singular values are above the edge of the noise.

    Attributes
    ----------
    K : int
        Their number: the first k for which the next singular value is not above the limit.
    values : array (k_max,)
        Singular values.
    limits : array (k_max,)
        What noise alone hardly exceeds: the k-th with the variances that k - 1 components leave.
    """

    K: int
    values: Array
    limits: Array


def noise_edge(variances: npt.ArrayLike, F: int, counts: npt.ArrayLike | None = None) -> float:
    """Bound the expected spectral norm of Gaussian noise E (F, N), a variance for each sample.

    E ||E||_2 <= sqrt(min_s F / s + sum_n a_n / (1 - a_n s)) over 0 < s < 1 / max a_n. If all
    variances are a, that is sqrt(a) (sqrt(F) + sqrt(N)).

    Parameters
    ----------
    variances : array (m,)
        a_n, of the entries of sample n.
    F : int
        Entries of a sample.
    counts : array (m,), optional
        How many samples have each of the variances; by default one.

    Examples
    --------
    >>> round(noise_edge([0.25] * 100, 16), 6)  # (4 + 10) / 2
    7.0
    """
    a = array("variances", variances, ("m",), at_least=0).astype(np.float64)
    F = integer("F", F, at_least=1)
    c = np.ones(a.size) if counts is None else array("counts", counts, a.shape, at_least=0)
    largest = float(np.max(a, where=c > 0, initial=0.0))
    if largest == 0.0:
        return 0.0
    a = a / largest
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):  # the function is convex; where its derivative is zero
        s = (low + high) / 2
        rises = float((c * (a / (1 - a * s)) ** 2).sum()) > F / s**2
        low, high = (low, s) if rises else (s, high)
    return float(np.sqrt(largest * (F / low + (c * a / (1 - a * low)).sum())))


def count_above_edge(
    V: DataMatrix,
    k_max: int,
    *,
    failure: float = _FAILURE,
    spectrum: Spectrum | None = None,
) -> EdgeCount:
    """Count the singular values of V that are above the edge of the noise, at most k_max.

    One pass after the singular vectors.

    Parameters
    ----------
    V : DataMatrix (F, N)
    k_max : int
        At most min(F, N).
    failure : float
        Noise of the variances that are estimated is above the limit with at most this probability.
    spectrum : Spectrum, optional
        That of V, if it is used elsewhere too.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, noise=0.05, rng=np.random.default_rng(0))
    >>> count_above_edge(from_columns(model.V), 10).K
    4
    """
    require_data_matrix(V, nonzero=True, whole=True)
    (F, N), k_max = V.shape, integer("k_max", k_max, at_least=1, at_most=min(V.shape))
    failure = number("failure", failure, above=0, at_most=1)
    spectrum = Spectrum.of(V, spectrum)
    with V.own_threads():
        X, squares = spectrum.leading_subspace(k_max, tol=_VECTOR_TOL)
        X, values = X[:, :k_max], np.sqrt(squares[:k_max])
        (largest,) = V.map(_largest, V.norms_squared, reduce=max)
        counts, sums = V.sweep(_histograms, V.norms_squared, X=X, largest=largest)[0]
    rounding = np.sqrt(10 * min(F, N) * np.finfo(np.float64).eps) * values[0]
    limits = np.empty(k_max)
    for k in range(k_max):
        used = counts[k] > 0
        left = N / ((F - k) * (N - k))  # of the noise k components take their share
        a = left * sums[k, used] / counts[k, used]
        spread = np.sqrt(2 * a.max() * np.log(1 / failure))
        limits[k] = max(noise_edge(a, F, counts[k, used]) + spread, rounding)
    K = int(np.argmin(np.append(values > limits, False)))
    return EdgeCount(K, values, limits)


def _largest(index: range, squared: Array) -> tuple[float]:
    return (float(squared.max()),)


def _histograms(
    block: Block, squared: Array, *, X: Array, largest: float
) -> tuple[tuple[Array, Array]]:
    """For each k, how many samples have which squared norm left, and the sums of these."""
    C = products(exact(block), X) ** 2
    counts, sums = np.empty((X.shape[1], _N_BINS)), np.empty((X.shape[1], _N_BINS))
    left = np.array(squared, dtype=np.float64)
    for k in range(X.shape[1]):
        share = np.maximum(left / largest, 2.0**-_OCTAVES)
        bins = np.minimum(-_BINS_PER_OCTAVE * np.log2(share), _N_BINS - 1).astype(np.intp)
        bins = np.maximum(bins, 0)
        counts[k] = np.bincount(bins, minlength=_N_BINS)
        sums[k] = np.bincount(bins, left, _N_BINS)
        left = np.maximum(left - C[:, k], 0.0)
    return ((counts, sums),)
