"""The contract of all public doors: the same data in any form give the same answer.

`DOORS` has the public entries, and `INPUTS` the forms and shapes of data. A cell of their table is

- *equal*: error and objective are those that tests/reference.py computes from the returned factors,
  and the answer is that for the same data as a dense float64 array in C order;
- *refused*: a `ConeNMFError` whose message names the argument, for the reason in `REFUSED`;
- *without meaning*: the door has no such argument (`Door.lacks`).

`FAILURES` has the cells that fail, with the reason; delete a row when its cell passes.
``python -m tests.test_contract`` prints the table.
"""

import json
import re
import traceback
import warnings
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import anndata
import click.testing
import dask
import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.io
import scipy.sparse as sp
import zarr
from tests.reference import Reference

import conenmf
from conenmf import ConeNMF, ConeNMFError, Factorization, Problem, factorize, from_rows
from conenmf.cli import app
from conenmf.data.known import weigh_samples
from conenmf.fields.measurements import bootstrap, measurements
from conenmf.judge.displacement import displacement
from conenmf.solve.constraints import Penalties
from conenmf.solve.losses import get_loss

N, F, K = 24, 10, 3

# --- data -------------------------------------------------------------------------------------
# Integers below 2048, which every type of number holds exactly.


def counts(rng):
    """Counts of three distinct components of distinct sizes, so that fits have one minimum."""
    A = 0.1 * rng.random((N, K))
    A[range(N), rng.permutation(np.repeat(range(K), (12, 8, 4)))] += 0.5 + rng.random(N)
    C = 0.02 * rng.random((K, F))
    C[[0, 0, 0, 0, 1, 1, 1, 2, 2, 2], range(F)] += 0.5 + rng.random(F)
    return rng.poisson(30 * A @ C)


def spectra(rng):
    """Positive powers."""
    return counts(rng) + 1


def scene(rng):
    """Pixels that mix three materials."""
    mixed = rng.dirichlet(np.ones(K), N) @ rng.random((K, F))
    return np.round(1000 * mixed + 5 * rng.random((N, F)))


def ratings(rng):
    """Ratings from 1 to 5; zeros are unknown."""
    tastes = 1 + 4 * rng.random((N, 2)) @ rng.dirichlet(np.ones(2), F).T
    return np.clip(np.round(tastes), 1, 5) * (rng.random((N, F)) < 0.7)


@cache
def data_of(kind):
    """Return the data of doors of this kind, which no test changes."""
    X = np.ascontiguousarray(kind(np.random.default_rng(0)), float)
    X.flags.writeable = False
    return X


# --- what a door is given ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Case:
    """Data in some form.

    `X` has the same numbers as a dense array. `order` has the samples of X in the order of `table`.
    """

    table: Any
    X: Any
    K: int | str = K
    known: dict[str, Any] = field(default_factory=dict)  # mask, weights, sample_weight
    names: tuple[str, ...] | None = None
    order: Any = None
    has_init: bool = False
    converges: bool = False  # instead of a stated number of iterations
    is_single: bool = False

    def opened(self, degree=2, **reading):
        """Return the table, or a matrix that knows its mask or its weights."""
        if not self.known:
            return from_rows(self.table, **reading) if reading else self.table
        known = dict(self.known)
        weights = known.pop("sample_weight", None)
        V = from_rows(self.table, **known, **reading)
        return V if weights is None else weigh_samples(V, weights, degree)

    def plain(self):
        """Return the same data as a dense float64 array in C order."""
        X = np.array(self.X, float, order="C")
        known = {name: np.array(one, order="C") for name, one in self.known.items()}
        if "mask" in known:  # what is written at unknown entries does not matter
            X = np.where(known["mask"], X, 7.0)
        if (times := known.pop("sample_weight", None)) is not None:
            X, *parts = (one.repeat(times, axis=0) for one in (X, *known.values()))
            known = dict(zip(known, parts, strict=True))
        return replace(self, table=X, known=known, names=None, order=None)

    @property
    def samples(self):
        """The samples of X, in the order of the table."""
        return np.arange(len(self.X)) if self.order is None else self.order

    @property
    def factors(self):
        """Coefficients of the samples of X, and components, to begin with."""
        rng = np.random.default_rng(1)
        size = self.K if isinstance(self.K, int) else K
        return rng.random((len(self.X), size)), rng.random((size, self.X.shape[1]))

    @property
    def own_init(self):
        """Coefficients of the samples of the table, and components, to begin with."""
        A, C = self.factors
        is_repeated = len(A) < self.table.shape[0]
        return (A.repeat(SAMPLE_WEIGHTS, axis=0) if is_repeated else A), C


