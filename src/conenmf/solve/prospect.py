"""What error K components may reach, according to the singular values of V.

No K components have an error below b, the square root of the share of ||V||^2 that the K leading
singular values leave (Eckart and Young). Here b is estimated: of dense data from a sketch, which is
cheap, of sparse ones from the singular vectors that inits need too. It referees the race of inits
and distinguishes a plateau from an end. `cones.certificate` computes the bound that a certificate
states.

Two questions are asked of an error e:

- *Is anything left to be gained?* Hardly, if e^2 - b^2 <= 0.001 b^2 (1 - b^2): the error is within
  0.05% of b, and the share of ||V||^2 that is explained within 0.1% of the largest. Near b = 1 the
  first would say nothing, near b = 0 the second.
- *Is it a plateau?* A large gap alone is no evidence: nonnegativity has its price. But if the K-th
  singular value stands out from the next one, the data are K components and noise, and then b is
  nearly reached from most inits. So an error that stalls well above b is taken for a plateau.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arguments import instance, optional
from ..data.matrix import DataMatrix
from ..data.sketch import Sketch, is_dense, sketch
from ..data.validate import checked_components, require_data_matrix
from ..linalg.spectrum import VECTOR_TOL, Spectrum

__all__ = ["Prospect", "prospect"]

_SMALL_SHARE = 1e-3  # of b^2 (1 - b^2), up to which a gap is not worth more work
_MIN_PLATEAU_RATIO = 1.05  # of an error to b, from which on it may be a plateau ...
_MIN_STANDOUT_RATIO = 1.3  # ... if the K-th singular value exceeds the next by this factor
_NEGLIGIBLE_ERROR = 1e-6  # up to which an error counts as none
_EXTRA_VECTORS = 8
_ROUNDINGS = 20  # by which each vector of a sketch may be off, in units of its type


class Prospect(NamedTuple):
    """What the singular values of V say about the error of K components.

    Attributes
    ----------
    lower_bound : float
        sqrt(1 - sum_{j <= K} sigma_j^2 / ||V||^2), estimated.
    standout : float
        sigma_K / sigma_{K+1}; infinite if there is no next one.
    proven : float
        A bound that is certain, and lower where V has more to it than a sketch, or than a few more
        than K vectors: for every X of rank K and every orthonormal Q, ||V - X|| >= ||Q'(V - X)||,
        which is at least what the K leading singular values of Q'V leave of it.
    """

    lower_bound: float
    standout: float
    proven: float = 0.0

    def is_reached(self, error: float) -> bool:
        """Whether no factorisation has an error that is worth more work."""
        b_squared = self.lower_bound**2
        return error**2 - b_squared <= _SMALL_SHARE * b_squared * (1 - b_squared)

    def is_plateau(self, error: float) -> bool:
        """Whether an error that hardly falls any more is probably not the end."""
        is_far = error > max(_MIN_PLATEAU_RATIO * self.lower_bound, _NEGLIGIBLE_ERROR)
        return is_far and self.standout > _MIN_STANDOUT_RATIO

    def gap(self, error: float) -> float:
        """The share of itself by which an error may fall: 1 - b / e."""
        return 1 - self.lower_bound / error if error > 0 else 0.0


def prospect(
    V: DataMatrix, K: int, S: Sketch | None = None, *, spectrum: Spectrum | None = None
) -> Prospect:
    """Return what the singular values say about K components.

    They are those of a sketch of rank above K, or of V itself if its spectrum is given. Without
    either, those of a sketch if V is dense, which takes four passes.

    >>> from conenmf import from_columns
    >>> found = prospect(from_columns(np.diag([4.0, 3.0, 0.5])), 2)
    >>> round(found.lower_bound, 4), round(found.standout, 4)
    (0.0995, 6.0)
    """
    require_data_matrix(V, nonzero=True)
    K = checked_components(K, V)
    optional(instance, "S", S, Sketch, "sketch(V, rank)")
    optional(instance, "spectrum", spectrum, Spectrum, "Spectrum(V)")
    if S is None and spectrum is None and is_dense(V):
        S = sketch(V, min(K + _EXTRA_VECTORS, *V.shape))
    if S is None:
        squares = Spectrum.of(V, spectrum).leading_subspace(K, tol=VECTOR_TOL)[1]
    else:
        squares = np.linalg.eigvalsh(S.gram())[::-1]
    squares, dtype = np.maximum(squares, 0.0), V.dtype if S is None else S.dtype
    explained, kept = float(squares[:K].sum()), float(squares[K:].sum())
    left = max(1.0 - explained / V.total, 0.0)
    proven = _certain(kept / V.total, squares.size, np.dtype(np.float64) if S is None else dtype)
    squares = np.maximum(squares, np.finfo(dtype).eps * squares[0])  # below is rounding
    standout = np.sqrt(squares[K - 1] / squares[K]) if squares.size > K else np.inf
    return Prospect(float(np.sqrt(left)), float(standout), proven)


def _certain(kept: float, rank: int, dtype: np.dtype[Any]) -> float:
    """The root of a share of ||V||^2, less what the rounding of Q, of Q'V and of sums may add."""
    of_gram, of_basis = (
        _ROUNDINGS * rank * float(np.finfo(kind).eps) for kind in (np.float64, dtype)
    )
    return max(float(np.sqrt(max(kept - of_gram, 0.0))) - of_basis, 0.0)
