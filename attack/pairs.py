"""Pairs of factors with one product: no component that differs may be called unique.

For any nonnegative W, Q and H', the factors (W, Q H') and (W Q, H') have the same product. Half of
the pairs differ in one entry of Q only, so that most components are shared, and samples weigh
between 1e-9 and 1. Some are hard on purpose: columns that are nearly parallel, tiny features, the
same sample twice, small numbers in place of zeros, rank deficiency, single precision.

``python -m attack.pairs 10000`` draws as many and counts; it fails if a radius is broken, or if
fewer than 90 % of the components with a pure sample, and anchors of all others, get one of at most
1 degree in double precision. Pure samples and anchors count if they weigh more than 1e-3.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from conenmf import from_columns
from conenmf.judge.identifiability import UNIQUE_RADIUS, uniqueness_radii
from conenmf.judge.metrics import unit_columns

from .cases import Case, Ending, Kind

KINDS_OF_FACTORS = ("separable", "sparse", "dense", "mixed")
MIN_WEIGHT = 1e-3  # of pure samples and anchors that must suffice
MIN_PROVED = 0.9

Pair = tuple[tuple[Any, Any], tuple[Any, Any]]


def draw_pair(rng: np.random.Generator) -> Pair:
    """Return two pairs of factors, W (F, K) and H (K, N), that have one product."""
    K = int(rng.choice([1, 2, 3, 4, 5, 8, 13], p=[0.02, 0.2, 0.25, 0.2, 0.18, 0.1, 0.05]))
    W = _rows(rng, K, int(rng.integers(K, 4 * K + 8)))
    Ht = _rows(rng, K, int(rng.integers(K, 6 * K + 12)))
    W *= 10.0 ** rng.uniform(-3 * (rng.random() < 0.5), 0, (len(W), 1))
    Ht *= 10.0 ** rng.uniform(-9, 0, (len(Ht), 1))
    trouble = rng.choice(["none", "parallel", "tiny features", "twice", "noise", "deficient"])
    if trouble == "parallel" and K > 1:
        W[:, 0] = W[:, 1] + 10.0 ** -rng.uniform(1, 9) * W[:, 0]
    elif trouble == "tiny features":
        W *= 10.0 ** rng.uniform(-14, 0, (len(W), 1))
    elif trouble == "twice":
        Ht = np.vstack([Ht, Ht[rng.integers(len(Ht), size=4)]])
    elif trouble == "noise":
        W += 10.0 ** -rng.uniform(2, 17) * rng.random(W.shape) * W.max()
        Ht += 10.0 ** -rng.uniform(2, 17) * rng.random(Ht.shape) * Ht.max(axis=1, keepdims=True)
    elif trouble == "deficient":
        Ht[:, 0] = Ht[:, K - 1] * (rng.random() < 0.7)
    Q = _mixing(rng, K)
    scale = 10.0 ** rng.integers(-6, 6, K)  # of the components: it does not matter
    W, Q, H = W / scale, Q * scale[:, None], Ht.T
    if rng.random() < 0.1:
        W, Q, H = (one.astype(np.float32) for one in (W, Q, H))
    pair = (W, Q @ H), (W @ Q, H)
    if rng.random() < 0.5:  # anchors are pure samples of the transpose
        (W, H), (W_other, H_other) = pair
        pair = (H.T.copy(), W.T.copy()), (H_other.T.copy(), W_other.T.copy())
    return pair


def _rows(rng: np.random.Generator, K: int, n: int) -> Any:
    """Rows of one component alone, rows with zeros, rows without, or some of each."""
    rows, kind = rng.random((n, K)), rng.choice(KINDS_OF_FACTORS)
    if kind == "separable":
        return np.vstack([np.eye(K), rows])[rng.permutation(n + K)]
    if kind == "mixed":
        rows[: n // 3] = np.eye(K)[rng.integers(K, size=n // 3)]
    zeros = {"sparse": rng.choice([0.3, 0.5, 0.7]), "mixed": 0.3, "dense": 0.0}[kind]
    rows *= rng.random((n, K)) >= zeros
    return rows


def _mixing(rng: np.random.Generator, K: int) -> Any:
    """Q (K, K): in half of the cases one entry beside the diagonal."""
    Q = np.diag(rng.random(K) + 0.1)
    if K > 1 and rng.random() < 0.5:
        k, l = rng.choice(K, 2, replace=False)
        Q[k, l] = 10.0 ** rng.uniform(-6, 1)
        return Q
    several = 10.0 ** rng.uniform(-4, 1, (K, K)) * (rng.random((K, K)) < rng.choice([0.1, 0.3, 1]))
    return (Q + several)[:, rng.permutation(K)]


def broken_radii(pair: Pair) -> list[str]:
    """Return how the radii of either factors are broken by the other; nothing if they hold."""
    broken = []
    for (W, H), (other, _) in (pair, pair[::-1]):
        radii, angles = radii_of(W, H), nearest(W, other)
        for k in np.flatnonzero(angles > radii):
            moved, radius = np.degrees(angles[k]), np.degrees(radii[k])
            broken.append(f"K = {len(H)}, component {k}: {moved:.3g} degrees, radius {radius:.3g}")
    return broken


def radii_of(W: Any, H: Any) -> Any:
    """Return the radii of factors; V does not matter."""
    V = np.ones((len(W), H.shape[1]))
    return uniqueness_radii(from_columns(V), W, H)


def nearest(W: Any, other: Any) -> Any:
    """Return the angle of each component to the nearest one of other factors."""
    U, X = (unit_columns(one.astype(np.float64))[:, :, None] for one in (W, other))
    X = X.transpose(0, 2, 1)
    angles = 2 * np.arctan2(np.linalg.norm(U - X, axis=0), np.linalg.norm(U + X, axis=0))
    return angles.min(axis=1)


def should_be_proved(W: Any, H: Any) -> Any:
    """Which components have a pure sample, and all others anchors, of weight above 1e-3."""
    norms = np.linalg.norm(W, axis=0)
    A, Y = unit_columns(W), (H * norms[:, None]).T
    pure, anchored = _alone(Y), _alone(A)
    has_rank = (
        np.linalg.matrix_rank(_unit_rows(A)) == np.linalg.matrix_rank(_unit_rows(Y)) == len(H)
    )
    return has_rank & pure & (anchored.sum() - anchored == len(H) - 1)


def _unit_rows(rows: Any) -> Any:
    return unit_columns(rows.T).T


def _alone(rows: Any) -> Any:
    sizes = np.linalg.norm(rows, axis=1)
    heavy = sizes > MIN_WEIGHT * sizes.max()
    return (rows[heavy & ((rows > 0).sum(axis=1) == 1)] > 0).any(axis=0)


def _attack(case: Case) -> Ending:
    broken = broken_radii(draw_pair(case.rng))
    return Ending("factors", broken[0]) if broken else Ending("accepted", compared=True)


KINDS = (Kind("pairs", "numbers", _attack, default=10000, batch=200, counted="pairs"),)


def main(n_pairs: int, seed: int = 0) -> int:
    """Draw pairs, print what was found, and return 1 if something does not hold."""
    counts, broken, expected = np.zeros(3, dtype=int), [], {"float64": [0, 0], "float32": [0, 0]}
    for number in range(n_pairs):
        pair = draw_pair(np.random.default_rng([seed, number]))
        broken += broken_radii(pair)
        for (W, H), (other, _) in (pair, pair[::-1]):
            unique, differs = radii_of(W, H) <= UNIQUE_RADIUS, nearest(W, other) > UNIQUE_RADIUS
            counts += len(H), differs.sum(), unique.sum()
            expected[W.dtype.name][0] += int((unique & should_be_proved(W, H)).sum())
            expected[W.dtype.name][1] += int(should_be_proved(W, H).sum())
    print(f"{n_pairs} pairs, {counts[0]} components, of which {counts[1]} differ by over 1 degree")
    print(f"radius of at most 1 degree: {counts[2]}")
    for precision, (proved, all_of_them) in expected.items():
        print(f"  with pure samples and anchors, {precision}: {proved} of {all_of_them}")
    print(f"radii that do not hold: {len(broken)}", *broken[:20], sep="\n  ")
    return int(bool(broken) or expected["float64"][0] < MIN_PROVED * expected["float64"][1])


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