def form(make, **more):
    return lambda X: Case(make(X), X, **more)


def boolean(X):
    table = np.median(X[X > 0]) <= X
    return Case(table, table.astype(float))


NAMES = tuple(f"band {f}" for f in range(F))
KNOWN = np.random.default_rng(2).random((N, F)) < 0.9
WEIGHTS = np.random.default_rng(3).integers(1, 5, (N, F)) / 2
SAMPLE_WEIGHTS = np.random.default_rng(4).integers(0, 4, N)
ORDER = np.random.default_rng(5).permutation(N)


def with_known(K=K, has_init=False, **known):
    return lambda X: Case(np.asfortranarray(X), X, K, known, has_init=has_init)


def part(take, number):
    return lambda X: Case(np.asfortranarray(X[take]), X[take], K=number)


INPUTS = {
    "array": form(np.array),
    "Fortran order": form(np.asfortranarray),
    "float16": form(lambda X: X.astype(np.float16), is_single=True),
    "big-endian": form(lambda X: X.astype(">f8")),
    "integer": form(lambda X: X.astype(np.int32)),
    "boolean": boolean,
    "pandas": form(lambda X: pd.DataFrame(X, columns=NAMES), names=NAMES),
    "polars": form(lambda X: pl.DataFrame(X, schema=list(NAMES)), names=NAMES),
    "csr": form(sp.csr_array),
    "csc": form(sp.csc_matrix),
    "coo": form(sp.coo_array),
    "Dask": form(lambda X: da.from_array(X, chunks=(7, F))),
    "mask": with_known(mask=KNOWN),
    "weights": with_known(weights=WEIGHTS),
    "sample weights": with_known(sample_weight=SAMPLE_WEIGHTS),
    "one sample": part(np.s_[3:4], 1),
    "one feature": part(np.s_[:, 2:3], 1),
    "one component": form(np.asfortranarray, K=1),
    "constant": lambda X: Case(np.full(X.shape, 3), np.full(X.shape, 3.0), K=2),
    "K = F": form(np.asfortranarray, K=F),
    "K = N": form(np.asfortranarray, K=N),
    "auto": form(np.asfortranarray, K="auto"),
    "auto, weights": with_known("auto", weights=WEIGHTS),
    "auto, sample weights": with_known("auto", sample_weight=SAMPLE_WEIGHTS),
    "auto, both weights": with_known("auto", weights=WEIGHTS, sample_weight=SAMPLE_WEIGHTS),
    "own init": form(np.asfortranarray, has_init=True),
    "own init, sample weights": with_known(has_init=True, sample_weight=SAMPLE_WEIGHTS),
    "other order": lambda X: Case(X[ORDER], X, order=ORDER, converges=True),
}

# --- the doors --------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What a door says: what every door has, and the factors of those that return any."""

    K: int | None
    error: float | None
    numbers: tuple[Any, ...] = ()  # texts too; must be equal
    labels: Any = None
    names: tuple[str, ...] | None = None
    objective: float | None = None
    factors: Any = None  # coefficients and components
    # The data of the factors, and which are known, if not those given; what else weighs errors.
    left: Any = None


@dataclass(frozen=True)
class Door:
    """A public entry: a function of a case, a folder and a loss; the kind of its data."""

    call: Any
    kind: Any = counts
    loss: str = "frobenius"
    lacks: tuple[str, ...] = ()  # inputs for which it has no argument
    terms: dict[str, Any] = field(default_factory=dict)  # of the objective
    rtol: float = 1e-6  # in single precision, with weights, or for samples in another order


