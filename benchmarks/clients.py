"""Packages that use an NMF, with `ConeNMF` in the place of theirs; docs/from_sklearn.md.

    PYTHON benchmarks/clients.py

PYTHON is the interpreter of an environment with hyperspy, scanpy, igraph, leidenalg, cnmf and
conenmf. Each workflow runs with the NMF of the package and with `ConeNMF`; a row shows what each
found.

``hyperspy``: an image of 40 x 50 pixels, drawn from three spectra as counts: `decomposition`,
`get_decomposition_model`, saved and loaded again. Printed is the mean cosine with the spectra.
``scanpy``: 600 cells of six types and 500 genes, normalised as in its tutorials. The factors become
`obsm`, then neighbours, Leiden clusters and marker genes are computed. scanpy has no NMF of its
own; scikit-learn's is beside. Printed is the adjusted Rand index of the clusters and the types.
``cnmf``: the same counts, ten runs and `consensus`, with its refits of usages and spectra, where
one factor is given. Printed is the mean correlation of its spectra of all genes with those of the
types. Its refit of spectra passes a CSC matrix, whose entries scikit-learn's "mu" solver mixes up.
``scikit-learn``: habits of its estimators.
"""

from __future__ import annotations

import pickle
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from unittest import mock

import hyperspy.api as hs
import numpy as np
import pandas as pd
import scanpy as sc
import scipy.sparse as sp
from cnmf import cnmf
from measure import command, heading, row
from scipy.optimize import linear_sum_assignment
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import NMF
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils import estimator_html_repr

from conenmf import ConeNMF, __version__

CHANNELS, PIXELS = 200, 2000
MASK = np.arange(PIXELS).reshape(50, 40) % 10 == 0  # hyperspy counts axes from the last one
OPTIONS = {
    "in memory": {},
    "noise of counts": {"normalize_poissonian_noise": True},
    "masked pixels and channels": {
        "navigation_mask": MASK,
        "signal_mask": np.arange(CHANNELS) >= 190,
    },
    "masked pixels, reprojected": {"navigation_mask": MASK, "reproject": "navigation"},
    "lazy": {},
}
TYPES = 6


def likeness(truth: np.ndarray, found: np.ndarray) -> float:
    """The mean cosine of the true rows with the rows found, in the best order."""
    truth, found = (X / np.linalg.norm(X, axis=1, keepdims=True) for X in (truth, found))
    cosines = truth @ found.T
    return float(cosines[linear_sum_assignment(-cosines)].mean())


def print_row(client: str, workflow: str, *ways: Callable[[], float]) -> None:
    """Print what a workflow finds with the NMF of a package, and with `ConeNMF`."""
    cells = []
    for way in ways:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            found = way()
        cells.append(("no", "yes")[found] if isinstance(found, bool) else f"{found:.3f}")
    row(f"{client} {version(client)}", workflow, *cells)


def decomposed(
    image: np.ndarray, spectra: np.ndarray, workflow: str, algorithm: str | ConeNMF
) -> float:
    """How like the spectra hyperspy's factors are."""
    signal = hs.signals.Signal1D(image)
    signal = signal.as_lazy() if workflow == "lazy" else signal
    how = OPTIONS[workflow]
    signal.decomposition(algorithm=algorithm, output_dimension=3, print_info=False, **how)
    signal.get_decomposition_model(3)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "signal.hspy")
        signal.save(file)
        factors = np.asarray(hs.load(file).learning_results.factors)
    kept = ~how.get("signal_mask", np.zeros(CHANNELS, dtype=bool))
    return likeness(spectra[:, kept], factors[kept].T)


def hyperspy() -> None:
    """Spectra of an image."""
    hs.preferences.General.show_progressbar = False
    rng = np.random.default_rng(0)
    channels = np.arange(CHANNELS)
    centres, widths = rng.uniform(20, 180, (3, 1)), rng.uniform(8, 30, (3, 1))
    spectra = np.exp(-(((channels - centres) / widths) ** 2)) + 0.02
    counts = rng.poisson(200 * rng.dirichlet(np.full(3, 0.5), PIXELS) @ spectra)
    image = counts.reshape(40, 50, CHANNELS).astype(float)
    for workflow in OPTIONS:
        find = partial(decomposed, image, spectra, workflow)
        print_row("hyperspy", workflow, partial(find, "NMF"), partial(find, ConeNMF(3)))


def draw_cells(seed: int = 0) -> tuple[sc.AnnData, np.ndarray]:
    """Counts of cells, and the shares of genes that each of the six types has."""
    rng = np.random.default_rng(seed)
    shares = np.tile(rng.lognormal(0.0, 1.0, 500), (TYPES, 1))
    shares *= np.where(rng.random(shares.shape) < 0.1, rng.lognormal(2.0, 0.5, shares.shape), 1.0)
    shares /= shares.sum(axis=1, keepdims=True)
    kinds = rng.integers(TYPES, size=600)
    usages = 0.8 * np.eye(TYPES)[kinds] + 0.2 * rng.dirichlet(np.ones(TYPES), kinds.size)
    totals = rng.lognormal(np.log(3000), 0.4, (kinds.size, 1))
    counts = sp.csr_matrix(rng.poisson(totals * (usages @ shares)).astype(np.float32))
    cells = pd.DataFrame({"type": kinds.astype(str)}, [f"cell{n}" for n in range(kinds.size)])
    genes = pd.DataFrame(index=[f"gene{n}" for n in range(shares.shape[1])])
    return sc.AnnData(counts, cells, genes), shares


