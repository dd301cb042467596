"""Samples in cones: Figures 1 and 2, Table I, and the example of Section VI-B2.

**Figure 1** has two circular cones with size angles 0.2 and axes 0.9 apart, which is more than
3 * 0.2 + 0.2. Measured are the angles of samples drawn from them, and the margin by which the
assumption holds.

**Figure 2** has the error of cr1-nmf against N (F = 1600, K = 40, alpha = 0.2 and 0.3, lambda_k =
1/k). A matrix of the largest N is drawn, and its first N samples are used for smaller N. *Left*:
beside its bounds (Theorems 4 and 6); a row has the errors for all N. At each tenth N cr1-nmf runs
from two random first samples, which give the same clusters if Lemma 1 holds. To see what the
projection on the orthant does, matrices are also drawn without it: they have negative entries, so
their error, at each tenth N, is that of the leading singular pairs of the true cones, which Theorem
8 is about. *Right*: beside 100, 20 and 100 iterations of mult, nnlsb and hals from random inits.
Each repetition is a new matrix with one run of each algorithm on a tenth of the values of N, so
that ten repetitions have them all.

**Table I** has the time until the plain solvers reach the error of cr1-nmf (alpha = 0.2). cr1-nmf
finds its axes at least as accurately as in the published experiments, where eigenvalues moved by
less than 1e-4 in the end: on the paper's sizes they are that close to exact ones. The solvers begin
at random and run at most 1000, 100 and 400 iterations, as published, or 200 times as long as
cr1-nmf; the time of one that is not there by then is a lower bound. What can carry over from the
paper's machine is the ratio to cr1-nmf.

**The example**: two samples (1, 0) and one (0, 1), K = 1: the error is 1 with the rank-one factor
and 1.0954 with the centroid of spherical k-means.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

import matplotlib.pyplot as plt
import numpy as np
from experiment import SCALES, Experiment, Key, Part, every
from measure import timed
from page import (
    Case,
    Row,
    Section,
    ahead,
    column,
    curve,
    curves,
    drawn,
    grouped,
    judged,
    numbers,
    spread,
    table,
    tested,
)
from starts import begin, cr1, members, solve

from conenmf import cluster_cones, cr1_nmf, from_columns, make_cones
from conenmf.cones.bounds import probabilistic_bound
from conenmf.cones.geometry import cone_geometry
from conenmf.cones.rank_one import cr1_error
from conenmf.solve.run import Iteration
from conenmf.types import Array

# --- Figure 1 ---------------------------------------------------------------------------------

ALPHA, BETA = 0.2, 0.9
SAMPLES = 128


def axes() -> Array:
    """Two unit vectors (3, 2) at angle BETA, symmetric about the diagonal of the orthant."""
    middle, across = np.ones(3) / np.sqrt(3), np.array([1.0, -1.0, 0.0]) / np.sqrt(2)
    sides = np.outer(across, [1.0, -1.0])
    return np.cos(BETA / 2) * middle[:, None] + np.sin(BETA / 2) * sides


def drawn_cones(rows: Experiment, alpha: float, beta: float) -> Key:
    model = make_cones(3, 2, alpha, axes=axes(), n_samples=SAMPLES, rng=rows.rng())
    V = from_columns(model.V)
    clusterings = [cluster_cones(V, 2, first=first).labels for first in range(SAMPLES)]
    wrong = [min((one != model.labels).sum(), (one == model.labels).sum()) for one in clusterings]
    found = cone_geometry(V, model.labels)
    return {
        "largest size angle": float(np.max(found.angles)),
        "angle between axes": float(found.between[0, 1]),
        "margin": float(found.margin),
        "first samples": SAMPLES,
        "wrong labels": int(sum(wrong)),
    }


def show_cones(rows: list[Row]) -> Section:
    """The cones, and that Algorithm 1 finds them."""
    figure = plt.figure(figsize=(6, 5), layout="constrained")
    ax = figure.add_subplot(projection="3d")
    turn, length = np.linspace(0, 2 * np.pi, 60), np.linspace(0, 1.2, 2)
    for u, name, colour in zip(axes().T, ("u1", "u2"), ("tab:blue", "tab:orange"), strict=True):
        basis = np.linalg.svd(u[None])[2][1:]  # orthogonal to the axis
        circle = np.stack([np.cos(turn), np.sin(turn)])
        rim = np.cos(ALPHA) * u[:, None] + np.sin(ALPHA) * basis.T @ circle
        ax.plot_surface(*(np.outer(length, part) for part in rim), color=colour, alpha=0.4)
        ax.quiver(0, 0, 0, *(1.35 * u), color=colour, arrow_length_ratio=0.06)
        ax.text(*(1.4 * u), name)
    ax.set(xlim=(0, 1.2), ylim=(0, 1.2), zlim=(0, 1.2), xlabel="x", ylabel="y", zlabel="z")
    ax.view_init(24, 50)
    (row,) = rows
    found = Case(f"{row['wrong labels']} labels wrong", row["wrong labels"] == "0")
    claim = "Algorithm 1 finds both cones from any first sample of theirs"
    verdict = judged(claim, [found], f"{row['first samples']} first samples")
    picture = drawn(figure, "figure1", "Two circular cones in the nonnegative orthant of space")
    note = "One set of samples, and Algorithm 1 from each of them. The paper has a drawing."
    return Section([picture, table(list(row), [list(row.values())]), note], [verdict])


FIGURE_1 = Part(
    "Figure 1: the geometric assumption",
    dict.fromkeys(SCALES, (ALPHA, BETA, SAMPLES)),
    lambda rows: [{"alpha": ALPHA, "beta": BETA}],
    drawn_cones,
    show_cones,
)

# --- Figure 2, left ---------------------------------------------------------------------------

LOG_SPACED = tuple(int(N) for N in np.unique([*np.geomspace(1e2, 1e4, 100).astype(int), 1000]))
AGAINST_N = {"xscale": "log", "xlabel": "N", "ylabel": "relative error"}
EACH = 10  # value of N has a second run, and one without projection
NEAR = 0.01  # share of the bound that counts as having come near to it


def errors_of_cr1(rows: Experiment, alpha: float, project: bool, matrix: int) -> Key:
    F, K, sizes, *_ = rows.size
    rng = rows.rng(alpha=alpha, project=project, matrix=matrix)
    model = make_cones(F, K, alpha, n_samples=max(sizes), project=project, rng=rng)
    some = tenth(sizes)
    differences = [0.0]
    if project:
        errors = []
        for N in sizes:
            V = from_columns(model.V[:, :N])
            each = [cr1_error(V, *cr1(V, K, rng)) for _ in range(1 + (N in some))]
            errors.append(statistics.mean(each))
            differences.append(max(each) - min(each))
    else:
        sizes = some
        errors = [_of_true_cones(model.V[:, :N], model.labels[:N], K) for N in some]
    return {
        "F": F,
        "K": K,
        "N": " ".join(map(str, sizes)),
        "errors": curve(errors),
        "largest difference of two runs": max(differences),
    }


def tenth(sizes: Sequence[int]) -> list[int]:
    """Each tenth of them, and the last; all of a few."""
    return list(sizes) if len(sizes) < EACH else [*sizes[::EACH], *sizes[-1:]]


def _of_true_cones(V: Array, labels: Array, K: int) -> float:
    """sqrt(1 - sum_k sigma_1(V_k)^2 / ||V||^2)."""
    explained = 0.0
    for _, mine in members(labels, K):
        V_k = V[:, mine]
        G = V_k.T @ V_k if mine.size < V.shape[0] else V_k @ V_k.T
        explained += np.linalg.eigvalsh(G)[-1]
    return float(np.sqrt(1 - explained / (V**2).sum()))


def show_bounds(rows: list[Row]) -> Section:
    """The errors beside the bounds, and whether they stay below and come near."""
    found = {
        (float(alpha), project == "True"): np.array([numbers(row["errors"]) for row in group])
        for (alpha, project), group in grouped(rows, "alpha", "project").items()
    }
    if len(found) < 4:
        return Section(["Not all cases have run yet."])
    sizes, K = [int(N) for N in rows[0]["N"].split()], int(rows[0]["K"])
    some = tenth(sizes)
    told = some if len(some) < EACH else some[::2]
    bounds = {
        alpha: (float(np.sin(alpha)), probabilistic_bound([alpha] * K, 1 / np.arange(1, K + 1)))
        for alpha in (0.2, 0.3)
    }
    panels, lines, below, every = {}, [], [], []
    for alpha, (fixed, likely) in bounds.items():
        ours, free = found[alpha, True], found[alpha, False]
        panels[f"alpha = {alpha}"] = {
            "cr1-nmf": (sizes, ours.mean(axis=0), ours.std(axis=0)),
            "without projection": (some, free.mean(axis=0), free.std(axis=0)),
            "deterministic bound": (sizes[:: len(sizes) - 1], [fixed] * 2),
            "probabilistic bound": (sizes[:: len(sizes) - 1], [likely] * 2),
        }
        for N in told:
            errors, others = ours[:, sizes.index(N)].tolist(), free[:, some.index(N)].tolist()
            cells = (spread(errors, 5), spread(others, 5), f"{likely:.5f}", f"{fixed:.5f}")
            lines.append([alpha, N, *cells])
            bound = {"bound": [likely] * len(errors)}
            below.append(ahead(f"alpha {alpha}, N {N}", errors, bound, digits=5))
        every += [
            Case(f"alpha {alpha}, N {N}", bool((errors < fixed).all()))
            for N, errors in zip(sizes, ours.T, strict=True)
        ]
    header = ["alpha", "N", "cr1-nmf", "without projection", "probabilistic", "deterministic"]
    counts = ", ".join(
        f"{len(errors)} matrices for alpha {alpha}{'' if project else ' without projection'}"
        for (alpha, project), errors in sorted(found.items())
    )
    note = (
        f"Means and standard deviations over matrices: {counts} (the paper: 50 of 20 runs each). "
        "The errors from two first samples differ by at most "
        f"{max(column(rows, 'largest difference of two runs')):.1e}, at small N, "
        "where some cones have no sample and Lemma 1 does not apply. The "
        "probabilistic bound is that of the limit: as norms are random, a single matrix may lie "
        "above it."
    )
    text = "Relative errors of cr1-nmf against N, with both bounds"
    picture = curves("figure2", text, panels, 2, **AGAINST_N)
    gaps = {key: 1 - errors[:, -1] / bounds[key[0]][1] for key, errors in found.items()}
    narrow, wide = gaps[0.2, True], gaps[0.3, True]
    n = min(narrow.size, wide.size)
    wider = f"{_share(wide)} of the bound against {_share(narrow)}, n {n}"
    near = f"its distance at the largest N is below {NEAR:.0%} of the bound"
    verdicts = [
        judged("The error of cr1-nmf is below the probabilistic bound, in the mean", below),
        judged("For every matrix and every N it is below the deterministic bound", every),
        judged(
            f"At alpha = 0.2 the error tends to the probabilistic bound as N grows: {near}",
            [_near("alpha 0.2", narrow)],
        ),
        judged(
            "At alpha = 0.3 a gap to the probabilistic bound remains, larger than that at 0.2",
            [tested(wider, wide[:n] - narrow[:n])],
        ),
        judged(
            f"Without projection the bound is tight: {near}",
            [_near(f"alpha {alpha}", gaps[alpha, False]) for alpha in bounds],
        ),
    ]
    return Section([picture, table(header, lines), note], verdicts)


def _share(gaps: Array) -> str:
    return f"{gaps.mean():.1%} ± {gaps.std():.1%}"


def _near(text: str, gaps: Array) -> Case:
    """The case that errors are within a share of the bound."""
    return tested(f"{text}: {_share(gaps)} of the bound, n {gaps.size}", NEAR - abs(gaps))


FIGURE_2 = Part(
    "Figure 2, left: the error of cr1-nmf and its bounds",
    {  # F, K, values of N, matrices, matrices without projection
        "tiny": (200, 4, (60, 120), 2, 2),
        "quick": (1600, 40, (100, 316, 1000, 3162, 10000), 6, 6),
        "full": (1600, 40, LOG_SPACED, 50, 20),
    },
    lambda rows: [
        key
        for project, count in ((True, rows.size[3]), (False, rows.size[4]))
        for key in every(project=[project], matrix=range(count), alpha=(0.2, 0.3))
    ],
    errors_of_cr1,
    show_bounds,
)

# --- Figure 2, right --------------------------------------------------------------------------

ITERATIONS = {"mult": 100, "nnlsb": 20, "hals": 100}
ALIKE = 0.05  # errors within this share of each other are similar


def some_sizes(rows: Experiment) -> Iterator[Key]:
    *_, sizes, repetitions, apart = rows.size
    for repetition in range(repetitions):
        some = sizes[repetition % apart :: apart]
        yield from every(repetition=[repetition], N=some, alpha=(0.2, 0.3))


def errors_of_all(rows: Experiment, alpha: float, repetition: int, N: int) -> dict[str, float]:
    V, K = from_columns(_matrix(rows, alpha, repetition)[:, :N]), rows.size[1]
    rng = partial(rows.rng, alpha=alpha, run=repetition, N=N)
    found = {"error of cr1-nmf": cr1_error(V, *cr1(V, K, rng()))}
    for name, iterations in ITERATIONS.items():
        W, H, _ = begin(V, K, "rand", name, rng())
        found[f"error of {name}"] = solve(V, W, H, name, iterations).history.relative_error[-1]
    return found


@lru_cache(maxsize=2)
def _matrix(rows: Experiment, alpha: float, repetition: int) -> Array:
    F, K, sizes, *_ = rows.size
    rng = rows.rng(alpha=alpha, matrix=repetition)
    return make_cones(F, K, alpha, n_samples=max(sizes), rng=rng).V


def show_algorithms(rows: list[Row]) -> Section:
    """The curves, how similar they are, and how much they oscillate."""
    panels, lines, similar, rough = {}, [], [], []
    for alpha, here in sorted(grouped(rows, "alpha").items()):
        by_size = {int(N): group for N, group in grouped(here, "N").items()}
        sizes = sorted(by_size)
        panels[f"alpha = {alpha}"] = {
            name: (sizes, [np.mean(column(by_size[N], f"error of {name}")) for N in sizes])
            for name in ("cr1-nmf", *ITERATIONS)
        }
        ratios = {name: [_relative(row, name) for row in here] for name in ITERATIONS}
        lines.append([alpha, len(here), *(spread(ratios[name], 4) for name in ITERATIONS)])
        of_span = {False: "N < 1000", True: "N >= 1000"}
        spans = grouped([{**row, "span": of_span[int(row["N"]) >= 1000]} for row in here], "span")
        for span, some in spans.items():
            for name in ("nnlsb", "hals"):
                off, limit = [abs(_relative(row, name) - 1) for row in some], [ALIKE] * len(some)
                similar.append(ahead(f"{name}, alpha {alpha}, {span}", off, {"5%": limit}))
        matrices = grouped(sorted(here, key=lambda row: int(row["N"])), "repetition").values()
        neighbours = [
            pair for line in matrices for pair in zip(line[::2], line[1::2], strict=False)
        ]
        moves = {
            name: [abs(_relative(a, name) - _relative(b, name)) for a, b in neighbours]
            for name in ITERATIONS
        }
        rough.append(ahead(f"alpha {alpha}", moves.pop("mult"), moves, largest=True))
    verdicts = [
        judged("mult oscillates more with N than the other algorithms", rough),
        judged("nnlsb and hals end within 5% of the error of cr1-nmf", similar),
    ]
    note = (
        f"{len(grouped(rows, 'alpha', 'repetition'))} matrices, each with one run of every "
        f"algorithm on some values of N, {len(rows)} pairs of matrix and N in all (the paper: 10 "
        "matrices of 10 runs for every N). Oscillation is how far the errors at neighbouring N of "
        "one matrix are apart, relative to those of cr1-nmf."
    )
    header = ["alpha", "rows", *(f"{name} / cr1-nmf" for name in ITERATIONS)]
    text = "Relative errors of four algorithms against N"
    picture = curves("figure2_right", text, panels, 2, **AGAINST_N)
    return Section([picture, table(header, lines), note], verdicts)


def _relative(row: Row, name: str) -> float:
    return float(row[f"error of {name}"]) / float(row["error of cr1-nmf"])


FIGURE_2_RIGHT = Part(
    "Figure 2, right: classical algorithms",
    {  # F, K, values of N, repetitions, of how many values of N each takes one
        "tiny": (200, 4, (60, 80, 100, 120), 2, 1),
        "quick": (1600, 40, (100, 316, 1000, 3162), 3, 1),
        "full": (1600, 40, LOG_SPACED, 100, 10),
    },
    some_sizes,
    errors_of_all,
    show_algorithms,
)

# --- Table I ----------------------------------------------------------------------------------

MOST = {"mult": 1000, "nnlsb": 100, "hals": 400}  # iterations
LARGE = 1000
PAPER_SECONDS = {  # on the authors' machine
    100: {"cr1-nmf": 0.03, "mult": 1.56, "nnlsb": 5.82, "hals": 0.46},
    1000: {"cr1-nmf": 0.26, "mult": 9.54, "nnlsb": 6.44, "hals": 3.01},
    10000: {"cr1-nmf": 1.85, "mult": 85.92, "nnlsb": 27.84, "hals": 17.39},
}


def times_to_error(rows: Experiment, N: int, run: int) -> Key:
    F, K, *_ = rows.size
    V = from_columns(make_cones(F, K, 0.2, n_samples=N, rng=rows.rng(N=N, matrix=run)).V)
    times = []
    for _ in range(6):  # it is over so soon; the first one compiles
        seconds, (W, H, _) = timed(partial(cr1_nmf, V, K, rng=rows.rng(N=N, run=run), tol=1e-3))
        times.append(seconds)
    target, ours = cr1_error(V, W, H), statistics.median(times[1:])
    found: Key = {"error": target, "cr1-nmf": ours}
    never = []
    for name, most in MOST.items():
        solve(V, *begin(V, K, "rand", name, rows.rng(N=N, run=run))[:2], name, 1)  # compiled
        began = time.process_time()

        def ends(now: Iteration, began: float = began) -> bool:
            late = time.process_time() - began > 200 * ours
            return late or now.relative_error <= target

        W, H, _ = begin(V, K, "rand", name, rows.rng(N=N, run=run))
        errors = solve(V, W, H, name, most, ends).history.relative_error
        found[name] = time.process_time() - began
        found[f"{name}, iterations"] = len(errors)
        if errors[-1] > target:
            never.append(name)
    return {**found, "not reached by": " ".join(never)}


def show_times(rows: list[Row]) -> Section:
    """Seconds to the error of cr1-nmf, as ratios, beside the paper's."""
    lines, cases = [], []
    for N, group in grouped(rows, "N").items():
        seconds, theirs = column(group, "cr1-nmf"), PAPER_SECONDS.get(int(N))
        cells = []
        for name in MOST:
            ratios = (np.array(column(group, name)) / seconds).tolist()
            never = sum(name in row["not reached by"].split() for row in group)
            paper = f" ({theirs[name] / theirs['cr1-nmf']:.1f})" if theirs else ""
            least = f", {never} never: at least that" if never else ""
            cells.append(f"{spread(ratios)}{paper}{least}")
            if int(N) >= LARGE:
                # the claim: "at least an order of magnitude"; a solver that was stopped is slower
                text = f"{name} at N = {N}: {spread(ratios)}, n {len(ratios)}"
                cases.append(tested(text, np.log(np.array(ratios) / 10)))
        iterations = "; ".join(spread(column(group, f"{name}, iterations")) for name in MOST)
        lines.append([N, len(group), f"{spread(seconds)} s", *cells, iterations])
    header = ["N", "runs", "cr1-nmf", *(f"{name} / cr1-nmf (paper)" for name in MOST)]
    claim = (
        f"From N = {LARGE} on the others take at least ten times as long to the error of cr1-nmf"
    )
    note = (
        "Seconds of the processor on one core. The paper does not say how many runs it had; its "
        "ratios, in brackets, are those of its means."
    )
    shown = table([*header, f"iterations of {', '.join(MOST)}"], lines)
    return Section([shown, note], [judged(claim, cases)])


