"""Leading singular values and vectors of V, through the data layer.

They come from the eigenvectors of VV' or V'V, and there are three ways to those:

- If one side of V is short, the Gram matrix of that side is formed and decomposed as a whole.
- For data in memory ARPACK applies it to one vector after the other (`HeldGram`): a product with
  one vector costs little more than its share of a product with many.
- Elsewhere each pass over V is expensive, so `davidson` applies it to many vectors at once.

V is never densified. On text, ARPACK is 3 to 30 times as fast as the block method.
"""

from __future__ import annotations

import inspect
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from ..arguments import instance, integer
from ..data.blocks import (
    Array,
    Block,
    cross_products,
    exact,
    feature_gram,
    products,
    swept_side,
    weighted_sums,
)
from ..data.matrix import Aligned, DataMatrix
from ..data.sketch import orthonormal
from ..data.validate import require_data_matrix
from ..errors import ComponentsError, OptionError
from .energy import Apply, EnergyBound, on_complement, orthogonal_part, subspace_energy

VECTOR_TOL = 1e-10
"""Residual of the singular vectors that a start uses, of sigma_1: it is the same everywhere."""

_MAX_GRAM_SIDE = 500  # side of V up to which its Gram matrix is formed for any k
_GRAM_SIDE_PER_VECTOR = 16  # ... and side per vector up to which forming it is cheaper
_GATHERED_SAMPLES = 256  # whose products with all others are formed at a time
_ENERGY_TOL = 1e-4  # of the vectors from which the energy is bounded; squared in the bound
_EXTRA_TOL = 1e-2  # ... and of those beyond the k-th, for data in memory
_MAX_REFINEMENTS = 8
_STARTS_BY_PASSES, _STARTS_IN_MEMORY = 8, 3  # random vectors: a pass is read for all of them

_EQUAL_SHARE = 1e-7  # share by which singular values that count as equal may differ
_TIE_SHARE = 1e-9  # ... and entries of vectors
_SAFE_SHARE = 1e-4  # of the largest singular value, from which on squares keep enough digits

_MAX_STEPS, _MAX_ROUGH_STEPS = 100, 15  # of the block method
_ROUGH_TOL = 1e-4  # of an eigenvalue, relative, in a step
_SMALLEST_SHARE = 1e-9  # of the largest eigenvalue, below which one needs no accuracy of its own
_RESIDUAL_ROUNDING = 2e-14  # of the largest eigenvalue, in a residual

_HAS_SEED = "rng" in inspect.signature(eigsh).parameters  # from SciPy 1.17 on
_ARPACK_TOL = 1e-11  # of an eigenvector, relative to its eigenvalue; 1e-10 is what a start needs
_VECTORS_PER_EIGENVECTOR, _MIN_VECTORS = 2.5, 20  # of the basis of ARPACK
_MAX_RESTARTS = 100
_STEPS_BEYOND = 20  # of Lanczos's method, beyond the eigenvectors that were asked for
_BLOCK_BEYOND = 8  # vectors more than asked for, of the block method
_ROUNDING = 1e-13  # share of the largest eigenvalue below which a vector is rounding
_MAX_DENSE_ENTRIES = 1 << 22  # a larger array is read from memory for every vector
_SEED, _SEED_BEYOND = 0, 2


