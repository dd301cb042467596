"""How far exact factors can move a component: a radius that is proved, or infinity.

Let X = W H have rank K, and let X = W' H' be any nonnegative factors with K components. Two
arguments bound the angle between w_l and the nearest column of W':

* from a sample n that is nearly pure and features S in which w_l is small. Some piece
  p = w'_j h'_jn has at least 1/K of the norm of x_n. It is between 0 and x_n, so it is small in S,
  and S determines how much of the other components is in it;
* from the same argument for rows of H, applied to all components but l: if the rows of K - 1 other
  components are nearly fixed, then so is w_l.

The bounds hold for every choice of n, S and of weights of the features and samples; the thresholds
below only choose them. Products count as equal if they differ by at most 1e-14 of the largest entry
(more in single precision), and what that allows is part of the radius. The proofs are on the page
of theorems, docs/theory.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..data.blocks import Array, exact
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import check_factors
from .scores import unit_columns

UNIQUE_RADIUS = math.radians(1)
"""A component is called unique if exact factors move it by at most this."""

_SHARES = (1e-8, 1e-5, 1e-3, 1e-2)  # a component is small in a row if its share is at most this
_MIN_DIFFERENCE = 1e-14  # of products that count as equal, in units of the largest entry
_ROUNDINGS = 2  # of each of K + 2 terms, in units of the precision
_MIN_EIGENVALUE = 10.0  # in units of its rounding
_MAX_IMPURITY = 0.3  # of a sample that is tried
_COST_OF_SMALL = 1e-9  # how much a small sample counts as impure, times its size
_MAX_HELD_NUMBERS = 1 << 24  # in Gram matrices of windows
_SMALL_ENOUGH = 1e-4  # a sine: radii are printed in hundredths of a degree
_PRODUCT_ROUNDING = 10 * float(np.finfo(float).eps)  # of products of K x K matrices, times K
_SLACK = 1.001  # for the rounding of the bound itself


def uniqueness_radii(V: DataMatrix, W: npt.ArrayLike, H: Any) -> Array:
    """Return a radius (K,) for each component of V ~ W H, in radians; V is not read.

    All nonnegative factors of W H with K components have a component within this angle of w_l. It
    is infinite where nothing is proved.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
    H : array (K, N)

    Examples
    --------
    Component 0 has a sample of its own, and component 1 a feature; not the other way round:

    >>> from conenmf import from_columns
    >>> W, H = np.array([[1.0, 0.5], [0.0, 1.0]]), np.array([[1.0, 1.0], [0.0, 1.0]])
    >>> uniqueness_radii(from_columns(W @ H), W, H) < 1e-6
    array([ True, False])
    """
    kinds = [np.dtype(getattr(one, "dtype", np.float64)) for one in (W, H)]
    precision = max(
        float(np.finfo(kind if kind.kind == "f" else np.float64).eps) for kind in kinds
    )  # integers are exact
    W, Ht = check_factors(V, W, H)
    with V.own_threads(), _unheeded():
        radii = _radii(V, W, Ht, precision)
    return np.where(np.isnan(radii), np.inf, radii)


def _radii(V: DataMatrix, W: Array, Ht: Aligned, precision: float) -> Array:
    K, norms = W.shape[1], np.linalg.norm(W, axis=0)
    nothing = np.full(K, np.inf)
    difference = max(_MIN_DIFFERENCE, _ROUNDINGS * (K + 2) * precision)
    floor = difference**0.25
    (largest,) = V.map(_largest_norm, Ht, reduce=max, norms=norms)
    if not (largest > 0 and norms.all()):
        return nothing
    A = unit_columns(W)
    A /= np.sqrt((A**2).sum(axis=1).max())
    how = {"scale": norms / largest, "floor": floor}
    (samples,) = V.map(_survey_of_samples, Ht, reduce=_join, sizes=np.ones(K), **how)
    features = _survey(A, floor, np.sqrt(samples.gram.diagonal()))
    pair = _Pair.of(A, features, samples, V.shape[1], difference)
    if pair is None:
        return nothing
    radii = np.array(
        [pair.radius_by_sample(l, _windows(A, floor, range(l, l + 1))[0]) for l in range(K)]
    )
    anchored = features.purest[:, 0] < _MAX_IMPURITY
    if (radii <= UNIQUE_RADIUS).all() or np.count_nonzero(anchored) < K - 1:
        return radii
    others, step = np.full((2, K, K), np.inf), max(1, _MAX_HELD_NUMBERS // (len(_SHARES) * K**2))
    for first in range(0, K, step):
        some = range(first, min(first + step, K))
        (windows,) = V.map(_windows_of_samples, Ht, components=some, **how)
        for k, grams in zip(some, windows, strict=True):
            pair.add_row(others, k, grams, floor)
    return np.asarray(np.minimum(radii, pair.radii_by_others(others)))


# --- rows ---------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """What the proofs need of the rows y of a factor, which are at most of norm 1.

    Rows are scaled to y / sqrt(||y||^2 + floor^2): all count alike, but for very small ones, in
    which rounding is large. Zero rows are left out.

    Attributes
    ----------
    gram : array (K, K)
        Of the scaled rows.
    squared_scale : float
        The sum of the squared scales.
    purest : array (K, 1 + K)
        For each component the row that has the least of the others: how much, and the row.
    """

    gram: Array
    squared_scale: float
    purest: Array


def _survey(Y: Array, floor: float, sizes: Array) -> _Rows:
    """Describe rows (n, K); times `sizes` their entries can be compared."""
    K, scales, sized = Y.shape[1], _scales(Y, floor), Y * sizes
    scaled, purest = Y * scales[:, None], np.full((K, 1 + K), np.inf)
    if len(Y):
        others = np.sqrt(np.maximum((sized**2).sum(axis=1)[:, None] - sized**2, 0))
        impurity = np.where(sized > 0, (others + _COST_OF_SMALL * sizes) / sized, np.inf)
        best = impurity.argmin(axis=0)
        purest[:, 0], purest[:, 1:] = impurity[best, np.arange(K)], Y[best]
    return _Rows(scaled.T @ scaled, float(scales @ scales), purest)


def _scales(Y: Array, floor: float) -> Array:
    squares = (Y**2).sum(axis=1)
    return np.asarray(np.where(squares > 0, 1 / np.sqrt(squares + floor**2), 0))


def _join(a: _Rows, b: _Rows) -> _Rows:
    purest = np.where(b.purest[:, :1] < a.purest[:, :1], b.purest, a.purest)
    return _Rows(a.gram + b.gram, a.squared_scale + b.squared_scale, purest)


def _windows(Y: Array, floor: float, components: range) -> Array:
    """Return Gram matrices of the scaled rows in which a component is small.

    They are (components, shares, K, K); the rows of a larger share include those of a smaller.
    """
    K, norms = Y.shape[1], np.sqrt((Y**2).sum(axis=1))
    scaled = Y * _scales(Y, floor)[:, None]
    grams = np.zeros((len(components), len(_SHARES), K, K))
    for i, k in enumerate(components):
        bands = np.searchsorted(_SHARES, Y[:, k] / np.where(norms > 0, norms, 1))
        for band in range(len(_SHARES)):
            rows = scaled[bands == band]
            grams[i, band] = rows.T @ rows
    return grams.cumsum(axis=1)


def _largest_norm(index: range, H: Array, *, norms: Array) -> tuple[float]:
    with _unheeded():
        return (float(np.sqrt(((exact(H) * norms) ** 2).sum(axis=1)).max(initial=0)),)


def _survey_of_samples(
    index: range, H: Array, *, scale: Array, floor: float, sizes: Array
) -> tuple[_Rows]:
    with _unheeded():
        return (_survey(exact(H) * scale, floor, sizes),)


def _windows_of_samples(
    index: range, H: Array, *, scale: Array, floor: float, components: range
) -> tuple[Array]:
    with _unheeded():
        return (_windows(exact(H) * scale, floor, components),)


def _unheeded() -> Any:
    """No warnings in this thread: what is not a number proves nothing."""
    return np.errstate(all="ignore")


# --- the bounds ---------------------------------------------------------------------------------


class _Pair(NamedTuple):
    """X = A Y, with rows of A and columns of Y of at most norm 1, columns of A of equal norm.

    X' differs from X by up to `difference` in each entry. The letters are those of the proof.

    Attributes
    ----------
    column_norm : float
        Of all columns of A.
    of_sample, of_scaled_sample, of_scaled_feature : float
        Bounds of the norm of X' - X in a sample or feature, as it is or scaled.
    off, off_unscaled : float
        How far a vector of norm 1 in the column space (the row space) of scaled X' is from that of
        scaled X at most, and before its features are scaled.
    inverse_diagonal : array (K,)
        Of the inverse of the Gram matrix of the scaled samples.
    """

    AA: Array
    features: _Rows
    samples: _Rows
    sizes: tuple[int, int]
    column_norm: float
    of_sample: float
    of_scaled_sample: float
    of_scaled_feature: float
    off: float
    off_unscaled: float
    inverse_diagonal: Array

    @classmethod
    def of(
        cls, A: Array, features: _Rows, samples: _Rows, N: int, difference: float
    ) -> _Pair | None:
        """Return what follows from the spans; None unless X and X' certainly have rank K."""
        F = len(A)
        roots = _inverse_root(features.gram, F), _inverse_root(samples.gram, N)
        if roots[0] is None or roots[1] is None:
            return None
        steepness = _norm_above(roots[0].T, roots[1])  # one over the least singular value of X
        of_scaled_sample = difference * math.sqrt(features.squared_scale)
        of_scaled_feature = difference * math.sqrt(samples.squared_scale)
        of_all = of_scaled_sample * math.sqrt(samples.squared_scale)
        if not of_all * steepness < 0.5:
            return None
        steepness /= 1 - of_all * steepness
        AA = A.T @ A
        return cls(
            AA,
            features,
            samples,
            (F, N),
            math.sqrt(AA.diagonal().mean()),
            difference * math.sqrt(F),
            of_scaled_sample,
            of_scaled_feature,
            of_all * steepness,
            of_scaled_feature * math.sqrt(F) * steepness,
            (roots[1] ** 2).sum(axis=1),
        )

    def radius_by_sample(self, l: int, windows: Array) -> float:
        """Bound the angle by the purest sample of component l and its windows."""
        impurity, y = self.samples.purest[l, 0], self.samples.purest[l, 1:]
        K = y.size
        if not impurity <= _MAX_IMPURITY:
            return math.inf
        least = (_size(y, self.AA) - self.of_sample) / K  # norm of the largest piece
        most = _size(y, self.features.gram) + self.of_scaled_sample  # of any, scaled
        sines = [math.inf]
        for gram in windows:
            root = _inverse_root(_without(gram, l), self.sizes[0])
            if root is None or least <= 0:
                continue
            g = _stretch(root, _without(self.AA, l))
            b = g * math.sqrt(gram[l, l]) / self.column_norm
            if b < 1:
                off, off_unscaled = self.off * most, self.off_unscaled * most
                inside = _size(y, gram) + self.of_scaled_sample + off
                others = (g * inside + b * off_unscaled) / (1 - b) / least + b / (1 - b)
                sines.append(others + off_unscaled / least)
                if sines[-1] < _SMALL_ENOUGH:
                    break
        return _angle(min(sines))

    def add_row(self, found: Array, k: int, windows: Array, floor: float) -> None:
        """Bound what row k of H may have of other components, by its anchor and its windows.

        `found` (2, K, K) has the ratios of m to k in that row, and the parts of w_l in the
        component of k, in units of ||w_l||.
        """
        u, y = self.features.purest[k, 1:], self.samples.purest[k, 1:]
        GY, K, rest = self.samples.gram, y.size, np.arange(y.size) != k
        if not (np.isfinite(u).all() and np.isfinite(y).all()):
            return
        least = (_size(u, GY) - self.of_scaled_feature) / K
        size = math.sqrt(GY[k, k])
        scale = 1 / math.sqrt(y @ y + floor**2)
        whole = (_size(y, self.AA) + self.of_sample) * scale
        for gram in windows:
            root = _inverse_root(_without(gram, k), self.sizes[1])
            if root is None or least <= 0:
                continue
            g = _stretch(root, _without(GY, k))
            small = math.sqrt(gram[k, k]) / size
            if g * small >= 1:
                continue
            outside = (_size(u, gram) + self.of_scaled_feature) / least
            b = (outside + small * (1 + self.off) + self.off) / (1 - g * small)
            own = (1 - g * b - self.off) / size
            of_others = b * np.linalg.norm(root, axis=1)
            in_sample = own * y[k] * scale - b * np.linalg.norm((y[rest] * scale) @ root) - self.off
            if own <= 0 or in_sample <= 0:
                continue
            parts = of_others * whole / in_sample / self.column_norm
            if parts.sum() < found[1, k, rest].sum():
                found[:, k, rest] = of_others / own, parts
                if parts.sum() < _SMALL_ENOUGH:
                    break

    def radii_by_others(self, found: Array) -> Array:
        """Bound the angle of each component, given the rows of H of all others."""
        K = len(self.AA)
        ratios, parts = found
        np.fill_diagonal(parts, 0)
        rounding = self.of_scaled_feature * math.sqrt(self.sizes[0] * self.inverse_diagonal.max())
        sines = parts.sum(axis=0) + rounding / self.column_norm
        distinct = ratios * ratios.T < 1
        np.fill_diagonal(distinct, True)
        radii = np.full(K, np.inf)
        for l in range(K):
            if _without(distinct, l).all():  # rows of two components are not the same row of H'
                radii[l] = _angle(sines[l])
        return radii


