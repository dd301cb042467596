"""The race of inits: the choice of ``init="auto"``.

If samples lie in cones, the init from cones is close to the best factors and no race is run.
Otherwise it competes with an init from singular vectors over a few iterations on a sketch of V,
where these are cheap, and the lower error wins.
"""

from __future__ import annotations

from ..data.matrix import DataMatrix
from ..data.sketch import is_dense, sketch
from .cone_inits import from_cones, lie_in_cones
from .initial import Generator, InitialFactors
from .loop import alternate
from .solvers import SOLVERS
from .stopping import Stopping
from .svd_inits import SVD_INITS

__all__ = ["choose_init"]

_RACE_MAX_ITER = 2


def choose_init(V: DataMatrix, K: int, rng: Generator) -> InitialFactors:
    """Take cr1 if samples lie in cones, else the init that leads after a few cheap iterations.

    These run on a sketch of V, whose singular vectors also serve the init that competes: nnsvdlrc
    is ahead on dense data, nndsvda on sparse ones, as measured in docs/inits.md.
    """
    cones = from_cones(V, K, rng)
    if K > min(V.shape):
        return cones
    cones = cones._replace(in_cones=lie_in_cones(V, cones.W, cones.error))
    if cones.in_cones:
        return cones
    S = sketch(V, min(2 * K, *V.shape))
    name = "nnsvdlrc" if is_dense(V) else "nndsvda"
    rival = InitialFactors(*SVD_INITS[name](S, K, rng), name, S, in_cones=False)
    return min(cones._replace(sketch=S), rival, key=_error_soon)


def _error_soon(initial: InitialFactors) -> float:
    stopping = Stopping(tol=0, max_iter=_RACE_MAX_ITER)
    assert initial.sketch is not None
    run = alternate(initial.sketch, initial.W, initial.H, SOLVERS["hals"], stopping=stopping)
    return float(run.history.relative_error[-1])
