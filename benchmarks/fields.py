"""Beside programs of fields: cells (cNMF), donors, signatures, measurements (esat), ratings.

    python benchmarks/fields.py cells [--peer PYTHON] [--seeds 1 2 3]
    python benchmarks/fields.py donors [NAME ...] [--peer PYTHON] [--seeds 1 3 5] [--methods groups]
    python benchmarks/fields.py signatures [--levels Moderate Realistic] [--seeds 1 3 5]
    python benchmarks/fields.py measurements [--peer PYTHON]
    python benchmarks/fields.py starts [--before DIR] [--seeds 1 2]
    python benchmarks/fields.py hyperspy [--peer PYTHON]
    python benchmarks/fields.py scenes
    python benchmarks/fields.py ratings [--peer PYTHON] [--seeds 0 1 2]
    python benchmarks/fields.py windows [--count 24]
    python benchmarks/fields.py shade [--kinds pines pavia]
    python benchmarks/fields.py audio
    python benchmarks/fields.py robust [--seeds 20 21 22]
    python benchmarks/fields.py graphs [--draws 10]

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
``starts``: halves of the rows with 85 % of the species of the sets in the folders ``esat`` and
``stlouis``, K = 4 to 8. Printed are how far Q of the default fit, and of that of another checkout
(``--before``), is above the best of 20 fits with ``init="random"`` and seeds 100 to 119, which are
not those of the default's starts; how far Q of ``n_init=20`` is above the best of 20 fits with the
seeds 0 to 19, which are; and CPU seconds. Each draw runs in a process for each checkout, in turn.
Constants were chosen on the draws 101 and 102 and on the whole sets (draw 0).
``hyperspy``: four scenes of 40 x 50 pixels and 200 channels are drawn from three peaks, as counts.
Both algorithms run inside hyperspy's ``decomposition``, in memory and lazily. Printed are the mean
cosine with the true spectra and CPU seconds, means over the scenes.
``scenes``: 20 scenes a cell of 2500 pixels, 150 bands and 3 to 5 materials from each of two
generators. Printed are the mean angle to the true spectra and the RMSE of abundances with sum one,
for vertex component analysis (Nascimento and Bioucas-Dias, 2005), ``init="simplex"``, and the
pair ``sum_to_one=True, min_volume="auto"``, and mean CPU seconds; then those of a plain fit, and
the most iterations of the pair. Draws have odd seeds; the models were designed on even ones. Then
samson, if it is in CONENMF_DATA: NNLS coefficients of endmembers of maximum one, divided by their
sum, as in its reference.
``ratings``: the root mean squared errors of a hidden tenth, means over the seeds, of regularised
means (penalty 3), of the SVD of scikit-surprise (20 factors, regularisation 0.1, 40 epochs; signed
factors, one fit), of `fit_ratings` with the choice of its model, and of signed factors with the
penalties of that choice; and CPU seconds. The sets are those in the folders ``ratings_sushi``,
``ratings_epinions`` and ``movielens`` of CONENMF_DATA, and drawn ones. Constants were chosen on
splits 0 and 1 of sushi, splits 0 and 2 of MovieLens, and draws of another generator; everything
else is held out.
``windows``: windows of samson and jasper_ridge in CONENMF_DATA in which every material of the scene
has a share above 0.85 somewhere, or below 0.05 everywhere. The reference abundances of both scenes
are NNLS coefficients of endmembers of maximum one, divided by their sum, so all abundances here are
made so; the first line of a scene prints the RMSE of the reference's own endmembers. Printed are
the mean angle and the RMSE for VCA (the median of 10 seeds), N-FINDR (Winter, 1999), `snpa`,
``init="simplex"``, the pair and `for_scenes`; the loss of `for_scenes`, which is the larger of its
angle and its RMSE over the best of the other five; and its model. Constants were chosen on the half
of the windows of jasper_ridge that lie left, and of samson that lie above; the others are marked
"held out". Both scenes as a whole are the last lines.
``shade``: scenes of both generators above, and of mean spectra of classes of indian_pines and of
paviau_subset, with even light, or brightness with a standard deviation of 25 % from 0.4 to 1.6.
Printed are the mean angle, and the RMSE of what ``fit_transform`` returns, for ``init="simplex"``
and `for_scenes`. In "dark" scenes one spectrum is divided by ten. "exact" is the RMSE of normalised
NNLS with the true spectra. Constants were chosen with seeds 2 and 4; those of the table are odd.
``audio``: the signal-to-distortion ratios in dB of four drawn notes that masks of components give,
sorted in each draw, means over four draws (the floor was chosen on draws 0 to 2).
``robust``: mixtures of planted components with noise, where some samples are replaced by wild ones,
whose norms are 2 to 100 times the median and whose directions are drawn one by one, or are all
alike. Printed is in how many draws each planted component has a cosine above 0.95 with a component
of a plain fit of the other samples, of a plain fit of all, of the L21 norm (20 fits with the
weights 1 / residual norm) and of ``robust="samples"``; then CPU seconds of the plain and the robust
fit. Constants were chosen on "mixtures" of other sizes with seeds 0 to 6; all draws of the table
are held out, and so is the whole generator of "peaks". Then a share of the
entries has spikes of three times the median norm of samples.
``graphs``: stochastic block models of 240 nodes and six groups. Pairs of nodes are linked with
probability 0.4 or 0.05: inside groups of equal or uneven size, between the groups of three pairs,
or inside four groups and between two. Printed are by how much the error of ``symmetric=True`` is
above that of the plain fit, mean and largest, and the normalised mutual information with the groups
of the plain fit, of ``symmetric=True`` and of scikit-learn's SpectralClustering. "normalised" edges
are divided by the square roots of the degrees of their nodes; spectral clustering always does this.
Constants were chosen with even seeds; odd ones are held out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from functools import partial
from itertools import product
from pathlib import Path
from time import process_time
from typing import NamedTuple
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
from measure import DATA, command, heading, numbers, output_of, row, timed
from scipy.linalg import qr
from scipy.ndimage import gaussian_filter
from scipy.optimize import linear_sum_assignment, nnls
from scipy.signal import istft, stft
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score as adjusted_rand
from sklearn.metrics import normalized_mutual_info_score as agreement

import conenmf
from conenmf import ConeNMF, __version__, factorize, fit_ratings, from_columns, from_rows, prepare
from conenmf.fields.cells import find_programs
from conenmf.judge.choose_k import select_k
from conenmf.judge.matching import match_components, match_spectra
from conenmf.judge.stability import stability
from conenmf.linalg.nnls import nnls as solve_nnls
from conenmf.solve.constraints import sum_to_one
from conenmf.solve.groups import Scales, estimate_scales
from conenmf.solve.separable import snpa

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
STARTS = """
import json, sys, time
import numpy as np
from conenmf import factorize, from_rows
given = np.load({path!r})
V = from_rows(given["X"], sigma=given["sigma"], n_threads=1)
factorize(V, 3, max_iter=40)  # compiles
found = []
for K in range(4, 9):
    calls = {{"default": [{{}}]}}
    if {is_whole}:
        calls["n_init=20"] = [{{"n_init": 20}}]
        for first in (0, 100):
            seeds = range(first, first + 20)
            calls[f"from {{first}}"] = [{{"init": "random", "seed": seed}} for seed in seeds]
    for name, every in calls.items():
        began = time.process_time()
        Qs = []
        for one in every:
            how = dict(one)
            seed = how.pop("seed", None)
            rng = None if seed is None else np.random.default_rng(seed)
            Qs.append(factorize(V, K, rng=rng, **how).objective)
        found.append((K, name, min(Qs), time.process_time() - began))
