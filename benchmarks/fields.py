"""Beside programs of fields: cells (cNMF), donors, signatures, measurements (esat), scenes (VCA).

    python benchmarks/fields.py cells [--peer PYTHON] [--seeds 1 2 3]
    python benchmarks/fields.py donors [NAME ...] [--peer PYTHON] [--seeds 1 3 5] [--methods groups]
    python benchmarks/fields.py signatures [--levels Moderate Realistic] [--seeds 1 3 5]
    python benchmarks/fields.py measurements [--peer PYTHON]
    python benchmarks/fields.py hyperspy [--peer PYTHON]
    python benchmarks/fields.py scenes

``--peer`` names the Python of an environment that has the package of the field.

``cells``: 5000 cells of 3000 genes are drawn from 7 programs. Both read the same .h5ad file, choose
2000 genes, make 20 replicates, form the consensus and write their tables, each in a process with
one thread. Printed are CPU seconds and the mean cosine of the spectra (TPM) with the truth. Then
the sorted cells in the folder ``pbmc_facs`` of CONENMF_DATA, if they are there, with as many
programs as types.
``donors``: cells of several donors, as ``donors.py`` draws and measures them; NAME is one of the
kinds of draws in DRAWS. Printed are means over draws, for methods that know K: the consensus of 20
fits (``today``); the same with groups, whose scales may be held at one; scales and a table at fixed
shares, at once and in steps; fits of donors with 4 to 9 programs each, clustered; integrative NMF
with as many programs as are shared, and one more; and with ``--peer``, an environment that has
harmonypy, the correction of cNMF. Even seeds chose the constants; odd ones did not.
``signatures``: drawn catalogues with K given and 8 runs. Printed are the score and in what share of
the larger bars the limits hold the truth, without and with dropped activities; these are dropped
as was best on even seeds. Then synthetic catalogues with their truth, in the folder ``signatures``
of CONENMF_DATA. The score of Liu et al. (2023) is PPV + TPR + the mean cosine of true positives,
matched one to one, true above a cosine of 0.9; the steps are those of ``conenmf signatures``. The
published score of SigProfilerExtractor on the level Realistic is 2.589 on SBS_set1 and 2.747 on
indel_set1. Other constants were chosen on the level Moderate and on drawn catalogues.
``measurements``: the weighted sum of squares Q of the air-quality data in the folder ``esat`` of
CONENMF_DATA, at the same K, uncertainties and samples as esat's default batch of 20 models of
ls-nmf (its updates in NumPy: the compiled ones of 2025.0.1 minimise another objective), and the
cosines of our profiles with those of its best model; then again with a tenth of the entries hidden.
``hyperspy``: four scenes of 40 x 50 pixels and 200 channels are drawn from three peaks, as counts.
Both algorithms run inside hyperspy's ``decomposition``, in memory and lazily. Printed are the mean
cosine with the true spectra and CPU seconds, means over the scenes.
``scenes``: 20 scenes a cell of 2500 pixels, 150 bands and 3 to 5 materials from each of two
generators. Printed are the mean angle to the true spectra and the RMSE of abundances with sum one,
for vertex component analysis (Nascimento and Bioucas-Dias, 2005), `ConeNMF.for_scenes`, and the
pair ``sum_to_one=True, min_volume="auto"``, and mean CPU seconds; then those of a plain fit, and
the most iterations of the pair. Draws have odd seeds; the models were designed on even ones. Then
samson, if it is in CONENMF_DATA: NNLS coefficients of endmembers of maximum one, divided by their
sum, as in its reference.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import anndata
import numpy as np
import pandas as pd
import scipy.sparse as sp
from donors import (
    Draw,
    clustered,
    corrected,
    draw_ambient,
    draw_disjoint,
    draw_donors,
    draw_identities,
    integrated,
    measures,
    principal,
    scaled_rounds,
)
from measure import DATA, command, heading, numbers, row, timed
from scipy.ndimage import gaussian_filter
from scipy.optimize import nnls
from sklearn.metrics import adjusted_rand_score as adjusted_rand

import conenmf
from conenmf import ConeNMF, __version__, factorize, from_columns, from_rows
from conenmf.fields.cells import find_programs
from conenmf.judge.choose_k import select_k
from conenmf.judge.matching import match_components, match_spectra
from conenmf.judge.stability import stability
from conenmf.solve.constraints import sum_to_one
from conenmf.solve.groups import Scales, estimate_scales

N_GENES, N_CELLS, PROGRAMS = 3000, 5000, 7
SEEDS = 1, 2, 3, 4, 5, 6
OURS = """
import sys, time
from conenmf import open_data
from conenmf.fields.cells import find_programs
from conenmf.fields.cells import write_programs
file, folder, K = sys.argv[1:]
began = time.process_time()
programs = find_programs(open_data(file, n_threads=1), int(K), 20, n_genes=2000)
write_programs(programs, folder + "/run", "run")
print(time.process_time() - began)
"""
CNMF = """
import sys, time
from cnmf import cNMF
file, folder, K = sys.argv[1:]
began = time.process_time()
model = cNMF(output_dir=folder, name="run")
model.prepare(counts_fn=file, components=[int(K)], n_iter=20, seed=14, num_highvar_genes=2000)
model.factorize(worker_i=0, total_workers=1)
model.combine()
model.consensus(k=int(K), density_threshold=0.5, show_clustering=False)
print(time.process_time() - began)
"""
ESAT = """
import contextlib, io, sys, time
import numpy as np
from esat.model.batch_sa import BatchSA
from esat.model.sa import SA
given = np.load(sys.argv[1])
X, sigma = given["X"], given["sigma"]
begin = SA.__init__
def with_numpy(self, *values, **options):
    begin(self, *values, **options)
    self.optimized = False
