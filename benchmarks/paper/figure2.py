"""Figure 2, left: the error of cr1-nmf and its bounds (Theorems 4 and 6), against N.

F = 1600, K = 40, alpha = 0.2 and 0.3, lambda_k = 1/k. A matrix of the largest N is drawn, and its
first N samples are used for smaller N: a row has the errors for all N. At each tenth N cr1-nmf runs
from two random first samples, which give the same clusters if Lemma 1 holds. To see what the
projection on the orthant does, matrices are also drawn without it: they have negative entries, so
their error, at each tenth N, is that of the leading singular pairs of the true cones, which Theorem
8 is about.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

import matplotlib.pyplot as plt
import numpy as np
from presentation import (
    Row,
    Section,
    Table,
    Text,
    Verdict,
    drawn,
    grouped,
    judged,
    mean_and_deviation,
)
from protocol import Experiment, main
from races import curve, numbers
from starts import cones, cr1
from verdicts import Case, ahead, decided, signed_rank, smallest

from conenmf import from_columns, make_cones
from conenmf.cones.bounds import probabilistic_bound
from conenmf.cones.rank_one import cr1_error
from conenmf.data.blocks import Array
from conenmf.data.matrix import DataMatrix

TITLE = "Figure 2, left: the error of cr1-nmf and its bounds"
LOG_SPACED = tuple(int(N) for N in np.unique([*np.geomspace(1e2, 1e4, 100).astype(int), 1000]))
SIZES = {  # F, K, values of N, matrices, matrices without projection
    "tiny": (200, 4, (60, 120), 2, 2),
    "quick": (1600, 40, (100, 316, 1000, 3162, 10000), 6, 6),
    "full": (1600, 40, LOG_SPACED, 50, 20),
}
PAPER = "the paper: 50 matrices of 20 runs"
EACH = 10  # value of N has a second run, and one without projection
NEAR = 0.01  # share of the bound that counts as having come near to it


def run(rows: Experiment) -> None:
    *_, matrices, unprojected = SIZES[rows.scale]
    for matrix in range(max(matrices, unprojected)):
        for alpha in (0.2, 0.3):
            for project in (True, False):
                if matrix < (matrices if project else unprojected):
                    key = {"alpha": alpha, "project": project, "matrix": matrix}
                    rows.row(partial(_errors, rows, **key), **key)


def _errors(rows: Experiment, alpha: float, project: bool, matrix: int) -> dict[str, object]:
    F, K, sizes, *_ = SIZES[rows.scale]
    rng = rows.rng(alpha=alpha, project=project, matrix=matrix)
    model = make_cones(F, K, alpha, n_samples=max(sizes), project=project, rng=rng)
    some = tenth(sizes)
    if project:
        found = [
            _from_samples(from_columns(model.V[:, :N]), K, rng, 1 + (N in some)) for N in sizes
        ]
    else:
        sizes = some
        found = [(_of_true_cones(model.V[:, :N], model.labels[:N], K), 0.0) for N in some]
    return {
        "F": F,
        "K": K,
        "N": " ".join(map(str, sizes)),
        "errors": curve([error for error, _ in found]),
        "largest difference of two runs": max(difference for _, difference in found),
    }


def tenth(sizes: Sequence[int]) -> list[int]:
    """Each tenth of them, and the last; all of a few."""
    return list(sizes) if len(sizes) < EACH else [*sizes[::EACH], *sizes[-1:]]


def _from_samples(
    V: DataMatrix, K: int, rng: np.random.Generator, runs: int
) -> tuple[float, float]:
    errors = [cr1_error(V, *cr1(V, K, rng)) for _ in range(runs)]
    return statistics.mean(errors), max(errors) - min(errors)


def _of_true_cones(V: Array, labels: Array, K: int) -> float:
    """sqrt(1 - sum_k sigma_1(V_k)^2 / ||V||^2)."""
    explained = 0.0
    for _, mine in cones(labels, K):
        V_k = V[:, mine]
        G = V_k.T @ V_k if mine.size < V.shape[0] else V_k @ V_k.T
        explained += np.linalg.eigvalsh(G)[-1]
    return float(np.sqrt(1 - explained / (V**2).sum()))


def show(rows: list[Row]) -> Section:
    """The errors beside the bounds, and whether they stay below and come near."""
    found = {
        (float(alpha), project == "True"): np.array([numbers(row["errors"]) for row in group])
        for (alpha, project), group in grouped(rows, "alpha", "project").items()
    }
    sizes = [int(N) for N in rows[0]["N"].split()]
    some = tenth(sizes)
    K = int(rows[0]["K"])
    alphas = sorted({alpha for alpha, _ in found})
    bounds = {
        alpha: (float(np.sin(alpha)), probabilistic_bound([alpha] * K, 1 / np.arange(1, K + 1)))
        for alpha in alphas
    }
    figure, axes = plt.subplots(
        1, len(alphas), figsize=(10, 4), layout="constrained", squeeze=False
    )
    for ax, alpha in zip(axes[0], alphas, strict=True):
        for project in (True, False):
            if (alpha, project) in found:
                errors = found[alpha, project]
                label = "cr1-nmf" if project else "without projection"
                at = sizes if project else some
                ax.semilogx(at, errors.mean(axis=0), label=label)
                low, high = (errors.mean(axis=0) + sign * errors.std(axis=0) for sign in (-1, 1))
                ax.fill_between(at, low, high, alpha=0.2)
        ax.axhline(bounds[alpha][0], color="0.5", linestyle=":", label="deterministic bound")
        ax.axhline(bounds[alpha][1], color="0.2", linestyle="--", label="probabilistic bound")
        ax.set(title=f"alpha = {alpha}", xlabel="N", ylabel="relative error")
        ax.legend(fontsize="small")
    told = some if len(some) < EACH else some[::2]
    lines = [
        [alpha, N, mean_and_deviation(found[alpha, True][:, sizes.index(N)].tolist(), 5),
         mean_and_deviation(found[alpha, False][:, some.index(N)].tolist(), 5)
         if (alpha, False) in found else "",
         *(f"{bound:.5f}" for bound in reversed(bounds[alpha]))]
        for alpha in alphas for N in told
    ]  # fmt: skip
    header = ["alpha", "N", "cr1-nmf", "without projection", "probabilistic", "deterministic"]
    counts = ", ".join(
        f"{len(errors)} matrices for alpha {alpha}{'' if project else ' without projection'}"
        for (alpha, project), errors in sorted(found.items())
    )
    noted = Text(
        f"Means and standard deviations over matrices: {counts} ({PAPER}). The errors from two "
        "first samples differ by at most "
        f"{max(float(row['largest difference of two runs']) for row in rows):.1e}, at small N, "
        "where some cones have no sample and Lemma 1 does not apply. The "
        "probabilistic bound is that of the limit: as norms are random, a single matrix may lie "
        "above it."
    )
    picture = drawn(figure, "figure2", "Relative errors of cr1-nmf against N, with both bounds")
    return Section([picture, Table(header, lines), noted], _verdicts(found, bounds, sizes, told))


def _verdicts(found: dict, bounds: dict, sizes: list[int], told: list[int]) -> list[Verdict]:
    projected = {alpha: errors for (alpha, project), errors in found.items() if project}
    below = [
        ahead(f"alpha {a}, N {N}", e[:, n].tolist(), {"bound": [bounds[a][1]] * len(e)}, digits=5)
        for a, e in projected.items()
        for n, N in enumerate(sizes)
        if N in told
    ]
    every = [
        (f"alpha {a}, N {N}", bool((e[:, n] < bounds[a][0]).all()))
        for a, e in projected.items()
        for n, N in enumerate(sizes)
    ]
    largest = {a: (bounds[a][1] - e[:, -1]) / bounds[a][1] for a, e in projected.items()}
    free = {
        a: (bounds[a][1] - e[:, -1]) / bounds[a][1]
        for (a, project), e in found.items()
        if not project
    }
    gaps = {a: e[:, 0] for a, e in projected.items()}
    verdicts = [
        decided("The error of cr1-nmf is below the probabilistic bound, in the mean", below),
        judged("For every matrix and every N it is below the deterministic bound", every),
    ]
    if 0.2 in projected:
        verdicts.append(
            decided(
                "At alpha = 0.2 the error tends to the probabilistic bound as N grows: its "
                f"distance at the largest N is below {NEAR:.0%} of the bound",
                [_near("alpha 0.2", largest[0.2])],
                note=f"at the smallest N {_share((bounds[0.2][1] - gaps[0.2]) / bounds[0.2][1])}",
            )
        )
    if 0.3 in projected:
        verdicts.append(
            decided(
                "At alpha = 0.3 a gap to the probabilistic bound remains, larger than that at 0.2",
                [_wider(largest)] if 0.2 in largest else [],
            )
        )
    if 0.3 in free:
        verdicts.append(
            decided(
                "Without projection the bound is tight: at the largest N the distance is below "
                f"{NEAR:.0%} of it",
                [_near(f"alpha {a}", gap) for a, gap in sorted(free.items())],
            )
        )
    return verdicts  # fmt: skip


def _share(gaps: Array) -> str:
    return f"{gaps.mean():.1%} ± {gaps.std(ddof=1):.1%}" if gaps.size > 1 else f"{gaps[0]:.1%}"


def _near(text: str, gaps: Array) -> Case:
    """That the mean error is within a share of the bound: two one-sided tests."""
    differences = [(NEAR - gaps).tolist(), (NEAR + gaps).tolist()]
    inside = bool((np.median(gaps) < NEAR) & (np.median(gaps) > -NEAR))
    p = max(signed_rank(d) for d in differences) if inside else min(map(signed_rank, differences))
    return Case(
        f"{text}: {_share(gaps)} of the bound, n {gaps.size}", inside, p, smallest(gaps.size)
    )


def _wider(gaps: dict[float, Array]) -> Case:
    n = min(gaps[0.2].size, gaps[0.3].size)
    difference = gaps[0.3][:n] - gaps[0.2][:n]
    text = f"{_share(gaps[0.3])} of the bound against {_share(gaps[0.2])}, n {n}"
    return Case(
        text, bool(np.median(difference) > 0), signed_rank(difference.tolist()), smallest(n)
    )


if __name__ == "__main__":
    main("figure2", __doc__, run, show, SIZES)