print(json.dumps(found))
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


SURPRISE = """
import sys, time
import numpy as np
import pandas as pd
from surprise import SVD, Dataset, Reader
given = np.load(sys.argv[1])
users, items, values, hidden = (given[name] for name in ("users", "items", "values", "hidden"))
scale = Reader(rating_scale=(values.min(), values.max()))
table = pd.DataFrame({"user": users, "item": items, "rating": values})[~hidden]
known = Dataset.load_from_df(table, scale).build_full_trainset()
began = time.process_time()
model = SVD(n_factors=20, n_epochs=40, reg_all=0.1, random_state=0).fit(known)
seconds = time.process_time() - began
found = [model.predict(*pair).est for pair in zip(users[hidden], items[hidden])]
print(np.sqrt(np.mean((found - values[hidden]) ** 2)), seconds)
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


class Found(NamedTuple):
    """Usages and spectra of programs, whether donors have an effect, and how many programs."""

    usages: np.ndarray
    spectra: np.ndarray
    effect: float = np.nan
    K: int = 0


def _programs(draw: Draw, more: int | str = 0, **options: object) -> Found:
    """Gene programs; with a number of programs that is known up to `more`, or that is chosen."""
    K = more if isinstance(more, str) else draw.K + more
    found = find_programs(draw.counts, K, 20, n_genes=2000, **options)
    effect = np.nan if found.donors is None else float((found.donors.scales != 1).any())
    return Found(found.usages, found.spectra_tpm, effect, found.usages.shape[1])


def _without_scales(draw: Draw) -> Found:
    """Usages and spectra of programs whose groups have scales of one."""

    def neutral(*given: object, **options: object) -> Scales:
        found = estimate_scales(*given, **options)
        same = {
            name: np.ones_like(getattr(found, name)) for name in ("scales", "features", "groups")
        }
        return found._replace(variance=0.0, **same)

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
                "groups, K chosen": lambda draw=draw: _programs(draw, "auto", groups=draw.donors),
                "K chosen": lambda draw=draw: _programs(draw, "auto"),
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
                found = Found(*found)
                figures = measures(draw, found.usages, found.spectra)
                figures |= {"effect": found.effect, "K": found.K, "CPU s": seconds}
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


def air_quality() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Concentrations and uncertainties of three sets, by name."""
    places = {
        "Baltimore": ("esat/Baltimore_{}.txt", "\t"),
        "Baton Rouge": ("esat/BatonRouge-{}.csv", ","),
        "St. Louis": ("stlouis/{}.csv", ","),
    }
    sets = {}
    for name, (path, mark) in places.items():
        X, sigma = (
            np.genfromtxt(DATA / path.format(kind), delimiter=mark)[1:, 1:]
            for kind in ("con", "unc")
        )
        good = np.isfinite(X).any(axis=1)
        sets[name] = np.maximum(X[good], 0), sigma[good]
    return sets


