"""Upper bounds for the sum of the k largest eigenvalues, the most that k components can explain.

Ritz values on a subspace are never above the eigenvalues, so their sum is a bound on the wrong
side. `energy_above` adds what the subspace may have missed: its residual, and a tail, the largest
eigenvalue on the space that is orthogonal to it. `tail_above` bounds the tail by Lanczos's method
from random vectors, which fails with a probability that is chosen (Kuczynski and Wozniakowski,
"Estimating the largest eigenvalue by the power and Lanczos algorithms with a random start", SIAM J.
Matrix Anal. Appl. 13, 1992). The proofs are in the documentation, "Bounds from a subspace".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.linalg import eigvalsh
from numpy.random import default_rng

from ..data.blocks import TINY, Array

# That of a tail bounded from random vectors; a smaller one costs a few more passes.
FAILURE_PROBABILITY = 1e-9

_MAX_STEPS = 32
_STEPS_BETWEEN = 12  # and starts, between two looks at the bound, which take as long as a product
_BEYOND = 8  # values after the k-th that set the aim of the tail
_N_SLACKS = 25
_NEGLIGIBLE_SHARE = 1e-9  # of the energy, by which a bound need not be better
_SEARCHES = 7  # for where a growing function reaches a limit
_PLACES = 65  # at which each of them looks
_ROUNDING = 1e-13  # share of the largest eigenvalue below which a vector is rounding
_HUGE = 1e150


# Returns A X for X (n, m).
Apply: TypeAlias = Callable[[Array], Array]


class EnergyBound(NamedTuple):
    """An upper bound for a sum of eigenvalues, and the probability that it is wrong."""

    value: float
    failure_probability: float


def subspace_energy(
    found: tuple[Array, Array, Array | None],
    k: int,
    total: float,
    rounding: float,
    apply: Apply,
    *,
    n_starts: int,
    roots: bool = False,
) -> EnergyBound:
    """Bound the sum of the k largest eigenvalues of A from a subspace, or the sum of their roots.

    Parameters
    ----------
    found : vectors (F, m), values (m,) and images (F, m)
        Orthonormal vectors Q, their values in descending order, and A Q; m >= k.
    total : float
        The trace of A.
    rounding : float
        That of the sum; of a single eigenvalue, if roots are summed.
    apply : callable
        Returns A X; used only if the trace does not suffice, which is certain.
    n_starts : int
        Random vectors that bound the tail: the more, the fewer times A is applied, to all of them.
    roots : bool
        Sum the roots: k singular values, if A = VV'.
    """
    Q, values, images = found
    assert images is not None
    values = np.maximum(values, 0.0)
    residual = images - Q * values
    gram = residual.T @ residual
    rest = max(float(total - values.sum()), 0.0) + rounding  # the trace of A orthogonal to Q
    lifted = values + rounding if roots else values
    added = 0.0 if roots else rounding
    least = float((np.sqrt(lifted[:k]) if roots else lifted[:k]).sum())
    bound = energy_above(lifted, gram, k, rest, rest, roots=roots)
    if bound <= least * (1 + _NEGLIGIBLE_SHARE):
        return EnergyBound(bound + added, 0.0)
    starts = default_rng(1).standard_normal((len(Q), n_starts))
    beyond = values[min(k + _BEYOND, values.size) - 1]
    low = float(0.75 * values[k - 1] + 0.25 * beyond)  # room for the residual

    def outside(X: Array) -> Array:
        return _orthogonal_part(apply(_orthogonal_part(X, Q)), Q)

    tail = tail_above(outside, _orthogonal_part(starts, Q), rest, low, float(values[0]))
    bound = energy_above(lifted, gram, k, tail, rest, roots=roots)
    return EnergyBound(bound + added, FAILURE_PROBABILITY)


def _orthogonal_part(X: Array, Q: Array) -> Array:
    """What of X (F, n) is orthogonal to the columns of Q."""
    return np.asarray(X - Q @ (Q.T @ X))


def energy_above(
    values: Array, residual_gram: Array, k: int, tail: float, rest: float, *, roots: bool = False
) -> float:
    """Bound the sum of the k largest eigenvalues of A from above, or the sum of their roots.

    A = VV' seen on an orthonormal basis Q (F, m) of Ritz vectors and on the space orthogonal to it
    is ((T, R'), (R, C)); for every s > 0 it is at most diag(T + R'R / s, C + s I). So is the sum of
    its k largest eigenvalues, and j of them that belong to C add up to at most
    min(j tail, rest) + j s. The sum of their roots is largest if all j are equal.

    Parameters
    ----------
    values : array (m,)
        Ritz values, the diagonal of T, in descending order.
    residual_gram : array (m, m)
        R'R, with R = A Q - Q T.
    tail : float
        At least the largest eigenvalue of C.
    rest : float
        The trace of C.
    roots : bool
        Bound the sum of the roots.

    Examples
    --------
    >>> energy_above(np.array([4.0, 2.0]), np.zeros((2, 2)), 2, 1.0, 3.0)  # C adds nothing
    6.0
    >>> energy_above(np.array([4.0, 2.0]), np.zeros((2, 2)), 2, 3.0, 3.0)  # C may hold a 3
    7.0
    >>> energy_above(np.array([4.0, 1.0]), np.zeros((2, 2)), 2, 4.0, 4.0, roots=True)
    4.0
    """
    j = np.arange(k + 1)
    best = np.inf
    scale = max(float(values[0]), TINY)
    no_residual = not residual_gram.any()
    slacks = np.zeros(1) if no_residual else scale * np.geomspace(1e-12, 1.0, _N_SLACKS)
    for s in slacks.tolist():
        raised = values
        if not no_residual:
            raised = eigvalsh(np.diag(values) + residual_gram / s)[::-1]
        of_C = np.minimum(j * tail, rest) + j * s
        if roots:
            raised = np.sqrt(np.maximum(raised, 0.0))
            of_C = np.sqrt(j * of_C)
        of_T = np.concatenate([[0.0], np.cumsum(raised[:k])])
        best = min(best, float((of_T[k - j] + of_C).max()))
    return best


def tail_above(
    apply: Apply,
    starts: Array,
    ceiling: float,
    low: float,
    largest: float,
) -> float:
    """Bound the largest eigenvalue of C >= 0 from above, but for `FAILURE_PROBABILITY`.

    Let g be a normal random vector, u the leading eigenvector, z = <g, u>, and p_0, p_1, ... the
    orthonormal polynomials of Lanczos's method from g, so that p_j(C) g / ||g|| are orthonormal.
    Then z^2 sum_j p_j(x)^2 <= ||g||^2 at the largest eigenvalue x, and |z| >= d for one of the
    starts at least, unless all are smaller, with probability (d sqrt(2 / pi))^n. The sum grows
    above the largest Ritz value, so x is where it reaches ||g||^2 / d^2, or below.

    Parameters
    ----------
    apply : callable
        Returns C X for X (F, n).
    starts : array (F, n)
        Normal random vectors in the space on which C acts.
    ceiling : float
        A value that no eigenvalue exceeds, such as the trace.
    low : float
        A bound below this is as good as any: then no more passes are made.
    largest : float
        The size of numbers whose rounding is in what `apply` returns.
    """
    squared = np.einsum("fn,fn->n", starts, starts)
    least = FAILURE_PROBABILITY ** (1 / starts.shape[1]) * np.sqrt(np.pi / 2)
    floor = _ROUNDING * min(largest, ceiling)
    basis = [starts / np.maximum(np.sqrt(squared), TINY)]
    diagonal = []
    beside = []
    bound = ceiling
    every = max(1, _STEPS_BETWEEN // starts.shape[1])
    for step in range(1, _MAX_STEPS + 1):
        image = apply(basis[-1])
        diagonal.append(np.einsum("fn,fn->n", basis[-1], image))
        for vectors in (*basis, *basis):  # twice, so that they stay orthogonal
            image = image - vectors * np.einsum("fn,fn->n", vectors, image)
        norms = np.sqrt(np.einsum("fn,fn->n", image, image))
        beside.append(np.maximum(norms, floor))
        is_all = bool((norms <= floor).all())
        if is_all or step % every == 0:
            bound = min(bound, _reached(diagonal, beside, squared / least**2, ceiling))
        if bound <= low or is_all:
            break
        basis.append(image / np.maximum(norms, floor))
    return bound + floor


def _reached(diagonal: list[Array], beside: list[Array], limits: Array, ceiling: float) -> float:
    """Where the sum of squared polynomials reaches its limit; the largest over all starts."""
    matrix = np.zeros((limits.size, len(diagonal), len(diagonal)))
    place = np.arange(len(diagonal))
    matrix[:, place, place] = np.transpose(diagonal)
    matrix[:, place[1:], place[:-1]] = np.transpose(beside[:-1])  # only this triangle is read
    low = eigvalsh(matrix)[:, -1]
    high = np.maximum(low, ceiling)
    for _ in range(_SEARCHES):
        places = np.linspace(low, high, _PLACES)
        above = _sum_of_squares(places, diagonal, beside) > limits
        above[-1] = True
        first = np.maximum(above.argmax(axis=0), 1)
        low, high = (np.take_along_axis(places, i[None], axis=0)[0] for i in (first - 1, first))
    return float(high.max())


def _sum_of_squares(x: Array, diagonal: list[Array], beside: list[Array]) -> Array:
    """sum_j p_j(x)^2 by the three-term recurrence, for x (..., n): each start has its own."""
    previous = np.zeros_like(x)
    current = np.ones_like(x)
    total = np.ones_like(x)
    link = np.zeros_like(x)
    for centre, following in zip(diagonal, beside, strict=True):
        new = ((x - centre) * current - link * previous) / following
        previous = current
        current = np.clip(new, -_HUGE, _HUGE)
        link = following
        total = total + current**2
    return total