def stopping(case, loss):
    """Return when to stop: least squares after some iterations, other losses at convergence.

    Random starts of samples in another order differ, so these converge, too.
    """
    is_stated = loss == "frobenius" and not case.converges
    return {"max_iter": 30, "tol": 0.0} if is_stated else {"max_iter": 3000, "tol": 1e-9}


def stopping_flags(case):
    how = stopping(case, "frobenius")
    return "--max-iter", how["max_iter"], "--tol", how["tol"]


def of_result(result, **more):
    found = Answer(result.K, result.relative_error, objective=result.objective)
    factors = np.asarray(result.H).T, result.W.T
    labels = np.asarray(result.labels)
    return found._replace(labels=labels, names=result.names.feature_names, factors=factors, **more)


def fit_model(make, case, **options):
    """Fit the model that `make` returns for the number of components and options."""
    options |= {"init": case.own_init} if case.has_init else {}
    model = make(case.K, **options)
    A = np.asarray(model.fit_transform(case.table, **case.known))
    found = of_result(model.result_)
    assert (model.n_components_, model.relative_error_) == (found.K, found.error)
    if model.result_.is_shaded:  # the coefficients of W H are brightness times abundances
        np.testing.assert_allclose(A.sum(axis=1), 1, rtol=1e-6)
        A = A * np.asarray(model.result_.brightness)[:, None]
    return found._replace(labels=np.asarray(model.labels_), factors=(A, model.components_))


def by_estimator(case, folder, loss):
    return fit_model(ConeNMF, case, loss=loss, **stopping(case, loss))


def by_scenes(case, folder, loss):
    return fit_model(ConeNMF.for_scenes, case)


def by_factorize(case, folder, loss):
    A, C = case.own_init
    options = {"init": (C.T, A.T)} if case.has_init else {}
    V = case.opened(get_loss(loss).degree)
    return of_result(factorize(V, case.K, loss=loss, **stopping(case, loss), **options))


def by_groups(case, folder, loss):
    """Two groups of alternating samples; the factors are those of X divided by the scales."""
    A, C = case.own_init
    options = {"init": (C.T, A.T)} if case.has_init else {}
    codes = np.arange(len(case.X)) % 2
    is_repeated = len(codes) < case.table.shape[0]
    labels = codes.repeat(SAMPLE_WEIGHTS) if is_repeated else codes[case.samples]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*groups? have fewer|.*all samples are of the group")
        result = factorize(case.opened(), case.K, groups=labels, **stopping(case, loss), **options)
    known = case.known.get("mask", case.known.get("weights", np.ones(case.X.shape)))
    scales = np.ones((2, case.X.shape[1]))
    if result.group_scales is not None:
        scales = np.asarray(result.group_scales)[: codes.max() + 1]
    of_samples = scales[codes]
    return of_result(result, left=(case.X / of_samples, known, of_samples**2))


def by_ratings(case, folder, loss):
    V = case.opened(missing="zeros") if case.known else case.table
    found = conenmf.fit_ratings(V, case.K if isinstance(case.K, str) else min(case.K, 2))
    X = found.known.toarray()
    known = (X > 0) * case.known.get("weights", 1.0)
    of_users = (X > 0) * case.known.get("sample_weight", np.ones(len(X)))[:, None]
    known = known / np.average(known, weights=of_users)  # they count relative to their mean
    values = np.where(X > 0, X - found.offsets[0][:, None] - found.offsets[1], 0.0)
    places = np.argsort(case.samples)
    left = values[places], known[places]
    return of_result(found.result, numbers=(found.rmse, found.rmse_of_means), left=left)


def annotated(case):
    return anndata.AnnData(case.table.copy()), case.known


def by_tl_nmf(case, folder, loss):
    A, C = case.own_init
    adata, known = annotated(case)
    options = {"init": (C.T, A.T)} if case.has_init else {}
    how = {**stopping(case, loss), **known, **options, "verbose": False}
    return of_result(conenmf.tl.nmf(adata, case.K, **how))


