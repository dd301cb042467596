"""Beyond the paper: more inits and datasets, and its open problems. No claims of the paper here.

**Inits and solvers**: every init is followed by the same number of iterations of "hals" as it is by
default, accelerated, on the data themselves. "rand, best of ten" shares the iterations among ten
random inits, so that it costs the same time. From cr1-nmf the paper's plain solvers run too.

**Noise**: V = [cones + delta E]_+ as for Figure 3. Reports the error of cr1-nmf, its distance to
the samples without noise, both with their bounds (`noise_bound`), and how well the clusters are
found. Beside it stand `method="robust"`, with its bound (`trimmed_bound`) where its theorem applies
with every cone kept; cr1++, the best of four runs; and the clusters of spkm and nndsvd, which are
taken from the largest contributions to each sample.

**Centres drawn at random**: cr1++ draws each centre in proportion to the squared length that the
centres so far leave unexplained, and takes the best of r runs. Beside it is cr1-nmf with the best
of r first samples. nmi is that of the cones with the classes.

**One sample after the other**: `ConeNMF.partial_fit` sees every sample once. Reported is its error
on all samples, with exact coefficients, as a multiple of that of a fit of all samples at once;
beside it scikit-learn's MiniBatchNMF. Samples come in random order, or sorted by class, which is
the hardest order.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import numpy as np
from clustering import nmi
from presentation import Row, Section, Table, curves, grouped, judged
from protocol import Experiment, Part, column, curve, numbers
from sklearn.decomposition import MiniBatchNMF
from starts import ALL

from conenmf import (
    ConeNMF,
    Factorization,
    cr1_nmf,
    factorize,
    from_columns,
    from_rows,
    make_cones,
)
from conenmf.cones.bounds import noise_bound, trimmed_bound
from conenmf.cones.geometry import cone_geometry
from conenmf.cones.rank_one import cr1_error, cr1_plus_plus
from conenmf.cones.robust import centres_in_noise
from conenmf.data.blocks import Array
from conenmf.data.matrix import DataMatrix
from conenmf.datasets import load
from conenmf.judge.scores import scores
from conenmf.solve.coefficients import coefficients

Key = dict[str, object]
NOT_OURS = "no such experiment"
NOISE = {"cones": 0.0, "cones, delta 0.1": 0.1, "cones, delta 0.5": 0.5}


@lru_cache(maxsize=1)
def labelled(rows: Experiment, name: str) -> tuple[DataMatrix, int, Array]:
    """A dataset, or cones of the experiment's size; the number of components, and the classes."""
    if name not in NOISE:
        found = load(name)
        return from_rows(found.X), found.K, found.labels
    F, K, N = rows.size[1]
    model = make_cones(F, K, 0.2, n_samples=N, noise=NOISE[name], rng=rows.rng(data=name))
    return from_columns(model.V), K, model.labels


def means(rows: list[Row], names: list[str]) -> dict[str, float]:
    return {name: statistics.fmean(column(rows, name)) for name in names}


# --- inits and solvers ------------------------------------------------------------------------

BEST_OF = 10
PLAIN = ("plain-mult", "plain-nnlsb", "plain-hals")
CLOSE = 1.01
INITS = ALL | {"k-means": "kmeans", "rand, best of ten": "random", "auto": "auto"}


def all_fits(rows: Experiment) -> Iterator[Key]:
    names, _, runs = rows.size
    for name, number, init in product(rows.at_hand(names), range(runs), INITS):
        for solver in ("hals", *PLAIN) if init == "cr1-nmf" else ("hals",):
            yield {"dataset": name, "init": init, "solver": solver, "run": number}


