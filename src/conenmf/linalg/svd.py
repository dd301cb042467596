"""Leading singular values and vectors of V, through the data layer.

They come from the eigenvectors of VV' or V'V, and there are three ways to those:

- If one side of V is short, the Gram matrix of that side is formed and decomposed as a whole.
- For data in memory ARPACK (``scipy.sparse.linalg.eigsh``) applies the Gram matrix of the shorter
  side to one vector after the other: a product with one vector costs little more than its share of
  a product with many. On text it is 2 to 4 times as fast as a block method.
- Elsewhere each pass over V is expensive, so `davidson` applies VV' to many vectors at once.

V is never densified. A sketch is read as the matrix of its coordinates.
"""

from __future__ import annotations

import inspect
import math
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.linalg import cholesky, eigh, eigvalsh, inv, norm, qr, svd
from numpy.random import default_rng
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from ..arguments import Pair, instance, integer
from ..data.blocks import (
    EPS,
    Array,
    Block,
    Rows,
    cross_products,
    exact,
    feature_gram,
    products,
    weighted_sums,
)
from ..data.matrix import Aligned, DataMatrix, PerSample
from ..data.validate import require_data_matrix
from ..errors import ComponentsError, OptionError
from .energy import Apply, EnergyBound, subspace_energy

# Residual of the singular vectors that a start uses, of sigma_1: it is the same everywhere.
VECTOR_TOL = 1e-10

_VALUE_TOL = 1e-5  # of vectors of which only the values are used; squared there
_ROUGH_TOL = 1e-2  # the same for rough values
_ENERGY_TOL = 1e-4  # of the vectors from which the energy is bounded; squared in the bound

_MAX_GRAM_SIDE = 500  # side of V up to which its Gram matrix is formed for any k ...
_GRAM_SIDE_PER_VECTOR = 16  # ... and side per vector up to which forming it is cheaper
_SPARSE_GRAM_SIDES = 128, 4  # the same two of sparse V in memory, unless a bound is asked for
_GATHERED_SAMPLES = 256  # whose products with all others are formed at a time
_STARTS_BY_PASSES = 8  # random vectors: a pass is read for all of them
_STARTS_IN_MEMORY = 3

_HAS_SEED = "rng" in inspect.signature(eigsh).parameters  # from SciPy 1.17 on
_VECTORS_PER_EIGENVECTOR = 2.5  # of the basis of ARPACK
_MIN_VECTORS = 20  # of that basis, beyond those asked for
_MAX_RESTARTS = 100
_MAX_DENSE_ENTRIES = 1 << 22  # a larger array is read from memory for every vector

_MAX_STEPS = 100  # of the block method
_SMALLEST_SHARE = 1e-9  # of the largest eigenvalue, below which one needs no accuracy of its own
_RESIDUAL_ROUNDING = 2e-14  # of the largest eigenvalue, in a residual

_MAX_REFINEMENTS = 8
_SAFE_SHARE = 1e-4  # of the largest singular value, from which on squares keep enough digits
_EQUAL_SHARE = 1e-7  # by which singular values that count as equal may differ
_TIE_SHARE = 1e-9  # by which entries of a vector that count as equal may differ


class Leading(NamedTuple):
    """Leading eigenvectors X (n, m) of A, their eigenvalues, and A X if it was computed.

    There may be more than were asked for; those in excess are less accurate.
    """

    vectors: Array
    values: Array
    images: Array | None