def by_tl_consensus(case, folder, loss):
    adata, known = annotated(case)
    how = {"resample": "start", **stopping(case, loss), **known, "verbose": False}
    found = conenmf.tl.consensus(adata, case.K, 4, **how)
    return Answer(found.K, found.relative_error, labels=np.asarray(found.labels))


def by_select_k(case, folder, loss):
    found = conenmf.select_k(case.opened(get_loss(loss).degree), loss=loss)
    return Answer(found.K, None, (*found.interval, found.grade, found.decided_by))


def by_stability(case, folder, loss):
    V = case.opened(get_loss(loss).degree)
    # The same starts for the same data: draws of samples would depend on their order and number.
    how = {"resample": "start", **stopping(case, loss)}
    found = conenmf.stability(V, case.K, 4, loss=loss, **how)
    return Answer(found.K, found.relative_error, (found.verdict,), np.asarray(found.labels))


def restricted(case):
    """A known component, and penalties on both factors."""
    penalties = Penalties(l2_h=0.1, l1_w=0.1, l2_w=0.1)
    return Problem(penalties=penalties, fixed=case.factors[1][:1].T)


def by_restricted_stability(case, folder, loss):
    V = case.opened()
    how = {"resample": "start", **stopping(case, loss)}
    found = conenmf.stability(V, case.K, 4, problem=restricted(case), **how)
    return Answer(found.K, found.relative_error, (found.verdict,), np.asarray(found.labels))


def by_restricted_select_k(case, folder, loss):
    found = conenmf.select_k(case.opened(), problem=restricted(case))
    return Answer(found.K, None, (*found.interval, found.grade, found.decided_by))


def by_measurements(case, folder, loss):
    """Leave out a species, and fit."""
    V = measurements(case.opened(), bad=[case.X.shape[1] - 1])
    result = factorize(V, case.K, **stopping(case, loss))
    return Answer(result.K, result.relative_error, labels=np.asarray(result.labels))


def by_bootstrap(case, folder, loss):
    """Count where clear components are found; draws depend on the order and number of samples."""
    result = factorize(case.opened(), case.K, **stopping(case, loss))
    found = bootstrap(result, 4, min_correlation=0.3)
    return Answer(result.K, result.relative_error, numbers=(found.found.sum(),))


def by_displacement(case, folder, loss):
    """Displace the entries of one feature, with the first component known, and penalties."""
    problem = restricted(case)
    V, W, H = given_factors(case, loss, fixed=problem.fixed.W, penalties=problem.penalties)
    found = displacement(V, W, H, [4.0], problem=problem, features=[0])
    ends = (*found.lower[0, 0].tolist(), *found.upper[0, 0].tolist())
    return Answer(W.shape[1], None, ends)


def given_factors(case, loss, **terms):
    """Return the data, and factors of them that do not depend on their form."""
    A, C = case.factors
    how = {"init": (C.T, A.T), "max_iter": 20, "tol": 0}
    result = factorize(from_rows(case.X), case.K, loss=loss, **how, **terms)
    W, H = result.W, np.asarray(result.H)[:, case.samples]
    V = case.opened(get_loss(loss).degree)
    weighed = getattr(V, "unweighed", None)
    if weighed is not None:
        H = weighed.weighed(H)
    elif H.shape[1] < case.table.shape[0]:  # the plain data of weighed samples
        H = H.repeat(SAMPLE_WEIGHTS, axis=1)
    return V, W, H


def by_certify(case, folder, loss):
    V, W, H = given_factors(case, loss)
    found = conenmf.certify(V, W, H, loss=loss, effort=1)
    return Answer(W.shape[1], found.relative_error, (found.lower_bound,))


def by_uniqueness(case, folder, loss):
    V, W, H = given_factors(case, loss)
    found = conenmf.uniqueness(V, W, H)
    return Answer(W.shape[1], None, (*found.verdicts, *found.radii))


def by_diagnose(case, folder, loss):
    V, W, H = given_factors(case, loss)
    found = conenmf.diagnose(V, W, H, n_splits=0)
    return Answer(W.shape[1], None, (found.headline, *found.components))