def fit(rows: Experiment, dataset: str, init: str, solver: str, run: int) -> Key:
    V, K, truth = labelled(rows, dataset)
    rng = rows.rng(dataset=dataset, start=init, run=run)
    iterations = rows.size[1]

    def factored(count: int) -> tuple[Factorization, list[float], list[float]]:
        errors: list[float] = []
        seconds: list[float] = []
        began = time.process_time()

        def note(now) -> None:
            errors.append(now.relative_error)
            seconds.append(time.process_time() - began)

        options = {"init": INITS[init], "solver": solver, "max_iter": count, "tol": 0}
        found = factorize(V, K, rng=rng, callback=note, **options)
        return found, errors, seconds

    factored(1)  # compiled and warm
    if "best of" in init:
        found = [factored(max(1, iterations // BEST_OF)) for _ in range(BEST_OF)]
        best = min((result for result, *_ in found), key=lambda result: result.relative_error)
        errors = np.minimum.accumulate([errors[-1] for _, errors, _ in found])
        seconds = np.cumsum([seconds[-1] for *_, seconds in found])
    else:
        best, errors, seconds = factored(iterations)
    score = nmi(dataset, truth, best.labels)
    return {"K": K, "nmi": score, "errors": curve(errors), "seconds": curve(seconds)}


def reached(rows: list[Row], target: float) -> float:
    """Median seconds until an error was reached, init included; infinite if it was not."""
    times = []
    for row in rows:
        is_there = np.flatnonzero(numbers(row["errors"]) <= target)
        times.append(numbers(row["seconds"])[is_there[0]] if is_there.size else np.inf)
    return float(statistics.median(times))


def seconds_or_never(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "never"


def show_fits(rows: list[Row]) -> Section:
    """Errors, seconds and scores of every init, and the solvers side by side."""
    errors, seconds, agreement, solvers = [], [], [], []
    auto, faster, first, counts = [], [], [], []
    for name, here in grouped(rows, "dataset").items():
        ways = grouped(here, "init", "solver")
        if not {(init, "hals") for init in INITS} <= set(ways):
            continue  # not all have run yet
        fast = {init: ways[init, "hals"] for init in INITS}
        last = {
            init: statistics.mean(float(numbers(row["errors"])[-1]) for row in group)
            for init, group in fast.items()
        }
        lowest, best = min(last.values()), min(last, key=last.__getitem__)
        above = {init: error / lowest - 1 for init, error in last.items()}
        counts.append(min(map(len, ways.values())))
        each = [f"{above[init]:.2%}" for init in INITS]
        errors.append([name, counts[-1], f"{lowest:.5f}", *each])
        each = [seconds_or_never(reached(group, CLOSE * lowest)) for group in fast.values()]
        seconds.append([name, *each])
        each = [f"{statistics.mean(column(group, 'nmi')):.3f}" for group in fast.values()]
        agreement.append([name, *each])
        first.append((f"{name}: {best}, {above['cr1-nmf']:.2%} lower", above["cr1-nmf"] <= 0.005))
        auto.append((f"{name}: {above['auto']:.2%} above {best}", above["auto"] <= 0.01))
        target = CLOSE * last["cr1-nmf"]
        ours = {s: reached(group, target) for (i, s), group in ways.items() if i == "cr1-nmf"}
        solvers.append([name, *(seconds_or_never(ours[solver]) for solver in ("hals", *PLAIN))])
        quickest = min(ours, key=ours.__getitem__)
        faster.append((f"{name}: {quickest}", quickest == "hals"))
    claims = {
        "cr1-nmf ends lowest of all these inits, or within 0.5% of it": first,
        'init="auto" ends within 1% of the lowest of all': auto,
        "Our hals is the first to within 1% of its last error, of all solvers": faster,
    }
    tables = [
        Table(["last error", "runs", "lowest", *INITS], errors),
        Table(["seconds to 1% above the lowest", *INITS], seconds),
        Table(["nmi of labels", *INITS], agreement),
        Table(["from cr1-nmf, seconds to 1% above hals' last", "hals", *PLAIN], solvers),
    ]
    return Section(tables, [judged(claim, c, runs=counts) for claim, c in claims.items()])


INITS_AND_SOLVERS = Part(
    "Beyond the paper: other inits, our solver, more datasets",
    {  # datasets, iterations, runs
        "tiny": (["digits"], 10, 1),
        "quick": (
            ["digits", "tr11", "paviau_subset", "coil20_32x32", "orl_32x32", "indian_pines", "wap",
             "georgia_tech_crop", "re0", "k1b", "tr31", "pbmc68k_reduced"], 60, 6,
        ),
        "full": (
            ["digits", "orl_32x32", "orl_112x92", "yale_32x32", "coil20_32x32", "georgia_tech_crop",
             "faces94", "paviau_subset", "indian_pines", "pbmc68k_reduced", "tr11", "tr23", "tr31",
             "tr41", "tr45", "wap", "re0", "k1b"], 200, 10,
        ),
    },
    all_fits,
    fit,
    show_fits,
    (("dataset", "solver", "init"), NOT_OURS),
    is_ours=True,
)  # fmt: skip

# --- noise ------------------------------------------------------------------------------------

ASKED = (0.01, 0.03, 0.1, 0.3)
ALPHA = 0.2


def all_levels(rows: Experiment) -> Iterator[Key]:
    *_, levels, matrices = rows.size
    return ({"delta": d, "matrix": matrix} for matrix, d in product(range(matrices), levels))


def cluster_noisy(rows: Experiment, delta: float, matrix: int) -> Key:
    F, K, N, *_ = rows.size
    clean, noisy = (
        make_cones(F, K, ALPHA, n_samples=N, noise=noise, rng=rows.rng(matrix=matrix))
        for noise in (0.0, delta)
    )  # the noise is drawn last, so all else is the same
    V, X = from_columns(clean.V), from_columns(noisy.V)
    W, H, cones = cr1_nmf(X, K, rng=rows.rng(delta=delta, matrix=matrix))
    geometry = cone_geometry(V, clean.labels)
    E = noisy.V - clean.V
    noise = float(np.linalg.norm(E) / V.norm)
    each = np.linalg.norm(E, axis=0) / np.linalg.norm(clean.V, axis=0)
    apart = max(geometry.pairwise.value, 0.0)
    bound = noise_bound(geometry.angles, apart, noise, sample_noise=float(each.max()))
    W_robust, H_robust, robust = cr1_nmf(X, K, method="robust")
    W_drawn, H_drawn, drawn_cones = cr1_plus_plus(X, K, rng=rows.rng(matrix=matrix, start="cr1++"))
    labels = {"cr1-nmf": cones.labels, "robust": robust.labels, "cr1++": drawn_cones.labels}
    for init in ("spkm", "nndsvd"):
        rng = rows.rng(matrix=matrix, start=init)
        labels[init] = np.asarray(factorize(X, K, init=init, solver=None, rng=rng).labels)
    return {
        "noise / data": noise,
        "error": cr1_error(X, W, H),
        "bound of error": bound.error,
        "distance to clean": float(np.linalg.norm(clean.V - W @ H) / V.norm),
        "bound of distance": bound.clean,
        "clusters are certain": bound.clusters_kept,
        "error of robust": cr1_error(X, W_robust, H_robust),
        **_bound_of_robust(clean.V, noisy.V, clean.labels, K),
        "error of cr1++": cr1_error(X, W_drawn, H_drawn),
        **{f"nmi of {name}": scores(clean.labels, found)["nmi"] for name, found in labels.items()},
        **{f"cones of {name}": _cones_found(clean.labels, x) for name, x in labels.items()},
    }


def _cones_found(labels: Array, found: Array) -> int:
    """How many cones send most of the samples of some cluster."""
    clusters = np.unique(found[found >= 0])
    return len({int(np.bincount(labels[found == k]).argmax()) for k in clusters})


def _bound_of_robust(V: Array, X: Array, labels: Array, K: int) -> Key:
    """What the theorem on robust centres says, given the noise, before the steps of Lloyd.

    The samples of G are labelled right if every cone has one. Its bound is 1 if not.
    """
    Q = np.linalg.qr(centres_in_noise(from_columns(X), K).axes)[0]
    clean, Y = Q.T @ V, Q.T @ X
    r = float(np.linalg.norm(Y - clean, axis=0).max())
    found = centres_in_noise(from_columns(X), K, noise=r, lloyd_steps=0)
    length = np.linalg.norm(Y, axis=0)
    turns = np.where(length > r, np.arcsin(np.minimum(r / length, 1.0)), np.pi / 2)
    good = 2 * turns + 2 * found.largest_turn < _separation(clean, labels)
    bound, kept = 1.0, np.unique(labels[good]).size == K
    if kept:
        parts = [V[:, good & (labels == k)] for k in range(K)]
        left = sum((np.linalg.svd(part, compute_uv=False)[1:] ** 2).sum() for part in parts)
        norm = np.linalg.norm(V[:, good])
        share = float((X[:, good] ** 2).sum() / (X**2).sum())
        noise = float(np.linalg.norm((X - V)[:, good]) / norm)
        bound = trimmed_bound(float(np.sqrt(left) / norm), noise, share)
    return {"bound of robust": bound, "every cone is kept": kept, "good samples": good.mean()}


def _separation(P: Array, labels: Array) -> float:
    """The smallest angle between samples of different cones minus the largest within one."""
    unit = (P / np.linalg.norm(P, axis=0)).T
    highest, lowest = -1.0, 1.0  # cosines: between cones, and within one
    for first in range(0, len(unit), 1000):
        cosines = unit[first : first + 1000] @ unit.T
        same = labels[first : first + 1000, None] == labels
        highest = max(highest, float(cosines.max(where=~same, initial=-1.0)))
        lowest = min(lowest, float(cosines.min(where=same, initial=1.0)))
    return float(np.arccos(highest) - np.arccos(lowest))


def show_noise(rows: list[Row]) -> Section:
    """Means over the matrices, and whether the bounds hold wherever clusters are right."""
    counted = ("clusters are certain", "every cone is kept")
    columns = [name for name in rows[0] if name not in ("delta", "matrix", *counted)]
    groups = grouped(rows, "delta")
    levels = sorted(map(float, groups))
    groups = {delta: groups[str(delta)] for delta in levels}
    found = {delta: means(group, columns) for delta, group in groups.items()}
    lines = []
    for delta, group in groups.items():
        held = [sum(row[name] == "True" for row in group) for name in counted]
        told = (f"{n} of {len(group)}" for n in held)
        lines.append([delta, *(f"{found[delta][name]:.4f}" for name in columns), *told])
    drawn = {name: (levels, [found[delta][name] for delta in levels]) for name in columns}
    panels = {
        "relative to ||V||": {n: drawn[n] for n in columns if "error" in n or "bound" in n},
        "nmi of the clusters": {n[7:]: drawn[n] for n in columns if n.startswith("nmi")},
    }
    panels["relative to ||V||"]["distance to clean"] = drawn["distance to clean"]
    text = "Errors, bounds and clusters against noise"
    picture = curves("open_noise", text, panels, 2, xscale="log", xlabel="delta")
    below = _below("error", "bound of error"), _below("distance to clean", "bound of distance")
    verdicts = [
        judged(
            "Where the clusters are right, error and distance are below their bounds",
            _cases([row for row in rows if _right(row)], lambda row: all(b(row) for b in below)),
        ),
        judged(
            "Where the clusters are certain to be right, they are",
            _cases([row for row in rows if row["clusters are certain"] == "True"], _right),
        ),
        judged(
            "Where robust centres are proved to keep every cone, their error is below its bound",
            _cases(
                [row for row in rows if row["every cone is kept"] == "True"],
                _below("error of robust", "bound of robust"),
            ),
        ),
        judged(
            "Robust centres find the clusters better than spkm, in the mean",
            (
                (f"delta {delta}: {one['nmi of robust']:.3f} against {one['nmi of spkm']:.3f}",
                 one["nmi of robust"] >= one["nmi of spkm"])
                for delta, one in found.items()
            ),
            runs=[len(group) for group in groups.values()],
        ),
    ]  # fmt: skip
    header = ["delta", *columns, "certain", "all cones kept"]
    return Section([picture, Table(header, lines)], verdicts)


def _right(row: Row) -> bool:
    return float(row["nmi of cr1-nmf"]) > 1 - 1e-9


def _below(name: str, bound: str):
    return lambda row: float(row[name]) <= float(row[bound]) + 1e-9


def _cases(rows: list[Row], holds) -> Iterator[tuple[str, bool]]:
    return ((f"delta {row['delta']}, matrix {row['matrix']}", holds(row)) for row in rows)


OPEN_NOISE = Part(
    "Open problem: noise",
    {  # F, K, N, values of delta, matrices
        "tiny": (100, 4, 200, (0.0, 0.05), 1),
        "quick": (
            400,
            10,
            2000,
            (0.0, 0.001, 0.003, 0.01, 0.03, 0.04, 0.05, 0.1, 0.2, 0.3, 0.5),
            5,
        ),
        "full": (1600, 40, 10000, (*ASKED, 1e-6, 1e-5, 0.0003, 0.001, 0.02), 20),
    },  # the paper's size
    all_levels,
    cluster_noisy,
    show_noise,
    (("delta",), NOT_OURS),
    is_ours=True,
)

# --- centres drawn at random ------------------------------------------------------------------

COLUMNS = ("error", "after hals", "nmi", "seconds")
JUDGED = 4  # the r by default
EQUAL = 0.001
CLAIMS = {  # whether smaller is better
    "error": (1, "the error of cr1++ is at most that of cr1-nmf"),
    "after hals": (1, "so it is after hals"),
    "nmi": (-1, "cones of cr1++ fit the classes as well or better"),
}


def all_draws(rows: Experiment) -> Iterator[Key]:
    names, _, runs, repetitions, _ = rows.size
    for name, r in product([*NOISE, *rows.at_hand(names)], runs):
        count = (2 if r == JUDGED else 1) * repetitions
        for number, way in product(range(count), ("cr1-nmf", "cr1++")):
            yield {"dataset": name, "init": way, "r": r, "run": number}


def best_of_r(rows: Experiment, dataset: str, init: str, r: int, run: int) -> Key:
    V, K, truth = labelled(rows, dataset)
    rng = rows.rng(dataset=dataset, start=init, r=r, run=run)
    began = time.process_time()
    if init == "cr1++":
        W, H, cones = cr1_plus_plus(V, K, rng=rng, runs=r)
    else:
        found = [cr1_nmf(V, K, rng=rng) for _ in range(r)]
        W, H, cones = min(found, key=lambda factors: cr1_error(V, *factors[:2]))
    seconds = time.process_time() - began
    options = {"solver": "hals", "max_iter": rows.size[-1], "tol": 0}
    then = factorize(V, K, init=lambda *_: (W, None), **options)
    score = nmi(dataset, truth, cones.labels)
    values = (cr1_error(V, W, H), then.relative_error, score, seconds)
    return dict(zip(COLUMNS, values, strict=True))


def show_draws(rows: list[Row]) -> Section:
    """Errors against r, of the rank-one factors and after the solver."""
    runs = sorted({int(row["r"]) for row in rows})
    panels, lines = {}, []
    cases: dict[str, list[tuple[str, bool]]] = {name: [] for name in CLAIMS}
    for name, here in grouped(rows, "dataset").items():
        groups = grouped(here, "init", "r")
        found = {(init, int(r)): means(group, COLUMNS) for (init, r), group in groups.items()}
        if len(found) < 2 * len(runs) or JUDGED not in runs:
            continue  # not all have run yet
        panels[name] = {
            init: (runs, [found[init, r]["error"] for r in runs]) for init in ("cr1-nmf", "cr1++")
        }
        for init, r in product(("cr1-nmf", "cr1++"), runs):
            cells = (f"{found[init, r][one]:.{3 + (one in COLUMNS[:2])}f}" for one in COLUMNS)
            lines.append([name, init, r, *cells])
        for one, (better, _) in CLAIMS.items():
            greedy, drawn = (found[init, JUDGED][one] for init in ("cr1-nmf", "cr1++"))
            text = f"{name}: {drawn:.4f} against {greedy:.4f}"
            cases[one].append((text, better * drawn <= better * greedy + EQUAL * greedy))
    counted = [row for row in rows if int(row["r"]) == JUDGED and row["init"] == "cr1++"]
    repeated = [len(group) for group in grouped(counted, "dataset").values()]
    verdicts = [
        judged(f"Best of {JUDGED}: {claim} (within 0.1%)", cases[one], runs=repeated)
        for one, (_, claim) in CLAIMS.items()
    ]
    marks = {"xscale": "log", "xlabel": "best of r", "ylabel": "error"}
    picture = curves("open_sampling", "Error against the number of runs", panels, 3, **marks)
    return Section([picture, Table(["dataset", "init", "r", *COLUMNS], lines)], verdicts)


SOME_SETS = ["digits", "orl_32x32", "georgia_tech_crop", "paviau_subset", "tr11", "wap"]
OPEN_SAMPLING = Part(
    "Open problem: centres drawn at random (cr1++)",
    {  # datasets, cones (F, K, N), values of r, repetitions, iterations of hals
        "tiny": (["digits"], (100, 4, 200), (1, 4), 1, 5),
        "quick": (SOME_SETS, (400, 10, 2000), (1, 2, 4, 8, 16), 3, 30),
        "full": (SOME_SETS, (1600, 40, 10000), (1, 2, 4, 8, 16), 20, 100),
    },
    all_draws,
    best_of_r,
    show_draws,
    (("dataset", "init", "r"), NOT_OURS),
    is_ours=True,
)

# --- one sample after the other ---------------------------------------------------------------

BATCH = 100
WAYS = ("at once", "stream", "scikit-learn")


def all_orders(rows: Experiment) -> Iterator[Key]:
    names, _, repetitions = rows.size
    sets = [name for name, noise in NOISE.items() if noise < 0.5] + rows.at_hand(names)
    for name, order, number in product(sets, ("random", "sorted"), range(repetitions)):
        yield {"dataset": name, "order": order, "run": number}


@lru_cache(maxsize=1)
def all_at_once(rows: Experiment, name: str) -> tuple[object, float]:
    """Samples in rows, and the error of a fit of all of them."""
    V, K, _ = labelled(rows, name)
    X = load(name).X.astype(float) if name not in NOISE else (V.columns(range(V.shape[1]))).T
    X = X if name not in NOISE else np.ascontiguousarray(X)
    return X, factorize(from_rows(X), K, init="cr1").relative_error


def stream(rows: Experiment, dataset: str, order: str, run: int) -> Key:
    _, K, labels = labelled(rows, dataset)
    X, at_once = all_at_once(rows, dataset)
    rng = rows.rng(dataset=dataset, order=order, run=run)
    index = rng.permutation(len(labels))
    if order == "sorted":
        index = index[np.argsort(rng.permutation(labels.max() + 1)[labels[index]], kind="stable")]
    theirs = MiniBatchNMF(K, batch_size=BATCH, random_state=int(rng.integers(2**31)))
    V = from_rows(X)
    found: Key = {"at once": at_once}
    for way, model in {"stream": ConeNMF(K), "scikit-learn": theirs}.items():
        for begin in range(0, len(index), BATCH):
            model.partial_fit(X[index[begin : begin + BATCH]])
        squared = coefficients(V, np.ascontiguousarray(model.components_.T))[2]
        found[way] = float(np.sqrt(squared / V.total))
    return found


def show_streams(rows: list[Row]) -> Section:
    """Ratios to a fit of everything at once."""
    lines, near, ahead, runs = [], [], [], []
    for (name, order), group in grouped(rows, "dataset", "order").items():
        mean = means(group, WAYS)
        ours, theirs = (mean[way] / mean["at once"] for way in WAYS[1:])
        lines.append([name, order, f"{mean['at once']:.5f}", f"{ours:.3f}", f"{theirs:.3f}"])
        near.append((f"{name}, {order}: {ours:.3f}", ours <= 1.02))
        ahead.append((f"{name}, {order}: {ours:.3f} against {theirs:.3f}", ours <= theirs))
        runs.append(len(group))
    header = ["dataset", "order", "all at once", "stream / at once", "MiniBatchNMF / at once"]
    verdicts = [
        judged("One epoch of partial_fit ends within 2% of a fit of all samples", near, runs=runs),
        judged("It ends at or below scikit-learn's MiniBatchNMF", ahead, runs=runs),
    ]
    return Section([Table(header, lines)], verdicts)


OPEN_ONLINE = Part(
    "Open problem: one sample after the other",
    {  # datasets, cones (F, K, N), repetitions
        "tiny": (["digits"], (60, 4, 300), 1),
        "quick": (["digits", "coil20_32x32", "tr11", "wap"], (400, 12, 3000), 6),
        "full": (["digits", "coil20_32x32", "georgia_tech_crop", "tr11", "wap", "indian_pines"],
                 (1600, 40, 10000), 10),
    },
    all_orders,
    stream,
    show_streams,
    (("dataset", "order"), NOT_OURS),
    is_ours=True,
)  # fmt: skip
