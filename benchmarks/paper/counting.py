"""The number of cones: Figure 3, and what Section V says beside it.

**Figure 3**: V = [cones + delta E]_+ with standard normal E and delta = 0.1 or 0.5 (alpha = 0.3,
true K = 40); K is searched from 11 to 200. Every estimate has a matrix of its own. Claims are
judged at each N, once all matrices that were planned are there: how many was written down before
the first was drawn, so no verdict depends on where rows end.

**Without the assumption**: axes at smaller angles beta: 4 alpha + 0.01, which satisfies the
geometric assumption, and 4, 3, 2 and 1 times alpha. The paper observes that results are superior if
the assumption holds at least approximately. The matrices of one repetition have the same random
numbers.

**Other ways to find K**: the paper says that automatic relevance determination (ARD) by Tan and
Fevotte (2013) "does not work well" for data matrices generated under the geometric assumption, and
leaves it out. Here it runs on matrices as for Figure 3, but smaller (400 x 1000, 10 cones), without
noise and with it, from twice as many components as there are cones, with both priors,
hyperparameters as its authors recommend, and the noise variance estimated from the singular values.
Beside it are the methods for numbers of clusters that the paper cites, on samples of unit length,
because cones differ in direction only; the paper's own estimate; and the number of singular values
above the edge of the noise.
"""

from __future__ import annotations

import statistics
from itertools import product

import numpy as np
from cluster_counts import cluster_counts
from experiment import Experiment, Key, Part, every
from page import (
    NOT_MEASURED,
    Row,
    Section,
    Verdict,
    ahead,
    curves,
    grouped,
    interval,
    judged,
    share_above,
    spread,
    table,
)
from relevance import PRIORS, determine_relevance

from conenmf import from_columns, make_cones
from conenmf.cones.counting import count_above_edge, estimate_rank

ALPHA = 0.3


def counts(rows: list[Row], name: str) -> list[int]:
    return [int(row[name]) for row in rows]


# --- Figure 3 ---------------------------------------------------------------------------------

CLAIMS = (  # noise, and the samples from which K should be found; the last is the paper's number
    ("the method works well if the noise is small", 0.1, 2000),
    ("it works well under much noise if N is large, e.g. N >= 5000", 0.5, 5000),
)
WELL = 0.9  # share of matrices in which a method that works well finds K


def estimate(rows: Experiment, delta: float, matrix: int, N: int) -> Key:
    F, K, (low, high), _, matrices = rows.size
    rng = rows.rng(delta=delta, matrix=matrix, N=N)
    V = from_columns(make_cones(F, K, ALPHA, n_samples=N, noise=delta, rng=rng).V)
    return {"K": estimate_rank(V, low, min(high, min(V.shape) - 1)).K, "true": K, "of": matrices}


def show_estimates(rows: list[Row]) -> Section:
    """The number of cones that is found under noise."""
    found = {
        (float(delta), int(N)): counts(group, "K")
        for (delta, N), group in grouped(rows, "delta", "N").items()
    }
    found = dict(sorted(found.items()))
    truth, planned = int(rows[0]["true"]), int(rows[0]["of"])
    panel = {}
    for delta in sorted({delta for delta, _ in found}):
        sizes = [N for d, N in found if d == delta]
        means, deviations = (
            [summary(found[delta, N]) for N in sizes]
            for summary in (statistics.mean, statistics.pstdev)
        )
        panel[f"delta = {delta}"] = (sizes, means, deviations)
    text = "Estimated number of cones against N, for two levels of noise"
    marks = {"xscale": "log", "xlabel": "N", "ylabel": "estimated K"}
    picture = curves("figure3", text, {f"true K = {truth}": panel}, 1, **marks)
    lines = []
    for (delta, N), ks in found.items():
        right = [_right(ks, truth, off) for off in (0, 1)]
        shares = [f"{n} of {len(ks)} ({interval(n, len(ks))})" for n in right]
        lines.append([delta, N, spread(ks, 4), *shares])
    note = (
        f"{planned} matrices for each of {len(found)} pairs of delta and N, {len(rows)} in all "
        "(the paper: 1000 for each of 100 values of N). In brackets is the exact interval of 90% "
        "of the probability."
    )
    verdicts = []
    is_complete = all(len(ks) >= planned for ks in found.values())
    for (claim, delta, enough), off in product(CLAIMS, (0, 1)):
        words = "K up to one" if off else "K"
        text = f"Number of cones: {claim} ({words} in at least {WELL:.0%} of all matrices)"
        cases = [
            share_above(f"delta {delta}, N {N}", _right(ks, truth, off), planned, WELL)
            for (d, N), ks in found.items()
            if is_complete and d == delta and N >= enough
        ]
        few = Verdict(text, NOT_MEASURED, f"not all have {planned} matrices yet")
        verdicts.append(judged(text, cases) if is_complete else few)
    header = ["delta", "N", "mean estimate", f"{truth} found", f"{truth} found up to one"]
    return Section([picture, table(header, lines), note], verdicts)