class Spectrum:
    """The leading singular values and vectors of one V; nothing is computed twice.

    One object serves a whole fit: the choice of K, the initialisation and the certificate. What
    VV' has yielded is remembered, so that the same request does not read V again, and gives the
    same bits as a request of its own; a request that what is known answers to rounding reads
    nothing either. If a side of V is small, one pass serves all requests.

    Parameters
    ----------
    V : DataMatrix (F, N)
    start : array (F, m), optional
        A subspace near the leading one, to begin with instead of a random one.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> spectrum = Spectrum(from_columns([[3.0, 0.0, 4.0], [0.0, 2.0, 0.0]]))
    >>> spectrum.singular_values(2)
    array([5., 2.])
    """

    def __init__(self, V: DataMatrix, *, start: Array | None = None) -> None:
        require_data_matrix(V)
        self.V = V
        self._start = start
        self._of_gram: tuple[Array, Array] | None = None
        self._of_subspace: dict[tuple[int, float, bool], Leading] = {}
        self._of_held: tuple[int, float, Leading] | None = None
        self._kept: HeldGram | None = None
        self._sketched: tuple[Array, Array] | None = None
        self._energy: dict[int, EnergyBound] = {}

    @classmethod
    def of(cls, V: DataMatrix, spectrum: Spectrum | None) -> Spectrum:
        """Return the spectrum given, which must be that of V, or a new one if there is none."""
        if spectrum is None:
            return cls(V)
        if instance("spectrum", spectrum, Spectrum, "Spectrum(V)").V is not V:
            raise OptionError("spectrum belongs to another matrix: pass Spectrum(V) of this one")
        return spectrum

    def singular_values(self, k: int, *, rough: bool = False) -> Array:
        """Return the k largest singular values of V.

        With `rough`, the block method stops when their squares change by less than 1e-4 of
        themselves from step to step, or after 15 steps: enough to compare them.
        """
        k = self._asked(k)
        if self.V.subspace is not None:
            return self._of_sketch()[1][:k]
        values = self._leading(k, 1e-5, rough=rough, vectors=False).values
        return np.sqrt(np.maximum(values[:k], 0.0))

    def energy_bound(self, k: int, *, tol: float = _ENERGY_TOL) -> EnergyBound:
        """Bound sum_{j <= k} sigma_j^2 from above, rounding included.

        From a Gram matrix it always holds; from a subspace, but for the probability that comes
        with it: see `linalg.energy`. It is the closer, the smaller `tol`, as in `leading_subspace`.
        """
        require_data_matrix(self.V, whole=True)
        k = self._asked(k)
        if k not in self._energy:
            with self.V.own_threads():
                self._energy[k] = self._bound_energy(k, tol)
        return self._energy[k]

    def leading_subspace(self, k: int, *, tol: float = _ENERGY_TOL) -> tuple[Array, Array]:
        """Return k or a few more vectors X (F, m) and values (m,), leading for VV'.

        ||VV'x - value x|| <= tol * value for the first k, for the others about that.
        """
        k = self._asked(k)
        if self.V.subspace is not None:
            turn, sigma = self._of_sketch()
            return self.V.subspace[0].astype(np.float64) @ turn[:k].T, sigma[:k] ** 2
        with self.V.own_threads():
            vectors, values = self._left_vectors(k, tol)
        return vectors, np.maximum(values, 0.0)

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
            # V'X is tall and thin; its singular values do not suffer from the square in VV'.
            if V.subspace is not None:
                X, B = V.subspace[0].astype(np.float64), V.subspace[1]
                turn, sigma = self._of_sketch()
            else:
                X, B, turn, sigma = self._refined(k, tol)
            turn = _canonical(X, sigma, turn)[:k]
            sigma = sigma[:k]
            turn *= _signs(X @ turn.T)[:, None]
            right = _right_vectors(V, B, turn, sigma)
        return X @ turn.T, sigma, right.T

    def _refined(self, k: int, tol: float) -> tuple[Array, Aligned, Array, Array]:
        """X (F, m), B = V'X, and turn, sigma of the singular value decomposition of B.

        Squares lose digits of small singular values, and of their vectors. What V makes of the
        right vectors has not lost them, so it replaces X as long as that helps.
        """
        V, count = self.V, self._whole_clusters(k, tol)
        X = self._left_vectors(count, tol)[0][:, :count]
        for left in reversed(range(_MAX_REFINEMENTS)):
            B, triangle = V.sweep(_project, X=X, reduce=_stack)
            _, sigma, turn = np.linalg.svd(triangle)
            if left == 0 or sigma[-1] >= _SAFE_SHARE * sigma[0]:
                break
            right = _right_vectors(V, B, turn, sigma)
            (image,) = V.sweep(_combine, right)
            residuals = np.linalg.norm(image - X @ turn.T * sigma, axis=0)
            if residuals.max() <= tol * sigma[0]:
                break
            X = _completed(image, X @ turn.T)
        return X, B, turn, sigma

    def _left_vectors(self, k: int, tol: float) -> tuple[Array, Array]:
        """At least k leading eigenvectors of VV' (F, m), and their eigenvalues."""
        gram, size = self._held_gram(k), self._block_size(k)
        if gram is None:
            leading = self._leading(size if self._forms_gram(k) else k, tol)
            return leading.vectors, leading.values
        leading = self._from_held(gram, k, tol)
        return gram.features(leading.vectors[:, :size]), leading.values[:size]

    def _asked(self, k: int) -> int:
        k, largest_k = integer("k", k), min(self.V.depth, self.V.shape[1])
        if not 1 <= k <= largest_k:
            raise ComponentsError(
                f"a {self.V.shape[1]} x {self.V.depth} matrix has {largest_k} singular values, "
                f"not the {k} asked for: ask for 1 to {largest_k}"
            )
        return k

    def _leading(self, k: int, tol: float, *, rough: bool = False, vectors: bool = True) -> Leading:
        """The leading eigenpairs of VV', or of V'V for data in memory.

        A Gram matrix may leave out the vectors.
        """
        V = self.V
        with V.own_threads():
            if self._forms_gram(k):
                return self._from_gram(k, vectors)
            gram = self._held_gram(k)
            if gram is not None:
                return self._from_held(gram, k, tol)
            request = (k, tol, rough)
            if request not in self._of_subspace:
                start = self._start
                if start is None:
                    shape = (V.shape[0], self._block_size(k))
                    start = _image(V, np.random.default_rng(0).standard_normal(shape))
                self._of_subspace[request] = davidson(
                    partial(_image, V), k, start, tol, rough=rough
                )
        return self._of_subspace[request]

    def _held_gram(self, k: int) -> HeldGram | None:
        """VV' or V'V, not formed, of data in memory; None if another way serves k vectors."""
        if self._forms_gram(k) or self.V.subspace is not None or not _HAS_SEED:
            return None
        if self._kept is not None:
            return self._kept
        rows = self.V.held_rows(_MAX_DENSE_ENTRIES)
        gram = None if rows is None else HeldGram(self.V, rows.astype(np.float64, copy=False))
        if self._start is not None:
            self._kept = gram  # of a matrix that lives no longer than this object
        return gram

    def _from_held(self, gram: HeldGram, k: int, tol: float) -> Leading:
        """The leading eigenpairs of VV' or V'V, whichever is smaller, of data in memory.

        Those from a start are as accurate as was asked for, all others more than that.
        """
        known, known_tol, leading = self._of_held or (0, 0.0, None)
        if leading is not None and known >= k and known_tol <= tol:
            return leading
        if self._start is None:
            tol, leading = 0.0, gram.leading(k)
        else:
            start = gram.from_features(self._start) if leading is None else leading.vectors
            leading = davidson(gram.apply, k, start, tol)
        self._of_held = (k, tol, leading)
        return leading

    def _of_sketch(self) -> tuple[Array, Array]:
        """The singular value decomposition of the coordinates of a sketch: turn and sigma."""
        assert self.V.subspace is not None
        if self._sketched is None:
            (triangle,) = self.V.map(_only_triangle, self.V.subspace[1], reduce=_stack)
            _, sigma, turn = np.linalg.svd(triangle)
            self._sketched = turn, sigma
        return self._sketched

    def _block_size(self, k: int) -> int:
        """How many vectors to iterate on for k: more speed up convergence."""
        return min(k + max(8, k // 4), *self.V.shape)

    def _forms_gram(self, k: int) -> bool:
        limit = max(_MAX_GRAM_SIDE, _GRAM_SIDE_PER_VECTOR * self._block_size(k))
        return min(self.V.shape) <= limit

    def _whole_clusters(self, k: int, tol: float) -> int:
        """How many vectors there are up to the last whose singular value equals the k-th.

        Known if all are; otherwise, if so many more are equal that it would cost much, k.
        """
        smaller = min(self.V.shape)
        asked = smaller if self._forms_gram(k) else k
        while True:
            values = self._leading(asked, tol, vectors=False).values
            limit = values[k - 1] * (1.0 - 2 * _EQUAL_SHARE)
            if limit <= np.finfo(np.float64).eps * values[0] * values.size:
                return k
            count = int(np.count_nonzero(values >= limit))
            if count <= asked:
                return count
            if asked > k or self._forms_gram(2 * count):
                return k
            asked = 2 * count

    def _from_gram(self, k: int, vectors: bool) -> Leading:
        """The leading eigenpairs of VV', from all those of VV' or V'V."""
        V, swept = self.V, swept_side(*self.V.shape)
        if self._of_gram is None:
            gram = gram_of_features(V) if swept == "samples" else gram_of_samples(V)
            self._of_gram = np.linalg.eigh(gram)
        values, columns = (part[..., : -k - 1 : -1] for part in self._of_gram)
        if vectors and swept == "features":
            columns = np.linalg.qr(V.sweep(_combine, columns)[0])[0]
        return Leading(columns, values, None)

    def _bound_energy(self, k: int, tol: float) -> EnergyBound:
        V = self.V
        gram = self._held_gram(k)
        leading = self._leading(k, tol, vectors=False)
        apply: Apply = partial(_image, V)
        n_starts = _STARTS_BY_PASSES
        if gram is not None:
            apply, n_starts = gram.apply, _STARTS_IN_MEMORY
            if self._start is None:
                leading = gram.extended(leading, k, self._block_size(k) - k, _EXTRA_TOL)
        values = np.maximum(leading.values, 0.0)
        rounding = 10 * k * min(V.shape) * np.finfo(np.float64).eps * float(values[0])
        if leading.images is None:
            return EnergyBound(float(values[:k].sum()) + rounding, 0.0)
        return subspace_energy(
            leading.vectors,
            values,
            leading.images,
            k,
            V.total,
            rounding,
            apply,
            n_starts=n_starts,
        )


# --- the block method, for data that are read in passes ---------------------------------------


class Leading(NamedTuple):
    """Leading eigenvectors X (n, m) of A, their eigenvalues, and A X if it was computed.

    There may be more than were asked for; those in excess are less accurate.
    """

    vectors: Array
    values: Array
    images: Array | None


def davidson(apply: Apply, k: int, start: Array, tol: float, *, rough: bool = False) -> Leading:
    """The k leading eigenpairs of A by the block Davidson method; A is applied once per step.

    Rayleigh and Ritz's eigenvectors on a subspace, which grows by the residuals of `size` of them
    and is cut back to these vectors when it is four times as large (Davidson, "The iterative
    calculation of a few of the lowest eigenvalues", J. Comput. Phys. 17, 1975; in blocks: Liu,
    1978; without a preconditioner, as A is never formed).
    """
    basis, size = np.linalg.qr(start)[0], start.shape[1]
    image = apply(basis)
    before = np.zeros(k)
    for step in range(_MAX_STEPS):
        values, mix = np.linalg.eigh(basis.T @ image)
        values, mix = values[: -size - 1 : -1], mix[:, : -size - 1 : -1]
        X, AX = basis @ mix, image @ mix
        R = AX - X * values
        residuals = np.linalg.norm(R[:, :k], axis=0)
        relevant = np.maximum(values[:k], _SMALLEST_SHARE * values[0])
        if np.all(residuals <= np.maximum(tol * relevant, _RESIDUAL_ROUNDING * values[0])):
            break
        steady = np.all(values[:k] - before <= _ROUGH_TOL * relevant)
        if rough and (step == _MAX_ROUGH_STEPS or steady):
            break
        before = values[:k]
        if basis.shape[1] + size > 4 * size:
            basis, image = X, AX
        new = _new_directions(basis, R)
        if new.shape[1] == 0:
            break
        basis = np.hstack([basis, new])
        image = np.hstack([image, apply(new)])
    return Leading(X, values, AX)


def _new_directions(basis: Array, R: Array) -> Array:
    """Orthonormal basis of what R adds to the span of `basis`."""
    scale = np.linalg.norm(R, axis=0)
    R = R[:, scale > 0] / scale[scale > 0]
    for _ in range(2):
        R = R - basis @ (basis.T @ R)
        orthonormal, triangle = np.linalg.qr(R)
        R = orthonormal[:, np.abs(np.diagonal(triangle)) > 1e-10]
    return R


# --- ARPACK, for data in memory ---------------------------------------------------------------


class HeldGram:
    """VV' if V has at least as many samples as features, else V'V; never formed.

    ARPACK runs on the shorter side of V, through ``scipy.sparse.linalg.eigsh``. PROPACK, by
    ``svds``, was slower on all text that was measured: it orthogonalises on both sides. It also
    raises an error for data of low rank.

    Two things are added. Started from one vector, Lanczos's method does not see how often an
    eigenvalue occurs. So a few of its steps are made on the space orthogonal to what was found: an
    eigenvalue that was missed is seen there, and the block method then completes the set. The same
    steps give rough values for what comes after the last vector asked for. And ARPACK draws random
    vectors where V has a low rank. They come from a fixed seed, which SciPy allows from version
    1.17 on; with an older SciPy the block method is used for all data.

    Attributes
    ----------
    size : int
        Of its side.
    is_of_samples : bool
        Whether it is V'V.
    """

    def __init__(self, V: DataMatrix, rows: Any) -> None:
        self._V, self._rows, self._columns = V, rows, rows.T
        self.is_of_samples = V.shape[1] < V.shape[0]
        self.size = min(V.shape)

    def apply(self, X: Array) -> Array:
        """Return its product with X (size,) or (size, m)."""
        self._V._count(1.0)
        if self.is_of_samples:
            return np.asarray(self._rows @ (self._columns @ X))
        return np.asarray(self._columns @ (self._rows @ X))

    def features(self, X: Array) -> Array:
        """Return the eigenvectors of VV' (F, m) that belong to eigenvectors X."""
        if not self.is_of_samples:
            return X
        self._V._count(1.0)
        return orthonormal(self._columns @ X)

    def from_features(self, U: Array) -> Array:
        """Return vectors of this side that span what V makes of U (F, m)."""
        if not self.is_of_samples:
            return U
        self._V._count(1.0)
        return np.asarray(self._rows @ U)

    def leading(self, k: int) -> Leading:
        """Return the k leading eigenpairs, and rougher ones after them.

        ||A x - value x|| <= 1e-10 value for the first k, as far as rounding allows.
        """
        found = self._beyond(self._eigenvectors(k, _ARPACK_TOL), _STEPS_BEYOND)
        assert found.images is not None
        residuals = np.linalg.norm(found.images - found.vectors * found.values, axis=0)[:k]
        limit = np.maximum(10 * _ARPACK_TOL * found.values[:k], _ROUNDING * found.values[0])
        if np.all(residuals <= limit):
            return found
        size = min(k + _BLOCK_BEYOND, self.size)
        random = np.random.default_rng(_SEED).standard_normal((self.size, size))
        start = np.hstack([found.vectors, random])[:, :size]  # if ARPACK has found too few
        return self._beyond(davidson(self.apply, k, start, _ARPACK_TOL).vectors, 0)

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
            start = orthogonal_part(start, known)
            apply = on_complement(self.apply, known)
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
        return np.linalg.qr(vectors)[0]

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


# --- vectors that depend on V alone, whatever rounding does -----------------------------------


def _right_vectors(V: DataMatrix, B: Aligned, turn: Array, sigma: Array) -> Aligned:
    """B turn' / sigma. Those of small singular values are made orthogonal to those before them.

    The rounding of B, which is relative to the largest, is large beside the smallest.
    """
    right, _ = V.map(_product_beside, B, right=turn.T * _inverses_of_known(sigma))
    if sigma[-1] >= _SAFE_SHARE * sigma[0]:
        return right
    for _ in range(2):
        (gram,) = V.map(_gram_beside, right)
        is_zero = np.diagonal(gram) == 0
        shift = is_zero + 4 * len(gram) * np.finfo(np.float64).eps
        upper = np.linalg.cholesky(gram + np.diag(shift)).T
        right, _ = V.map(_product_beside, right, right=np.linalg.inv(upper))
    return right


def _completed(image: Array, X: Array) -> Array:
    """Orthonormal vectors that span the columns of an image; where it is zero, those of X."""
    norms = np.linalg.norm(image, axis=0)
    is_known = norms > np.finfo(np.float64).eps * norms.max()
    return np.linalg.qr(np.where(is_known, image, X * norms.max()))[0]


def _inverses_of_known(sigma: Array) -> Array:
    """1 / sigma. Of a singular value that is rounding, the vector is too: it stays zero."""
    is_known = sigma > np.finfo(np.float64).eps * sigma[0]
    return np.divide(1.0, sigma, out=np.zeros_like(sigma), where=is_known)


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
            norms = np.linalg.norm(rows, axis=1)
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


def _project(block: Block, *, X: Array) -> tuple[Array, Array]:
    """V'X, and the triangle of its QR decomposition, which has the same singular values."""
    B = products(exact(block), X)
    return B, _triangle(B)


def _only_triangle(index: range, B: Array) -> tuple[Array]:
    """The triangle of the QR decomposition of what is beside the samples."""
    return (_triangle(B.astype(np.float64)),)


def _stack(a: Array, b: Array) -> Array:
    """The triangle of two stacked ones."""
    return _triangle(np.vstack([a, b]))


def _triangle(B: Array) -> Array:
    n_zero_rows = max(B.shape[1] - B.shape[0], 0)  # which make it square
    triangle: Any = np.linalg.qr(np.pad(B, ((0, n_zero_rows), (0, 0))), mode="r")
    return np.asarray(triangle)


def _product_beside(index: range, B: Array, *, right: Array) -> tuple[Array, None]:
    """What is beside the samples times a small matrix."""
    return B @ right, None


def _gram_beside(index: range, B: Array) -> tuple[Array]:
    return (B.T @ B,)


def _combine(block: Block, coefficients: Array) -> tuple[Array]:
    """Sums of samples, weighted by what is beside them."""
    return (weighted_sums(exact(block), coefficients),)


def _image(V: DataMatrix, X: Array) -> Array:
    """VV'X; one pass."""
    return np.asarray(V.sweep(_apply, X=X)[0])


def _apply(block: Block, *, X: Array) -> tuple[Array]:
    block = exact(block)
    return (weighted_sums(block, products(block, X)),)


def gram_of_features(V: DataMatrix) -> Array:
    """VV' (F, F), F small; one pass."""
    return np.asarray(V.sweep(_gram)[0])


def _gram(block: Block) -> tuple[Array]:
    return (feature_gram(block),)


def gram_of_samples(V: DataMatrix) -> Array:
    """V'V (N, N), N small; a pass for each batch of samples."""
    N = V.shape[1]
    size = min(_GATHERED_SAMPLES, V.max_gather)
    batches = [np.arange(n, min(n + size, N)) for n in range(0, N, size)]
    return np.hstack([np.asarray(V.sweep(_cross, other=V.columns(batch))[0]) for batch in batches])


def _cross(block: Block, *, other: Block) -> tuple[Array, None]:
    return cross_products(block, other), None