SA.__init__ = with_numpy
began = time.process_time()
batch = BatchSA(V=X, U=sigma, factors=int(given["K"]), parallel=False, verbose=False)
with contextlib.redirect_stdout(io.StringIO()):
    batch.train()
seconds = time.process_time() - began
known = ~given["hidden"]
Qs = [((((X - one.W @ one.H) / sigma) ** 2)[known]).sum() for one in batch.results]
best = batch.results[int(np.argmin(Qs))]
np.savez(sys.argv[2], W=best.W, H=best.H)
print(f"esat, {len(Qs)} models: least Q {min(Qs):.1f}, median {np.median(Qs):.1f}, {seconds:.2f} s")
"""
HYPERSPY = """
import sys, time
sys.path.insert(0, sys.argv[2])
import hyperspy.api as hs
import numpy as np
from conenmf import ConeNMF
from conenmf.judge.matching import match_components
hs.preferences.General.show_progressbar = False
given = np.load(sys.argv[1])
own = {"algorithm": "NMF", "output_dimension": 3}
for is_lazy in (False, True):
    for name in ("ConeNMF", "NMF of hyperspy"):
        found = []
        for n in (0, *range(len(given["scenes"]))):  # the first one compiles
            signal = hs.signals.Signal1D(given["scenes"][n])
            signal = signal.as_lazy() if is_lazy else signal
            how = {"algorithm": ConeNMF(3, n_threads=1)} if name == "ConeNMF" else own
            began = time.process_time()
            signal.decomposition(print_info=False, **how)
            seconds = time.process_time() - began
            factors = np.asarray(signal.learning_results.factors)
            found.append((match_components(given["spectra"][n].T, factors)[1].mean(), seconds))
        cosine, seconds = np.mean(found[1:], axis=0)
        place = "lazy" if is_lazy else "in memory"
        print(f"| {name} | {place} | {cosine:.3f} | {seconds:.2f} |")