def draw_half(seed: int, *tables: np.ndarray) -> list[np.ndarray]:
    """Half of the rows and 85 % of the columns of tables; all of them for the seed 0."""
    if seed == 0:
        return [*tables]
    rng = np.random.default_rng(seed)
    N, F = tables[0].shape
    rows = np.sort(rng.choice(N, N // 2, replace=False))
    columns = np.sort(rng.choice(F, round(0.85 * F), replace=False))
    return [table[np.ix_(rows, columns)] for table in tables]


def starts(before: Path = Path(), seeds: tuple[int, ...] = (1, 2)) -> None:
    """The default fit with uncertainties, beside the best of 20 random starts."""
    here = Path(__file__).parents[1]
    checkouts = {"this": here, "before": before.resolve()}
    if before == Path():
        del checkouts["before"]
    heading("set", "draw", "K", *(f"{name}, % above" for name in ("default", "before", "n_init")),
            "default, s", "before, s", "n_init, s", "20 fits, s")  # fmt: skip
    above, seconds = [], []
    for name, tables in air_quality().items():
        for seed in seeds:
            X, sigma = draw_half(seed, *tables)
            found: dict[tuple[str, int, str], tuple[float, float]] = {}
            with tempfile.TemporaryDirectory() as folder:
                path = str(Path(folder, "data.npz"))
                np.savez(path, X=X, sigma=sigma)
                for checkout, place in checkouts.items():
                    program = STARTS.format(path=path, is_whole=checkout == "this")
                    lines = output_of(program, PYTHONPATH=str(place / "src"))
                    for K, kind, *both in json.loads(lines):
                        found[checkout, K, kind] = tuple(both)
            for K in range(4, 9):
                Qs, times = np.array(
                    [
                        found.get((checkout, K, kind), (np.nan, np.nan))
                        for checkout, kind in (
                            ("this", "default"),
                            ("before", "default"),
                            ("this", "n_init=20"),
                            ("this", "from 0"),
                        )
                    ]
                ).T
                best = found["this", K, "from 100"][0]
                shares = 100 * (Qs / [best, best, Qs[3], best] - 1)[:3]
                row(name, seed, K, *(f"{one:.2f}" for one in shares), *times)
                above.append(shares)
                seconds.append(times)
    percent, times = np.array(above), np.array(seconds)
    for column, name in enumerate(("default", "before", "n_init=20")):
        one = percent[:, column]
        print(f"{name}: above by more than 0.001 %, 0.5 %, 1.5 %: {(one > 0.001).sum()}, "
              f"{(one > 0.5).sum()}, {(one > 1.5).sum()} of {len(one)}")  # fmt: skip
    ratios = times[:, 0] / times[:, 1]
    print(f"CPU time of the default over that before: {times[:, 0].sum() / times[:, 1].sum():.2f} "
          f"in all, median {np.median(ratios):.2f}, largest {ratios.max():.2f}")  # fmt: skip


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
    print("VCA, simplex, the pair; then CPU seconds of a plain fit, most iterations of the pair")
    pair = {"sum_to_one": True, "min_volume": "auto", "negative": "keep", "max_iter": 500}
    iterations: list[int] = []

    def paired(X: np.ndarray, K: int) -> np.ndarray:
        model = ConeNMF(K, **pair).fit(X)
        iterations.append(model.n_iter_)
        return model.components_

    rules = {
        "VCA": lambda X, K: vca(X, K, np.random.default_rng(0)),
        "simplex": lambda X, K: ConeNMF.for_scenes(K, init="simplex").fit(X).components_,
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


# --- ratings ----------------------------------------------------------------------------------


def drawn_ratings(
    seed: int,
    shape: tuple[int, int],
    count: int,
    tastes: tuple[int, float],
    noise: float,
    scale: tuple[float, float, float],
    skew: float,
) -> sp.coo_array:
    """Ratings with offsets and signed tastes; some users and items have many more than others.

    `tastes` are their number and standard deviation, `scale` the least and the largest rating and
    the step between ratings.
    """
    rng = np.random.default_rng(seed)
    N, F = shape
    lowest, highest, step = scale
    shares = [rng.pareto(skew, size) + 0.2 for size in shape]
    picked = [rng.choice(len(one), 3 * count, p=one / one.sum()) for one in shares]
    pairs = rng.permutation(np.unique(picked[0] * F + picked[1]))[:count]
    users, items = np.divmod(pairs, F)
    K, spread = tastes
    sizes = np.linspace(1.5, 0.3, K)
    A, C = rng.standard_normal((N, K)), rng.standard_normal((F, K)) * sizes
    taste = spread * np.einsum("ek,ek->e", A[users], C[items]) / np.linalg.norm(sizes)
    offsets = rng.standard_normal(N)[users] + rng.standard_normal(F)[items]
    middle = lowest + 0.62 * (highest - lowest)
    values = middle + spread * offsets + taste + noise * rng.standard_normal(pairs.size)
    values = np.clip(np.round(values / step) * step, lowest, highest)
    return sp.coo_array((values, (users, items)), shape)


def rating_sets() -> dict[str, sp.coo_array]:
    """The sets of ratings that are there, and drawn ones of other shapes."""
    sets = {}
    for name in ("ratings_sushi", "ratings_epinions", "movielens"):
        path = DATA / name / "V.npz"
        if path.exists():
            V = sp.load_npz(path).astype(float)
            sets[name.removeprefix("ratings_")] = sp.coo_array(V.T if name == "movielens" else V)
    sets["dense"] = drawn_ratings(1, (5000, 100), 150_000, (6, 0.4), 0.8, (1, 5, 1), 4.0)
    sets["sparse"] = drawn_ratings(2, (12_000, 6000), 60_000, (4, 0.4), 0.8, (1, 5, 1), 1.3)
    sets["half stars"] = drawn_ratings(3, (2000, 3000), 150_000, (8, 0.4), 0.7, (0.5, 5, 0.5), 1.5)
    sets["1 to 10"] = drawn_ratings(4, (1100, 2200), 36_000, (4, 0.9), 1.1, (1, 10, 1), 1.6)
    sets["many"] = drawn_ratings(5, (2900, 140), 350_000, (8, 2.0), 3.5, (1, 21, 0.01), 20.0)
    return sets


def ratings(peer: str = "", seeds: tuple[int, ...] = (0, 1, 2)) -> None:
    """Ratings: regularised means, an SVD, `fit_ratings`, and signed factors."""
    print(f"conenmf {__version__}\n")
    heading("ratings", "number", "means", "SVD", "`fit_ratings`", "signed", "K", "CPU: SVD",
            "`fit_ratings`")  # fmt: skip
    fit_ratings(sp.csr_array(np.ones((9, 7))))  # compiles
    for name, R in rating_sets().items():
        marks = []
        Ks = []
        for seed in seeds:
            hidden = np.random.default_rng(seed).random(R.nnz) < 0.1
            known = sp.csr_array((R.data[~hidden], (R.row[~hidden], R.col[~hidden])), R.shape)
            users, items = R.row[hidden], R.col[hidden]
            error = partial(hidden_error, R, hidden)
            svd = [np.nan, np.nan]
            if peer:
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "ratings.npz"
                    np.savez(path, users=R.row, items=R.col, values=R.data, hidden=hidden)
                    svd = [float(part) for part in run(peer, SURPRISE, path).split()] or svd
            seconds, model = timed(partial(fit_ratings, known))
            Ks.append(str(model.result.K))
            means = signed_factors(known, 0, (3.0, 0.0, 0.0), users, items)
            signed = signed_factors(known, model.result.K, model.pulls, users, items)
            ours = error(model.predict(users, items))
            marks.append((error(means), svd[0], ours, error(signed), svd[1], seconds))
        mean = np.mean(marks, axis=0)
        errors = [f"{one:.4f}" for one in mean[:4]]
        row(name, f"{R.nnz:,}", *errors, ", ".join(Ks), *(f"{one:.2f}" for one in mean[4:]))


def hidden_error(R: sp.coo_array, hidden: np.ndarray, predicted: np.ndarray) -> float:
    """The root mean squared error of predictions, in the range of the ratings."""
    found = np.clip(predicted, R.data.min(), R.data.max())
    return float(np.sqrt(np.mean((found - R.data[hidden]) ** 2)))


def signed_factors(
    known: sp.csr_array,
    K: int,
    pulls: tuple[float, float, float],
    users: np.ndarray,
    items: np.ndarray,
) -> np.ndarray:
    """Predictions of offsets and signed factors, by 30 rounds of alternating least squares."""
    damping, penalty, per_rating = pulls
    rng = np.random.default_rng(0)
    mean = known.data.mean()
    rows = [np.column_stack([np.zeros(n), rng.standard_normal((n, K))]) for n in known.shape]
    tables = known, known.T.tocsr()
    for step in range(60):
        table, own, other = tables[step % 2], rows[step % 2], rows[1 - step % 2]
        parts = other.copy()
        parts[:, 0] = 1.0
        pattern = sp.csr_array((np.ones(table.nnz), table.indices, table.indptr), table.shape)
        left = table.data - mean - other[table.indices, 0]
        sums = sp.csr_array((left, table.indices, table.indptr), table.shape) @ parts
        pairs = (parts[:, :, None] * parts[:, None, :]).reshape(len(parts), -1)
        grams = (pattern @ pairs).reshape(-1, K + 1, K + 1)
        counts = np.diff(table.indptr)[:, None]
        penalties = np.repeat(penalty + per_rating * counts, K + 1, axis=1)
        penalties[:, 0] = damping
        grams[:, np.arange(K + 1), np.arange(K + 1)] += penalties
        own[:] = np.linalg.solve(grams, sums[..., None])[..., 0]
    A, C = rows[0][users], rows[1][items]
    return mean + A[:, 0] + C[:, 0] + np.einsum("ek,ek->e", A[:, 1:], C[:, 1:])


def nfindr(X: np.ndarray, K: int) -> np.ndarray:
    """Endmembers (K, bands) by N-FINDR: the pixels that span the largest simplex."""
    mean = X.mean(axis=0)
    axes = np.linalg.svd(X - mean, full_matrices=False)[2][: K - 1]
    Y = np.hstack([np.ones((len(X), 1)), (X - mean) @ axes.T])
    chosen = qr(Y.T, mode="r", pivoting=True)[1][:K].copy()
    moved = True
    while moved:
        moved = False
        for k in range(K):
            volumes = np.abs(Y @ np.linalg.inv(Y[chosen])[:, k])
            if volumes.max() > 1 + 1e-9:
                chosen[k] = volumes.argmax()
                moved = True
    return X[chosen]


def normalised_nnls(X: np.ndarray, E: np.ndarray) -> np.ndarray:
    """Abundances (pixels, K): NNLS coefficients of endmembers of maximum one, over their sum."""
    scaled = E / E.max(axis=1, keepdims=True)
    A = solve_nnls(scaled @ scaled.T, X @ scaled.T)
    return A / np.maximum(A.sum(axis=1, keepdims=True), 1e-300)


def draw_windows(shares: np.ndarray, count: int) -> list[tuple[slice, slice]]:
    """Rectangles of 20 to 60 pixels a side whose materials are pure somewhere, or absent."""
    rng = np.random.default_rng(11)
    sides = shares.shape[:2]
    chosen: list[tuple[slice, slice]] = []
    while len(chosen) < count:
        lengths = rng.choice([20, 25, 30, 40, 50, 60], 2)
        corner = [
            int(rng.integers(side - length + 1))
            for side, length in zip(sides, lengths, strict=True)
        ]
        window = tuple(slice(at, at + n) for at, n in zip(corner, lengths, strict=True))
        top = shares[window].max(axis=(0, 1))
        if not ((top > 0.85) | (top < 0.05)).all() or (top > 0.85).sum() < 3:
            continue
        if all(_overlap(window, other) < 0.6 for other in chosen):
            chosen.append(window)
    return chosen


def _overlap(one: tuple[slice, ...], other: tuple[slice, ...]) -> float:
    """The common pixels of two windows, as a share of all their pixels."""
    both = 1
    for a, b in zip(one, other, strict=True):
        both *= max(min(a.stop, b.stop) - max(a.start, b.start), 0)
    sizes = [np.prod([a.stop - a.start for a in window]) for window in (one, other)]
    return both / (sum(sizes) - both)


def windows(count: int = 24) -> None:
    """Endmembers of windows of real scenes, beside five other methods."""
    pair = {"sum_to_one": True, "min_volume": "auto", "negative": "keep"}
    rules = {
        "N-FINDR": nfindr,
        "snpa": lambda X, K: X[snpa(from_rows(X), K)],
        "simplex": lambda X, K: ConeNMF.for_scenes(K, init="simplex").fit(X).components_,
        "pair": lambda X, K: ConeNMF(K, **pair).fit(X).components_,
    }
    print(f"conenmf {__version__}; angle in degrees, RMSE of abundances")
    print("| window | VCA |", " | ".join(rules), "| for_scenes | loss | CPU s | |")
    losses: dict[str, list[np.ndarray]] = {"chosen on": [], "held out": [], "whole": []}
    for name, side, axis in (("samson", 95, 0), ("jasper_ridge", 100, 1)):
        cube = np.load(DATA / name / "V.npz")["V"].astype(float).reshape(side, side, -1)
        known = np.load(DATA / name / "reference.npz")
        shares = known["abundances"].astype(float).reshape(side, side, -1)
        cube, shares = cube.swapaxes(0, 1), shares.swapaxes(0, 1)  # pixels are stored by columns
        spectra = known["endmembers"].astype(float)
        own = normalised_nnls(cube.reshape(side**2, -1), spectra) - shares.reshape(side**2, -1)
        print(f"{name}: RMSE {np.sqrt((own**2).mean()):.4f} with the reference's endmembers")
        whole = (slice(0, side), slice(0, side))
        drawn = draw_windows(shares, count)
        centres = [window[axis].start + window[axis].stop for window in drawn]
        for window in [*drawn, whole]:
            truth = shares[window].reshape(-1, len(spectra))
            present = truth.max(axis=0) > 0.85
            truth, E = truth[:, present], spectra[present]
            X = cube[window].reshape(len(truth), -1)
            K = len(E)

            def mark(found: np.ndarray, X=X, E=E, truth=truth) -> np.ndarray:
                given = {"library_abundances": truth, "abundances": normalised_nnls(X, found)}
                match = match_spectra(E, found, **given)
                return np.array([match.angles.mean(), match.rmse])

            seeds = [mark(vca(X, K, np.random.default_rng(seed))) for seed in range(10)]
            marks = [np.median(seeds, axis=0), *(mark(rule(X, K)) for rule in rules.values())]
            seconds, model = timed(lambda X=X, K=K: ConeNMF.for_scenes(K).fit(X))
            marks.append(mark(model.components_))
            ratios = (np.array(marks) / np.min(marks[:-1], axis=0)).max(axis=1)
            is_beyond = window[axis].start + window[axis].stop > np.median(centres)
            half = "held out" if is_beyond else "chosen on"
            half = "whole" if window == whole else half
            losses[half].append(ratios)
            place = ", ".join(f"{one.start}:{one.stop}" for one in window)
            figures = " | ".join("{:.2f}, {:.3f}".format(*one) for one in marks)
            tail = f"{ratios[-1]:.2f} | {seconds:.2f} | {model.result_.init_used}, {half} |"
            print(f"| {name} {place} | {figures} | {tail}", flush=True)
    losses["all windows"] = losses["chosen on"] + losses["held out"]
    print("loss: median, three quarters, worst")
    print("| windows | VCA |", " | ".join(rules), "| for_scenes |")
    for half, found in losses.items():
        quarters = np.quantile(found, [0.5, 0.75, 1], axis=0).T
        figures = " | ".join("{:.2f}, {:.2f}, {:.2f}".format(*one) for one in quarters)
        print(f"| {half}, {len(found)} | {figures} |")


def draw_shaded(
    kind: str, seed: int, snr: int, pure: bool, *, dark: bool, spread: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pixels, spectra and abundances of a scene whose brightness may vary."""
    names = {"pines": "indian_pines", "pavia": "paviau_subset"}
    rng = np.random.default_rng([seed, snr, pure, int(100 * spread), len(kind)])
    K = int(rng.integers(3, 6))
    draw = draw_patches if kind in ("patches", "pavia") else draw_uniform
    spectra, shares = draw(rng, K, pure)
    if kind in names:
        X = np.load(DATA / names[kind] / "V.npz")["V"].astype(float)
        labels = np.load(DATA / names[kind] / "labels.npy")
        large = [label for label in np.unique(labels[labels > 0]) if (labels == label).sum() > 50]
        means = np.array([X[labels == label].mean(axis=0) for label in large]) / X.max()
        spectra = means[rng.permutation(len(means))[:K]]
    if dark:
        spectra = spectra * np.where(np.arange(K) == 0, 0.1, 1.0)[:, None]
    bright = np.clip(1 + spread * rng.standard_normal((len(shares), 1)), 0.4, 1.6)
    X = bright * (shares @ spectra)
    noise = np.sqrt((X**2).mean() / 10 ** (snr / 10))
    return X + noise * rng.standard_normal(X.shape), spectra, shares


def shade(
    kinds: tuple[str, ...] = ("uniform", "patches", "pines", "pavia"),
    seeds: tuple[int, ...] = (1, 3),
) -> None:
    """Abundances of drawn scenes with even and with uneven light."""
    print(f"conenmf {__version__}; angle in degrees, RMSE of abundances")
    print("| spectra | light | SNR, dB | simplex | for_scenes | exact | shaded |")
    for kind, dark, spread, snr in product(kinds, (False, True), (0.0, 0.25), (30, 40)):
        marks: dict[str, list[tuple[float, float]]] = {"simplex": [], "scene": []}
        exact: list[float] = []
        shaded: list[bool] = []
        for seed, pure in product(seeds, (False, True)):
            X, spectra, shares = draw_shaded(kind, seed, snr, pure, dark=dark, spread=spread)
            for init, found in marks.items():
                model = ConeNMF.for_scenes(len(spectra), init=init)
                A = model.fit_transform(X)
                truth = {"library_abundances": shares, "abundances": A}
                match = match_spectra(spectra, model.components_, **truth)
                found.append((match.angles.mean(), match.rmse))
            shaded.append(model.result_.is_shaded)
            A = solve_nnls(spectra @ spectra.T, X @ spectra.T)
            A /= np.maximum(A.sum(axis=1, keepdims=True), 1e-300)
            exact.append(np.sqrt(((A - shares) ** 2).mean()))
        figures = " | ".join(
            "{:.2f}, {:.4f}".format(*np.mean(one, axis=0)) for one in marks.values()
        )
        light = "uneven" if spread else "even"
        what = f"{kind}{', dark' if dark else ''}"
        count = f"{sum(shaded)} of {len(shaded)}"
        print(
            f"| {what} | {light} | {snr} | {figures} | {np.mean(exact):.4f} | {count} |", flush=True
        )


# --- wild samples -----------------------------------------------------------------------------


def draw_wild(
    kind: str, seed: int, size: float, alike: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return samples of planted components, these components, and the indices of wild samples."""
    rng = np.random.default_rng(seed)
    if kind == "mixtures":
        K, N, share, noise = 4, 300, 0.05, 0.1
        components = rng.gamma(0.4, size=(K, 30)) + 1e-3
        shares = rng.dirichlet(np.full(K, 0.5), N) * rng.lognormal(0, 0.3, (N, 1))
    else:
        K, N, share, noise = 6, 500, 0.08, 0.2
        places = np.sort(rng.random(K))[:, None]
        components = np.exp(-((np.linspace(0, 1, 80) - places) ** 2) / 0.003) + 0.02
        shares = rng.gamma(1.0, size=(N, K)) * (rng.random((N, K)) < 0.5)
    components /= np.linalg.norm(components, axis=1)[:, None]
    X = shares @ components
    typical = np.median(np.linalg.norm(X, axis=1))
    F = X.shape[1]
    X = np.maximum(X + noise * typical / np.sqrt(F) * rng.standard_normal(X.shape), 0)
    wild = rng.choice(N, int(share * N), replace=False)
    directions = rng.gamma(0.4, size=(1 if alike else wild.size, F))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    X[wild] = size * typical * rng.lognormal(0, 0.1, (wild.size, 1)) * directions
    return X, components, wild


def least_cosine(truth: np.ndarray, found: np.ndarray) -> float:
    """Return the smallest cosine of a true component with the most similar found one."""
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    return float((truth @ unit.T).max(axis=1).min())


def fit_l21(X: np.ndarray, K: int) -> ConeNMF:
    """Minimise the sum of residual norms by weighted fits."""
    model = ConeNMF(K).fit(X)
    for _ in range(20):
        residuals = np.linalg.norm(X - model.inverse_transform(model.transform(X)), axis=1)
        weights = 1 / np.maximum(residuals, 1e-3 * np.median(residuals))
        start = (model.transform(X), model.components_)
        model = ConeNMF(K, init=start, max_iter=10, tol=0).fit(X, sample_weight=weights)
    return model


def robust(seeds: tuple[int, ...] = (20, 21, 22, 23, 24, 25)) -> None:
    """Planted components beside wild samples, and beside wild entries."""
    warnings.simplefilter("ignore")
    print(f"conenmf {__version__}; draws with every component above a cosine of 0.95, all held out")
    print("| data | wild samples | norm | without them | plain | L21 | robust | CPU s |")
    for kind, alike, size in product(("mixtures", "peaks"), (False, True), (2, 5, 20, 100)):
        recovered = np.zeros(4, int)
        seconds = np.zeros(4)
        for seed in seeds:
            X, truth, wild = draw_wild(kind, seed, size, alike)
            K = len(truth)
            clean = np.delete(X, wild, axis=0)
            fits = (
                (ConeNMF(K).fit, clean),
                (ConeNMF(K).fit, X),
                (partial(fit_l21, K=K), X),
                (ConeNMF(K, robust="samples").fit, X),
            )
            for place, (fit, data) in enumerate(fits):
                began = process_time()
                recovered[place] += least_cosine(truth, fit(data).components_) > 0.95
                seconds[place] += (process_time() - began) / len(seeds)
        counts = " | ".join(f"{count} of {len(seeds)}" for count in recovered)
        how = "all alike" if alike else "scattered"
        times = f"{seconds[1]:.2f}, {seconds[3]:.2f}"
        print(f"| {kind} | {how} | {size} | {counts} | {times} |", flush=True)
    print("\n| data | entries with spikes | without them | plain | robust |")
    for kind, share in product(("mixtures", "peaks"), (0.005, 0.02)):
        recovered = np.zeros(3, int)
        for seed in seeds:
            X, truth, wild = draw_wild(kind, seed, 1.0, alike=False)
            K = len(truth)
            clean = np.delete(X, wild, axis=0)
            spikes = np.random.default_rng(seed).random(clean.shape) < share
            X = clean + 3 * np.median(np.linalg.norm(clean, axis=1)) * spikes
            models = ConeNMF(K).fit(clean), ConeNMF(K).fit(X), ConeNMF(K, robust="entries").fit(X)
            recovered += [least_cosine(truth, model.components_) > 0.95 for model in models]
        counts = " | ".join(f"{count} of {len(seeds)}" for count in recovered)
        print(f"| {kind} | {share:.1%} | {counts} |", flush=True)


# --- sounds -----------------------------------------------------------------------------------

RATE = 16_000
WINDOW = 1024


def notes(seed: int) -> np.ndarray:
    """Four notes (4, samples) of 8 seconds, each struck five times and dying away."""
    rng = np.random.default_rng(seed)
    pitches = rng.choice([220, 247, 262, 294, 330, 392, 440, 523], 4, replace=False)
    tracks = np.zeros((4, 8 * RATE))
    t = np.arange(int(1.2 * RATE)) / RATE
    for track, pitch in zip(tracks, pitches, strict=True):
        for start in rng.uniform(0.3, 6.5, 5):
            phases = rng.uniform(0, 2 * np.pi, 8)
            loudness = rng.uniform(0.5, 1)
            tones = [np.sin(2 * np.pi * pitch * (h + 1) * t + phases[h]) * 0.6**h for h in range(8)]
            strike = loudness * np.sum(tones, axis=0) * np.exp(-2.5 * t) * np.minimum(1, t / 0.01)
            first = int(start * RATE)
            track[first : first + len(t)] += strike
    return tracks


def separation(tracks: np.ndarray, model: ConeNMF, A: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """The signal-to-distortion ratios (4,) in dB of notes that masks of components give, sorted."""
    C = model.components_
    fitted = np.maximum(A @ C, 1e-300).T
    sounds = []
    for k in range(len(C)):
        mask = np.outer(C[k], A[:, k]) / fitted
        sounds.append(istft(mask * Z, RATE, nperseg=WINDOW)[1][: tracks.shape[1]])
    ratios = np.zeros((len(tracks), len(sounds)))
    for (i, track), (j, sound) in product(enumerate(tracks), enumerate(sounds)):
        scale = track @ sound / max(sound @ sound, 1e-300)
        ratios[i, j] = 10 * np.log10((track @ track) / ((track - scale * sound) ** 2).sum())
    return np.sort(ratios[linear_sum_assignment(-np.maximum(ratios, 0))])


def audio(seeds: tuple[int, ...] = (10, 11, 12, 13)) -> None:
    """Four notes: the Kullback-Leibler and Itakura-Saito divergences of power, with a floor."""
    print(f"conenmf {__version__}\n")
    heading("fit of the power", "note 1", "note 2", "note 3", "note 4", "CPU s")
    marks: dict[str, list[np.ndarray]] = {}
    for seed in seeds:
        tracks = notes(seed)
        mix = tracks.sum(axis=0) + 1e-4 * np.random.default_rng(seed).standard_normal(8 * RATE)
        Z = stft(mix, RATE, nperseg=WINDOW)[2]
        power = np.abs(Z.T) ** 2
        raised = prepare(power, floor=1e-3)
        spectral = partial(ConeNMF, 4, loss="itakura-saito")
        seconds, counts = timed(partial(ConeNMF(4, loss="poisson").fit, power))
        own = counts.transform(raised), counts.components_
        fits = {
            "`poisson`": (counts, power),
            "`itakura-saito`": (spectral(), power),
            "`itakura-saito`, `floor=1e-3`": (spectral(), raised),
            "the same, from the factors of `poisson`": (spectral(init=own), raised),
        }
        for name, (model, X) in fits.items():
            if model is not counts:
                seconds, _ = timed(partial(model.fit, X))
            found = separation(tracks, model, model.transform(X), Z)
            marks.setdefault(name, []).append(np.append(found, seconds))
    for name, each in marks.items():
        row(name, *(f"{one:.1f}" for one in np.mean(each, axis=0)))


# --- graphs -----------------------------------------------------------------------------------

BLOCKS = {
    "equal": ([40] * 6, [(k, k) for k in range(6)]),
    "uneven": ([80, 60, 40, 30, 20, 10], [(k, k) for k in range(6)]),
    "disassortative": ([40] * 6, [(0, 1), (2, 3), (4, 5)]),
    "mixed": ([40] * 6, [(0, 1), (2, 2), (3, 3), (4, 4), (5, 5)]),
}


def draw_graph(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The edges of a stochastic block model, and the groups of its nodes."""
    sizes, linked = BLOCKS[kind]
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    chances = np.full((len(sizes), len(sizes)), 0.05)
    for a, b in linked:
        chances[a, b] = chances[b, a] = 0.4
    upper = np.triu(rng.random((groups.size, groups.size)) < chances[groups][:, groups], 1)
    return (upper | upper.T).astype(float), groups


def graphs(draws: int = 10) -> None:
    """Groups of nodes, beside spectral clustering."""
    print(f"conenmf {__version__}; error above the plain fit in %, and agreement with the truth")
    heading("groups", "edges", "seeds", "mean", "largest", "plain", "symmetric", "spectral")
    for kind, is_even, edges in product(BLOCKS, (True, False), ("given", "normalised")):
        figures = []
        for seed in range(0 if is_even else 1, draws, 2):
            A, groups = draw_graph(kind, seed)
            K = len(BLOCKS[kind][0])
            roots = np.sqrt(A.sum(axis=0))
            X = A / roots / roots[:, None] if edges == "normalised" else A
            plain = factorize(X, K)
            found = factorize(X, K, symmetric=True)
            spectral = SpectralClustering(K, affinity="precomputed", random_state=0).fit_predict(A)
            labels = (plain.labels, found.labels, spectral)
            above = 100 * (found.relative_error / plain.relative_error - 1)
            figures.append((above, *(agreement(groups, one) for one in labels)))
        means = [f"{mean:.3f}" for mean in np.mean(figures, axis=0)]
        largest = f"{max(figures)[0]:.3f}"
        row(kind, edges, "even" if is_even else "odd, held out", means[0], largest, *means[1:])


if __name__ == "__main__":
    command(
        __doc__, cells, donors, signatures, measurements, starts, hyperspy, scenes, windows, shade,
        ratings, audio, robust, graphs,
    )  # fmt: skip
