"""Fits with several options at once, compared with plain NumPy.

Each case draws a loss, a storage, what is known of the entries, weights, names, known components,
penalties, a solver and an init. The error, the objective and the coefficients must be those of
`reference`, hidden entries must not matter, a resumed run must end with the same bits, and only
what the documentation lists as not available may be refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from tests.reference import Reference

import conenmf
from conenmf.errors import CheckpointError
from conenmf.scale.checkpoint import Checkpoint

from .cases import Case, Ending, judged

IN_MEMORY = ("C", "F", "float32", "csr", "csc", "frame", "masked", "strided")
ELSEWHERE = ("memmap", "hdf5", "zarr", "dask")
OPENED = ("rows", "columns", "blocks", "npy", "csr-rows", "dask-rows")
SPARSE = ("csr", "csc", "csr-rows")
PENALTIES: tuple[dict[str, Any], ...] = (
    {"alpha_W": 0.02},
    {"alpha_W": 0.01, "l1_ratio": 1.0},
    {"alpha_W": 0.03, "alpha_H": 0.01, "l1_ratio": 0.5},
    {"alpha_W": 0.01, "alpha_H": 0.0},
    {"alpha_W": 0.0, "alpha_H": 0.02, "l1_ratio": 0.3},
    {"orthogonality": 0.3},
    {"orthogonality": 0.2, "alpha_W": 0.01},
    {"min_volume": 2e-4},
    {"min_volume": 1e-4, "alpha_W": 0.01, "l1_ratio": 1.0},
    {"sum_to_one": True},
    {"sum_to_one": True, "min_volume": 1e-4},
    {"sum_to_one": True, "alpha_W": 0.01},
    {"sum_to_one": True, "alpha_W": 0.01, "l1_ratio": 0.5},
    {"sum_to_one": True, "orthogonality": 0.1},
)


@dataclass
class Fit:
    """One fit: what the estimator and its methods are given, and what that means."""

    X: Any
    K: int
    loss: str
    storage: str
    missing: str = "raise"
    mask: Any = None
    door_mask: Any = None  # where the data are opened
    weights: Any = None
    door_weights: Any = None
    sample_weight: Any = None
    fixed: Any = None
    penalties: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    order: Any = None  # of the names in what comes with a data frame

    @property
    def P(self) -> Any:
        """The weight of each entry, 0 where it is hidden."""
        P = np.ones(self.X.shape)
        P[np.isnan(self.X) if self.missing != "zeros" else self.X == 0] = 0
        for part in (self.mask, self.door_mask, self.weights, self.door_weights):
            P = P if part is None else P * part
        return P

    @property
    def s(self) -> Any:
        """The weight of each sample."""
        return np.ones(len(self.X)) if self.sample_weight is None else self.sample_weight

    @property
    def n_fixed(self) -> int:
        """How many components are given."""
        return 0 if self.fixed is None else len(self.fixed)

    @property
    def reference(self) -> Reference:
        """The same problem in plain NumPy."""
        penalties = {"alpha_H": self.penalties.get("alpha_W", 0.0), **self.penalties}
        return Reference(self.X, self.P, self.s, self.loss, **penalties)

    def run(self, folder: Path, **more: Any) -> tuple[Any, Any]:
        """Return the model and its coefficients."""
        fixed = None if self.fixed is None else self._named(self.fixed, rows=False, columns=True)
        options = {**self.options, **self.penalties, "missing": self.missing, "fixed": fixed}
        model = conenmf.ConeNMF(self.K, loss=self.loss, n_threads=1, **options | more)
        given = {"mask": self._named(self.mask), "weights": self._named(self.weights)}
        weight = self._named(self.sample_weight, columns=False)
        A = model.fit_transform(self.held(folder), None, weight, **given)
        return model, np.asarray(A, float)

    def _named(self, array: Any, *, rows: bool = True, columns: bool = True) -> Any:
        """An array as a data frame or series, whose names may be in another order."""
        if array is None or self.storage != "frame":
            return array
        import pandas as pd

        (samples, features), (by_row, by_column) = _names(self.X.shape), self.order
        if array.ndim == 1:
            names, order = (samples, by_row) if rows and not columns else (features, by_column)
            return pd.Series(array, names).iloc[order]
        if not rows:
            return pd.DataFrame(array, columns=features).iloc[:, by_column]
        return pd.DataFrame(array, samples, features).iloc[by_row, by_column]

    def held(self, folder: Path) -> Any:
        """The data, as they are given to the estimator."""
        X, storage = self.X, self.storage
        path = folder / f"data{len(list(folder.iterdir()))}"
        known = {"missing": self.missing, "mask": self.door_mask, "weights": self.door_weights}
        if storage == "frame":
            import pandas as pd

            return pd.DataFrame(X, *_names(X.shape))
        if storage == "columns":
            known |= {key: known[key].T for key in ("mask", "weights") if known[key] is not None}
            return conenmf.from_columns(np.ascontiguousarray(X.T), n_threads=1, **known)
        if storage == "npy":
            np.save(path, X)
            return conenmf.open_data(path.with_suffix(".npy"), max_memory="50MB", **known)
        if storage in OPENED:
            blocks = {"block_samples": 7} if storage == "blocks" else {}
            inner = replace(
                self, storage={"csr-rows": "csr", "dask-rows": "dask"}.get(storage, "C")
            )
            return conenmf.from_rows(inner.held(folder), **blocks, **known)
        return _HELD[storage](X, path)


def _names(shape: tuple[int, int]) -> tuple[list[str], list[str]]:
    return [f"sample {n}" for n in range(shape[0])], [f"feature {f}" for f in range(shape[1])]


def _memmap(X: Any, path: Path) -> Any:
    mapped = np.memmap(path, X.dtype, "w+", shape=X.shape)
    mapped[:] = X
    return mapped


def _hdf5(X: Any, path: Path) -> Any:
    import h5py

    return h5py.File(path, "w").create_dataset("X", data=X, chunks=(5, X.shape[1]))


def _zarr(X: Any, path: Path) -> Any:
    import zarr

    return zarr.create_array(path, data=X, chunks=(5, X.shape[1]))


def _dask(X: Any, path: Path) -> Any:
    import dask.array as da

    return da.from_array(X, chunks=(7, X.shape[1]))


_HELD = {
    "C": lambda X, path: X,
    "F": lambda X, path: np.asfortranarray(X),
    "float32": lambda X, path: X.astype("f4"),
    "strided": lambda X, path: np.repeat(np.repeat(X, 2, 0), 2, 1)[::2, ::2],
    "csr": lambda X, path: sp.csr_array(X),
    "csc": lambda X, path: sp.csc_matrix(X),
    "masked": lambda X, path: np.ma.array(np.nan_to_num(X, nan=7.0), mask=np.isnan(X)),
    "memmap": _memmap,
    "hdf5": _hdf5,
    "zarr": _zarr,
    "dask": _dask,
}


# --- the draw -----------------------------------------------------------------------------------


def draw(case: Case) -> Fit:
    """Draw a fit; about a tenth of them cannot be computed."""
    rng = case.rng
    N, F = int(rng.integers(6, 25)), int(rng.integers(4, 13))
    K = int(rng.integers(1, min(5, N, F)))
    loss = case.pick(("frobenius", "frobenius", "poisson"))
    C = rng.gamma(0.5, 1, (K, F)) + 0.01
    X = rng.gamma(0.6, 1, (N, K)) @ C + 0.05
    X = rng.poisson(4 * X).astype(float) if case.chance(0.4) else X * rng.uniform(0.5, 1.5, X.shape)
    X[rng.integers(N)] *= case.chance(0.9)
    storage = case.pick(IN_MEMORY if case.chance(0.6) else ELSEWHERE + OPENED)
    fit = Fit(X.astype("f4").astype(float), K, loss, storage)
    fit.order = np.arange(N), np.arange(F)
    if case.chance(0.5):
        fit.order = rng.permutation(N), rng.permutation(F)
    _hide(case, fit)
    if case.chance(0.3):
        whole, some = rng.integers(0, 4, N).astype(float), rng.uniform(0.2, 3, N)
        whole[: K + 2] += 1  # so that there are enough directions
        fit.sample_weight = whole if case.chance(0.5) else some
    if case.chance(0.25):
        fit.fixed = C[: int(rng.integers(1, K + 1))] * rng.uniform(0.1, 5)
    if case.chance(0.5):
        fit.penalties = dict(case.pick(PENALTIES if loss == "frobenius" else PENALTIES[:6]))
    solvers = ("hals", "nnlsb", "mult") if loss == "frobenius" else ("newton", "mult")
    fit.options = {
        "solver": case.pick(solvers) if case.chance(0.2) else "auto",
        "init": case.pick(("auto", "cr1", "nndsvda", "random")),
        "random_state": 0,
        "max_iter": int(case.pick((5, 30, 300))),
        "tol": float(case.pick((0.0, 1e-5, 1e-9))),
    }
    return fit


def _hide(case: Case, fit: Fit) -> None:
    """Draw what is known of the entries: at most a part of each row and column is missing."""
    rng, shape = case.rng, fit.X.shape

    def some(share: float) -> Any:
        return rng.random(shape) > share

    kind = case.pick(("raise", "raise", "raise", "nan", "zeros"))
    if kind == "nan" or fit.storage == "masked":
        fit.missing = "nan"
        fit.X[~some(0.2)] = np.nan
    elif kind == "zeros":
        fit.missing = "zeros"
        fit.X = fit.X * some(0.2)
    elif case.chance(0.03):
        fit.X[0, 0] = np.nan  # without a word about it
    is_open = fit.storage in OPENED
    if case.chance(0.3):
        fit.mask = some(rng.uniform(0.02, 0.4))
    if is_open and case.chance(0.3):
        fit.door_mask = some(rng.uniform(0.02, 0.3))
    if case.chance(0.3):
        values = rng.uniform(0.1, 3, shape) * some(0.1)
        fit.weights = values if case.chance(0.5) else rng.uniform(0.1, 3, shape[1])
    if is_open and case.chance(0.15):
        fit.door_weights = rng.uniform(0.1, 3, shape)


# --- what is not available ----------------------------------------------------------------------


def not_available(fit: Fit) -> str:
    """What the documentation lists as not available; empty if the fit must be computed."""
    p, is_counts, solver = fit.penalties, fit.loss == "poisson", fit.options["solver"]
    (l1, l2, *_), is_unit = fit.reference.on_A, fit.reference.is_unit
    special = any(p.get(name) for name in ("orthogonality", "min_volume", "sum_to_one"))
    looked_at = replace(fit, X=np.ones_like(fit.X))
    if fit.storage in OPENED:  # before a mask of the fit hides it
        looked_at = replace(looked_at, mask=None, weights=None)
    if fit.missing == "raise" and np.isnan(fit.X[looked_at.P > 0]).any():
        return "NaN"
    if is_counts and (special or is_unit):
        return "penalties of counts"
    if p.get("sum_to_one") and (l1 or p.get("orthogonality")):
        return "sums of one that are lowered"
    if special and not is_counts and solver == "mult":
        return "a multiplicative solver with penalties"
    if p.get("orthogonality") and solver == "nnlsb":
        return "orthogonality by exact least squares"
    if is_unit and (fit.P != 1).any():
        return "unit length with holes"
    if (fit.s % 1).any() and (l2 if is_counts else l1 or p.get("sum_to_one")):
        return "penalties of fractions of a sample"
    return ""


# --- what must hold -----------------------------------------------------------------------------


def attack(case: Case) -> Ending:
    """Fit, and compare with the reference."""
    fit = draw(case)
    note, reason = f"; {described(fit)}", not_available(fit)
    try:
        model, A = fit.run(case.folder)
        if reason:
            return Ending("silent", f"accepted: {reason}{note}")
        problem = wrong(fit, model, A) or _wrong_again(case, fit, model, A)
    except Exception as error:
        ending = judged(error)
        if ending.outcome == "refused" and not reason:
            ending = replace(ending, outcome="factors")
        return replace(ending, note=ending.note[:200] + note)
    return Ending("different" if problem else "accepted", problem + note, compared=True)


def described(fit: Fit) -> str:
    """What a fit was given."""
    names = ("mask", "door_mask", "weights", "door_weights", "sample_weight", "fixed")
    given = {name: np.shape(getattr(fit, name)) for name in names}
    arrays = " ".join(f"{name}{shape}" for name, shape in given.items() if shape)
    plain = f"{fit.loss} {fit.X.shape} K={fit.K} {fit.storage} missing={fit.missing} {arrays}"
    return f"{plain} {fit.penalties} {fit.options}"


def wrong(fit: Fit, model: Any, A: Any) -> str:
    """What differs from the reference; empty if nothing does."""
    C, true = np.asarray(model.components_, float), fit.reference
    if A.shape != (len(fit.X), fit.K) or C.shape != (fit.K, fit.X.shape[1]):
        return f"shapes {A.shape}, {C.shape}"
    if not (np.isfinite(A).all() and np.isfinite(C).all() and A.min() >= 0 and C.min() >= 0):
        return "factors that are negative or not finite"
    rounding = 1e-5 if model.components_.dtype == np.float32 else 1e-9
    value, error = true.value(A, C), true.relative_error(A, C)
    scale = float((true.s @ (true.P * true.X**true.unit)).sum())
    for name, printed, expected, unit in (
        ("objective", model.result_.objective, true.objective(A, C), scale),
        ("loss", model.reconstruction_err_**2, value * (3 - true.unit), scale),
        ("error", model.relative_error_**true.unit, error**true.unit, scale * error / value),
    ):
        if not abs(printed - expected) <= rounding * max(unit, 1e-300):
            return f"{name} {printed:.9g}, recomputed {expected:.9g}"
    excess, allowed = true.excess_A(A, C), 10 * rounding * scale
    if not excess <= (allowed if fit.loss == "frobenius" else 100 * allowed):  # of counts a bound
        return f"coefficients are {excess / scale:.2g} above the best"
    return _wrong_form(fit, model, A, C) or _wrong_course(fit, model, A, C, rounding, scale)


def _wrong_form(fit: Fit, model: Any, A: Any, C: Any) -> str:
    n_fixed, sums = fit.n_fixed, A.sum(axis=1)
    if n_fixed and not np.allclose(C[:n_fixed], fit.fixed, rtol=1e-6):
        return "the known components were changed"
    if fit.penalties.get("sum_to_one") and abs(sums - 1).max() > 1e-6:
        return f"coefficients that sum to {sums.min():.6g} to {sums.max():.6g}"
    if fit.reference.is_unit and abs(np.linalg.norm(C[n_fixed:], axis=1) - 1).max(initial=0) > 1e-5:
        return "components that do not have unit length"
    parts = A * np.linalg.norm(C, axis=1, ord=2 if fit.loss == "frobenius" else 1)
    own = parts[np.arange(len(A)), model.labels_] * (np.asarray(model.labels_) >= 0)
    is_wrong = (own < parts.max(axis=1) * (1 - 1e-5)).any()
    return "a label that is not that of the largest part" if is_wrong else ""


def _wrong_course(fit: Fit, model: Any, A: Any, C: Any, rounding: float, scale: float) -> str:
    """What is wrong with the history, and with components that it ended with."""
    true, errors = fit.reference, np.asarray(model.history_.relative_error, float)
    if not true.rise(errors) <= 10 * rounding:
        return f"the history rises by {true.rise(errors):.2g}"
    left, share = true.value(A, C), true.relative_error(A, C) ** true.unit
    if errors.size and share > 0:
        last, end = errors[-1] ** true.unit * left / share, model.result_.objective
        if end > last + 10 * rounding * scale:
            return f"the last step raises the objective from {last:.9g} to {end:.9g}"
    is_rough = model.stop_reason_ != "converged" or fit.options["tol"] > 1e-8
    if is_rough or fit.options["solver"] == "mult" or true.is_unit or true.volume:
        return ""
    excess = true.excess_C(A, C, fit.n_fixed)
    return "" if excess <= 1e-2 * scale else f"components are {excess / scale:.2g} above the best"


def _wrong_again(case: Case, fit: Fit, model: Any, A: Any) -> str:
    """What differs in a run that must lead to the same."""
    if fit.storage not in SPARSE and fit.missing == "raise" and fit.mask is not None:
        hidden = fit.mask == 0
        other = replace(fit, X=np.where(hidden, case.rng.random(hidden.shape), fit.X))
        if not np.array_equal(A, other.run(case.folder)[1]):
            return "hidden entries matter"
    given = (fit.mask, fit.door_mask, fit.weights, fit.door_weights)
    if all(array is None or array.ndim == 1 for array in given):
        again = np.asarray(model.transform(fit.held(case.folder)), float)
        if not np.allclose(again @ model.components_, A @ model.components_, rtol=1e-4, atol=1e-5):
            return "transform gives other coefficients than the fit"
    if case.chance(0.15):
        error, bound = model.relative_error_, model.certify().lower_bound
        if not 0 <= bound <= error + 1e-6:
            return f"a lower bound of {bound:.9g}, and an error of {error:.9g}"
        objective, least = model.result_.objective, model.result_.objective_bound()
        if not least <= objective * (1 + 1e-6):
            return f"no objective is below {least:.9g}, but {objective:.9g} is"
    return _wrong_resumed(case, fit, model, A) if case.chance(0.3) else ""


def _wrong_resumed(case: Case, fit: Fit, model: Any, A: Any) -> str:
    """Whether a run that was stopped ends with other bits, or is taken for one of other options."""
    saved = {"checkpoint": Checkpoint(case.folder / "run", every=0)}
    fit.run(case.folder, **saved, callback=lambda now: now.iteration == 1 + case.number % 3)
    again, B = fit.run(case.folder, **saved)
    if not (np.array_equal(A, B) and np.array_equal(model.components_, again.components_)):
        return "a resumed run ends with other factors"
    other = replace(fit, mask=None)
    if np.array_equal(other.P, fit.P):  # there is none, or it hides nothing
        other = replace(fit, penalties={} if fit.penalties else {"alpha_W": 0.1})
    if not_available(other):
        return ""
    fresh = other.run(case.folder)[1]
    try:
        B = other.run(case.folder, **saved)[1]
    except CheckpointError:
        return ""
    return "" if np.array_equal(B, fresh) else "a run with other options resumes this one"