def by_compare(case, folder, loss):
    A, C = case.factors

    def own(V, K, rng):  # samples may be repeated by their weights
        return C.T, (A if len(A) == V.n_samples else A.repeat(SAMPLE_WEIGHTS, axis=0)).T

    inits = [own] if case.has_init else ["nndsvd", "random"]
    how = {"inits": inits, "solvers": "hals", **stopping(case, loss)}
    found = conenmf.compare(case.opened(), case.K, **how)
    errors = sorted(one.relative_error**2 for one in found.contenders)
    return Answer(found.K, None, tuple(errors))


def by_report(case, folder, loss):
    result = factorize(case.opened(), case.K, **stopping(case, loss))
    conenmf.write_report(result, folder / "report.html")
    page = (folder / "report.html").read_text()
    said = re.search(r"Relative error [\d.e-]+", page)[0]  # bounds depend on the time they take
    return of_result(result, numbers=(said,))


def file_of(case, folder):
    """Write a case to files; return the path of the data and the flags of the others."""
    table, path = case.table, folder / "data"
    if isinstance(table, pd.DataFrame):
        path = path.with_suffix(".csv")
        table.to_csv(path, index=False)
    elif isinstance(table, pl.DataFrame):
        path = path.with_suffix(".parquet")
        table.write_parquet(path)
    elif isinstance(table, sp.coo_array):
        path = path.with_suffix(".mtx")
        scipy.io.mmwrite(path, table)
    elif sp.issparse(table):
        path = path.with_suffix(".npz")
        sp.save_npz(path, table)
    elif isinstance(table, da.Array):
        path = path.with_suffix(".zarr")
        zarr.save_array(path, table.compute())
    else:
        path = path.with_suffix(".npy")
        np.save(path, table)
    flags = []
    for name, values in case.known.items():
        np.save(folder / f"{name}.npy", values)
        flags += [f"--{name.replace('_', '-')}", str(folder / f"{name}.npy")]
    return str(path), flags


def run(*words):
    """Return what a command prints with --json, read; an error is raised."""
    words = [*map(str, words), "--json"]
    shared = {"debug": False, "flags": {}, "arguments": words}
    done = click.testing.CliRunner().invoke(app, words, obj=shared)
    if isinstance(done.exception, Exception):
        raise done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def by_fit(case, folder, loss):
    path, flags = file_of(case, folder)
    out = folder / "out"
    run("fit", path, *flags, "-k", case.K, *stopping_flags(case), "--no-report", "-o", out)
    return of_result(Factorization.load(out / "result.npz"))


def by_rank(case, folder, loss):
    path, flags = file_of(case, folder)
    said = run("rank", path, *flags)
    return Answer(said["n_components"], None, (*said["interval"], said["grade"]))


def by_stability_command(case, folder, loss):
    path, flags = file_of(case, folder)
    how = ("--runs", 3, "--resample", "start", "--seed", 0, "--no-report")
    said = run("stability", path, *flags, "-k", case.K, *how, "-o", folder / "out")
    return Answer(said["n_components"], said["relative_error"], (said["verdict"],))


def by_diagnose_command(case, folder, loss):
    path, flags = file_of(case, folder)
    said = run("diagnose", path, *flags, "-k", case.K, *stopping_flags(case), "--quick")
    return Answer(said["n_components"], said["relative_error"])


def by_compare_command(case, folder, loss):
    path, flags = file_of(case, folder)
    how = ("--inits", "nndsvd,random", "--solvers", "hals", *stopping_flags(case))
    said = run("compare", path, *flags, "-k", case.K, *how)
    errors = sorted(one["relative_error"] ** 2 for one in said["contenders"])
    return Answer(said["n_components"], None, tuple(errors))


def by_transform(case, folder, loss):
    model = factorize(from_rows(case.X), case.K, max_iter=30, tol=0)
    model.save(folder / "result.npz")
    path, flags = file_of(case, folder)
    coefficients = folder / "coefficients.npy"
    said = run("transform", folder / "result.npz", path, *flags, "-o", coefficients)
    labels = np.asarray(np.load(coefficients)[np.argsort(case.samples)])
    return Answer(said["n_components"], said["relative_error"], (labels,))