"""


def run(python: str, program: str, *arguments: object) -> str:
    """What a program prints in another environment, with one thread; "" if it cannot run."""
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    command = [python, "-W", "ignore", "-c", program, *map(str, arguments)]
    environment = os.environ | threads
    if python != sys.executable:
        environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        print(done.stderr.splitlines()[-1])
    return done.stdout


def draw_cells(rng: np.random.Generator) -> tuple[sp.csr_matrix, np.ndarray]:
    """Counts (cells, genes) and the spectra (genes, programs) that they are drawn from.

    A program multiplies a tenth of the genes of a lognormal base by lognormal(2, 0.5). The first
    six are identities, of which every cell has one; three in ten cells use the last one, an
    activity, with a share of 0.1 to 0.4. A cell has lognormal(log(1000), 0.5) counts.
    """
    spectra = np.tile(rng.lognormal(0.0, 1.0, (N_GENES, 1)), PROGRAMS)
    for k in range(PROGRAMS):
        own = rng.choice(N_GENES, N_GENES // 10, replace=False)
        spectra[own, k] *= rng.lognormal(2.0, 0.5, own.size)
    spectra /= spectra.sum(axis=0)
    active = rng.uniform(0.1, 0.4, N_CELLS) * (rng.random(N_CELLS) < 0.3)
    usage = np.zeros((N_CELLS, PROGRAMS))
    usage[np.arange(N_CELLS), rng.integers(PROGRAMS - 1, size=N_CELLS)] = 1 - active
    usage[:, -1] = active
    totals = rng.lognormal(np.log(1000), 0.5, N_CELLS).astype(int)
    return sp.csr_matrix(rng.multinomial(totals, usage @ spectra.T).astype(np.float32)), spectra


def cells(peer: str = sys.executable, seeds: tuple[int, ...] = SEEDS) -> None:
    """Gene programs, beside cNMF."""
    for seed in seeds:
        counts, truth = draw_cells(np.random.default_rng(seed))
        for name, (seconds, spectra, _) in _both(peer, counts, PROGRAMS).items():
            cosine = match_components(truth, spectra)[1].mean()
            print(f"seed {seed}, {name}: {seconds:.1f} CPU s, cosine {cosine:.4f}", flush=True)
    folder = DATA / "pbmc_facs"
    if not folder.exists():
        return
    counts = sp.csr_matrix(sp.load_npz(folder / "counts.npz").astype(np.float32))
    counts = counts[:, np.asarray((counts > 0).sum(axis=0)).ravel() > 0]
    types = pd.read_csv(folder / "samples.csv")["subpop"].to_numpy()
    found = _both(peer, counts, len(np.unique(types)))
    for name, (seconds, _, usages) in found.items():
        labels = usages.argmax(axis=1)
        index = adjusted_rand(types, labels)
        print(f"pbmc_facs, {name}: {seconds:.1f} CPU s, adjusted Rand index {index:.3f}")
    if len(found) == 2:
        ours, theirs = (one[1] for one in found.values())
        cosines = np.sort(match_components(ours, theirs)[1])
        print(f"    cosines between the spectra of both {cosines.round(3).tolist()}")


def _both(
    peer: str, counts: sp.csr_matrix, K: int
) -> dict[str, tuple[float, np.ndarray, np.ndarray]]:
    """CPU seconds, spectra in TPM (genes, K) and usages (cells, K) of conenmf and of cNMF."""
    genes = pd.DataFrame(index=[f"g{n}" for n in range(counts.shape[1])])
    rows = pd.DataFrame(index=[f"c{n}" for n in range(counts.shape[0])])
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "cells.h5ad")
        anndata.AnnData(counts, obs=rows, var=genes).write_h5ad(file)
        for name, python, program in (("conenmf", sys.executable, OURS), ("cnmf", peer, CNMF)):
            place = Path(folder, name)
            place.mkdir()
            seconds = run(python, program, file, place, K)
            if seconds:
                kinds = (f"gene_spectra_tpm.k_{K}.dt_0_5", f"usages.k_{K}.dt_0_5.consensus")
                paths = [place / "run" / f"run.{kind}.txt" for kind in kinds]
                tables = [pd.read_csv(path, sep="\t", index_col=0) for path in paths]
                spectra = tables[0][genes.index].to_numpy().T
                usages = tables[1].loc[rows.index].to_numpy()
                found[name] = float(seconds.split()[-1]), spectra, usages
    return found


HARMONY = """
import logging, sys
import harmonypy
import numpy as np
import pandas as pd
logging.disable(logging.CRITICAL)
given = np.load(sys.argv[1])
labels = pd.DataFrame({"donor": given["donors"].astype(str)})
found = harmonypy.run_harmony(given["places"], labels, ["donor"])
np.save(sys.argv[2], found.R)
"""


def _shuffled(draw: Draw) -> Draw:
    return draw.grouped(np.random.default_rng(0).permutation(draw.donors))


def _of_five(draw: Draw) -> Draw:
    return draw.grouped(np.arange(len(draw.donors)) // 5)


many = partial(draw_donors, D=16, n_cells=100, shared=8)
wide = partial(draw_donors, sd=0.0, D=20, n_cells=60, F=5000)
DRAWS = {
    "sd-0.4": draw_donors,
    "sd-0.8": partial(draw_donors, sd=0.8),
    "16-donors": many,
    "identities": draw_identities,
    "ambient": draw_ambient,
    "no-effect": partial(draw_donors, sd=0.0),
    "shuffled": lambda seed: _shuffled(draw_donors(seed, 0.0)),
    "of-five": lambda seed: _of_five(draw_donors(seed, 0.0)),
    "5000-genes": wide,
    "private-0": partial(draw_donors, sd=0.0, constant="private"),
    "private-0.4": partial(draw_donors, constant="private"),
    "disjoint": draw_disjoint,
    "treatment": partial(draw_donors, constant="treatment"),
}


def _programs(draw: Draw, more: int = 0, **options: object) -> tuple[np.ndarray, np.ndarray]:
    """Usages and spectra of gene programs."""
    found = find_programs(draw.counts, draw.K + more, 20, n_genes=2000, **options)
    return found.usages, found.spectra_tpm


def _without_scales(draw: Draw) -> tuple[np.ndarray, np.ndarray]:
    """Usages and spectra of programs whose groups have scales of one."""

    def neutral(*given: object, **options: object) -> Scales:
        found = estimate_scales(*given, **options)
        same = {
            name: np.ones_like(getattr(found, name)) for name in ("scales", "features", "groups")
        }
        return replace(found, variance=0.0, **same)

    with (
        mock.patch("conenmf.solve.groups.estimate_scales", neutral),
        mock.patch("conenmf.fields.donors.estimate_scales", neutral),
    ):
        return _programs(draw, groups=draw.donors)


def _with_harmony(draw: Draw, python: str) -> tuple[np.ndarray, np.ndarray]:
    """Usages and spectra of the consensus of counts that are corrected as in cNMF."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "given.npz")
        np.savez(file, places=principal(draw), donors=draw.donors)
        run(python, HARMONY, file, Path(folder, "found.npy"))
        memberships = np.load(Path(folder, "found.npy"))
    found = stability(from_rows(corrected(draw, memberships)), draw.K, 20, resample="start")
    return found.H.T, found.W * draw.counts.std(axis=0)[:, None]


