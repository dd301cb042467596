"""The inits of the paper's experiments, as accurate as the published ones.

The library's own inits save time where a solver makes up for it: axes of cones to 5%, singular
vectors to 0.1%. The published experiments did not, so neither do these. cr1-nmf is Algorithm 1
from a random first sample, then power iteration on the smaller Gram matrix of each cone, at most
100 steps, until the eigenvalue moves by less than 1e-4 (from the vector of ones: theirs is not
known). nndsvd takes its singular vectors from the whole Gram matrix, exact to rounding. spkm has
ten iterations and rand is uniform, in the library too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from conenmf import cluster_cones
from conenmf.data.matrix import DataMatrix
from conenmf.solve.alternate import alternate
from conenmf.solve.inits import initialize, lift_zeros
from conenmf.solve.run import Iteration, Solution, Stopping
from conenmf.solve.solvers import SOLVERS
from conenmf.types import Array

# the paper's four; others have the library's names
INITS = {"rand": "random", "cr1-nmf": "cr1", "spkm": "spkm", "nndsvd": "nndsvd"}
DETERMINISTIC = "nndsvd"  # one run says all


def begin(
    V: DataMatrix, K: int, init: str, solver: str, rng: np.random.Generator
) -> tuple[Array, Array | None, float]:
    """W and H from which a plain solver starts, and the seconds of the processor they took."""
    began = time.process_time()
    solver_ = SOLVERS[f"plain-{solver}"]
    if init == "cr1-nmf":
        W, H = cr1(V, K, rng)
        H = lift_zeros(V, H) if solver_.lift_zeros else None
    else:
        point = initialize(V, K, INITS.get(init, init), solver_, rng)
        W, H = point.W, point.H
    return W, H, time.process_time() - began


def solve(
    V: DataMatrix,
    W: Array,
    H: Array | None,
    solver: str,
    iterations: int,
    callback: Callable[[Iteration], bool | None] | None = None,
) -> Solution:
    """So many iterations of a plain solver, or until the callback ends them."""
    stopping = Stopping(tol=0, max_iter=iterations, exact=0)
    return alternate(V, W, H, SOLVERS[f"plain-{solver}"], stopping=stopping, callback=callback)


def cr1(V: DataMatrix, K: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Algorithm 2 with the rank-one step of the published experiments."""
    labels = np.asarray(cluster_cones(V, K, rng=rng).labels)
    W, H = np.zeros((V.shape[0], K)), np.zeros((K, V.shape[1]))
    for k, mine in members(labels, K):
        V_k = V.columns(mine)
        W[:, k] = leading(V_k)
        H[k, mine] = V_k.T @ W[:, k]
    return W, H


def members(labels: Array, K: int) -> Iterator[tuple[int, Array]]:
    """Each cone that is not empty, with its samples."""
    for k in range(K):
        mine = np.flatnonzero(labels == k)
        if mine.size:
            yield k, mine


def leading(V_k: Array) -> Array:
    """The leading left singular vector of a nonnegative matrix, as accurate as published."""
    wide = V_k.shape[1] > V_k.shape[0]
    G = V_k @ V_k.T if wide else V_k.T @ V_k
    x = np.full(G.shape[0], G.shape[0] ** -0.5)
    value = np.inf
    for _ in range(100):
        image = np.asarray(G @ x)
        before, value = value, float(np.linalg.norm(image))
        x = image / value
        if abs(value - before) < 1e-4:
            break
    w = x if wide else np.asarray(V_k @ x)
    return w / np.linalg.norm(w)