def _angle(sine: float) -> float:
    sine = _SLACK * sine
    return math.asin(sine) if sine < 1 else math.inf


def _size(y: Array, gram: Array) -> float:
    """The norm of a vector with coefficients y, given the Gram matrix of what they multiply."""
    return math.sqrt(max(float(y @ gram @ y), 0.0))


def _without(gram: Array, k: int) -> Array:
    return np.delete(np.delete(gram, k, axis=0), k, axis=1)


def _inverse_root(gram: Array, n_rows: int) -> Array | None:
    """Return R for which R R' is at least the inverse of a Gram matrix, in spite of rounding.

    None if the matrix may be singular.
    """
    values, vectors = np.linalg.eigh(gram)
    rounding = (n_rows + 1000) * float(np.finfo(float).eps) * float(gram.trace())
    if values.size and not values[0] > _MIN_EIGENVALUE * rounding:
        return None
    return vectors / np.sqrt(values - rounding)


def _stretch(root: Array, gram: Array) -> float:
    """Return an upper bound of the root of the norm of R' G R, in spite of rounding."""
    if not root.size:
        return 0.0
    rounding = _PRODUCT_ROUNDING * len(root) * np.linalg.norm(root) ** 2 * np.linalg.norm(gram)
    return math.sqrt(float(np.linalg.eigvalsh(root.T @ gram @ root)[-1] + rounding))


def _norm_above(A: Array, B: Array) -> float:
    """Return an upper bound of the norm of A B, in spite of rounding."""
    rounding = _PRODUCT_ROUNDING * len(A) * np.linalg.norm(A) * np.linalg.norm(B)
    return float(np.linalg.norm(A @ B, 2) + rounding)