def clustered(cells: sc.AnnData, model: NMF | ConeNMF) -> float:
    """How well clusters of scanpy agree with the types, if a model gives the coordinates."""
    cells = cells.copy()
    sc.pp.normalize_total(cells)
    sc.pp.log1p(cells)
    cells.obsm["X_nmf"] = model.fit_transform(cells.X)
    cells.varm["nmf"] = model.components_.T
    sc.pp.neighbors(cells, use_rep="X_nmf")
    sc.tl.leiden(cells, resolution=0.5, flavor="igraph", n_iterations=2, directed=False)
    sc.tl.rank_genes_groups(cells, "leiden")
    return adjusted_rand_score(cells.obs["type"], cells.obs["leiden"])


def scanpy() -> None:
    """Clusters of cells."""
    cells, _ = draw_cells()
    theirs, ours = NMF(TYPES, max_iter=1000), ConeNMF(TYPES)
    print_row(
        "scanpy",
        "Leiden clusters",
        partial(clustered, cells, theirs),
        partial(clustered, cells, ours),
    )


def fitted(
    X: np.ndarray,
    n_components: int,
    *,
    H: np.ndarray | None = None,
    update_H: bool = True,
    init: str = "random",
    random_state: int | None = None,
    max_iter: int = 200,
    tol: float = 1e-4,
    **options: object,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Factors by `ConeNMF`, called like scikit-learn's `non_negative_factorization`."""
    penalties = {name: options[name] for name in ("alpha_W", "alpha_H", "l1_ratio")}
    if random_state is not None:
        random_state = int(random_state)
    model = ConeNMF(
        int(n_components),
        loss=options["beta_loss"],
        init=init,
        fixed=None if update_H else H,
        random_state=random_state,
        max_iter=max_iter,
        tol=tol,
        **penalties,
    )
    usages = model.fit_transform(X)
    return usages, model.components_, model.n_iter_


def agreed(cells: sc.AnnData, shares: np.ndarray, loss: str, function: Callable) -> float:
    """How like the shares the consensus of cNMF is."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "cells.h5ad")
        cells.write(file)
        run = cnmf.cNMF(output_dir=folder, name="run")
        with mock.patch.object(cnmf, "non_negative_factorization", function):
            run.prepare(
                str(file), [TYPES], n_iter=10, seed=1, num_highvar_genes=300, beta_loss=loss
            )
            run.factorize()
            run.combine()
            run.consensus(TYPES, density_threshold=2.0, show_clustering=False)
        refitted = run.load_results(TYPES, density_threshold=2.0)[2].T
    found = refitted[cells.var_names].to_numpy()
    middle = shares.mean(axis=1, keepdims=True)
    return likeness(shares - middle, found - found.mean(axis=1, keepdims=True))


def programs() -> None:
    """Spectra of programs."""
    cells, shares = draw_cells()
    for loss in ("frobenius", "kullback-leibler"):
        find = partial(agreed, cells, shares, loss)
        print_row(
            "cnmf",
            f"consensus of ten runs, {loss}",
            partial(find, cnmf.non_negative_factorization),
            partial(find, fitted),
        )


def is_cloned(model: NMF | ConeNMF, X: np.ndarray) -> bool:
    """Whether a clone of a fitted model has its parameters, and no fit."""
    other = clone(model.fit(X))
    return other.get_params() == model.get_params() and not hasattr(other, "components_")


def is_pickled(model: NMF | ConeNMF, X: np.ndarray) -> bool:
    """Whether a model from a pickle transforms as before."""
    again = pickle.loads(pickle.dumps(model.fit(X)))
    return np.array_equal(again.transform(X), model.transform(X))


def is_routed(model: NMF | ConeNMF, X: np.ndarray) -> bool:
    """Whether weights of samples reach the model through a pipeline."""
    if not hasattr(model, "set_fit_request"):
        return False
    weights = np.arange(1.0, len(X) + 1)
    with config_context(enable_metadata_routing=True):
        steps = make_pipeline(MinMaxScaler(), model.set_fit_request(sample_weight=True))
        components = steps.fit(X, sample_weight=weights)[-1].components_
    own = clone(model).fit(MinMaxScaler().fit_transform(X), sample_weight=weights)
    return np.array_equal(components, own.components_)


def is_framed(model: NMF | ConeNMF, X: np.ndarray) -> bool:
    """Whether coefficients are a data frame with names, if asked for."""
    table = model.set_output(transform="pandas").fit_transform(pd.DataFrame(X))
    return list(table) == list(model.get_feature_names_out())


def is_drawn(model: NMF | ConeNMF, X: np.ndarray) -> bool:
    """Whether a pipeline is shown in HTML with the model in it."""
    return type(model).__name__ in estimator_html_repr(make_pipeline(MinMaxScaler(), model))


HABITS = {
    "clone": is_cloned,
    "pickle": is_pickled,
    "metadata routing of sample weights": is_routed,
    "set_output": is_framed,
    "HTML representation": is_drawn,
}


def habits() -> None:
    """Habits of estimators."""
    X = np.random.default_rng(0).random((40, 12))
    for name, has in HABITS.items():
        print_row("scikit-learn", name, *(partial(has, one(3), X) for one in (NMF, ConeNMF)))


def clients() -> None:
    """Workflows of hyperspy, scanpy and cNMF, and habits of scikit-learn's estimators."""
    print(f"conenmf {__version__}, scikit-learn {version('scikit-learn')}")
    heading("client", "workflow", "its NMF", "ConeNMF")
    hyperspy()
    scanpy()
    programs()
    habits()


if __name__ == "__main__":
    command(__doc__, clients)
