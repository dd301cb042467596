"""Pairs of factors with one product: no component that differs may be called unique.

For any nonnegative W, Q and H', the factors (W, Q H') and (W Q, H') have the same product. Half of
the pairs differ in one entry of Q only, so that most components are shared, and samples weigh
between 1e-9 and 1. Some are hard on purpose: columns that are nearly parallel, tiny features, the
same sample twice, small numbers in place of zeros, rank deficiency, single precision.

tests/judge/test_uniqueness.py counts how many components are proved unique.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conenmf import from_columns
from conenmf.data.blocks import unit_columns
from conenmf.judge.uniqueness import uniqueness_radii

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
    rows, kind = rng.random((n, K)), rng.choice(["separable", "sparse", "dense", "mixed"])
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
            moved = f"{np.degrees(angles[k]):.3g} degrees, radius {np.degrees(radii[k]):.3g}"
            broken.append(f"K = {len(H)}, component {k}: {moved}")
    return broken


def radii_of(W: Any, H: Any) -> Any:
    """Return the radii of factors; V does not matter."""
    return uniqueness_radii(from_columns(np.ones((len(W), H.shape[1]))), W, H)


def nearest(W: Any, other: Any) -> Any:
    """Return the angle of each component to the nearest one of other factors."""
    U, X = (unit_columns(one.astype(np.float64))[:, :, None] for one in (W, other))
    X = X.transpose(0, 2, 1)
    angles = 2 * np.arctan2(np.linalg.norm(U - X, axis=0), np.linalg.norm(U + X, axis=0))
    return angles.min(axis=1)