def _right(ks: list[int], truth: int, off: int) -> int:
    return sum(abs(k - truth) <= off for k in ks)


FIGURE_3 = Part(
    "Figure 3: the number of cones",
    {  # F, K, search range, values of N, matrices
        "tiny": (200, 5, (3, 20), (60, 200), 1),
        "quick": (1600, 40, (11, 200), (500, 1000, 2000, 5000, 10000), 6),
        "full": (1600, 40, (11, 200), tuple(np.geomspace(100, 10000, 21).astype(int).tolist()), 50),
    },
    lambda rows: every(matrix=range(rows.size[4]), N=rows.size[3], delta=(0.1, 0.5)),
    estimate,
    show_estimates,
)

# --- without the assumption -------------------------------------------------------------------

ASSUMED = "4 alpha + 0.01"
ANGLES = {ASSUMED: 4 * ALPHA + 0.01, "4 alpha": 4 * ALPHA, "3 alpha": 3 * ALPHA}
ANGLES |= {"2 alpha": 2 * ALPHA, "alpha": ALPHA}
VIOLATED = ("2 alpha", "alpha")


def estimate_at(rows: Experiment, beta: str, delta: float, N: int, repetition: int) -> Key:
    F, K, (low, high), *_ = rows.size
    rng = rows.rng(delta=delta, N=N, repetition=repetition)
    V = make_cones(F, K, ALPHA, n_samples=N, angle=ANGLES[beta], noise=delta, rng=rng).V
    found = estimate_rank(from_columns(V), low, min(high, min(V.shape) - 1))
    return {"K": found.K, "true": K, "margin": found.margin}


def show_angles(rows: list[Row]) -> Section:
    """The estimates for each angle, and whether they are best under the assumption."""
    truth, lines = int(rows[0]["true"]), []
    off: dict[tuple[str, str], list[int]] = {}
    for (delta, N), here in grouped(rows, "delta", "N").items():
        groups = grouped(here, "beta")
        count = min(len(groups.get(beta, ())) for beta in ANGLES)
        cells = [spread(counts(groups[b], "K")) if b in groups else "" for b in ANGLES]
        lines.append([delta, N, *cells])
        for beta in (ASSUMED, *VIOLATED):
            errors = [abs(K - truth) for K in counts(groups[beta][:count], "K")] if count else []
            off.setdefault((delta, beta), []).extend(errors)
    cases = [
        ahead(f"delta {delta}, all N, K off by", off[delta, ASSUMED], {f"with {beta}": errors})
        for (delta, beta), errors in off.items()
        if beta != ASSUMED and errors
    ]
    header = ["delta", "N", *(f"beta = {beta}" for beta in ANGLES)]
    claim = "The estimate of K is better under the assumption than where it is clearly violated"
    note = (
        f"Estimates of K = {truth}, {len(grouped(rows, 'repetition'))} repetitions (the paper "
        "gives no numbers). "
        "beta = 4 alpha and 3 alpha, where the assumption just fails, have no verdict."
    )
    return Section([table(header, lines), note], [judged(claim, cases)])


