"""Inits: the factors W (F, K) and H (K, N) that a solver begins with.

An init is a function ``(V, K, rng) -> (W, H)``; H may be None, which asks for the best H for W.
`INITS` gives each a name, and `initialize` looks one up, checks a user's own and prepares the
factors for a solver. The functions themselves are in `cone_inits`, `svd_inits`, `kmeans_inits` and
`column_inits`; `race` lets some of them compete, for "auto".
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..arguments import choice, function, generator, instance, optional
from ..data.blocks import Array, dense
from ..data.matrix import DataMatrix
from ..data.validate import checked_components, require_data_matrix
from ..errors import FactorError
from ..io.open import is_elsewhere
from ..linalg.spectrum import Spectrum
from ..names import in_order
from ..text import function_name, shown
from .coefficients import coefficients
from .column_inits import COLUMN_INITS
from .cone_inits import CONE_INITS, from_cones
from .initial import (
    Factors,
    Generator,
    InitFunction,
    InitialFactors,
    check_coefficients,
    check_factor,
    lift_zeros,
    random_coefficients,
)
from .kmeans_inits import CLUSTER_INITS
from .separable import snpa, spa
from .solvers import Solver
from .svd_inits import SVD_INITS

__all__ = ["INITS", "Init", "initialize", "users_own"]

Init: TypeAlias = str | InitFunction | npt.ArrayLike | tuple[Any, Any]


def initialize(
    V: DataMatrix,
    K: int,
    init: Init,
    solver: Solver | None,
    rng: Generator = None,
    *,
    spectrum: Spectrum | None = None,
) -> InitialFactors:
    """Return the factors from which a solver begins.

    Parameters
    ----------
    V : DataMatrix (F, N)
    K : int
    init : str, callable, array (F, K) or pair of arrays (F, K), (K, N)
        A name in `INITS`; a function ``(V, K, rng) -> (W, H or None)``; W alone, or W and H. The
        function always gets a generator: `rng`, or one that is seeded with 0.
    solver : Solver or None
        None asks for W alone. A solver that finds the best H for W at once gets None for it. If the
        solver asks for it, an H from cr1-nmf or from W alone is lifted off zero.
    rng : numpy.random.Generator, optional
        For the inits that draw; without it "cr1" begins at the sample of the largest norm, and
        the others use fresh entropy.
    spectrum : Spectrum, optional
        That of V, for the inits that need singular vectors; for "cr1-robust" also of a sketch.
    """
    require_data_matrix(V, holes=not isinstance(init, str))
    K, rng = checked_components(K, V), optional(generator, "rng", rng)
    optional(instance, "solver", solver, Solver, "get_solver")
    optional(instance, "spectrum", spectrum, Spectrum, "Spectrum(V)")
    if isinstance(init, str):
        initial = _named(V, K, init, rng, spectrum)
    else:
        initial = users_own(V, K, init, rng)
    W, H, name, *_ = initial = initial._replace(W=initial.W.astype(V.dtype, copy=False))
    if solver is None or (solver.first == "H" and not solver.lift_zeros):
        return initial._replace(H=H if solver is not None and solver.sweeps else None)
    exact = H is None or name in CONE_INITS  # then H has zeros that are answers, not guesses
    if H is None:
        H = coefficients(V, W)[0]
    return initial._replace(H=lift_zeros(V, H) if exact and solver.lift_zeros else H)


def _named(
    V: DataMatrix, K: int, init: str, rng: Generator, spectrum: Spectrum | None
) -> InitialFactors:
    if init not in INITS:
        choice("init", init, ("auto", *INITS))
    if init in CONE_INITS:
        return from_cones(V, K, rng, init, spectrum)
    if init in SVD_INITS:
        return InitialFactors(*SVD_INITS[init](V, K, rng, spectrum=spectrum), init)
    return InitialFactors(*INITS[init](V, K, rng), init)


def users_own(V: DataMatrix, K: int, init: Any, rng: Generator) -> InitialFactors:
    """Return the factors that a user gave, or those that the user's function makes, checked.

    The function always gets a generator; it is seeded with 0 if the caller gave none.
    """
    name = function_name(init)
    if callable(init):
        rng = np.random.default_rng(0) if rng is None else rng
        init = function("init", init, takes=3)(V, K, rng)
        if not isinstance(init, tuple):
            raise FactorError(f"the init returned {shown(init)}, expected the pair (W, H)")
    if isinstance(init, tuple):
        if len(init) != 2:
            raise FactorError(f"init is a tuple of {len(init)}, expected the pair (W, H)")
        W, H = init
    else:
        W, H = init, None
    F, N = V.shape
    names = V.names.turned()  # features are rows of W, samples are columns of H
    W = check_factor(in_order(names, "W", W, "sample", ""), (F, K), "W", V.dtype)
    if H is not None:
        H = in_order(names, "H", H, "", "feature")
        H = (
            check_coefficients(V, H, K)
            if is_elsewhere(H)
            else check_factor(H, (K, N), "H", V.dtype)
        )
    return InitialFactors(W, H, name)


def _cr1(V: DataMatrix, K: int, rng: Generator) -> Factors:
    """Clustering and rank-one NMF, to the accuracy that an init needs."""
    W, H, *_ = from_cones(V, K, rng)
    return W, H


def _cr1_plus_plus(V: DataMatrix, K: int, rng: Generator) -> Factors:
    """The same from centres drawn at random, the best of a few runs."""
    W, H, *_ = from_cones(V, K, rng, "cr1++")
    return W, H


def _cr1_robust(V: DataMatrix, K: int, rng: Generator) -> Factors:
    """The same from centres that survive noise."""
    W, H, *_ = from_cones(V, K, rng, "cr1-robust")
    return W, H


def _random(V: DataMatrix, K: int, rng: Generator) -> Factors:
    """Uniform on [0, 1)."""
    rng = np.random.default_rng(rng)
    W = rng.random((V.shape[0], K)).astype(V.dtype)
    return W, random_coefficients(V, K, rng)


def _spa(V: DataMatrix, K: int, rng: Generator) -> Factors:
    """The samples chosen by successive projection."""
    return _samples(V, spa(V, K)), None


def _snpa(V: DataMatrix, K: int, rng: Generator) -> Factors:
    """The samples chosen by successive nonnegative projection."""
    return _samples(V, snpa(V, K)), None


def _samples(V: DataMatrix, indices: Array) -> Array:
    return np.ascontiguousarray(dense(V.columns(indices)), V.dtype)


INITS: dict[str, InitFunction] = {
    "cr1": _cr1,
    "cr1++": _cr1_plus_plus,
    "cr1-robust": _cr1_robust,
    "random": _random,
    **SVD_INITS,
    **CLUSTER_INITS,
    **COLUMN_INITS,
    "spa": _spa,
    "snpa": _snpa,
}
