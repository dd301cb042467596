"""Leading singular values and vectors of V, through the data layer.

They are computed from the eigenvectors of VV' or V'V. If one side of V is small, the smaller of the
two is formed as a whole. Otherwise it is only applied to vectors: for data in memory to one after
the other, by ARPACK (`held`), elsewhere to many at once (`davidson`), since there the number of
passes counts. V is never densified.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ..arguments import array, flag, instance, integer, number, optional
from ..data.blocks import Array
from ..data.borders import swept_side
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import require_data_matrix
from ..errors import ComponentsError, OptionError
from .davidson import Leading, davidson
from .energy import EnergyBound, subspace_energy
from .held import HeldGram, hold_gram
from .passes import (
    combine,
    gram_of_features,
    gram_of_samples,
    image_of,
    only_triangle,
    project,
    random_start,
    sample_scale,
    stack,
)
from .vectors import EQUAL_SHARE, SAFE_SHARE, canonical, completed, right_vectors, signs

__all__ = ["VECTOR_TOL", "Spectrum"]

_MAX_GRAM_SIDE = 500  # side of V up to which its Gram matrix is formed for any k
_GRAM_SIDE_PER_VECTOR = 16  # ... and side per vector up to which forming it is cheaper
_ENERGY_TOL = 1e-4  # of the vectors from which the energy is bounded; squared in the bound
_EXTRA_TOL = 1e-2  # ... and of those beyond the k-th, for data in memory
VECTOR_TOL = 1e-10
"""Residual of the singular vectors that a start uses, of sigma_1: it is the same everywhere."""
_MAX_REFINEMENTS = 8
_STARTS_BY_PASSES, _STARTS_IN_MEMORY = 8, 3  # random vectors: a pass is read for all of them


class Spectrum:
    """The leading singular values and vectors of one V; nothing is computed twice.

    One object serves a whole fit: the choice of K, the initialisation and the certificate. What
    VV' has yielded is remembered, so that the same request does not read V again, and gives the
    same bits as a request of its own; a request that what is known answers to rounding reads
    nothing either. If a side of V is small, one pass serves all requests.

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
        self._of_subspace: dict[tuple[int, float, bool, bool], Leading] = {}
        self._of_held: dict[bool, tuple[int, float, Leading]] = {}
        self._kept: HeldGram | None = None
        self._as_features: tuple[Leading, Array] | None = None
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
        if self.V.subspace is not None:
            return self._of_sketch()[1][:k]
        values = self._leading(k, tol, rough=rough, normalize=normalize, vectors=False).values
        return np.sqrt(np.maximum(values[:k], 0.0))

    def largest_share(self, k: int) -> float:
        """Bound the share that k components explain from above: `energy_bound` / ||V||^2."""
        return self.energy_bound(k).value / self.V.total

    def energy_bound(self, k: int, *, tol: float = _ENERGY_TOL) -> EnergyBound:
        """Bound sum_{j <= k} sigma_j^2 from above, rounding included.

        From a Gram matrix it always holds; from a subspace, but for the probability that comes
        with it: see `linalg.energy`. It is the closer, the smaller `tol`, as in `leading_subspace`.
        """
        require_data_matrix(self.V, whole=True)
        k, tol = self._asked(k, tol)
        if k not in self._energy:
            self._energy[k] = self._bound_energy(k, tol)
        return self._energy[k]

    def leading_subspace(self, k: int, *, tol: float = _ENERGY_TOL) -> tuple[Array, Array]:
        """Return k or a few more vectors X (F, m) and values (m,), leading for VV'.

        ||VV'x - value x|| <= tol * value for the first k, for the others about that.
        """
        k, tol = self._asked(k, tol)
        size = self._block_size(k)
        if self.V.subspace is not None:
            turn, sigma = self._of_sketch()
            return self.V.subspace[0].astype(np.float64) @ turn[:k].T, sigma[:k] ** 2
        with self.V.own_threads():
            gram = None if self._forms_gram(k) else self._held_gram()
            if gram is None:
                leading = self._leading(size if self._forms_gram(k) else k, tol)
                vectors, values = leading.vectors, leading.values
            else:
                values = self._from_held(gram, k, tol).values[:size]
                vectors = self._features(gram, k, tol, size)
        return vectors, np.maximum(values, 0.0)

    def truncated_svd(self, k: int, *, tol: float = VECTOR_TOL) -> tuple[Array, Array, Aligned]:
        """Return U (F, k), sigma (k,) and R (k, N), the leading part of V = U diag(sigma) R.

        Vectors have fixed signs, and those of equal singular values a fixed basis; so they are the
        same wherever V is kept. R, which has a row for each sample, is not remembered: to have it
        again takes one pass.

        Parameters
        ----------
        k : int
            At most min(F, N), or the rank of a sketch.
        tol : float
            ||V r - sigma u|| <= tol * sigma_1 for each pair of vectors, as far as rounding allows;
            V' u = sigma r to rounding.
        """
        V = self.V
        k, tol = self._asked(k, tol)
        with V.own_threads():
            # V'X is tall and thin; its singular values do not suffer from the square in VV'.
            if V.subspace is not None:
                X, B = V.subspace[0].astype(np.float64), V.subspace[1]
                turn, sigma = self._of_sketch()
            else:
                X, B, turn, sigma = self._refined(k, tol)
            turn = canonical(X, sigma, turn)[:k]
            sigma = sigma[:k]
            turn *= signs(X @ turn.T)[:, None]
            right = right_vectors(V, B, turn, sigma)
        return X @ turn.T, sigma, right.T

    def _refined(self, k: int, tol: float) -> tuple[Array, Aligned, Array, Array]:
        """X (F, m), B = V'X, and turn, sigma of the singular value decomposition of B.

        Squares lose digits of small singular values, and of their vectors. What V makes of the
        right vectors has not lost them, so it replaces X as long as that helps.
        """
        V, count = self.V, self._whole_clusters(k, tol)
        X = self._vectors(count, tol)
        for left in reversed(range(_MAX_REFINEMENTS)):
            B, triangle = V.sweep(project, X=X, reduce=stack)
            _, sigma, turn = np.linalg.svd(triangle)
            if left == 0 or sigma[min(k, sigma.size) - 1] >= SAFE_SHARE * sigma[0]:
                break
            right = right_vectors(V, B, turn, sigma)
            (image,) = V.sweep(combine, right)
            if np.linalg.norm(image - X @ turn.T * sigma, axis=0)[:k].max() <= tol * sigma[0]:
                break
            X = completed(image, X @ turn.T)
        return X, B, turn, sigma

    def _vectors(self, count: int, tol: float) -> Array:
        """Leading left singular vectors."""
        gram = None if self._forms_gram(count) else self._held_gram()
        if gram is None:
            return self._leading(count, tol).vectors[:, :count]
        return self._features(gram, count, tol, self._block_size(count))[:, :count]

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
    ) -> Leading:
        """The leading eigenpairs of VV', or of V'V for data in memory.

        A Gram matrix may leave out the vectors.
        """
        V, size = self.V, self._block_size(k)
        with V.own_threads():
            if self._forms_gram(k):
                return self._from_gram(k, normalize, vectors)
            gram = self._held_gram(normalize)
            if gram is not None:
                return self._from_held(gram, k, tol, normalize)
            request = (k, tol, rough, normalize)
            if request not in self._of_subspace:
                aligned = (V.norms_squared,) if normalize else ()
                start = random_start(V, size, aligned) if self._start is None else self._start
                apply = partial(image_of, V, aligned)
                self._of_subspace[request] = davidson(apply, k, start, tol, rough=rough)
        return self._of_subspace[request]

    def _held_gram(self, normalize: bool = False) -> HeldGram | None:
        """VV' or V'V, not formed, of data in memory, unless the way was chosen by the caller."""
        if self._form_gram is not None or self.V.subspace is not None:
            return None
        if self._kept is not None:
            return self._kept
        gram = hold_gram(self.V, sample_scale(self.V, True) if normalize else None)
        if self._start is not None and not normalize:
            self._kept = gram  # of a matrix that lives no longer than this object
        return gram

    def _from_held(self, gram: HeldGram, k: int, tol: float, normalize: bool = False) -> Leading:
        """The leading eigenpairs of VV' or V'V, whichever is smaller, of data in memory.

        Those from a start are as accurate as was asked for, all others more than that.
        """
        known, known_tol, leading = self._of_held.get(normalize, (0, 0.0, None))
        if leading is not None and known >= k and known_tol <= tol:
            return leading
        if self._start is None:
            tol, leading = 0.0, gram.leading(k)
        else:
            start = gram.from_features(self._start) if leading is None else leading.vectors
            leading = davidson(gram.apply, k, start, tol)
        self._of_held[normalize] = (k, tol, leading)
        return leading

    def _features(self, gram: HeldGram, k: int, tol: float, size: int) -> Array:
        """The eigenvectors of VV' that belong to those of data in memory, remembered."""
        leading = self._from_held(gram, k, tol)
        if self._as_features is None or self._as_features[0] is not leading:
            self._as_features = (leading, gram.features(leading.vectors[:, :size]))
        known = self._as_features[1]
        return known if known.shape[1] >= size else gram.features(leading.vectors[:, :size])

    def _of_sketch(self) -> tuple[Array, Array]:
        """The singular value decomposition of the coordinates of a sketch: turn and sigma."""
        assert self.V.subspace is not None
        if self._sketched is None:
            (triangle,) = self.V.map(only_triangle, self.V.subspace[1], reduce=stack)
            _, sigma, turn = np.linalg.svd(triangle)
            self._sketched = turn, sigma
        return self._sketched

    def _block_size(self, k: int) -> int:
        """How many vectors to iterate on for k: more speed up convergence."""
        return min(k + max(8, k // 4), *self.V.shape)

    def _forms_gram(self, k: int) -> bool:
        limit = max(_MAX_GRAM_SIDE, _GRAM_SIDE_PER_VECTOR * self._block_size(k))
        return min(self.V.shape) <= limit if self._form_gram is None else self._form_gram

    def _whole_clusters(self, k: int, tol: float) -> int:
        """How many vectors there are up to the last whose singular value equals the k-th.

        Known if all are; otherwise, if so many more are equal that it would cost much, k.
        """
        smaller = min(self.V.shape)
        asked = smaller if self._forms_gram(k) else k
        while True:
            values = self._leading(asked, tol, vectors=False).values
            limit = values[k - 1] * (1.0 - 2 * EQUAL_SHARE)
            if limit <= np.finfo(np.float64).eps * values[0] * values.size:
                return k
            count = int(np.count_nonzero(values >= limit))
            if count <= asked:
                return count
            if asked > k or self._forms_gram(2 * count):
                return k
            asked = 2 * count

    def _from_gram(self, k: int, normalize: bool, vectors: bool) -> Leading:
        """The leading eigenpairs of VV', from all those of VV' or V'V."""
        V = self.V
        F, N = V.shape
        swept = swept_side(F, N)
        if normalize not in self._of_gram:
            gram = gram_of_features if swept == "samples" else gram_of_samples
            self._of_gram[normalize] = np.linalg.eigh(gram(V, normalize))
        values, columns = (part[..., : -k - 1 : -1] for part in self._of_gram[normalize])
        if vectors and swept == "features":
            scale = sample_scale(V, normalize)[:, None]
            columns = np.linalg.qr(V.sweep(combine, scale * columns)[0])[0]
        return Leading(columns, values, None)

    def _bound_energy(self, k: int, tol: float) -> EnergyBound:
        V = self.V
        gram = None if self._forms_gram(k) else self._held_gram()
        leading = self._leading(k, tol, vectors=False)
        if gram is not None and self._start is None:
            with V.own_threads():
                extra = self._block_size(k) - k
                leading = gram.extended(leading, k, extra, _EXTRA_TOL)
        values, images = np.maximum(leading.values, 0.0), leading.images
        rounding = 10 * k * min(V.shape) * np.finfo(np.float64).eps * float(values[0])
        if images is None:
            return EnergyBound(float(values[:k].sum()) + rounding, 0.0)
        apply = partial(image_of, V, ()) if gram is None else gram.apply
        with V.own_threads():
            return subspace_energy(
                leading.vectors,
                values,
                images,
                k,
                V.total,
                rounding,
                apply,
                n_starts=_STARTS_BY_PASSES if gram is None else _STARTS_IN_MEMORY,
            )