class Spectrum:
    """The leading singular values and vectors of one V; nothing is computed twice.

    One object serves a whole fit: the choice of K, the init and the certificate. It stores all
    results, so a repeated request, or a request for fewer or less accurate vectors, reads nothing
    and gives the same numbers. If a side of V is small, one pass serves all requests.

    Parameters
    ----------
    V : DataMatrix (F, N)
    start : array (F, m), optional
        A subspace near the leading one, to begin with instead of a random one.
    vectors : bool
        False if you need only singular values, which cost less if a side of V is small.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> spectrum = Spectrum(from_columns([[3.0, 0.0, 4.0], [0.0, 2.0, 0.0]]))
    >>> spectrum.singular_values(2)
    array([5., 2.])
    """

    def __init__(self, V: DataMatrix, *, start: Array | None = None, vectors: bool = True) -> None:
        require_data_matrix(V)
        self.V = V
        self._start = start
        self._has_vectors = vectors
        self._rows: Rows = None  # of a view that begins near the end: it lives no longer than this
        self._gram: Pair | None = None
        self._found: list[tuple[int, float, Leading]] = []
        self._energy: dict[int, EnergyBound] = {}

    @classmethod
    def of(cls, V: DataMatrix, spectrum: KnownSpectrum) -> Spectrum:
        """Return the spectrum given, which must be that of V, or a new one if there is none."""
        if spectrum is None:
            return cls(V)
        if instance("spectrum", spectrum, Spectrum, "Spectrum(V)").V is not V:
            raise OptionError("spectrum belongs to another matrix: pass Spectrum(V) of this one")
        return spectrum

    def singular_values(self, k: int, *, rough: bool = False) -> Array:
        """Return the k largest singular values of V, to 1e-10 of themselves; `rough`, to 1e-4."""
        k = self._asked(k)
        with self.V.own_threads():
            values = self._leading(k, _ROUGH_TOL if rough else _VALUE_TOL).values
        return np.sqrt(np.maximum(values[:k], 0.0))

    def energy_bound(self, k: int, *, tol: float = _ENERGY_TOL) -> EnergyBound:
        """Bound sum_{j <= k} sigma_j^2 from above, rounding included.

        From a Gram matrix it always holds; from a subspace, but for the probability that comes
        with it: see `linalg.energy`. It is the closer, the smaller `tol`, as in `leading_subspace`.
        """
        V = self.V
        k = self._asked(k)
        if k in self._energy:
            return self._energy[k]
        with V.own_threads():
            found = self._leading(k, tol, more=True)
            values = np.maximum(found.values, 0.0)
            rounding = 10 * k * min(V.shape) * EPS * float(values[0])
            bound = EnergyBound(float(values[:k].sum()) + rounding, 0.0)
            if not self._forms_gram(k, True):
                apply, _, is_held = self._operator()
                images = apply(found.vectors) if found.images is None else found.images
                n_starts = _STARTS_IN_MEMORY if is_held else _STARTS_BY_PASSES
                bound = subspace_energy(
                    found._replace(images=images), k, V.total, rounding, apply, n_starts=n_starts
                )
        self._energy[k] = bound
        return bound

    def leading_subspace(self, k: int, *, tol: float = _ENERGY_TOL) -> Pair:
        """Return k or a few more vectors X (F, m) and values (m,), leading for VV'.

        ||VV'x - value x|| <= tol * value for the first k, for the others about that.
        """
        k = self._asked(k)
        with self.V.own_threads():
            found = self._leading(k, tol)
            size = self._block_size(k)
            return self._features(found.vectors[:, :size]), np.maximum(found.values[:size], 0.0)

    def noise(self, k: int) -> float:
        """Return the variance of noise along the direction in which k vectors leave most of V.

        White noise of variance s^2 has a squared singular value of s^2 (sqrt(F) + sqrt(N))^2 at
        most, up to a share that vanishes for a large V.
        """
        F, N = self.V.shape
        values = self.leading_subspace(min(k + 1, F, N))[1]
        return float(values[k : k + 1].sum()) / (math.sqrt(F) + math.sqrt(N)) ** 2

    def truncated_svd(self, k: int, *, tol: float = VECTOR_TOL) -> tuple[Array, Array, Aligned]:
        """Return U (F, k), sigma (k,) and R (k, N), the leading part of V = U diag(sigma) R.

        Vectors have fixed signs, and those of equal singular values a fixed basis; so they are the
        same to rounding wherever V is kept. R, which has a row for each sample, is not remembered:
        to have it again takes one pass.

        Parameters
        ----------
        k : int
            At most min(F, N), or the rank of a sketch.
        tol : float
            ||V r - sigma u|| <= tol * sigma_1 for each pair of vectors, as far as rounding allows;
            V' u = sigma r to rounding.
        """
        V = self.V
        k = self._asked(k)
        with V.own_threads():
            found = self._leading(k, tol)
            limit = found.values[k - 1] * (1.0 - 2 * _EQUAL_SHARE)
            is_rounding = limit <= EPS * found.values[0] * self._block_size(k)
            X = self._features(
                found.vectors[:, : k if is_rounding else np.count_nonzero(found.values >= limit)]
            )
            # V'X is tall and thin; its singular values do not suffer from the square in VV'. What
            # V makes of the right vectors has not lost digits either: it replaces X while it helps.
            for left in reversed(range(_MAX_REFINEMENTS)):
                B, triangle = V.sweep(
                    _project, X=X, reduce=lambda a, b: _triangle(np.vstack([a, b]))
                )
                _, sigma, turn = svd(triangle)
                turn = _canonical(X, sigma, turn)
                turn *= _signs(X @ turn.T)[:, None]
                U = X @ turn.T
                right = _right_vectors(V, B, turn, sigma)
                if left == 0 or sigma[-1] >= _SAFE_SHARE * sigma[0]:
                    break
                image = V.sweep(_combine, right)[0]
                if norm(image - U * sigma, axis=0).max() <= tol * sigma[0]:
                    break
                X = _completed(image, U)
        return U[:, :k], sigma[:k], right[:, :k].T

    def _asked(self, k: int) -> int:
        k = integer("k", k)
        largest_k = min(self.V.shape)
        if not 1 <= k <= largest_k:
            raise ComponentsError(
                f"a {self.V.n_samples} x {self.V.n_features} matrix has {largest_k} singular "
                f"values, not the {k} asked for: ask for 1 to {largest_k}"
            )
        return k

    def _block_size(self, k: int) -> int:
        """How many vectors to iterate on for k: more speed up convergence."""
        return min(k + max(8, k // 4), *self.V.shape)

    def _forms_gram(self, k: int, more: bool) -> bool:
        """Whether the Gram matrix is cheap; Lanczos's method reads sparse data faster."""
        is_sparse = not more and sp.issparse(self.V.held_rows(0))
        sides = _SPARSE_GRAM_SIDES if is_sparse else (_MAX_GRAM_SIDE, _GRAM_SIDE_PER_VECTOR)
        return min(self.V.shape) <= max(sides[0], sides[1] * self._block_size(k))

    def _leading(self, k: int, tol: float, *, more: bool = False) -> Leading:
        """The leading eigenpairs of VV', or of V'V if they have as many entries as samples.

        With `more` there are some after the k-th, which a bound of the energy needs.
        """
        if self._forms_gram(k, more):
            if self._gram is None:
                is_wide = self.V.n_features <= self.V.n_samples
                gram = gram_of_features(self.V) if is_wide else gram_of_samples(self.V)
                self._gram = (
                    eigh(gram) if self._has_vectors else (eigvalsh(gram), np.empty((len(gram), 0)))
                )
            values, vectors = (part[..., ::-1] for part in self._gram)
            return Leading(vectors, values, None)
        size = self._block_size(k)
        for known, known_tol, found in self._found:
            if known >= k and known_tol <= tol and found.values.size >= (size if more else k):
                return found
        apply, side, is_held = self._operator()
        if is_held and self._start is None:
            found = _by_arpack(apply, side, size if more else k, tol)
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
        """VV', or V'V if it is shorter and V in memory; its side, and whether V is in memory."""
        V = self.V
        rows = self._rows
        if rows is None and _HAS_SEED:
            rows = V.held_rows(_MAX_DENSE_ENTRIES)
        if rows is None:
            return lambda X: np.asarray(V.sweep(_apply, X=X)[0]), V.n_features, False
        rows = rows.astype(float, copy=False)
        self._rows = None if self._start is None else rows
        if V.n_samples < V.n_features:
            rows = rows.T
        return partial(_square, V, rows, rows.T), min(V.shape), True

    def _features(self, vectors: Array) -> Array:
        """Eigenvectors of VV' (F, m), from what `_leading` returns."""
        if self.V.n_features != len(vectors):
            return qr(self.V.sweep(_combine, self.V.align(vectors))[0])[0]
        return vectors


# That of V, if something else has computed it already.
KnownSpectrum: TypeAlias = Spectrum | None


def _by_arpack(apply: Apply, side: int, k: int, tol: float) -> Leading:
    """The k leading eigenpairs by Lanczos's method from one vector, restarted.

    It may return one vector too few for an eigenvalue that occurs several times: a bound of the
    energy takes that into account. Where it does not converge the block method begins with what it
    found.
    """
    rng = default_rng(0)
    size = int(min(max(_VECTORS_PER_EIGENVECTOR * k, k + _MIN_VECTORS), side))
    operator = LinearOperator((side, side), matvec=apply, dtype=float)
    how = {"v0": rng.standard_normal(side), "ncv": size, "tol": tol / 10, "rng": rng}
    try:
        values, vectors = eigsh(operator, k, maxiter=_MAX_RESTARTS, **how)
    except ArpackNoConvergence as failure:
        random = rng.standard_normal((side, k + 8))
        vectors = np.hstack([failure.eigenvectors, random])[:, : min(k + 8, side)]
        return davidson(apply, k, vectors, tol)
    return Leading(vectors[:, ::-1], values[::-1], None)


def davidson(apply: Apply, k: int, start: Array, tol: float) -> Leading:
    """The k leading eigenpairs of A by the block Davidson method; A is applied once per step.

    Rayleigh and Ritz's eigenvectors on a subspace, which grows by the residuals of `size` of them
    and is cut back to these vectors when it is four times as large (Davidson, "The iterative
    calculation of a few of the lowest eigenvalues", J. Comput. Phys. 17, 1975; in blocks: Liu,
    1978; without a preconditioner, as A is never formed).
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
        if np.all(residuals <= np.maximum(tol * relevant, _RESIDUAL_ROUNDING * values[0])):
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


def _new_directions(basis: Array, R: Array) -> Array:
    """Orthonormal basis of what R adds to the span of `basis`."""
    scale = norm(R, axis=0)
    R = R[:, scale > 0] / scale[scale > 0]
    for _ in range(2):
        R = R - basis @ (basis.T @ R)
        orthonormal, triangle = qr(R)
        R = orthonormal[:, np.abs(np.diagonal(triangle)) > 1e-10]
    return R


def _right_vectors(V: DataMatrix, B: Aligned, turn: Array, sigma: Array) -> Aligned:
    """B turn' / sigma. Those of small singular values are made orthogonal to those before them.

    The rounding of B, which is relative to the largest, is large beside the smallest. Of a singular
    value that is rounding, the vector is too: it stays zero.
    """
    is_known = sigma > EPS * sigma[0]
    inverses = np.divide(1.0, sigma, out=np.zeros_like(sigma), where=is_known)
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


def _completed(image: Array, U: Array) -> Array:
    """Orthonormal vectors that span the columns of an image; where it is zero, those of U."""
    norms = norm(image, axis=0)
    is_known = norms > EPS * norms.max()
    return qr(np.where(is_known, image, U * norms.max()))[0]


def _canonical(X: Array, sigma: Array, turn: Array) -> Array:
    """Turn the vectors X turn' of equal singular values into a basis that depends on V alone.

    Any rotation among them is as good, so rounding would choose one. The basis here has as its
    first vector the projection of a feature onto their span, that of the feature which lies closest
    to it; what is left of the span is treated likewise. Ties go to the first feature.
    """
    turn = turn.copy()
    first = np.flatnonzero(np.append(True, sigma[1:] < sigma[:-1] * (1.0 - _EQUAL_SHARE)))
    for start, stop in pairwise([*first.tolist(), sigma.size]):
        if stop - start == 1 or sigma[start] == 0:
            continue
        rows = X @ turn[start:stop].T
        rotation = np.empty((stop - start, stop - start))
        for i in range(stop - start):
            norms = norm(rows, axis=1)
            nearest = int(np.argmax(norms >= norms.max() * (1.0 - _TIE_SHARE)))
            rotation[i] = rows[nearest] / norms[nearest]
            rows = rows - np.outer(rows @ rotation[i], rotation[i])
        turn[start:stop] = rotation @ turn[start:stop]
    return turn


def _signs(U: Array) -> Array:
    """Signs that make the largest entry of each column positive, the first one if several are."""
    size = np.abs(U)
    leading = (size >= size.max(axis=0) * (1 - _TIE_SHARE)).argmax(axis=0)
    return np.where(np.take_along_axis(U, leading[None], axis=0)[0] < 0, -1.0, 1.0)


# --- what one pass over V, or over arrays beside it, yields -----------------------------------


def _project(block: Block, *, X: Array) -> Pair:
    """V'X, and the triangle of its QR decomposition, which has the same singular values."""
    B = products(exact(block), X)
    return B, _triangle(B)


def _triangle(B: Array) -> Array:
    n_zero_rows = max(B.shape[1] - B.shape[0], 0)  # which make it square
    return np.asarray(qr(np.pad(B, ((0, n_zero_rows), (0, 0))), mode="r"))


def _times(X: Array, index: range, B: Array) -> Array:
    return B @ X


def _combine(block: Block, coefficients: Array) -> tuple[Array]:
    """Sums of samples, weighted by what is beside them."""
    return (weighted_sums(exact(block), coefficients),)


def _square(V: DataMatrix, A: Rows, turned: Rows, X: Array) -> Array:
    """A'A X, where A is V or its transpose in memory."""
    V._count(1.0)
    return np.asarray(turned @ (A @ X))


def _apply(block: Block, *, X: Array) -> tuple[Array]:
    """VV'X; one pass."""
    block = exact(block)
    return (weighted_sums(block, products(block, X)),)


def gram_of_features(V: DataMatrix) -> Array:
    """VV' (F, F), F small; one pass."""
    return np.asarray(V.sweep(lambda block: (feature_gram(block),))[0])


def gram_of_samples(V: DataMatrix) -> Array:
    """V'V (N, N), N small; a pass for each batch of samples."""
    N = V.n_samples
    size = min(_GATHERED_SAMPLES, V.max_gather)
    batches = [np.arange(n, min(n + size, N)) for n in range(0, N, size)]
    return np.hstack([np.asarray(V.sweep(_cross, other=V.columns(batch))[0]) for batch in batches])


def _cross(block: Block, *, other: Block) -> PerSample:
    return cross_products(block, other), None