NO_INIT = ("own init", "own init, sample weights")
NO_AUTO = tuple(name for name in INPUTS if name.startswith("auto"))
NO_K = ("one component", "K = F", "K = N", *NO_AUTO, *NO_INIT)
NO_SAMPLE_WEIGHTS = tuple(
    name for name in INPUTS if name.endswith("sample weights") or "both" in name
)
NOT_IN_ANNDATA = ("polars", "coo", *NO_SAMPLE_WEIGHTS)

DOORS = {
    "ConeNMF": Door(by_estimator),
    "ConeNMF, poisson": Door(by_estimator, loss="poisson"),
    "ConeNMF, itakura-saito": Door(by_estimator, spectra, "itakura-saito"),
    # The search for a simplex stops when its likelihood rises by less than 1e-7 of itself.
    "ConeNMF.for_scenes": Door(by_scenes, scene, terms={"sum_to_one": True}, rtol=1e-5),
    "factorize": Door(by_factorize),
    # Rounding decides how soon a single component has converged, and groups begin to count.
    "factorize, groups": Door(by_groups, lacks=("one component",)),
    "factorize, poisson": Door(by_factorize, loss="poisson"),
    "factorize, itakura-saito": Door(by_factorize, spectra, "itakura-saito"),
    "fit_ratings": Door(by_ratings, ratings, lacks=NO_INIT),
    "tl.nmf": Door(by_tl_nmf, lacks=NOT_IN_ANNDATA),
    "tl.consensus": Door(by_tl_consensus, lacks=(*NOT_IN_ANNDATA, *NO_AUTO, *NO_INIT), rtol=1e-5),
    "select_k": Door(by_select_k, lacks=NO_K),
    "select_k, poisson": Door(by_select_k, loss="poisson", lacks=NO_K),
    "select_k, known and penalised": Door(by_restricted_select_k, lacks=NO_K),
    # A consensus has medians of runs, which end where single precision sees no fall.
    "stability": Door(by_stability, lacks=(*NO_AUTO, *NO_INIT), rtol=1e-5),
    "stability, known and penalised": Door(
        by_restricted_stability, lacks=(*NO_AUTO, *NO_INIT), rtol=1e-5
    ),
    "stability, poisson": Door(by_stability, loss="poisson", lacks=(*NO_AUTO, *NO_INIT)),
    "certify": Door(by_certify, lacks=(*NO_AUTO, *NO_INIT)),
    "certify, poisson": Door(by_certify, loss="poisson", lacks=(*NO_AUTO, *NO_INIT)),
    "measurements": Door(by_measurements, lacks=(*NO_AUTO, *NO_INIT)),
    "bootstrap": Door(by_bootstrap, lacks=(*NO_AUTO, *NO_INIT)),
    "displacement": Door(by_displacement, lacks=(*NO_AUTO, *NO_INIT)),
    "uniqueness": Door(by_uniqueness, lacks=(*NO_AUTO, *NO_INIT)),
    "diagnose": Door(by_diagnose, lacks=(*NO_AUTO, *NO_INIT)),
    "compare": Door(by_compare, lacks=NO_AUTO),
    "write_report": Door(by_report, lacks=NO_INIT),
    "conenmf fit": Door(by_fit, lacks=NO_INIT),
    "conenmf rank": Door(by_rank, lacks=(*NO_K, *NO_SAMPLE_WEIGHTS)),
    "conenmf stability": Door(
        by_stability_command, lacks=(*NO_INIT, *NO_SAMPLE_WEIGHTS), rtol=1e-5
    ),
    "conenmf diagnose": Door(by_diagnose_command, lacks=(*NO_INIT, *NO_SAMPLE_WEIGHTS)),
    "conenmf compare": Door(by_compare_command, lacks=(*NO_INIT, *NO_SAMPLE_WEIGHTS)),
    "conenmf transform": Door(by_transform, lacks=(*NO_INIT, *NO_AUTO, *NO_SAMPLE_WEIGHTS)),
}


