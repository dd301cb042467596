"""Upper bounds for the sum of the k largest eigenvalues, the energy that k components can explain.

Ritz values on a subspace never exceed the eigenvalues, so their sum is a lower bound.
`energy_above` adds what the subspace may have missed: the residual, and the tail, the largest
eigenvalue on the orthogonal complement. `tail_above` bounds the tail by Lanczos's method from
random vectors; the bound fails with a chosen probability (Kuczynski and Wozniakowski, "Estimating
the largest eigenvalue by the power and Lanczos algorithms with a random start", SIAM J. Matrix
Anal. Appl. 13, 1992). The proofs are in the documentation, "Bounds from a subspace".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.linalg import eigvalsh
from numpy.random import default_rng

from ..data.blocks import TINY
from ..types import Array

# The probability that the bound on a tail is wrong. A smaller one costs a few more passes.
FAILURE_PROBABILITY = 1e-9

_MAX_STEPS = 32
_STEPS_BETWEEN = 12  # times starts; evaluating the bound takes as long as a product with A
_BEYOND = 8  # the k-th and this many further values set the target for the tail
_N_SLACKS = 25
_NEGLIGIBLE_SHARE = 1e-9  # of the energy: a smaller improvement of the bound is not worth a pass
_SEARCHES = 7  # refinements of the interval that contains the root
_PLACES = 65  # points at which each refinement evaluates the function
_ROUNDING = 1e-13  # of the largest eigenvalue: a shorter vector is rounding
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
    k : int
    total : float
        The trace of A.
    rounding : float
        The rounding error of the sum; with `roots`, of a single eigenvalue.
    apply : callable
        Returns A X. It is called only if the trace, which gives a certain bound, is not enough.
    n_starts : int
        How many random vectors bound the tail. With more, A is applied fewer times, but to more
        vectors.
    roots : bool
        Bound the sum of the roots, which are singular values if A = VV'.
    """
    Q, values, images = found
    assert images is not None
    values = np.maximum(values, 0.0)
    residual = images - Q * values
    gram = residual.T @ residual
    rest = max(float(total - values.sum()), 0.0) + rounding  # the trace of A orthogonal to Q
    lifted = values + rounding if roots else values
    added = 0.0 if roots else rounding
    terms = np.sqrt(lifted[:k]) if roots else lifted[:k]
    least = float(terms.sum())
    bound = energy_above(lifted, gram, k, rest, rest, roots=roots)
    if bound <= least * (1 + _NEGLIGIBLE_SHARE):
        return EnergyBound(bound + added, 0.0)
    starts = default_rng(1).standard_normal((len(Q), n_starts))
    beyond = values[min(k + _BEYOND, values.size) - 1]
    low = float(0.75 * values[k - 1] + 0.25 * beyond)  # leaves room for the residual

    def outside(X: Array) -> Array:
        return _orthogonal_part(apply(_orthogonal_part(X, Q)), Q)

    tail = tail_above(outside, _orthogonal_part(starts, Q), rest, low, float(values[0]))
    bound = energy_above(lifted, gram, k, tail, rest, roots=roots)
    return EnergyBound(bound + added, FAILURE_PROBABILITY)


def _orthogonal_part(X: Array, Q: Array) -> Array:
    """Return the part of X (F, n) that is orthogonal to the columns of Q."""
    return np.asarray(X - Q @ (Q.T @ X))


