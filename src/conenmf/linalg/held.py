"""Leading eigenvectors of VV' or V'V for data in memory, by ARPACK.

Where V is in memory a product with one vector costs little more than its share of one with many, so
Lanczos's method needs far less time than one that reads V for a block of vectors. It runs on the
shorter side of V, through ``scipy.sparse.linalg.eigsh``. PROPACK, by ``svds``, was slower on all
text that was measured: it orthogonalises on both sides. It also raises an error for data of low
rank.

Two things are added. Started from one vector, Lanczos's method does not see how often an eigenvalue
occurs. So a few of its steps are made on the space that is orthogonal to what was found: an
eigenvalue that was missed is seen there, and the block method then completes the set. The same
steps give rough values for what comes after the last vector asked for. And ARPACK draws random
vectors where V has a low rank; they are drawn here from a fixed seed, which SciPy allows from
version 1.17 on. With an older SciPy the block method is used for all data.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from .. import kernels
from ..data.blocks import Array
from ..data.borders import equal_borders
from ..data.matrix import DataMatrix
from ..data.resources import available_memory
from ..data.sketch import orthonormal
from ..data.threads import run_in_order
from .davidson import Apply, Leading, davidson

__all__ = ["HeldGram", "hold_gram"]

_HAS_SEED = "rng" in inspect.signature(eigsh).parameters
_TOL = 1e-11  # of an eigenvector, relative to its eigenvalue; 1e-10 is what a start needs
_VECTORS_PER_EIGENVECTOR, _MIN_VECTORS = 2.5, 20  # of the basis of ARPACK
_MAX_RESTARTS = 100
_STEPS_BEYOND = 20  # of Lanczos's method, beyond the eigenvectors that were asked for
_BLOCK_BEYOND = 8  # vectors more than asked for, of the block method
_ROUNDING = 1e-13  # share of the largest eigenvalue below which a vector is rounding
_MIN_LARGE_WORK = 1 << 20  # entries times vectors, from which on a product is shared by threads
_COPY_SHARE = 0.25  # of the memory, that a second copy may take
_PIECES = 8  # of rows, for the threads
_MAX_DENSE_ENTRIES = 1 << 22  # a larger array is read from memory for every vector
_SEED, _SEED_BEYOND = 0, 2


def hold_gram(V: DataMatrix, scale: Array | None = None) -> HeldGram | None:
    """Return the Gram matrix of V on its shorter side, if products with vectors are cheap.

    Each sample is multiplied by its entry of `scale` (N,) first.
    """
    rows = V.held_rows(_MAX_DENSE_ENTRIES) if _HAS_SEED else None
    return None if rows is None else HeldGram(V, rows.astype(np.float64, copy=False), scale)


class HeldGram:
    """VV' if V has at least as many samples as features, else V'V; never formed.

    Attributes
    ----------
    size : int
        Of its side.
    is_of_samples : bool
        Whether it is V'V.
    """

    def __init__(self, V: DataMatrix, rows: Any, scale: Array | None) -> None:
        self._V, self._rows, self._columns = V, rows, rows.T
        self._turned: Any = None
        self._scale = scale
        self.is_of_samples = V.shape[1] < V.shape[0]
        self.size = min(V.shape)

    def apply(self, X: Array) -> Array:
        """Return its product with X (size,) or (size, m)."""
        self._V._count(1.0)
        if self.is_of_samples:
            return self._scaled(self._by_samples(self._by_features(self._scaled(X))))
        return self._by_features(self._scaled(self._scaled(self._by_samples(X))))

    def _by_samples(self, X: Array) -> Array:
        """V'X, with a row for every sample."""
        if self._is_large(X):
            return _products_on_threads(self._rows, X, self._V.n_threads)
        return np.asarray(self._rows @ X)

    def _by_features(self, X: Array) -> Array:
        """V X, with a row for every feature; many columns along a copy in the other order."""
        if self._is_large(X):
            if self._turned is None:
                self._turned = self._rows.T.tocsr()
            return _products_on_threads(self._turned, X, self._V.n_threads)
        return np.asarray(self._columns @ X)

    def _is_large(self, X: Array) -> bool:
        """Whether threads pay for a product with X, and a second copy of V fits in memory."""
        if X.ndim == 1 or isinstance(self._rows, np.ndarray) or not kernels.AVAILABLE:
            return False
        nnz, entry_bytes = self._rows.nnz, 8 + self._rows.indices.itemsize
        if nnz * X.shape[1] < _MIN_LARGE_WORK:
            return False
        return self._turned is not None or nnz * entry_bytes <= _COPY_SHARE * available_memory()

    def _apply_without(self, known: Array, X: Array) -> Array:
        return _without(self.apply(_without(X, known)), known)

    def features(self, X: Array) -> Array:
        """Return the eigenvectors of VV' (F, m) that belong to eigenvectors X."""
        if not self.is_of_samples:
            return X
        self._V._count(1.0)
        return orthonormal(self._columns @ self._scaled(X))

    def from_features(self, U: Array) -> Array:
        """Return vectors of this side that span what V makes of U (F, m)."""
        if not self.is_of_samples:
            return U
        self._V._count(1.0)
        return self._scaled(self._rows @ U)

    def _scaled(self, X: Array) -> Array:
        return X if self._scale is None else (X.T * self._scale).T

    def leading(self, k: int) -> Leading:
        """Return the k leading eigenpairs, and rougher ones after them.

        ||A x - value x|| <= 1e-10 value for the first k, as far as rounding allows.
        """
        found = self._beyond(self._eigenvectors(k, _TOL), _STEPS_BEYOND)
        residuals = np.linalg.norm(_residual(found)[:, :k], axis=0)
        limit = np.maximum(10 * _TOL * found.values[:k], _ROUNDING * found.values[0])
        if np.all(residuals <= limit):
            return found
        size = min(k + _BLOCK_BEYOND, self.size)
        random = np.random.default_rng(_SEED).standard_normal((self.size, size))
        start = np.hstack([found.vectors, random])[:, :size]  # if ARPACK has found too few
        return self._beyond(davidson(self.apply, k, start, _TOL).vectors, 0)

    def extended(self, leading: Leading, k: int, extra: int, tol: float) -> Leading:
        """Return the k leading eigenpairs that are known, and a few more to a relative `tol`."""
        X = leading.vectors[:, :k]
        more = self._eigenvectors(min(extra, self.size - k - 1), tol, X)
        return self._beyond(np.linalg.qr(np.hstack([X, more]))[0], 0)

    def _eigenvectors(self, k: int, tol: float, known: Array | None = None) -> Array:
        """Orthonormal vectors, k of them, by ARPACK; fewer if it does not find all.

        With `known` orthonormal vectors, those of the space that is orthogonal to them.
        """
        if k < 1:
            return np.empty((self.size, 0))
        start = np.random.default_rng(_SEED).standard_normal(self.size)
        apply: Apply = self.apply
        if known is not None:
            start, apply = _without(start, known), partial(self._apply_without, known)
        n_vectors = int(max(_VECTORS_PER_EIGENVECTOR * k, k + _MIN_VECTORS))
        operator = LinearOperator((self.size, self.size), matvec=apply, dtype=np.float64)
        try:
            vectors = eigsh(
                operator,
                k,
                v0=start,
                ncv=min(n_vectors, self.size),
                tol=tol,
                maxiter=_MAX_RESTARTS,
                rng=np.random.default_rng(_SEED),
            )[1]
        except ArpackError as failure:
            vectors = getattr(failure, "eigenvectors", np.empty((self.size, 0)))
        orthonormal_vectors: Array = np.linalg.qr(vectors)[0]
        return orthonormal_vectors

    def _beyond(self, X: Array, steps: int) -> Leading:
        """Rayleigh and Ritz's eigenpairs on the span of X and of a Krylov space orthogonal to it.

        The Krylov space is that of the Gram matrix on the space orthogonal to X, from one random
        vector; X may be eigenvectors or not.
        """
        steps = min(steps, self.size - X.shape[1])
        basis = np.empty((self.size, X.shape[1] + steps))
        images = np.empty_like(basis)
        known = m = X.shape[1]
        basis[:, :m] = X
        if m:
            images[:, :m] = self.apply(X)
        new = np.random.default_rng(_SEED_BEYOND).standard_normal(self.size)
        for m in range(known, known + steps):
            floor = _ROUNDING * float(np.linalg.norm(new))
            for _ in range(2):  # twice, so that it stays orthogonal
                new = new - basis[:, :m] @ (basis[:, :m].T @ new)
            length = float(np.linalg.norm(new))
            if length <= floor:  # the space holds nothing else
                break
            basis[:, m] = new / length
            images[:, m] = new = self.apply(basis[:, m])
        else:
            m = basis.shape[1]
        basis, images = basis[:, :m], images[:, :m]
        values, mix = np.linalg.eigh(basis.T @ images)
        values, mix = values[::-1], mix[:, ::-1]
        return Leading(basis @ mix, values, images @ mix)


def _products_on_threads(rows: Any, X: Array, n_threads: int) -> Array:
    """Compressed rows times X (n, m); every row is computed by itself."""
    X = np.ascontiguousarray(X)
    product = np.empty((rows.shape[0], X.shape[1]), np.result_type(rows.dtype, X.dtype))
    borders = equal_borders(len(product), max(1, -(-len(product) // _PIECES)))

    def run(number: int) -> None:
        start, stop = borders[number]
        part = product[start:stop]
        indptr = rows.indptr[start : stop + 1]
        kernels.sparse_products(rows.data, rows.indices, indptr, X, part)

    run_in_order(run, lambda number, _: None, len(borders), n_threads)
    return product


def _without(x: Array, known: Array) -> Array:
    """What of x is orthogonal to the columns of `known`."""
    return np.asarray(x - known @ (known.T @ x))


def _residual(leading: Leading) -> Array:
    assert leading.images is not None
    return np.asarray(leading.images - leading.vectors * leading.values)