TABLE_1 = Part(
    "Table I: time to the error of cr1-nmf",
    {  # F, K, values of N, runs
        "tiny": (200, 4, (60,), 2),
        "quick": (1600, 40, (100, 1000, 10000), 3),
        "full": (1600, 40, (100, 1000, 10000), 20),
    },
    lambda rows: every(run=range(rows.size[3]), N=rows.size[2]),
    times_to_error,
    show_times,
)

# --- the example ------------------------------------------------------------------------------

DUPLICATES = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
PAPER_ERRORS = {"rank-one NMF": 1.0, "mean direction": 1.0954}


def error_of_direction(rows: Experiment, way: str) -> dict[str, float]:
    w = DUPLICATES.sum(axis=1) / np.linalg.norm(DUPLICATES.sum(axis=1))
    if way == "rank-one NMF":
        w = cr1(from_columns(DUPLICATES), 1, rows.rng(way=way))[0][:, 0]
    return {"error": float(np.linalg.norm(DUPLICATES - np.outer(w, w @ DUPLICATES)))}


def show_example(rows: list[Row]) -> Section:
    """Both errors beside the paper's."""
    lines = [[row["way"], row["error"], PAPER_ERRORS[row["way"]]] for row in rows]
    cases = [Case(f"{w}: {float(e):.4f}", abs(float(e) - paper) < 1e-4) for w, e, paper in lines]
    verdict = judged("The errors of the example with duplicates are 1 and 1.0954", cases)
    return Section([table(["direction", "error", "the paper's"], lines)], [verdict])


EXAMPLE = Part(
    "Section VI-B2: the example with duplicates",
    dict.fromkeys(SCALES, DUPLICATES.tolist()),
    lambda rows: ({"way": way} for way in PAPER_ERRORS),
    error_of_direction,
    show_example,
)