AT_ONCE = ((120, 0.05),)
IN_STEPS = ((60, 0.01), (100, 0.02), (140, 0.03), (180, 0.04))


def donors(
    *names: str,
    seeds: tuple[int, ...] = (1, 3, 5),
    methods: tuple[str, ...] = ("",),
    peer: str = "",
) -> None:
    """Programs of cells of many donors, beside other methods."""
    print(f"conenmf {__version__}; means over seeds {', '.join(map(str, seeds))}")
    for name in names or DRAWS:
        marks: dict[str, list[dict[str, float]]] = {}
        for seed in seeds:
            draw = DRAWS[name](seed)
            spent, today = timed(lambda draw=draw: _programs(draw))
            contenders = {
                "today": lambda today=today: today,
                "groups": lambda draw=draw: _programs(draw, groups=draw.donors),
                "groups, scales of one": lambda draw=draw: _without_scales(draw),
                "groups, K - 3": lambda draw=draw: _programs(draw, -3, groups=draw.donors),
                "groups, K + 3": lambda draw=draw: _programs(draw, 3, groups=draw.donors),
                "shares of 5 % at once": lambda d=draw, t=today: scaled_rounds(d, *t, AT_ONCE),
                "shares in steps": lambda d=draw, t=today: scaled_rounds(d, *t, IN_STEPS),
                "single donors": lambda draw=draw: clustered(draw, draw.K),
                "integrative NMF": lambda d=draw: integrated(d, int(d.is_shared.sum()) + 1),
                "Harmony as in cNMF": lambda draw=draw: _with_harmony(draw, peer),
            }
            for method, find in contenders.items():
                if (methods[0] and method not in methods) or ("Harmony" in method and not peer):
                    continue
                seconds, found = timed(find)
                seconds += spent if method == "today" else 0
                figures = {**measures(draw, *found), "CPU s": seconds}
                marks.setdefault(method, []).append(figures)
        print(f"\n{name}, {len(seeds)} draws")
        columns = [*next(iter(marks.values()))[0]]
        heading("method", *columns)
        for method, figures in marks.items():
            means = [float(np.mean([one[key] for one in figures])) for key in columns]
            row(method, *(f"{mean:.3f}" for mean in means))