# --- what is refused, and what fails ----------------------------------------------------------


def cells(doors, inputs, *said):
    """Return the same entry for all doors and inputs; only cells that have a meaning."""
    doors = [doors] if isinstance(doors, str) else doors
    inputs = [inputs] if isinstance(inputs, str) else inputs
    return {
        (name, data): said for name in doors for data in inputs if data not in DOORS[name].lacks
    }


SPECTRAL = ("ConeNMF, itakura-saito", "factorize, itakura-saito")
POISSON = ("ConeNMF, poisson", "factorize, poisson")
SLOW = (  # they fit several times, or until convergence
    *(name for name in DOORS if DOORS[name].loss != "frobenius"),
    *(
        "fit_ratings",
        "stability",
        "stability, known and penalised",
        "displacement",
        "conenmf stability",
        "tl.consensus",
        "write_report",
    ),
)

# Part of the message, and the reason.
REFUSED = {
    **cells(
        SPECTRAL,
        ("boolean", "csr", "csc", "coo"),
        "needs positive entries",
        "the divergence of a zero is infinite, and a sparse matrix has zeros",
    ),
    **cells(
        SPECTRAL,
        ("mask", "weights", "auto, weights", "auto, both weights"),
        "loss='itakura-saito' takes no missing or weighted entries",
        "docs/limitations.md: this loss is without missing entries",
    ),
    **cells(
        SPECTRAL,
        "constant",
        "only 1 distinct direction, fewer than the 2 components",
        "cones need a direction for each component",
    ),
    **cells(
        "stability, known and penalised",
        ("one component", "one feature", "one sample"),
        "all 1 components are known",
        "nothing is left to be checked",
    ),
    **cells(
        "stability, poisson",
        ("mask", "weights"),
        "this needs complete data",
        "docs/limitations.md: the stability of counts is for complete data",
    ),
    **cells(
        "measurements",
        "one feature",
        "all species are bad",
        "the only species is left out",
    ),
    **cells(
        "ConeNMF.for_scenes",
        "constant",
        "too few for 2 endmembers",
        "equal pixels are mixtures of one endmember",
    ),
    **cells(
        "ConeNMF.for_scenes",
        "K = N",
        "has at most 10 endmembers",
        "endmembers are vertices of a simplex, so they are independent",
    ),
}

# What fails until other changes have landed: delete a row when its cells pass.
FAILURES: dict[tuple[str, str], tuple[str]] = {}

# --- the contract -----------------------------------------------------------------------------


def tolerance(case, door):
    """Return how closely two calls agree.

    Single precision, also that in which a fit of holes or weights begins, has 7 digits; other
    losses are compared where they have converged.
    """
    is_exact = door.loss == "frobenius" and not (case.is_single or case.known or case.converges)
    return 1e-8 if is_exact else door.rtol


def agree(found, expected, rtol, atol):
    """Check numbers, which are of the order of 1, and texts."""
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, str):
            assert one == other
        else:
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def check_factors(case, door, found):
    """Check error and objective against those that plain NumPy computes from the factors."""
    weights = case.known.get("sample_weight", np.ones(len(case.X)))
    known = case.known.get("mask", case.known.get("weights", np.ones(case.X.shape)))
    X, P, squares = (*(found.left or (case.X, known)), np.ones(case.X.shape))[:3]
    X, P, squares = X[case.samples], P[case.samples] * 1.0, squares[case.samples]
    reference = Reference(X, P, weights, door.loss, **door.terms)
    of_error = Reference(X, P * squares, weights, door.loss, **door.terms)
    A, C = (np.asarray(one, float) for one in found.factors)
    assert len(A) == len(weights)
    size = reference.value(np.zeros_like(A), C) if door.loss == "frobenius" else X.sum()
    assert found.objective == pytest.approx(reference.objective(A, C), rel=1e-9, abs=1e-12 * size)
    error, expected = (one**reference.unit for one in (found.error, of_error.relative_error(A, C)))
    assert error == pytest.approx(expected, rel=1e-9, abs=1e-12)


