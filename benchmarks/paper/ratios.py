"""How near our theorems come to being attained: the largest ratio to each bound that was found.

For each statement of docs/theory.md that is not the paper's, random instances are drawn, and the
best ones are improved by small random changes that are kept if the ratio grows. A ratio above 1
would refute the theorem; one of 1 shows that the bound cannot be smaller. (One statement is a
limit, of which random samples are on either side.) The searches are the same each time. Prints the
table of the documentation; takes about two minutes.

    python benchmarks/paper/ratios.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from conenmf import cluster_cones, cr1_nmf, from_columns, make_cones
from conenmf.cones.bounds import smallest_limit, trimmed_bound
from conenmf.cones.counting import noise_edge
from conenmf.cones.geometry import leading_plane, rank_two_factors
from conenmf.cones.open_problems import centres_with_outliers, leading_direction, merge_sketches
from conenmf.cones.rank_one import cr1_error
from conenmf.linalg.nnls import nnls
from conenmf.solve.separable import separable_bound, spa

GOLDEN = (1 + np.sqrt(5)) / 2
CLIMBED, CHANGES = 5, 400  # instances that are improved, and changes tried for each
Array = np.ndarray
Rng = np.random.Generator
Instance = tuple[Array, ...]


@dataclass(frozen=True)
class Statement:
    """A bound: instances on which it is tried, and the ratio of what is bounded to it."""

    name: str
    bound: str
    is_sharp: bool
    draw: Callable[[Rng], Instance]
    ratio: Callable[..., float]
    draws: int = 1000
    climbs: bool = True


def largest(statement: Statement, scale: float = 1.0) -> float:
    """The largest ratio that the search finds; instances that do not qualify are NaN."""
    found: list[tuple[float, int, Instance]] = []
    for seed in range(max(2, int(scale * statement.draws))):
        instance = statement.draw(np.random.default_rng(seed))
        ratio = statement.ratio(*instance)
        if np.isfinite(ratio):
            found.append((ratio, seed, instance))
    found.sort(key=lambda one: -one[0])
    best = found[0][0] if found else np.nan
    for ratio, seed, instance in found[:CLIMBED] if statement.climbs else []:
        best = max(best, climbed(statement, ratio, instance, np.random.default_rng(seed), scale))
    return float(best)


def climbed(
    statement: Statement, ratio: float, instance: Instance, rng: Rng, scale: float
) -> float:
    """The ratio after random changes, each kept if it is larger; they become smaller."""
    for step in np.geomspace(0.5, 1e-3, max(2, int(scale * CHANGES))):
        other = tuple(
            part * np.exp(step * rng.standard_normal(part.shape) * (rng.random(part.shape) < 0.5))
            for part in instance
        )
        after = statement.ratio(*other)
        if np.isfinite(after) and after > ratio:
            ratio, instance = after, other
    return ratio


# --- noise ------------------------------------------------------------------------------------


def norm(A: Array) -> float:
    return float(np.linalg.norm(A))


def angle(x: Array, y: Array) -> float:
    x, y = x / norm(x), y / norm(y)
    return float(2 * np.arctan2(norm(x - y), norm(x + y)))


def with_noise(rng: Rng, F: int = 3, N: int = 4) -> Instance:
    V = rng.random((F, N)) ** 3 + 1e-3
    return V, 10.0 ** rng.uniform(-2, 0.3) * norm(V) * rng.standard_normal((F, N)) / np.sqrt(F * N)


def turned(V: Array, E: Array) -> float:
    v, x = V.ravel(), np.maximum(V + E, 0).ravel()
    if norm(x - v) >= norm(v) or norm(x - v) < 1e-6 or not x.any():
        return np.nan
    return angle(v, x) / np.arcsin(norm(x - v) / norm(v))


def leading(V: Array) -> tuple[Array, Array]:
    u, sigma, _ = np.linalg.svd(V, full_matrices=False)
    return np.abs(u[:, 0]), sigma


def error_of_noisy(V: Array, E: Array) -> float:
    """One cluster; the sum over clusters is as sharp."""
    X = np.maximum(V + E, 0)
    epsilon = norm(X - V) / norm(V)
    s = norm(leading(V)[1][1:]) / norm(V)
    if epsilon >= 1 or np.arcsin(s) + np.arcsin(epsilon) > np.pi / 2 or not X.any():
        return np.nan
    return norm(leading(X)[1][1:]) / norm(X) / np.sin(np.arcsin(s) + np.arcsin(epsilon))


def distance_to_clean(V: Array, E: Array) -> float:
    X = np.maximum(V + E, 0)
    w, R = leading(X)[0], norm(leading(V)[1][1:])
    bound = R + GOLDEN * norm(X - V)
    return norm(V - np.outer(w, w @ X)) / bound if X.any() else np.nan


def distance_in_squares(V: Array, E: Array) -> float:
    X, sigma = np.maximum(V + E, 0), leading(V)[1]
    gap, noise = sigma[0] - sigma[1], norm(X - V)
    if noise >= gap / np.sqrt(2) or noise < 1e-9:
        return np.nan
    w = leading(X)[0]
    return norm(V - np.outer(w, w @ X)) / np.hypot(noise, norm(sigma[1:]) + noise**2 / gap)


def in_plane(t: Array) -> Array:
    return np.stack([np.cos(t), np.sin(t)])


def two_clusters(rng: Rng) -> Instance:
    """Angles in the plane of samples in two clusters, and by how much each is turned."""
    near = np.sort(rng.uniform(0.05, 0.35, 3))
    far = near.max() + rng.uniform(0.3, 1.0) + np.sort(rng.uniform(0, 0.2, 2))
    turns = rng.uniform(0.02, 0.2) * rng.choice([-1.0, 1.0], 5)
    return np.concatenate([near, far]), turns


def kept(angles: Array, turns: Array) -> float:
    """S_p / (4 tau) where clusters change: above 1 they must not."""
    order = np.argsort(angles)
    t, moved = angles[order], (angles + turns)[order]
    if t[0] < 0 or t[-1] > np.pi / 2 or moved.min() < 0 or moved.max() > np.pi / 2:
        return np.nan
    S = t[3] - t[2] - max(t[2] - t[0], t[4] - t[3])
    truth, X = np.array([0, 0, 0, 1, 1]), from_columns(in_plane(moved))
    if S <= 0 or all(same(truth, cluster_cones(X, 2, first=n).labels) for n in range(5)):
        return np.nan
    return S / (4 * np.abs(turns).max())


def same(a: Array, b: Array) -> bool:
    return np.unique(np.stack([a, np.asarray(b)]), axis=1).shape[1] == 2


def unconditional(angles: Array, turns: Array) -> float:
    t, moved = np.sort(angles), angles + turns
    if t[0] < 0 or t[-1] > np.pi / 2 or moved.min() < 0 or moved.max() > np.pi / 2:
        return np.nan
    alpha = max(t[2] - t[0], t[4] - t[3]) / 2
    bound = 2 * alpha + 2 * np.abs(turns).max()
    X = from_columns(in_plane(moved))
    errors = [cr1_error(X, *cr1_nmf(X, 2, first=n)[:2]) for n in range(5)]
    return max(errors) / np.sin(bound) if bound < np.pi / 2 else np.nan


def noisy_cones(rng: Rng) -> Instance:
    K, alpha = int(rng.integers(2, 5)), rng.uniform(0.02, 0.2)
    clean = make_cones(30, K, alpha, angle=min(4 * alpha + 0.3, 1.4), n_samples=90, rng=rng)
    noise = 10 ** rng.uniform(-3, -1) * rng.standard_normal(clean.V.shape)
    return clean.V, np.maximum(clean.V + noise, 0), clean.labels


def trimmed(V: Array, X: Array, labels: Array) -> float:
    """Robust clusters; the good part is where each holds samples of one cone."""
    K = int(labels.max()) + 1
    W, H, cones = cr1_nmf(from_columns(X), K, method="robust")
    clusters = np.asarray(cones.labels)
    mainly = [np.bincount(labels[clusters == k], minlength=K).argmax() for k in range(K)]
    if len(set(mainly)) < K:
        return np.nan
    G = np.array(mainly)[clusters] == labels
    left = sum(norm(leading(V[:, G & (labels == k)])[1][1:]) ** 2 for k in range(K))
    noise, share = norm((X - V)[:, G]) / norm(V[:, G]), (norm(X[:, G]) / norm(X)) ** 2
    bound = trimmed_bound(float(np.sqrt(left)) / norm(V[:, G]), noise, min(share, 1.0))
    return cr1_error(from_columns(X), W, H) / bound


def lower_bound_turned(V: Array, E: Array) -> float:
    X = np.maximum(V + E, 0)
    epsilon = norm(X - V) / norm(V)
    if not 1e-6 < epsilon < 1 or not X.any():
        return np.nan
    turns = [np.arcsin(min(norm(leading(A)[1][1:]) / norm(A), 1.0)) for A in (V, X)]
    return abs(turns[1] - turns[0]) / np.arcsin(epsilon)


# --- clusters, draws, streams -----------------------------------------------------------------


def positive(rng: Rng, F: int = 3, N: int = 6) -> Instance:
    return (rng.random((F, N)) ** 3 + 1e-3,)


def nearly_orthogonal(rng: Rng) -> Instance:
    return (np.eye(4)[:, rng.permutation(4)] * rng.random(4) + 0.1 * rng.random((4, 4)) ** 3,)


def plane_angles(rng: Rng) -> Instance:
    return (np.sort(rng.uniform(0.01, 1.5, 6)),)


def radius(t: Array) -> float:
    """Of Algorithm 1, against twice the best size angle; in the plane clusters are intervals."""
    t = np.sort(t)
    if t[-1] > np.pi / 2:
        return np.nan
    best = min(max(t[k - 1] - t[0], t[-1] - t[k]) for k in range(1, t.size)) / 2
    V = from_columns(in_plane(t))
    return max(cluster_cones(V, 2, first=n).radius for n in range(t.size)) / (2 * best)


def with_outliers(V: Array) -> float:
    unit = V / np.linalg.norm(V, axis=0)
    chords = np.linalg.norm(unit[:, :, None] - unit[:, None], axis=0)
    apart = 2 * np.arcsin(np.minimum(chords / 2, 1))
    N, pairs = V.shape[1], combinations(range(V.shape[1]), 2)
    best = min(np.sort(apart[list(chosen)].min(axis=0))[N - 2] for chosen in pairs)
    found = centres_with_outliers(from_columns(V), 2, 1).radius
    return found / (3 * best) if best > 1e-6 else np.nan


def left_by(V: Array, Z: Array) -> Array:
    """What the nearest of some axes leaves of the squared norm of each sample."""
    cosines = (V / np.linalg.norm(V, axis=0)).T @ (Z / np.linalg.norm(Z, axis=0))
    least: Array = (V**2).sum(axis=0) * np.clip(1 - cosines**2, 0, None).min(axis=1)
    return least


def on_one_axis(V: Array) -> float:
    return norm(leading(V)[1][1:]) ** 2


def first_centre(V: Array) -> float:
    weights, best = (V**2).sum(axis=0), on_one_axis(V)
    costs = [left_by(V, V[:, [n]]).sum() for n in range(V.shape[1])]
    return weights @ costs / weights.sum() / (2 * best) if best > 1e-8 * weights.sum() else np.nan


def cluster_and_centre(rng: Rng) -> Instance:
    t = 0.5 + rng.uniform(0, 0.1, 3)
    V = in_plane(t) * 10.0 ** rng.uniform(-3, 0, 3)
    return V, in_plane(np.array([0.5 - rng.uniform(0, 0.1)]))


def later_centre(V: Array, Z: Array) -> float:
    before, best = left_by(V, Z), on_one_axis(V)
    if best <= 1e-10 * (V**2).sum() or before.sum() <= 0:
        return np.nan
    costs = [np.minimum(before, left_by(V, V[:, [n]])).sum() for n in range(V.shape[1])]
    return before @ costs / before.sum() / (5 * best)


def drawn_centres(V: Array) -> float:
    """The exact mean over all draws of two centres, against the best of all partitions."""
    N, weights = V.shape[1], (V**2).sum(axis=0)
    halves = [[n for n in range(N) if code >> n & 1] for code in range(1, 2 ** (N - 1))]
    rest = [[n for n in range(N) if n not in half] for half in halves]
    pairs = zip(halves, rest, strict=True)
    best = min(on_one_axis(V[:, a]) + on_one_axis(V[:, b]) for a, b in pairs)
    if best <= 1e-8 * weights.sum():
        return np.nan
    mean = 0.0
    for n in range(N):
        left = left_by(V, V[:, [n]])
        after = np.array([left_by(V, V[:, [n, m]]).sum() for m in range(N)])
        mean += weights[n] / weights.sum() * (left @ after) / left.sum()
    return mean / (5 * (np.log(2) + 2) * best)


def stream(V: Array) -> float:
    """One cone, a sketch of two columns, samples one by one."""
    sketch = np.zeros((V.shape[0], 2))
    for v in V.T:
        sketch = merge_sketches(sketch, np.stack([v, np.zeros_like(v)], axis=1))
    w, best = leading_direction(sketch), on_one_axis(V)
    if best <= 1e-8 * norm(V) ** 2:
        return np.nan
    return (norm(V) ** 2 - norm(w @ V) ** 2) / (1.5 * best)


# --- the rest ---------------------------------------------------------------------------------


def many_in_cones(rng: Rng) -> Instance:
    F, K = int(rng.integers(6, 20)), int(rng.integers(2, 5))
    alpha, rates = rng.uniform(0.05, 0.3, K), rng.uniform(0.5, 2, K)
    model = make_cones(F, K, alpha, n_samples=50_000, rates=rates, project=False, rng=rng)
    return model.V, alpha, rates


def smallest_error(V: Array, alpha: Array, rates: Array) -> float:
    squares = np.linalg.eigvalsh(V @ V.T)[::-1]
    error = np.sqrt(squares[alpha.size :].sum() / squares.sum())
    return float(error / smallest_limit(V.shape[0], alpha, rates))


def separable(rng: Rng) -> Instance:
    W = rng.random((5, 3)) + 2 * np.eye(5)[:, :3]
    H = rng.dirichlet(np.full(3, 0.5), 8).T * rng.random(8)
    return (np.maximum(W @ np.hstack([np.eye(3), H]) + rng.normal(0, 0.05, (5, 11)), 0),)


def from_samples(V: Array) -> float:
    """The a posteriori bound, for the samples that SPA chooses."""
    D, W = from_columns(V), V[:, chosen := spa(from_columns(V), 3)]
    bound = separable_bound(D, chosen).error
    error = norm(V - W @ nnls(W.T @ W, V.T @ W).T) / norm(V)
    return error / bound if bound > 1e-6 else np.nan


def nearly_separable(rng: Rng) -> Instance:
    K = int(rng.integers(2, 5))
    W = rng.random((20, K)) + 5 * np.eye(20)[:, :K]
    H = rng.dirichlet(np.full(K, 0.5), 40).T * rng.random(40)
    clean, sigma = W @ np.hstack([np.eye(K), H]), np.linalg.svd(W, compute_uv=False)[-1]
    condition = np.linalg.norm(W, axis=0).max() / sigma
    noise = 0.9 * sigma * min(0.5 / np.sqrt(K - 1), 0.25) / (1 + 80 * condition**2)
    E = rng.standard_normal(clean.shape)
    X = np.maximum(clean + noise / np.linalg.norm(E, axis=0).max() * E, 0)
    return X, np.array([K, noise, condition])


def from_spa(X: Array, facts: Array) -> float:
    K, noise, condition = int(facts[0]), facts[1], facts[2]
    W = X[:, spa(from_columns(X), K)]
    error = norm(X - W @ nnls(W.T @ W, X.T @ W).T)
    return float(error / (np.sqrt(X.shape[1]) * noise * (2 + 80 * condition**2)))


def noise_of_samples(rng: Rng) -> Instance:
    F, N = rng.integers(50, 200, 2)
    a = rng.uniform(0.2, 2.0, N)
    norms = [norm_2(np.sqrt(a) * rng.standard_normal((F, N))) for _ in range(5)]
    return a, np.array([F, np.mean(norms)])


def norm_2(A: Array) -> float:
    return float(np.linalg.norm(A, 2))


def edge(a: Array, facts: Array) -> float:
    return float(facts[1] / noise_edge(a, int(facts[0])))


def two_components(rng: Rng) -> Instance:
    return (rng.random((5, 2)) @ rng.random((2, 7)) + rng.uniform(0, 0.5) * rng.random((5, 7)),)


def exact_two(V: Array) -> float:
    """The error of the exact factors against the bound of Eckart and Young."""
    D = from_columns(V)
    bound = norm(np.linalg.svd(V, compute_uv=False)[2:])
    if not leading_plane(D).is_nonnegative or bound < 1e-3 * norm(V):
        return np.nan
    W, H = rank_two_factors(D)
    return norm(V - W @ H) / bound


STATEMENTS = (
    Statement("noise turns a vector", "arcsin(‖e‖ / ‖v‖)", True, with_noise, turned),
    Statement("noise keeps clusters", "4 tau < S_p", True, two_clusters, kept, 2000),
    Statement("error, clusters kept", "sin(arcsin s + arcsin eps)", True, with_noise,
              error_of_noisy),
    Statement("distance to clean data", "s + 1.618 eps", True, with_noise, distance_to_clean, 3000),
    Statement("the same, little noise", "sqrt(eps² + (s + q eps)²)", False, with_noise,
              distance_in_squares),
    Statement("error, any clusters", "sin(2 alpha + 2 tau)", False, two_clusters,
              unconditional, 300),
    Statement("robust clusters, error", "trimmed Theorem 5", False, noisy_cones, trimmed,
              300, False),
    Statement("lower bound turns", "arcsin eps", False, with_noise, lower_bound_turned),
    Statement("radius of Algorithm 1", "2 x best size angle", True, plane_angles, radius, 500),
    Statement("centres with outliers", "3 x best radius", False, positive, with_outliers, 500),
    Statement("cr1++, first centre", "2 OPT", True, positive, first_centre),
    Statement("cr1++, later centre", "5 OPT", True, cluster_and_centre, later_centre, 3000),
    Statement("cr1++, K = 2, mean", "5 (ln K + 2) OPT", False, positive, drawn_centres, 300),
    Statement("stream, sketch of 2 columns", "(1 + 1/2) best squared error", True,
              nearly_orthogonal, stream),
    Statement("smallest error, a limit", "sqrt((F - K) / (F - 1)) x Theorem 8", True, many_in_cones,
              smallest_error, 20, False),
    Statement("samples as components", "distances to their hull", False, separable,
              from_samples, 300),
    Statement("SPA, near-separable", "sqrt(N) eps (2 + 80 kappa²)", False, nearly_separable,
              from_spa, 200, False),
    Statement("norm of noise, mean of 5", "edge", True, noise_of_samples, edge, 100, False),
    Statement("two components, exact", "Eckart and Young", True, two_components, exact_two, 500,
              False),
)  # fmt: skip


def table(scale: float = 1.0) -> list[str]:
    """Lines of Markdown."""
    lines = [
        "| statement | bound | called sharp | instances | improved | largest ratio found |",
        "|---|---|---|---|---|---|",
    ]
    for one in STATEMENTS:
        is_sharp, improved = "yes" if one.is_sharp else "no", "yes" if one.climbs else "no"
        cells = [one.name, one.bound, is_sharp, f"{one.draws:,}", improved]
        lines.append(f"| {' | '.join(cells)} | {largest(one, scale):.4f} |")
        print(lines[-1] if len(lines) > 3 else "\n".join(lines), flush=True)
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of the searches")
    table(parser.parse_args().scale)