def score(W: np.ndarray, truth: np.ndarray) -> float:
    """PPV + TPR + mean cosine of true positives, of signatures in columns."""
    pair = (W, truth) if W.shape[1] <= truth.shape[1] else (truth, W)
    cosines = match_components(*pair)[1]
    true = cosines[cosines > 0.9]
    return true.size / W.shape[1] + true.size / truth.shape[1] + (true.mean() if true.size else 0.0)


# Types, signatures, tumours, how uneven types are, counts of a tumour, dispersion.
OF_COUNTS = {"loss": "poisson", "resample": "counts"}
CATALOGUES = {
    "substitutions": (96, 20, 500, 0.7, 5000, 0.05),
    "indels": (83, 11, 1000, 1.5, 700, 0.1),
    "doublets": (78, 8, 400, 1.0, 150, 0.05),
}


def draw_catalogue(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts (types, tumours) and the signatures (types, K) that they are drawn from.

    Some types are frequent in all signatures; a signature has few bars or many. There are nine
    cancers. A fifth of the signatures are in most tumours, others in some tumours of some cancers.
    """
    F, K, N, spread, total, phi = CATALOGUES[kind]
    rng = np.random.default_rng([seed, F])
    base = rng.lognormal(0, spread, F)
    base /= base.sum()
    W = np.array([rng.dirichlet(np.exp(rng.uniform(0, 4)) * base) for _ in range(K)])
    W = (0.98 * W + 0.02 * base).T
    cancer = rng.integers(9, size=N)
    share = rng.uniform(0.1, 1, (K, 9)) * (rng.random((K, 9)) < 0.3)
    share[: K // 5] = rng.uniform(0.6, 1, (K // 5, 9))
    H = (rng.random((K, N)) < share[:, cancer]) * rng.lognormal(0, 0.7, (K, 9))[:, cancer]
    H = H * rng.lognormal(0, 0.8, (K, N))
    H = H[:, H.any(axis=0)]
    rates = W @ (H * (total / np.median(H.sum(axis=0))))
    counts = rng.poisson(rates * rng.gamma(1 / phi, phi, rates.shape)).astype(float)
    return counts[:, counts.any(axis=0)], W


def signatures(
    levels: tuple[str, ...] = ("Moderate", "Realistic"), seeds: tuple[int, ...] = SEEDS
) -> None:
    """Signatures of catalogues whose truth is known."""
    for kind in CATALOGUES:
        marks = []
        for seed in seeds:
            counts, truth = draw_catalogue(kind, seed)
            V = from_columns(counts)
            found = [
                stability(V, truth.shape[1], 8, prune=prune, **OF_COUNTS) for prune in (False, True)
            ]
            large = truth > 1 / len(truth)
            rows = []
            for one in found:
                order, cosines = match_components(truth, one.W)
                limits = one.lower[:, order], one.upper[:, order]
                own = large & np.isfinite(limits[0]) & (cosines > 0.9)
                inside = (limits[0] <= truth) & (truth <= limits[1])
                rows += [score(one.W, truth), inside[own].mean()]
            marks.append(rows)
            print(kind, f"seed {seed}:", np.round(rows, 3).tolist(), flush=True)
        print(kind, "mean:", np.round(np.mean(marks, axis=0), 3).tolist(), flush=True)
    root = DATA / "signatures"
    for folder in sorted(root.iterdir()) if root.exists() else ():
        if not (folder / "signatures.csv").exists():
            continue
        truth = numbers(folder / "signatures.csv")
        for level in levels:
            V = from_columns(numbers(folder / f"catalog_{level}.csv"))
            seconds, K = timed(lambda V=V: select_k(V, loss="poisson").K)
            more, found = timed(lambda V=V, K=K: stability(V, K, 20, prune=True, **OF_COUNTS))
            consensus, best = score(found.W, truth), score(found.best_run, truth)
            print(
                f"{folder.name} {level}: K = {K} of {truth.shape[1]}, {seconds + more:.0f} s, of "
                f"these {seconds:.0f} for K\n    score of the consensus {consensus:.3f}, of the "
                f"best run {best:.3f}",
                flush=True,
            )


def measurements(peer: str = sys.executable) -> None:
    """Air quality, beside esat."""
    root = DATA / "esat"
    for name, K, mark in (("Baltimore_{}.txt", 7, "\t"), ("BatonRouge-{}.csv", 6, ",")):
        X, sigma = (
            np.genfromtxt(root / name.format(kind), delimiter=mark)[1:, 1:]
            for kind in ("con", "unc")
        )
        good = np.isfinite(X).any(axis=1)  # the holes of Baltimore are whole samples
        X, sigma = np.maximum(X[good], 0), sigma[good]
        for share in (0.0, 0.1):
            hidden = np.random.default_rng(0).random(X.shape) < share
            V = from_rows(np.where(hidden, np.nan, X), missing="nan", sigma=sigma)
            factorize(V, 2, max_iter=2)  # compiles
            seconds, fit = timed(lambda V=V, K=K: factorize(V, K))
            print(
                f"{name[:10]}, K = {K}, {share:.0%} hidden: Q {fit.objective:.1f}, "
                f"{_off(fit.W @ fit.H, X.T, sigma.T, hidden.T)}, {seconds:.2f} s"
            )
            # esat has no holes: it gets medians there, which count for nothing beside the others
            filled = np.where(hidden, np.median(X, axis=0), X)
            doubt = np.where(hidden, 1e4 * sigma.max(axis=0), sigma)
            with tempfile.TemporaryDirectory() as folder:
                theirs = Path(folder, "factors.npz")
                np.savez(Path(folder, "data.npz"), X=filled, sigma=doubt, hidden=hidden, K=K)
                print(run(peer, ESAT, Path(folder, "data.npz"), theirs).strip().split("H")[-1])
                if theirs.exists():
                    W, H = np.load(theirs).values()
                    cosines = np.sort(match_components(H.T, fit.W)[1])
                    print(f"    {_off(W @ H, X, sigma, hidden)}")
                    print(f"    cosines of profiles {cosines.round(3).tolist()}")


def _off(fitted: np.ndarray, X: np.ndarray, sigma: np.ndarray, hidden: np.ndarray) -> str:
    """How far the entries that were hidden are from the fit, in words."""
    if not hidden.any():
        return "nothing hidden"
    off = np.median(np.abs((X - fitted) / sigma)[hidden])
    return f"hidden entries are off by {off:.2f} sigma (median)"


def hyperspy(peer: str = sys.executable) -> None:
    """Spectra by hyperspy's decomposition, beside its own NMF."""
    channels, spectra, scenes = np.arange(200), [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        centres, widths = rng.uniform(20, 180, (3, 1)), rng.uniform(8, 30, (3, 1))
        spectra.append(np.exp(-(((channels - centres) / widths) ** 2)) + 0.02)
        counts = rng.poisson(200 * rng.dirichlet(np.full(3, 0.5), 2000) @ spectra[-1])
        scenes.append(counts.reshape(40, 50, 200).astype(float))
    print("| algorithm | data | cosine | CPU s |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "scenes.npz")
        np.savez(file, scenes=scenes, spectra=spectra)
        print(run(peer, HYPERSPY, file, Path(conenmf.__file__).parents[1]), end="")


def draw_uniform(rng: np.random.Generator, K: int, pure: bool) -> tuple[np.ndarray, np.ndarray]:
    """Spectra (K, bands) of five bumps each, and uniform abundances (pixels, K).

    Five pixels of each material are pure, or none has a share above 0.8.
    """
    at = np.linspace(0, 1, 150)
    slope = rng.uniform(0.1, 0.6, (K, 1)) + rng.uniform(-0.3, 0.3, (K, 1)) * at
    height, width = rng.uniform(-0.3, 0.5, (K, 5, 1)), rng.uniform(0.03, 0.25, (K, 5, 1))
    bumps = height * np.exp(-(((at - rng.random((K, 5, 1))) / width) ** 2) / 2)
    spectra = slope + bumps.sum(axis=1)
    spectra -= np.minimum(spectra.min(axis=1, keepdims=True), 0)
    spectra *= rng.uniform(0.3, 1.0, (K, 1)) / spectra.max(axis=1, keepdims=True)
    shares = rng.dirichlet(np.ones(K), 2500)
    if pure:
        shares[rng.choice(2500, 5 * K, replace=False)] = np.repeat(np.eye(K), 5, axis=0)
    while not pure and (above := shares.max(axis=1) > 0.8).any():
        shares[above] = rng.dirichlet(np.ones(K), above.sum())
    return spectra, shares


def draw_patches(rng: np.random.Generator, K: int, pure: bool) -> tuple[np.ndarray, np.ndarray]:
    """Spectra (K, bands) that are smooth walks, and smooth patches: many abundances are zero.

    Without pure pixels, what a share has above 0.8 goes to another material.
    """
    walks = gaussian_filter(np.cumsum(rng.standard_normal((K, 150)), axis=1), (0, 3))
    walks -= walks.min(axis=1, keepdims=True)
    spectra = 0.05 + rng.uniform(0.3, 0.9, (K, 1)) * walks / walks.max(axis=1, keepdims=True)
    fields = np.stack([gaussian_filter(rng.standard_normal((50, 50)), 4) for _ in range(K)])
    weights = np.exp(3 * fields.reshape(K, -1).T / fields.std())
    shares = np.maximum(weights / weights.sum(axis=1, keepdims=True) - 0.02, 0)
    shares /= shares.sum(axis=1, keepdims=True)
    for n in np.flatnonzero(shares.max(axis=1) > 0.8) if not pure else ():
        k = shares[n].argmax()
        shares[n, rng.choice(np.delete(np.arange(K), k))] += shares[n, k] - 0.8
        shares[n, k] = 0.8
    return spectra, shares


def vca(X: np.ndarray, K: int, rng: np.random.Generator) -> np.ndarray:
    """Endmembers (K, bands) by vertex component analysis: far pixels in random directions."""
    N, F = X.shape
    mean = X.mean(axis=0)
    centred = X - mean
    axes = np.linalg.svd(centred, full_matrices=False)[2][:K]
    power = (X**2).sum() / N
    signal = ((centred @ axes.T) ** 2).sum() / N + mean @ mean
    snr = 10 * np.log10(max(signal - K / F * power, 1e-12) / max(power - signal, 1e-12))
    if snr < 15 + 10 * np.log10(K):  # affine
        Z = centred @ axes[:-1].T
        denoised = Z @ axes[:-1] + mean
        Y = np.column_stack([Z, np.full(N, np.sqrt((Z**2).sum(axis=1).max()))])
    else:  # projective
        axes = np.linalg.svd(X, full_matrices=False)[2][:K]
        Y = X @ axes.T
        denoised = Y @ axes
        Y = Y / (Y @ Y.mean(axis=0))[:, None]
    A = np.zeros((K, K))
    A[-1, 0] = 1
    chosen = np.empty(K, int)
    for k in range(K):
        direction = rng.random(K)
        direction -= A @ np.linalg.pinv(A) @ direction
        chosen[k] = np.abs(Y @ direction).argmax()
        A[:, k] = Y[chosen[k]]
    return np.maximum(denoised[chosen], 0)


def scenes(draws: int = 20) -> None:
    """Endmembers and abundances, beside vertex component analysis."""
    print(f"conenmf {__version__}; angle in degrees, RMSE of abundances, CPU seconds")
    print("VCA, for_scenes, the pair; then CPU seconds of a plain fit, most iterations of the pair")
    pair = {"sum_to_one": True, "min_volume": "auto", "negative": "keep", "max_iter": 500}
    iterations: list[int] = []

    def paired(X: np.ndarray, K: int) -> np.ndarray:
        model = ConeNMF(K, **pair).fit(X)
        iterations.append(model.n_iter_)
        return model.components_

    rules = {
        "VCA": lambda X, K: vca(X, K, np.random.default_rng(0)),
        "for_scenes": lambda X, K: ConeNMF.for_scenes(K).fit(X).components_,
        "pair": paired,
        "plain": lambda X, K: ConeNMF(K, negative="keep").fit(X).components_,
    }
    for rule in rules.values():  # the first one compiles
        rule(np.random.default_rng(0).random((200, 20)), 3)
    for draw in (draw_uniform, draw_patches):
        for pure in (True, False):
            for snr in (20, 30, 40):
                marks: dict[str, list[tuple[float, ...]]] = {name: [] for name in rules}
                iterations.clear()
                for seed in range(1, 2 * draws, 2):
                    rng = np.random.default_rng([seed, snr, pure])
                    K = int(rng.integers(3, 6))
                    spectra, shares = draw(rng, K, pure)
                    X = shares @ spectra
                    noise = np.sqrt((X**2).mean() / 10 ** (snr / 10))
                    X += noise * rng.standard_normal(X.shape)
                    for name, rule in rules.items():
                        seconds, E = timed(partial(rule, X, K))
                        found = sum_to_one(E @ E.T, X @ E.T)
                        match = match_spectra(
                            spectra, E, library_abundances=shares, abundances=found
                        )
                        marks[name].append((match.angles.mean(), match.rmse, seconds))
                *means, plain = [np.mean(one, axis=0) for one in marks.values()]
                figures = " | ".join("{:.2f} | {:.4f} | {:.2f}".format(*one) for one in means)
                kind = f"{draw.__name__[5:]}, {'pure' if pure else 'mixed'}"
                print(f"| {kind} | {snr} | {figures} | {plain[2]:.2f} | {max(iterations)} |")
    folder = DATA / "samson"
    if (folder / "reference.npz").exists():
        X = np.load(folder / "V.npz")["V"].astype(float)
        known = np.load(folder / "reference.npz")
        for name, rule in rules.items():
            seconds, E = timed(partial(rule, X, 3))
            E /= E.max(axis=1, keepdims=True)
            A = np.array([nnls(E.T, pixel)[0] for pixel in X])
            A /= A.sum(axis=1, keepdims=True)
            truth = {"library_abundances": known["abundances"], "abundances": A}
            match = match_spectra(known["endmembers"], E, **truth)
            angles = ", ".join(f"{angle:.1f}" for angle in match.angles)
            print(f"samson, {name}: {angles} degrees, mean {match.angles.mean():.2f}, ", end="")
            print(f"RMSE {match.rmse:.4f}, {seconds:.2f} s")
        print(f"samson, pair: {iterations[-1]} iterations")


if __name__ == "__main__":
    command(__doc__, cells, donors, signatures, measurements, hyperspy, scenes)