PLAIN = {}  # the answers of doors for plain data, which many forms of them share


def plain_answer(name, case, folder):
    """Return the answer of a door for the same data as a dense float64 array in C order."""
    plain = case.plain()
    arrays = plain.table, *plain.known.values()
    options = plain.table.shape, plain.K, plain.has_init, plain.converges, *plain.known
    key = name, *options, *(array.tobytes() for array in arrays)
    if key not in PLAIN:
        PLAIN[key] = DOORS[name].call(plain, folder, DOORS[name].loss)
    return PLAIN[key]


def check_cell(name, data, folder):
    door, case = DOORS[name], INPUTS[data](data_of(DOORS[name].kind))
    for place in ("given", "plain"):
        (folder / place).mkdir()
    found = door.call(case, folder / "given", door.loss)
    if found.factors is not None:
        check_factors(case, door, found)
    expected = plain_answer(name, case, folder / "plain")
    rtol = tolerance(case, door)
    assert found.K == expected.K
    floor = 2e-6 if case.is_single else 1e-12  # squares, after 30 roundings of iterations
    if found.error is not None:
        power = 2 if door.loss == "frobenius" else 1
        least = expected.error**power
        assert found.error**power == pytest.approx(least, rel=power * rtol, abs=floor)
    agree(found.numbers, expected.numbers, rtol, max(floor, rtol))
    if found.factors is not None:
        assert found.names == (case.names or expected.names)
    are_unique = found.K <= min(case.X.shape)  # coefficients, and so labels
    if found.labels is not None and are_unique:
        check_labels(case, found, expected)


def check_labels(case, found, expected):
    labels = found.labels
    if len(labels) < len(expected.labels):  # samples are repeated by their weights
        labels = labels.repeat(case.known["sample_weight"])
    others = expected.labels if case.order is None else expected.labels[case.order]
    np.testing.assert_array_equal(labels, others)


def marked_cells():
    """Yield all cells; of a slow door, all but every sixth are `nightly`, as in a Latin square."""
    for row, (name, door) in enumerate(DOORS.items()):
        for column, data in enumerate(INPUTS):
            if data in door.lacks:
                continue
            marks = [pytest.mark.nightly] if name in SLOW and (row + column) % 6 else []
            if (name, data) in FAILURES and (name, data) not in REFUSED:
                (why,) = FAILURES[name, data]
                marks.append(pytest.mark.xfail(reason=why, strict=True))
            yield pytest.param(name, data, marks=marks)


def check(name, data, folder):
    """Check that a cell of the table is equal, or refused for the reason that is given."""
    if (name, data) not in REFUSED:
        check_cell(name, data, folder)
        return
    door, case = DOORS[name], INPUTS[data](data_of(DOORS[name].kind))
    with pytest.raises(ConeNMFError, match=REFUSED[name, data][0]):
        door.call(case, folder, door.loss)


@pytest.mark.filterwarnings("ignore")  # of few iterations, empty rows, sums to one: other tests
@pytest.mark.parametrize(("name", "data"), [*marked_cells()])
def test_every_door_takes_every_form(name, data, tmp_path):
    check(name, data, tmp_path)


def status(name, data, folder):
    """Return what a cell of the table says."""
    if data in DOORS[name].lacks:
        return "no such argument"
    try:
        check_cell(name, data, folder)
    except ConeNMFError as problem:
        return f"refused: {problem}"
    except Exception as problem:
        frame = traceback.extract_tb(problem.__traceback__)[-1]
        return f"fails: {type(problem).__name__}: {problem} [{frame.line}]"
    return "equal"


def print_table(names):
    import tempfile
    import time
    import warnings
    from pathlib import Path

    warnings.simplefilter("ignore")
    dask.config.set(scheduler="synchronous")
    for name in names:
        for data in INPUTS:
            began = time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                said = " ".join(status(name, data, Path(folder)).split())
            print(f"{name} | {data} | {said[:300]} | {time.process_time() - began:.2f}", flush=True)


if __name__ == "__main__":
    import sys

    print_table(sys.argv[1:] or DOORS)
