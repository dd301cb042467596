"""Leading singular values and vectors of V, through the data layer.

They are computed from the eigenvectors of VV' or V'V, in one of three ways:

- If one side of V is short, the Gram matrix of that side is formed and decomposed.
- For data in memory, ARPACK (``scipy.sparse.linalg.eigsh``) applies the Gram matrix of the shorter
  side to one vector at a time. In memory, a product with one vector costs little more than the same
  vector's share in a product with many. On text this is 2 to 4 times as fast as a block method.
- For other data each pass over V is expensive, so `davidson` applies VV' to many vectors at once.

V is never converted to dense. A sketch is read through its coordinates.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.linalg import LinAlgError, cholesky, eigh, eigvalsh, inv, norm, qr, svd
from numpy.random import default_rng
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from ..arguments import instance, integer
from ..data.blocks import (
    EPS,
    Block,
    Rows,
    cross_products,
    exact,
    feature_gram,
    first_largest,
    over,
    products,
    weighted_sums,
)
from ..data.matrix import Aligned, DataMatrix, PerSample
from ..errors import ComponentsError, OptionError
from ..io.open import as_data
from ..types import Array, Pair
from .energy import Apply, EnergyBound, subspace_energy

VECTOR_TOL = 1e-10  # residual of singular vectors, relative to sigma_1; the same for all inits

_VALUE_TOL = 1e-5  # of vectors used only for their values, whose error is the square of this
_ROUGH_TOL = 1e-2  # the same, for rough values
_ENERGY_TOL = 1e-4  # of vectors that bound the energy; the bound's error is the square of this

# Sizes at which each of the three ways is the fastest; `benchmarks/speed.py sets` times them.
_MAX_GRAM_SIDE = 500  # shorter side of V up to which its Gram matrix is always formed ...
_GRAM_SIDE_PER_VECTOR = 16  # ... and this many times the number of vectors, if that is larger
_SPARSE_GRAM_SIDES = 128, 4  # the same two for sparse V in memory, unless a bound is requested
_DENSE_SHARE = 0.1  # of nonzero entries: data with more count as dense
_POWERS = 3  # of VV' for rough vectors
_GATHERED_SAMPLES = 256  # whose products with all samples are computed at a time
_STARTS_BY_PASSES = 8  # random vectors; each pass multiplies all of them
_STARTS_IN_MEMORY = 3

_VECTORS_PER_EIGENVECTOR = 2.5  # size of ARPACK's basis
_MIN_VECTORS = 20  # ... at least this much beyond the requested number
_MAX_RESTARTS = 100
_MAX_DENSE_ENTRIES = 1 << 22  # a larger array is too large for the cache

_MAX_STEPS = 100  # of the block method
_SMALLEST_SHARE = 1e-9  # of the largest eigenvalue: smaller ones need no accuracy of their own
_RESIDUAL_ROUNDING = 2e-14  # of the largest eigenvalue: a smaller residual is rounding

_MAX_REFINEMENTS = 8
_SAFE_SHARE = 1e-4  # of the largest singular value: above it, squared values keep enough digits
_EQUAL_SHARE = 1e-7  # relative difference up to which singular values count as equal
_TIE_SHARES = {  # relative differences up to which entries of a vector count as equal: a vector's
    "d": 1e-8,  # error is VECTOR_TOL over the gap to the next singular value, say a hundredth
    "f": 1e-5,  # these data were rounded, so what was equal differs by 6e-8, over the same gap
}


class Leading(NamedTuple):
    """Leading eigenvectors X (n, m) of A, their eigenvalues, and A X if it was computed.

    There may be more vectors than requested; the additional ones are less accurate.
    """

    vectors: Array
    values: Array
    images: Array | None


class Spectrum:
    """The leading singular values and vectors of one V, computed once.

    One object serves a whole fit: the choice of K, the init and the certificate. It stores all
    results, so a request for the same, fewer or less accurate vectors reads no data and gives the
    same numbers. If a side of V is small, one pass serves all requests.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    start : array (F, m), optional
        A subspace near the leading one, used as the start instead of random vectors.
    vectors : bool
        False if you need only singular values, which are faster if a side of V is small.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> spectrum = Spectrum(from_columns([[3.0, 0.0, 4.0], [0.0, 2.0, 0.0]]))
    >>> spectrum.singular_values(2)
    array([5., 2.])
    """

    def __init__(self, V: object, *, start: Array | None = None, vectors: bool = True) -> None:
        self.V = as_data(V)
        self._start = start
        self._has_vectors = vectors
        self._rows: Rows = None  # rows for a view that starts from a subspace; stored only here
        self._gram: Leading | None = None
        self._found: list[tuple[int, float, Leading]] = []
        self._energy: dict[int, EnergyBound] = {}

    @classmethod
    def of(cls, V: DataMatrix, spectrum: KnownSpectrum) -> Spectrum:
        """Return the given spectrum, which must belong to V, or a new one if none is given.

        Parameters
        ----------
        V : DataMatrix (F, N)
        spectrum : Spectrum or None
        """
        if spectrum is None:
            return cls(V)
        if instance("spectrum", spectrum, Spectrum, "Spectrum(V)").V is not V:
            raise OptionError(
                "spectrum belongs to another matrix: open the data once, V = from_rows(X), and "
                "pass V and Spectrum(V)"
            )
        return spectrum

    def singular_values(self, k: int, *, rough: bool = False) -> Array:
        """Return the k largest singular values of V, accurate to 1e-10; with `rough`, to 1e-4.

        Parameters
        ----------
        k : int
        rough : bool
        """
        k = self._check_k(k)
        with self.V.own_threads():
            values = self._leading(k, _ROUGH_TOL if rough else _VALUE_TOL).values
        return np.sqrt(np.maximum(values[:k], 0.0))

    def energy_bound(self, k: int, *, tol: float = _ENERGY_TOL) -> EnergyBound:
        """Bound sum_{j <= k} sigma_j^2 from above, rounding included.

        A bound from a Gram matrix always holds. A bound from a subspace may fail, with the
        probability that it states: see `linalg.energy`. A smaller `tol` gives a tighter bound; it
        means the same as in `leading_subspace`.

        Parameters
        ----------
        k : int
        tol : float
            As in `leading_subspace`; a smaller one gives a tighter bound.
        """
        V = self.V
        k = self._check_k(k)
        if k in self._energy:
            return self._energy[k]
        with V.own_threads():
            found = self._leading(k, tol, more=True)
            values = np.maximum(found.values, 0.0)
            rounding = 10 * k * min(V.shape) * EPS * float(values[0])
            bound = EnergyBound(float(values[:k].sum()) + rounding, 0.0)
            if not self._forms_gram(k, True):
                apply, _, is_held = self._operator()
                if found.images is None:
                    found = found._replace(images=apply(found.vectors))
                n_starts = _STARTS_IN_MEMORY if is_held else _STARTS_BY_PASSES
                bound = subspace_energy(found, k, V.total, rounding, apply, n_starts=n_starts)
        self._energy[k] = bound
        return bound

    def leading_subspace(self, k: int, *, tol: float = _ENERGY_TOL) -> Pair:
        """Return at least k leading eigenvectors X (F, m) and eigenvalues (m,) of VV'.

        Parameters
        ----------
        k : int
        tol : float
            ||VV'x - value x|| <= tol * value for the first k; the others are about as accurate.
        """
        k = self._check_k(k)
        size = self._block_size(k)
        with self.V.own_threads():
            found = self._leading(k, tol)
            vectors = self._features(found.vectors[:, :size])
        return vectors, np.maximum(found.values[:size], 0.0)

    def noise(self, k: int) -> float:
        """Estimate the variance of noise from the singular value after the k-th.

        For white noise of variance s^2, a squared singular value is at most s^2 (sqrt(F) +
        sqrt(N))^2, up to a relative error that vanishes for large V.

        Parameters
        ----------
        k : int
        """
        F, N = self.V.shape
        _, values = self.leading_subspace(min(k + 1, F, N))
        after = float(values[k : k + 1].sum())
        return after / (math.sqrt(F) + math.sqrt(N)) ** 2

    def truncated_svd(self, k: int, *, rough: bool = False) -> tuple[Array, Array, Aligned]:
        """Return U (F, k), sigma (k,) and R (k, N), the leading part of V = U diag(sigma) R.

        The signs of vectors and the basis for equal singular values are fixed, so the result is the
        same up to rounding for every storage of V. R has a row for each sample, so it is not
        stored: computing it again takes one pass. ||V r - sigma u|| <= 1e-10 sigma_1 for each pair
        of vectors, as far as rounding allows; V' u = sigma r to rounding.

        With `rough`, only V' u = sigma r holds if both sides of V are long: the vectors span a
        subspace near the leading one, from a fixed number of passes. A start of a solver needs no
        more.

        Parameters
        ----------
        k : int
            At most min(F, N), or the rank of a sketch.
        rough : bool
        """
        V = self.V
        k = self._check_k(k)
        tie = tie_share(V)
        is_rough = rough and self._is_long(k)
        with V.own_threads():
            if is_rough:
                X = self._range(k)
            else:
                found = self._leading(k, VECTOR_TOL)
                limit = found.values[k - 1] * (1.0 - 2 * _EQUAL_SHARE)
                n_equal = int((found.values >= limit).sum())
                if limit <= EPS * found.values[0] * self._block_size(k):  # rounding
                    n_equal = k
                X = self._features(found.vectors[:, :n_equal])
            # V'X is tall and thin; its singular values do not suffer from the square in VV'.
            # Products of V with the right vectors are as accurate, so they replace X as long as
            # this improves the residual.
            for left in reversed(range(_MAX_REFINEMENTS)):
                B, triangle = V.sweep(_project, X=X, reduce=_join_triangles)
                _, sigma, turn = svd(triangle)
                turn = _canonical(X, sigma, turn, tie)
                U = X @ turn.T
                right = _right_vectors(V, B, turn, sigma)
                if is_rough or left == 0 or sigma[-1] >= _SAFE_SHARE * sigma[0]:
                    break
                (image,) = V.sweep(_combine, right)
                residuals = norm(image - U * sigma, axis=0)
                if residuals.max() <= VECTOR_TOL * sigma[0]:
                    break
                X = _complete_basis(image, U)
        return U[:, :k], sigma[:k], right[:, :k].T

    def _check_k(self, k: int) -> int:
        k = integer("k", k)
        F, N = self.V.shape
        most = min(F, N)
        if not 1 <= k <= most:
            raise ComponentsError(
                f"a {N} x {F} matrix has {most} singular values, not the {k} asked for: "
                f"ask for 1 to {most}"
            )
        return k

    def _block_size(self, k: int) -> int:
        """Return how many vectors the iteration uses for k: more vectors converge faster."""
        return min(k + max(8, k // 4), *self.V.shape)

    def _is_long(self, k: int) -> bool:
        """Return whether exact vectors would take much longer than those of `_range`.

        This depends on the shape and on the share of zeros, so that all storages agree.
        """
        F, N = self.V.shape
        is_dense = self.V.n_entries > _DENSE_SHARE * F * N
        side = _MAX_GRAM_SIDE if is_dense else _SPARSE_GRAM_SIDES[0]
        return min(F, N) > max(side, _SPARSE_GRAM_SIDES[1] * self._block_size(k))

    def _range(self, k: int) -> Array:
        """Return an orthonormal basis (F, m) near the k leading singular vectors, from few passes.

        It spans (VV')^p X for random X (Halko, Martinsson and Tropp, "Finding structure with
        randomness", SIAM Review 53, 2011).
        """
        X = default_rng(0).random((self.V.n_features, self._block_size(k))) - 0.5
        for _ in range(_POWERS):
            X = _normalized(self.V.square_times(X) / self.V.total)
        return _normalized(X)

    def _forms_gram(self, k: int, more: bool) -> bool:
        """Return whether the Gram matrix is cheap; Lanczos's method is faster for sparse data."""
        side, per_vector = _MAX_GRAM_SIDE, _GRAM_SIDE_PER_VECTOR
        if not more and sp.issparse(self.V.held_rows(0)):
            side, per_vector = _SPARSE_GRAM_SIDES
        return min(self.V.shape) <= max(side, per_vector * self._block_size(k))

    def _leading(self, k: int, tol: float, *, more: bool = False) -> Leading:
        """Return the leading eigenpairs of VV', or of V'V; such vectors have an entry per sample.

        With `more` there are some pairs beyond the k-th, which a bound of the energy needs.
        """
        if self._forms_gram(k, more):
            if self._gram is None:
                V = self.V
                gram = gram_of_features(V) if V.n_features <= V.n_samples else gram_of_samples(V)
                if self._has_vectors:
                    values, vectors = eigh(gram)
                else:
                    values, vectors = eigvalsh(gram), gram[:, :0]
                self._gram = Leading(vectors[:, ::-1], values[::-1], None)
            return self._gram
        size = self._block_size(k)
        count = size if more else k
        for known, known_tol, found in self._found:
            if known >= k and known_tol <= tol and found.values.size >= count:
                return found
        apply, side, is_held = self._operator()
        if is_held and self._start is None:
            found = _by_arpack(apply, side, count, tol)
        else:
            start = self._start
            if start is None:
                start = apply(default_rng(0).standard_normal((side, size)))
            elif self._found:
                start = self._found[-1][2].vectors
            elif side < len(start):
                start = np.asarray(self._rows @ start)
            found = davidson(apply, k, start, tol)
        self._found.append((k, tol, found))
        return found

    def _operator(self) -> tuple[Apply, int, bool]:
        """Return VV', or V'V if shorter and V is in memory; its side; and if V is in memory."""
        V = self.V
        rows = V.held_rows(_MAX_DENSE_ENTRIES) if self._rows is None else self._rows
        if rows is None:
            return lambda X: np.asarray(V.sweep(_apply, X=X)[0]), V.n_features, False
        rows = rows.astype(float, copy=False)
        self._rows = None if self._start is None else rows
        if V.n_samples < V.n_features:
            rows = rows.T
        return partial(_square, V, rows, rows.T), min(V.shape), True

    def _features(self, vectors: Array) -> Array:
        """Return eigenvectors of VV' (F, m) from those that `_leading` returns."""
        V = self.V
        if V.n_features == len(vectors):
            return vectors
        (image,) = V.sweep(_combine, V.align(vectors))
        return qr(image)[0]


# The spectrum of V, if it has been computed already.
KnownSpectrum: TypeAlias = Spectrum | None


def _by_arpack(apply: Apply, side: int, k: int, tol: float) -> Leading:
    """Return the k leading eigenpairs by Lanczos's method from one vector, with restarts.

    It may miss a vector of a multiple eigenvalue; a bound of the energy allows for this. If it does
    not converge, the block method starts from its result.
    """
    rng = default_rng(0)
    size = int(min(max(_VECTORS_PER_EIGENVECTOR * k, k + _MIN_VECTORS), side))
    operator = LinearOperator((side, side), matvec=apply, dtype=float)
    start = rng.standard_normal(side)
    try:
        values, vectors = eigsh(
            operator, k, v0=start, ncv=size, maxiter=_MAX_RESTARTS, tol=tol / 10, rng=rng
        )
    except ArpackNoConvergence as failure:
        count = min(k + 8, side)
        random = rng.standard_normal((side, k + 8))
        vectors = np.hstack([failure.eigenvectors, random])
        return davidson(apply, k, vectors[:, :count], tol)
    return Leading(vectors[:, ::-1], values[::-1], None)


def davidson(apply: Apply, k: int, start: Array, tol: float) -> Leading:
    """Return the k leading eigenpairs of A by the block Davidson method, with one product per step.

    It computes Ritz vectors on a subspace. Each step extends the subspace by the residuals of
    `size` Ritz vectors. When the subspace is four times as large as that, it is reduced to these
    vectors (Davidson, "The iterative calculation of a few of the lowest eigenvalues", J. Comput.
    Phys. 17, 1975; in blocks: Liu, 1978; without a preconditioner, as A is never formed).
    """
    basis = qr(start)[0]
    size = start.shape[1]
    image = apply(basis)
    for _ in range(_MAX_STEPS):
        values, mix = eigh(basis.T @ image)
        values = values[: -size - 1 : -1]
        mix = mix[:, : -size - 1 : -1]
        X = basis @ mix
        AX = image @ mix
        R = AX - X * values
        residuals = norm(R[:, :k], axis=0)
        relevant = np.maximum(values[:k], _SMALLEST_SHARE * values[0])
        allowed = np.maximum(tol * relevant, _RESIDUAL_ROUNDING * values[0])
        if (residuals <= allowed).all():
            break
        if basis.shape[1] + size > 4 * size:
            basis = X
            image = AX
        new = _new_directions(basis, R)
        if new.shape[1] == 0:
            break
        basis = np.hstack([basis, new])
        image = np.hstack([image, apply(new)])
    return Leading(X, values, AX)


def _normalized(X: Array) -> Array:
    """Return a basis of the columns of X, orthonormal if X is far from singular."""
    try:
        return np.asarray(X @ inv(cholesky(X.T @ X)).T)
    except LinAlgError:
        return qr(X)[0]


def _new_directions(basis: Array, R: Array) -> Array:
    """Return an orthonormal basis of the part of R that is outside the span of `basis`."""
    scale = norm(R, axis=0)
    R = R[:, scale > 0] / scale[scale > 0]
    for _ in range(2):
        R = R - basis @ (basis.T @ R)
        orthonormal, triangle = qr(R)
        R = orthonormal[:, np.abs(np.diagonal(triangle)) > 1e-10]
    return R


def _right_vectors(V: DataMatrix, B: Aligned, turn: Array, sigma: Array) -> Aligned:
    """Return B turn' / sigma, where vectors of small singular values are made orthogonal.

    The rounding error of B is relative to the largest singular value, so it is large for the
    smallest ones. If a singular value is rounding, its vector would be rounding too: it stays zero.
    """
    inverses = over(sigma > EPS * sigma[0], sigma)
    right = V.by_rows(partial(_times, turn.T * inverses), B)
    if sigma[-1] >= _SAFE_SHARE * sigma[0]:
        return right
    for _ in range(2):
        (gram,) = V.map(lambda _, rows: (rows.T @ rows,), right)
        is_zero = np.diagonal(gram) == 0
        shift = is_zero + 4 * len(gram) * EPS
        inverse = inv(cholesky(gram + np.diag(shift)).T)
        right = V.by_rows(partial(_times, inverse), right)
    return right


def _complete_basis(image: Array, U: Array) -> Array:
    """Return an orthonormal basis of the columns of an image, with U's column where one is zero."""
    norms = norm(image, axis=0)
    longest = norms.max()
    basis, _ = qr(np.where(norms > EPS * longest, image, U * longest))
    return basis


def tie_share(V: DataMatrix) -> float:
    """Return the relative difference up to which parts of singular vectors of V count as equal.

    Rounding, and with it the storage, may decide which one is larger. A rule must decide instead.
    """
    return _TIE_SHARES[V.dtype.char]


def _canonical(X: Array, sigma: Array, turn: Array, tie: float) -> Array:
    """Turn the vectors X turn' of equal singular values into a basis that depends on V alone.

    Any rotation of these vectors is as good, so rounding would choose one. Here the first basis
    vector is the projection of the feature that lies closest to their span; the remaining span is
    treated in the same way. Signs make the largest entry of each vector positive. Ties go to the
    first feature.
    """
    turn = turn.copy()
    is_smaller = sigma[1:] < sigma[:-1] * (1.0 - _EQUAL_SHARE)
    borders = np.flatnonzero(is_smaller) + 1
    for start, stop in pairwise([0, *borders.tolist(), sigma.size]):
        size = stop - start
        if size == 1 or sigma[start] == 0:
            continue
        rows = X @ turn[start:stop].T
        rotation = np.empty((size, size))
        for i in range(size):
            norms = norm(rows, axis=1)
            nearest = first_largest(norms, tie)
            axis = rows[nearest] / norms[nearest]
            rotation[i] = axis
            rows = rows - np.outer(rows @ axis, axis)
        turn[start:stop] = rotation @ turn[start:stop]
    U = X @ turn.T
    leading = first_largest(np.abs(U), tie)
    turn[U[leading, range(leading.size)] < 0] *= -1.0
    return turn


# --- functions of one pass over V or over aligned arrays ------------------------------------------


def _project(block: Block, *, X: Array) -> Pair:
    """Return V'X and the triangle of its QR decomposition, which has the same singular values."""
    B = products(exact(block), X)
    return B, _triangle(B)


def _triangle(B: Array) -> Array:
    n, k = B.shape
    zeros = np.zeros((max(k - n, 0), k))  # they make the triangle square
    return np.asarray(qr(np.vstack([B, zeros]), mode="r"))


def _join_triangles(a: Array, b: Array) -> Array:
    return _triangle(np.vstack([a, b]))


def _times(X: Array, index: range, B: Array) -> Array:
    return B @ X


def _combine(block: Block, coefficients: Array) -> tuple[Array]:
    """Return sums of samples, weighted by aligned coefficients."""
    return (weighted_sums(exact(block), coefficients),)


def _square(V: DataMatrix, A: Rows, turned: Rows, X: Array) -> Array:
    """Return A'A X, where A is V or its transpose in memory."""
    V._count(1.0)
    return np.asarray(turned @ (A @ X))


def _apply(block: Block, *, X: Array) -> tuple[Array]:
    """Return VV'X; one pass."""
    block = exact(block)
    return (weighted_sums(block, products(block, X)),)


def gram_of_features(V: DataMatrix) -> Array:
    """Return VV' (F, F) for small F; one pass."""
    return np.asarray(V.sweep(lambda block: (feature_gram(block),))[0])


def gram_of_samples(V: DataMatrix) -> Array:
    """Return V'V (N, N) for small N; one pass for each batch of samples."""
    N = V.n_samples
    size = min(_GATHERED_SAMPLES, V.max_gather)
    parts = []
    for batch in np.split(np.arange(N), range(size, N, size)):
        part, _ = V.sweep(_products_with, other=V.columns(batch))
        parts.append(np.asarray(part))
    return np.hstack(parts)


def _products_with(block: Block, *, other: Block) -> PerSample:
    return cross_products(block, other), None
