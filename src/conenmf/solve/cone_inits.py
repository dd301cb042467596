"""Inits from cones, and whether the samples lie in cones at all.

The factors are those of Algorithm 2 of the paper, to the accuracy that an init needs. If samples
lie in cones, these factors are close to the best possible; if samples are mixtures of several
components, they are not, and `mixing` measures by how much.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ..arguments import components, factor, number
from ..cones.clustering import Cones
from ..cones.rank_one import cr1_error, cr1_nmf
from ..cones.seeding import cr1_plus_plus
from ..data.blocks import Array, Block, cross_products
from ..data.matrix import DataMatrix
from ..data.sampling import evenly_spaced
from ..data.validate import require_data_matrix
from ..data.views import take_samples
from ..linalg.spectrum import Spectrum
from .coefficients import coefficients
from .initial import Generator, InitialFactors

__all__ = [
    "CONE_INITS",
    "MAX_CONE_MIXING",
    "from_cones",
    "lie_in_cones",
    "mixing",
]

MAX_CONE_MIXING = 0.05  # mixing up to which samples count as lying in cones ...
_MAX_RESIDUAL_SQ = 0.25  # ... if cr1-nmf leaves no more than this share of their squared norms
_MAX_INSPECTED_SAMPLES, _MIN_INSPECTED_SAMPLES = 512, 16  # whose mixing is measured ...
_INSPECTED_BYTES = 64 << 20  # ... about so many bytes of entries that are not zero
_AXIS_TOL = 5e-2  # accuracy of the axes of cones that an init needs

CONE_INITS: dict[str, Callable[..., tuple[Array, Array, Cones]]] = {
    "cr1": cr1_nmf,
    "cr1-robust": partial(cr1_nmf, method="robust"),
    "cr1++": cr1_plus_plus,
}


def from_cones(
    V: DataMatrix,
    K: int,
    rng: Generator,
    name: str = "cr1",
    spectrum: Spectrum | None = None,
) -> InitialFactors:
    """Return the factors of cr1-nmf, or of another of `CONE_INITS`, with their relative error.

    "cr1-robust" is "cr1", and is named so, where clusters are evident.
    """
    known = {"spectrum": spectrum} if name == "cr1-robust" else {}
    W, H, cones = CONE_INITS[name](V, K, rng=rng, tol=_AXIS_TOL, **known)
    if name == "cr1-robust" and not cones.moved:
        name = "cr1"
    return InitialFactors(W, H, name, error=cr1_error(V, W, H))


def mixing(V: DataMatrix, K: int, axes: Array | None = None) -> float:
    """Return the share of the error of cr1-nmf that vanishes if samples may mix cones.

    1 - ||V - W* H|| / ||V - W* H*||, with H the best nonnegative coefficients for W*, and H* the
    best that use one axis for each sample. Near 0 the samples lie in cones; far from 0 they are
    mixtures of components. The axes W* are computed if they are not given.
    """
    require_data_matrix(V, nonzero=True)
    K = components(K)
    W = from_cones(V, K, None).W if axes is None else factor("axes", axes, (V.shape[0], K))
    (explained,) = V.sweep(_explained_by_one_axis, W=W)
    pure = V.total - float(explained)
    if pure <= 1e-12 * V.total:
        return 0.0
    mixed = coefficients(V, W)[2]
    return 1.0 - float(np.sqrt(min(mixed / pure, 1.0)))


def _explained_by_one_axis(block: Block, *, W: Array) -> tuple[float]:
    return (float((cross_products(block, W).max(axis=1) ** 2).sum()),)


def lie_in_cones(V: DataMatrix, W: Array, error: float) -> bool:
    """Return whether cr1-nmf explains the samples, and a few hundred of them hardly mix its axes.

    Parameters
    ----------
    V : DataMatrix (F, N)
    W : array (F, K)
        The axes, unit vectors.
    error : float
        The relative error of cr1-nmf.
    """
    require_data_matrix(V, nonzero=True)
    W, error = factor("W", W, (V.shape[0], "K")), number("error", error, at_least=0)
    if error**2 > _MAX_RESIDUAL_SQ:
        return False
    affordable = _INSPECTED_BYTES // (1 + 8 * V.n_entries // V.shape[1])
    count = min(_MAX_INSPECTED_SAMPLES, max(_MIN_INSPECTED_SAMPLES, affordable))
    subset = take_samples(V, evenly_spaced(V.shape[1], count))
    return mixing(subset, W.shape[1], W) <= MAX_CONE_MIXING
