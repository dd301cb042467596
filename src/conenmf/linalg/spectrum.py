"""Leading singular values and vectors of V, through the data layer.

They are computed from the eigenvectors of VV' or V'V, which are sums over the samples: formed as a
whole if one side of V is small, otherwise applied to a growing subspace (block Davidson, see
`_davidson`). SciPy's `eigsh` and `lobpcg` are not used because they read V more often: what counts
here is the number of passes. V is never densified.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..arguments import array, flag, instance, integer, number, optional
from ..data.blocks import Array, Block, cross_products, exact, feature_gram, products, weighted_sums
from ..data.borders import swept_side
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import require_data_matrix
from ..errors import ComponentsError, OptionError
from .energy import EnergyBound, subspace_energy

__all__ = ["Spectrum"]

_MAX_GRAM_SIDE = 500  # side of V up to which its Gram matrix is formed for any k
_GRAM_SIDE_PER_VECTOR = 16  # ... and side per vector up to which forming it is cheaper
_MAX_STEPS = 100
_MAX_ROUGH_STEPS = 15
_ROUGH_TOL = 1e-4  # of an eigenvalue, relative, in a step
_EQUAL_SHARE = 1e-7  # share by which singular values that count as equal may differ
_TIE_SHARE = 1e-9  # ... and entries of vectors
_ENERGY_TOL = 1e-4  # of the vectors from which the energy is bounded; squared in the bound
_GATHERED_SAMPLES = 256  # whose products with all others are formed at a time


class _Leading(NamedTuple):
    """Leading eigenvectors X (F, m) of VV', their eigenvalues, and VV'X if it was computed.

    Of a subspace m is larger than asked for; the vectors in excess are less accurate.
    """

    vectors: Array
    values: Array
    images: Array | None


class Spectrum:
    """The leading singular values and vectors of one V; nothing is computed twice.

    One object serves a whole fit: the choice of K, the initialisation and the certificate. What
    VV' has yielded is remembered, so that the same request does not read V again, and gives the
    same bits as a request of its own. If a side of V is small, one pass serves all requests.

    Parameters
    ----------
    V : DataMatrix (F, N)
    form_gram : bool, optional
        Whether to form VV' or V'V, the smaller of the two; by default if that is cheaper.
    start : array (F, m), optional
        A subspace near the leading one, to begin with instead of a random one.

    Examples
    --------
    >>> from conenmf import from_columns
    >>> spectrum = Spectrum(from_columns([[3.0, 0.0, 4.0], [0.0, 2.0, 0.0]]))
    >>> spectrum.singular_values(2)
    array([5., 2.])
    """

    def __init__(
        self, V: DataMatrix, *, form_gram: bool | None = None, start: Array | None = None
    ) -> None:
        require_data_matrix(V)
        self.V = V
        self._form_gram = optional(flag, "form_gram", form_gram)
        self._start = optional(array, "start", start, (V.shape[0], "m"))
        self._of_gram: dict[bool, tuple[Array, Array]] = {}
        self._of_subspace: dict[tuple[int, float, bool, bool], _Leading] = {}
        self._energy: dict[int, EnergyBound] = {}

    @classmethod
    def of(cls, V: DataMatrix, spectrum: Spectrum | None) -> Spectrum:
        """Return the spectrum given, which must be that of V, or a new one if there is none."""
        if spectrum is None:
            return cls(V)
        if instance("spectrum", spectrum, Spectrum, "Spectrum(V)").V is not V:
            raise OptionError("spectrum belongs to another matrix: pass Spectrum(V) of this one")
        return spectrum

    def singular_values(
        self, k: int, *, normalize: bool = False, rough: bool = False, tol: float = 1e-5
    ) -> Array:
        """Return the k largest singular values of V, or of V with samples of unit norm.

        With `rough`, stop when their squares change by less than 1e-4 of themselves from step to
        step, or after 15 steps: enough to compare them, and much sooner than `tol`, a limit for
        the vectors, if they hardly differ.
        """
        k, tol = self._asked(k, tol)
        rough, normalize = flag("rough", rough), flag("normalize", normalize)
        values = self._leading(k, tol, rough=rough, normalize=normalize, vectors=False).values
        return np.sqrt(np.maximum(values[:k], 0.0))

    def largest_share(self, k: int) -> float:
        """Bound the share that k components explain from above: `energy_bound` / ||V||^2."""
        return self.energy_bound(k).value / self.V.total

    def energy_bound(self, k: int) -> EnergyBound:
        """Bound sum_{j <= k} sigma_j^2 from above, rounding included.

        From a Gram matrix it always holds; from a subspace, but for the probability that comes
        with it: see `linalg.energy`.
        """
        require_data_matrix(self.V, whole=True)
        k, _ = self._asked(k)
        if k not in self._energy:
            self._energy[k] = self._bound_energy(k)
        return self._energy[k]

    def leading_subspace(self, k: int, *, tol: float = _ENERGY_TOL) -> tuple[Array, Array]:
        """Return k or a few more vectors X (F, m) and values (m,), leading for VV'.

        ||VV'x - value x|| <= tol * value for the first k, for the others about that.
        """
        k, tol = self._asked(k, tol)
        size = self._block_size(k)
        leading = self._leading(size if self._forms_gram(k) else k, tol)
        return leading.vectors, np.maximum(leading.values, 0.0)

    def truncated_svd(self, k: int, *, tol: float = 1e-5) -> tuple[Array, Array, Aligned]:
        """Return U (F, k), sigma (k,) and R (k, N), the leading part of V = U diag(sigma) R.

        R, which has a row for each sample, is not remembered: to have it again takes one pass.

        Parameters
        ----------
        k : int
            At most min(F, N), or the rank of a sketch.
        tol : float
            ||VV'u - sigma^2 u|| <= tol * sigma^2 for each vector u found on a subspace.
        """
        V = self.V
        k, tol = self._asked(k, tol)
        with V.own_threads():
            # V'X is tall and thin; its singular values do not suffer from the square in VV'.
            if V.subspace is not None:
                X, B = V.subspace[0].astype(np.float64), V.subspace[1]
                (triangle,) = V.map(_only_triangle, B, reduce=_stack)
            else:
                count = self._whole_clusters(k)
                X = self._leading(count, tol).vectors[:, :count]
                B, triangle = V.sweep(_project, X=X, reduce=_stack)
            _, sigma, turn = np.linalg.svd(triangle)
            turn = _canonical(X, sigma, turn)[:k]
            sigma = sigma[:k]
            turn *= _signs(X @ turn.T)[:, None]
            # Of a singular value that is rounding, the vector is too: it stays zero.
            is_known = sigma > np.finfo(np.float64).eps * sigma[0]
            scale = np.divide(1.0, sigma, out=np.zeros_like(sigma), where=is_known)
            right, _ = V.map(_product, B, right=turn.T * scale)
        return X @ turn.T, sigma, right.T

    def _asked(self, k: int, tol: float = 0.0) -> tuple[int, float]:
        """Check what a caller asks for."""
        k, largest_k = integer("k", k), min(self.V.depth, self.V.shape[1])
        if not 1 <= k <= largest_k:
            raise ComponentsError(
                f"a {self.V.shape[1]} x {self.V.depth} matrix has {largest_k} singular values, "
                f"not the {k} asked for: ask for 1 to {largest_k}"
            )
        return k, number("tol", tol, at_least=0)

    def _leading(
        self,
        k: int,
        tol: float,
        *,
        rough: bool = False,
        normalize: bool = False,
        vectors: bool = True,
    ) -> _Leading:
        """The leading eigenpairs of VV'; a Gram matrix may leave out the vectors."""
        V, size = self.V, self._block_size(k)
        with V.own_threads():
            if self._forms_gram(k):
                return self._from_gram(k, normalize, vectors)
            request = (k, tol, rough, normalize)
            if request not in self._of_subspace:
                aligned = (V.norms_squared,) if normalize else ()
                start = _random_start(V, size, aligned) if self._start is None else self._start
                self._of_subspace[request] = _davidson(V, k, start, tol, aligned, rough=rough)
        return self._of_subspace[request]

    def _block_size(self, k: int) -> int:
        """How many vectors to iterate on for k: more speed up convergence."""
        return min(k + max(8, k // 4), *self.V.shape)

    def _forms_gram(self, k: int) -> bool:
        limit = max(_MAX_GRAM_SIDE, _GRAM_SIDE_PER_VECTOR * self._block_size(k))
        return min(self.V.shape) <= limit if self._form_gram is None else self._form_gram

    def _whole_clusters(self, k: int) -> int:
        """How many vectors there are up to the last whose singular value equals the k-th.

        Known if all are; otherwise k.
        """
        if not self._forms_gram(k):
            return k
        values = self._leading(min(self.V.shape), 0.0, vectors=False).values
        limit = values[k - 1] * (1.0 - 2 * _EQUAL_SHARE)
        is_zero = limit <= np.finfo(np.float64).eps * values[0] * values.size
        return k if is_zero else int(np.count_nonzero(values >= limit))

    def _from_gram(self, k: int, normalize: bool, vectors: bool) -> _Leading:
        """The leading eigenpairs of VV', from all those of VV' or V'V."""
        V = self.V
        F, N = V.shape
        swept = swept_side(F, N)
        if normalize not in self._of_gram:
            gram = _feature_gram if swept == "samples" else _sample_gram
            self._of_gram[normalize] = np.linalg.eigh(gram(V, normalize))
        values, columns = (part[..., : -k - 1 : -1] for part in self._of_gram[normalize])
        if vectors and swept == "features":
            scale = _scale(V, normalize)[:, None]
            columns = np.linalg.qr(V.sweep(_combine, scale * columns)[0])[0]
        return _Leading(columns, values, None)

    def _bound_energy(self, k: int) -> EnergyBound:
        V = self.V
        leading = self._leading(k, _ENERGY_TOL, vectors=False)
        values, images = np.maximum(leading.values, 0.0), leading.images
        rounding = 10 * k * min(V.shape) * np.finfo(np.float64).eps * float(values[0])
        if images is None:
            return EnergyBound(float(values[:k].sum()) + rounding, 0.0)
        apply = partial(_image, V)
        with V.own_threads():
            energy = subspace_energy(leading.vectors, values, images, k, V.total, rounding, apply)
        return energy


def _image(V: DataMatrix, X: Array) -> Array:
    """VV'X; one pass."""
    return np.asarray(V.sweep(_apply, X=X)[0])


def _canonical(X: Array, sigma: Array, turn: Array) -> Array:
    """Turn the vectors X turn' of equal singular values into a basis that depends on V alone.

    Any rotation among them is as good, so rounding would choose one. The basis here has as its
    first vector the projection of a feature onto their span, that of the feature which lies closest
    to it; what is left of the span is treated likewise. Ties go to the first feature.
    """
    turn = turn.copy()
    first = np.flatnonzero(np.append(True, sigma[1:] < sigma[:-1] * (1.0 - _EQUAL_SHARE)))
    for start, stop in pairwise([*first.tolist(), sigma.size]):
        rows = X @ turn[start:stop].T if stop - start > 1 and sigma[start] > 0 else X[:, :0]
        rotation = np.empty((rows.shape[1], rows.shape[1]))
        for i in range(len(rotation)):
            norms = np.linalg.norm(rows, axis=1)
            nearest = int(np.argmax(norms >= norms.max() * (1.0 - _TIE_SHARE)))
            rotation[i] = rows[nearest] / norms[nearest]
            rows = rows - np.outer(rows @ rotation[i], rotation[i])
        if len(rotation):
            turn[start:stop] = rotation @ turn[start:stop]
    return turn


def _signs(U: Array) -> Array:
    """Signs that make the largest entry of each column positive, the first one if several are."""
    size = np.abs(U)
    leading = (size >= size.max(axis=0) * (1 - _TIE_SHARE)).argmax(axis=0)
    signs: Array = np.where(np.take_along_axis(U, leading[None], axis=0)[0] < 0, -1.0, 1.0)
    return signs


def _project(block: Block, *, X: Array) -> tuple[Array, Array]:
    """V'X, and the triangle of its QR decomposition, which has the same singular values."""
    B = products(exact(block), X)
    return B, _triangle(B)


def _only_triangle(index: range, B: Array) -> tuple[Array]:
    return (_triangle(B.astype(np.float64)),)


def _stack(a: Array, b: Array) -> Array:
    return _triangle(np.vstack([a, b]))


def _triangle(B: Array) -> Array:
    n_zero_rows = max(B.shape[1] - B.shape[0], 0)  # which make it square
    triangle: Any = np.linalg.qr(np.pad(B, ((0, n_zero_rows), (0, 0))), mode="r")
    return np.asarray(triangle)


def _product(index: range, B: Array, *, right: Array) -> tuple[Array, None]:
    return B @ right, None


def _inverses(squared: Array) -> Array:
    """1 / ||v||^2, by which samples of unit norm are weighted; 0 for zero samples."""
    return np.divide(1.0, squared, out=np.zeros_like(squared), where=squared > 0)


def _gram(block: Block, squared: Array | None = None) -> tuple[Array]:
    return (feature_gram(block, None if squared is None else _inverses(squared)),)


def _cross(block: Block, *, other: Block) -> tuple[Array, None]:
    return cross_products(block, other), None


def _combine(block: Block, coefficients: Array) -> tuple[Array]:
    return (weighted_sums(exact(block), coefficients),)


def _apply(block: Block, squared: Array | None = None, *, X: Array) -> tuple[Array]:
    """VV'X, or the same for samples of unit norm."""
    block = exact(block)
    C = products(block, X)
    return (weighted_sums(block, C if squared is None else C * _inverses(squared)[:, None]),)


def _feature_gram(V: DataMatrix, normalize: bool) -> Array:
    """VV' (F, F), F small; one pass."""
    A: Array = V.sweep(_gram, *((V.norms_squared,) if normalize else ()))[0]
    return A


def _sample_gram(V: DataMatrix, normalize: bool) -> Array:
    """V'V (N, N), N small, which has the same eigenvalues; a pass for each batch of samples."""
    N = V.shape[1]
    size = min(_GATHERED_SAMPLES, V.max_gather)
    batches = [np.arange(n, min(n + size, N)) for n in range(0, N, size)]
    A = np.hstack([np.asarray(V.sweep(_cross, other=V.columns(batch))[0]) for batch in batches])
    scale = _scale(V, normalize)
    scaled: Array = scale[:, None] * A * scale
    return scaled


def _scale(V: DataMatrix, normalize: bool) -> Array:
    """What each sample is multiplied by: 1, or the inverse of its norm."""
    if not normalize:
        return np.ones(V.shape[1])
    return np.sqrt(_inverses(np.asarray(V.norms_squared)))


def _random_start(V: DataMatrix, size: int, aligned: tuple[Aligned, ...]) -> Array:
    """What VV' makes of random vectors; one pass."""
    start = np.random.default_rng(0).standard_normal((V.shape[0], size))
    return np.asarray(V.sweep(_apply, *aligned, X=start)[0])


def _davidson(
    V: DataMatrix, k: int, start: Array, tol: float, aligned: tuple[Aligned, ...], *, rough: bool
) -> _Leading:
    """The k leading eigenpairs of A = VV' by the block Davidson method; one pass per step.

    Rayleigh and Ritz's eigenvectors on a subspace, which grows by the residuals of `size` of them
    and is cut back to these vectors when it is four times as large (Davidson, "The iterative
    calculation of a few of the lowest eigenvalues", J. Comput. Phys. 17, 1975; in blocks: Liu,
    1978; without a preconditioner, as VV' is never formed).
    """
    basis, size = np.linalg.qr(start)[0], start.shape[1]
    (image,) = V.sweep(_apply, *aligned, X=basis)
    before = np.zeros(k)
    for step in range(_MAX_STEPS):
        values, mix = np.linalg.eigh(basis.T @ image)
        values, mix = values[: -size - 1 : -1], mix[:, : -size - 1 : -1]
        X, AX = basis @ mix, image @ mix
        R = AX - X * values
        residuals = np.linalg.norm(R[:, :k], axis=0)
        relevant = np.maximum(values[:k], 1e-9 * values[0])
        if np.all(residuals <= tol * relevant):
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
        image = np.hstack([image, V.sweep(_apply, *aligned, X=new)[0]])
    return _Leading(X, values, AX)


def _new_directions(basis: Array, R: Array) -> Array:
    """Orthonormal basis of what R adds to the span of `basis`."""
    scale = np.linalg.norm(R, axis=0)
    R = R[:, scale > 0] / scale[scale > 0]
    for _ in range(2):
        R = R - basis @ (basis.T @ R)
        orthonormal, triangle = np.linalg.qr(R)
        R = orthonormal[:, np.abs(np.diagonal(triangle)) > 1e-10]
    return R