VIOLATED_ASSUMPTION = Part(
    "Section V: the number of cones without the assumption",
    {  # F, K, search range, values of delta, values of N, repetitions
        "tiny": (200, 5, (3, 20), (0.1,), (200,), 2),
        "quick": (1600, 40, (11, 200), (0.1,), (1000, 2000), 3),
        "full": (1600, 40, (11, 200), (0.1, 0.5), (500, 1000, 2000, 5000), 20),
    },
    lambda rows: every(
        repetition=range(rows.size[5]), delta=rows.size[3], N=rows.size[4], beta=ANGLES
    ),
    estimate_at,
    show_angles,
)

# --- other ways to find K ---------------------------------------------------------------------

METHODS = {f"ARD, {prior}": prior for prior in PRIORS}
BESIDE = {"X-means": "X-means", "gap": "gap statistic", "silhouette": "silhouette"}
BESIDE |= {"elbow": "elbow", "ratio": "ratio (the paper's)", "edge": "edge"}


def count_components(rows: Experiment, delta: float, matrix: int) -> Key:
    F, K, N, *_, iterations = rows.size
    X = make_cones(F, K, ALPHA, n_samples=N, noise=delta, rng=rows.rng(matrix=matrix)).V
    V = from_columns(X)
    left = (np.linalg.svd(X, compute_uv=False)[2 * K :] ** 2).sum()
    noise = float(left) / ((F - 2 * K) * (N - 2 * K))
    found: Key = {"true": K}
    for name, prior in METHODS.items():
        rng = rows.rng(matrix=matrix, prior=prior)
        found[name] = determine_relevance(X, 2 * K, prior, noise, iterations, rng).n_relevant
    unit = (X / np.linalg.norm(X, axis=0)).T
    clusters = cluster_counts(unit, 2 * K, rows.rng(matrix=matrix, delta=delta))
    return found | clusters | {"ratio": estimate_rank(V, 2, 2 * K).K, "edge": count_above_edge(V).K}


def show_counts(rows: list[Row]) -> Section:
    """What each method counts, and whether relevance fails as the paper says."""
    truth, lines, cases, together = int(rows[0]["true"]), [], [], []
    for delta, group in sorted(grouped(rows, "delta").items()):
        cells = []
        together.append(f"{_both_priors(group, truth)} at delta {delta}")
        for name in (*METHODS, *BESIDE):
            found = counts(group, name)
            right = found.count(truth)
            cells.append(f"{spread(found)} ({right} of {len(found)})")
            if name in METHODS:
                wrong = len(found) - right
                text = f"{name}, delta {delta}, K wrong"
                cases.append(share_above(text, wrong, len(found), 0.5))
        lines.append([delta, *cells])
    claim = "ARD does not work well in cones: K is wrong for at least half of the matrices"
    note = (
        f"The number found of K = {truth} cones, at most {2 * truth}, and in brackets for how many "
        "matrices it is right; delta is the noise. Without noise, the part of a sample beside the "
        "axis of its cone is not the noise of a few components, and components remain for it. Both "
        f"priors of ARD together: {'; '.join(together)}."
    )
    header = ["delta", *METHODS, *BESIDE.values()]
    return Section([table(header, lines), note], [judged(claim, cases)])


def _both_priors(rows: list[Row], truth: int) -> str:
    """In how many runs relevance finds K, and the range of what it finds."""
    found = [K for name in METHODS for K in counts(rows, name)]
    ends = sorted({min(found), max(found)})
    return f"K is {' to '.join(map(str, ends))}, right in {found.count(truth)} of {len(found)} runs"


ARD = Part(
    "Section V: relevance determination, and the number of clusters",
    {  # F, K, N, values of delta, matrices, iterations
        "tiny": (60, 3, 120, (0.0, 0.1), 1, 200),
        "quick": (400, 10, 1000, (0.0, 0.1), 3, 2000),
        "full": (400, 10, 1000, (0.0, 0.01, 0.1, 0.5), 10, 2000),
    },
    lambda rows: every(matrix=range(rows.size[4]), delta=rows.size[3]),
    count_components,
    show_counts,
)