def energy_above(
    values: Array, residual_gram: Array, k: int, tail: float, rest: float, *, roots: bool = False
) -> float:
    """Bound the sum of the k largest eigenvalues of A from above, or the sum of their roots.

    In an orthonormal basis that consists of Ritz vectors Q (F, m) and their complement, A = VV' is
    ((T, R'), (R, C)). For every s > 0 it is at most diag(T + R'R / s, C + s I), so the k largest
    eigenvalues of this matrix bound the sum. If j of them belong to C, these add up to at most
    min(j tail, rest) + j s. The sum of their roots is largest if they are equal.

    Parameters
    ----------
    values : array (m,)
        Ritz values, the diagonal of T, in descending order.
    residual_gram : array (m, m)
        R'R, with R = A Q - Q T.
    k : int
    tail : float
        An upper bound on the largest eigenvalue of C.
    rest : float
        The trace of C.
    roots : bool
        Bound the sum of the roots instead.

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
    slacks = np.zeros(1)
    if residual_gram.any():
        slacks = max(float(values[0]), TINY) * np.geomspace(1e-12, 1.0, _N_SLACKS)
    for s in slacks.tolist():
        raised = values
        if s > 0:
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
    """Bound the largest eigenvalue of C >= 0, except with probability `FAILURE_PROBABILITY`.

    Let g be a normal random vector, u the leading eigenvector, z = <g, u>, and p_0, p_1, ... the
    orthonormal polynomials of Lanczos's method from g, so that p_j(C) g / ||g|| are orthonormal.
    Then z^2 sum_j p_j(x)^2 <= ||g||^2 at the largest eigenvalue x. With n starts, all |z| are below
    d with probability at most (d sqrt(2 / pi))^n; otherwise |z| >= d for one of them. The sum
    increases above the largest Ritz value, so x is at most the point where it reaches ||g||^2 /
    d^2.

    Parameters
    ----------
    apply : callable
        Returns C X for X (F, n).
    starts : array (F, n)
        Normal random vectors in the space on which C acts.
    ceiling : float
        A value that no eigenvalue exceeds, such as the trace.
    low : float
        Stop once the bound is below this value.
    largest : float
        The magnitude of the numbers whose rounding error `apply` returns.
    """
    n_starts = starts.shape[1]
    squared = _dots(starts, starts)
    least = FAILURE_PROBABILITY ** (1 / n_starts) * np.sqrt(np.pi / 2)
    limits = squared / least**2
    floor = _ROUNDING * min(largest, ceiling)
    basis = [starts / np.maximum(np.sqrt(squared), TINY)]
    diagonal = []
    beside = []
    bound = ceiling
    every = max(1, _STEPS_BETWEEN // n_starts)
    for step in range(1, _MAX_STEPS + 1):
        image = apply(basis[-1])
        diagonal.append(_dots(basis[-1], image))
        for vectors in (*basis, *basis):  # twice, to keep them orthogonal
            image = image - vectors * _dots(vectors, image)
        norms = np.sqrt(_dots(image, image))
        lengths = np.maximum(norms, floor)
        beside.append(lengths)
        is_all = bool((norms <= floor).all())
        if is_all or step % every == 0:
            bound = min(bound, _find_limit(diagonal, beside, limits, ceiling))
        if bound <= low or is_all:
            break
        basis.append(image / lengths)
    return bound + floor


def _dots(A: Array, B: Array) -> Array:
    """Return the product of each column of A with the same column of B."""
    return np.asarray(np.einsum("fn,fn->n", A, B))


def _find_limit(diagonal: list[Array], beside: list[Array], limits: Array, ceiling: float) -> float:
    """Return where the sum of squared polynomials reaches its limit, the largest of all starts."""
    n = limits.size
    size = len(diagonal)
    matrix = np.zeros((n, size, size))
    place = np.arange(size)
    matrix[:, place, place] = np.transpose(diagonal)
    below = np.transpose(beside[:-1])  # in the triangle that eigvalsh reads
    matrix[:, place[1:], place[:-1]] = below
    low = eigvalsh(matrix)[:, -1]
    high = np.maximum(low, ceiling)
    start = np.arange(n)
    for _ in range(_SEARCHES):
        places = np.linspace(low, high, _PLACES)
        above = _sum_of_squares(places, diagonal, beside) > limits
        above[-1] = True
        first = np.maximum(above.argmax(axis=0), 1)
        low = places[first - 1, start]
        high = places[first, start]
    return float(high.max())


def _sum_of_squares(x: Array, diagonal: list[Array], beside: list[Array]) -> Array:
    """Return sum_j p_j(x)^2 by the three-term recurrence; the last axis of x is the start."""
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
