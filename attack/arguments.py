"""Arguments for every public function: valid ones by their names, and wrong ones."""

from __future__ import annotations

import datetime
import functools
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import conenmf
from conenmf.data.preparation import Preparation

REFERENCE = Path(__file__).parents[1] / "docs" / "api.rst"

# What results are made of, protocols and tables: they are not called with values of one's own.
NOT_CALLED = {
    *("Factorization", "Comparison", "Selection", "Certificate", "Diagnosis", "Stability"),
    "Programs",
    *("judge.consensus.Consensus", "judge.stability_range.StabilityRange"),
    *("datasets.Dataset", "datasets.DATASETS", "datasets.Description", "datasets.Download"),
    *("data.matrix.DataMatrix", "data.sketch.Sketch", "scale.dask.Traffic"),
    *("linalg.energy.EnergyBound", "linalg.energy.energy_above", "linalg.energy.tail_above"),
    *("cones.clustering.Cones", "cones.geometry.ConeGeometry", "cones.separation.Separation"),
    *("cones.counting.ConeCount", "cones.dual_bound.LowerBound", "cones.noise.NoiseBound"),
    *("cones.rank.RankEstimate", "cones.simulate.ConeModel", "solve.runs.Run"),
    *("solve.runs.Solution", "solve.loop.iterate", "solve.methods.Method"),
    *("solve.methods.Penalty", "solve.methods.Slot", "solve.losses.Loss"),
    *("solve.losses.Frobenius", "solve.stopping.Iteration", "solve.stopping.StopReason"),
    *("solve.stopping.History", "solve.race.run_race", "solve.arena.Arena"),
    *("solve.race.Race", "solve.race.Entrant", "solve.race.RaceOutcome"),
    *("solve.prospect.Prospect", "solve.initial.InitialFactors", "cones.stream.StreamCones"),
    *("cones.noisy.NoisyCentres", "cones.outliers.CoveringCentres"),
    *("solve.near_separable.SeparableBound", "solve.count_margins.Margins"),
    *("solve.poisson.Poisson", "solve.count_coefficients.Regressions"),
    *("judge.diagnosis.ConeDiagnosis", "judge.inspected.InspectedSamples"),
    *("judge.uniqueness.Freedom", "judge.estimators.Vote", "judge.selection.Decision"),
    "Uniqueness",
    *("comparison.Contender", "data.resources.available_memory"),
    *("data.resources.available_threads", "datasets.available"),
    *("scale.dask.RechunkWarning", "cones.certificate.BoundWarning"),
    *("datasets.DatasetWarning", "datasets.fingerprint"),
    *("data.vocabulary.Vocabulary", "judge.named.NamedComponents"),
    *("judge.judging.JudgesItself", "solve.coefficients.Finish"),
    *("judge.divergence_bound.DivergenceBound", "judge.poisson_gaps.PoissonGaps"),
    *("judge.noise_floor.NoiseFloor", "judge.count_certificate.CountCertificate"),
    *("data.known.Observed", "data.known.MissingWarning", "solve.weighted.Weighted"),
    "data.known.Weighed",
    *("judge.relevance.Relevance", "cones.plane.Plane", "cones.edge.EdgeCount"),
}

WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "-1": lambda: -1,
    "0": lambda: 0,
    "3.5": lambda: 3.5,
    "-0.5": lambda: -0.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "10**9": lambda: 10**9,
    "10**30": lambda: 10**30,
    "-(10**30)": lambda: -(10**30),
    "1j": lambda: 1j,
    "'zebra'": lambda: "zebra",
    "''": lambda: "",
    "'3'": lambda: "3",
    "'x\\0y'": lambda: "x\0y",
    "b'zebra'": lambda: b"zebra",
    "[]": list,
    "[1]": lambda: [1],
    "['zebra']": lambda: ["zebra"],
    "[[1, 2], [3]]": lambda: [[1, 2], [3]],
    "{}": dict,
    "object()": object,
    "int": lambda: int,
    "lambda": lambda: lambda *arguments: None,
    "date": lambda: datetime.date(2024, 1, 31),
    "generator": lambda: (n for n in range(3)),
    "array([])": lambda: np.array([]),
    "array([1, nan])": lambda: np.array([1.0, np.nan]),
    "array(nan (3, 3))": lambda: np.full((3, 3), np.nan),
    "array(-1 (4, 4))": lambda: np.full((4, 4), -1.0),
    "array(1j)": lambda: np.array([[1j]]),
    "array('x')": lambda: np.array("x"),
    "array(object)": lambda: np.array([object(), None]),
    "array (2, 2, 2)": lambda: np.ones((2, 2, 2)),
    "datetime64": lambda: np.array(["2024-01-01"], "M8[D]"),
    "nan32": lambda: np.float32("nan"),
}


@functools.cache
def result() -> Any:
    """A small factorisation, from which most valid arguments are taken."""
    model = conenmf.make_cones(12, 3, 0.15, n_samples=40, rng=np.random.default_rng(0))
    fit = conenmf.factorize(conenmf.from_columns(model.V, n_threads=1), 3, max_iter=20)
    fit.diagnose()
    return fit


def _generator() -> np.random.Generator:
    return np.random.default_rng(0)


def _anndata() -> Any:
    import anndata

    return anndata.AnnData(np.ascontiguousarray(_matrix().T))


def _matrix() -> Any:
    V = result().data
    return np.asarray(V.columns(np.arange(V.shape[1])))


def _file() -> Path:
    path = Path("valid.csv")
    np.savetxt(path, _matrix().T, delimiter=",", header=",".join("abcdefghijkl"), comments="")
    return path


def _cones() -> Any:
    return conenmf.cluster_cones(result().data, 3)


# Valid values by the name of the parameter, unless a function has its own.
VALID: dict[str, Callable[[], Any]] = {
    "preparation": lambda: Preparation(log1p=True),
    "pixels_shape": lambda: (5, 8),
    "weights": lambda: None,
    "variances": lambda: np.full(20, 0.1),
    "k_max": lambda: 3,
    "V": lambda: result().data,
    "X": lambda: _matrix().T,
    "K": lambda: 3,
    "W": lambda: result().W.copy(),
    "W_other": lambda: result().W.copy(),
    "H": lambda: np.array(result().H),
    "A": lambda: np.array(result().H).T,
    "labels": lambda: np.array(result().labels),
    "labels_true": lambda: np.array([0, 1, 1]),
    "labels_pred": lambda: np.array([0, 0, 1]),
    "rng": _generator,
    "F": lambda: 12,
    "alpha": lambda: 0.1,
    "beta": lambda: 0.5,
    "n_samples": lambda: 20,
    "n_components": lambda: 3,
    "n": lambda: 20,
    "k": lambda: 2,
    "result": result,
    "path": lambda: Path("out.html"),
    "folder": lambda: Path("."),
    "adata": _anndata,
    "name": lambda: "digits",
    "counts": lambda: _matrix().T,
    "indices": lambda: np.arange(5),
    "rank": lambda: 4,
    "count": lambda: 5,
    "max_memory": lambda: "100MB",
    "table": lambda: _matrix(),
    "G": lambda: result().W.T @ result().W,
    "C": lambda: _matrix().T @ result().W,
    "Y": lambda: np.array(result().H).T,
    "first": lambda: 0,
    "method": lambda: "exact",
    "tol": lambda: 1e-8,
    "cones": _cones,
    "runs": lambda: 2,
    "angles": lambda: np.array([0.1, 0.2]),
    "rates": lambda: np.array([1.0, 2.0]),
    "angle": lambda: 0.5,
    "epsilon": lambda: 0.1,
    "delta": lambda: 0.1,
    "axis": lambda: np.array([0.6, 0.8]),
    "separation": lambda: 0.5,
    "noise": lambda: 0.01,
    "update": lambda: conenmf.solve.solvers.hals,
    "solver": lambda: "hals",
    "init": lambda: "cr1",
    "error": lambda: 0.1,
    "errors": lambda: result().history,
    "histories": lambda: {"hals": result().history},
    "geometry": lambda: result().diagnosis.cones.geometry,
    "ks": lambda: np.array([2, 3]),
    "votes": lambda: {"a": (np.array([1.0, 2.0]), 2)},
    "names": lambda: result().names,
    "source": lambda: Path("valid.h5ad"),
    "target": lambda: Path("annotated.h5ad"),
    "samples_in": lambda: "rows",
    "sine": lambda: 0.1,
    "share": lambda: 0.9,
    "outliers": lambda: 2,
    "samples": lambda: [0, 1, 2],
    "spectra": lambda: np.stack([result().W] * 3),
    "texts": lambda: ["oak elm", "elm oak", "salt pepper", "pepper salt"],
}
OWN: dict[str, dict[str, Callable[[], Any]]] = {
    "from_columns": {"V": _matrix},
    "cones.restricted.bound_given": {"A": lambda: result().W[:, :1]},
    "judge.other_factors.exact_uniqueness": {
        "freedom": lambda: conenmf.judge.uniqueness.component_freedom(
            result().data, result().W, result().H
        )
    },
    "solve.penalties.Penalties.as_in_sklearn": {"shape": lambda: (12, 40)},
    "open_data": {"path": _file},
    "cones.rank_one.factors_from_centres": {
        "centres": lambda: conenmf.cones.clustering.choose_centres(
            result().data, 3, None, 0, "exact"
        )[0],
        "Z": lambda: conenmf.cones.clustering.choose_centres(result().data, 3, None, 0, "exact")[1],
    },
    "data.resampled.balanced": {
        "V": lambda: conenmf.from_columns(np.floor(9 * _matrix())),
        "dispersion": lambda: 0.1,
    },
    "data.resampled.redrawn": {"V": lambda: conenmf.from_columns(np.floor(9 * _matrix()))},
    "data.resampled.thinned": {
        "V": lambda: conenmf.from_columns(np.floor(9 * _matrix())),
        "share": lambda: 0.5,
    },
    "cones.bounds.weighted_bound": {"angles": lambda: np.array([0.2, 0.2, 0.2])},
    "cones.bounds.rank_epsilon": {"K": lambda: 2},
    "cones.bounds.rank_sample_size": {"K": lambda: 2},
    "solve.initial.lift_zeros": {"H": lambda: np.array(result().H)},
    "solve.inits.initialize": {"solver": lambda: conenmf.solve.solvers.get_solver("hals")},
    "judge.plots.spectrum": {"rank": lambda: result().diagnosis.rank},
    "export.annotate_file": {"source": lambda: _written_anndata()},
    "export.write_coefficients": {"path": lambda: Path("out.csv")},
    "compare": {
        "inits": lambda: ["cr1"],
        "solvers": lambda: ["hals"],
        "max_iter": lambda: 3,
        "watch": lambda: None,
    },
    "tl.consensus": {"n_runs": lambda: 3},
    "find_programs": {"V": lambda: _counts(), "n_runs": lambda: 3, "max_iter": lambda: 5},
    "cells.tables.write_programs": {
        "programs": lambda: conenmf.find_programs(_counts(), 3, 3, max_iter=5)
    },
    "data.selected.take_features": {"features": lambda: [0, 2]},
    "stability": {"n_runs": lambda: 3, "max_iter": lambda: 5},
    "stability_over": {"n_runs": lambda: 3},
    "select_k": {"ks": lambda: [2, 3], "methods": lambda: ["ratio"]},
    "datasets.load": {"progress": lambda: False},
}


def _counts() -> Any:
    return conenmf.from_columns(np.floor(9 * _matrix()))


def _written_anndata() -> Path:
    path = Path("valid.h5ad")
    _anndata().write_h5ad(path)
    return path


def public() -> dict[str, Any]:
    """Every function and class of the reference that users call with values of their own."""
    found = {}
    for entry in re.findall(r"^   ([\w.]+)$", REFERENCE.read_text("utf-8"), re.MULTILINE):
        home, _, name = entry.rpartition(".")
        if entry in NOT_CALLED or hasattr(conenmf.errors, entry):
            continue
        module = importlib.import_module(f"conenmf.{home}") if home else conenmf
        found[entry] = getattr(module, name)
    return found


def parameters(target: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a function that can be given by name."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    every = inspect.signature(target).parameters.values()
    return {one.name: one for one in every if one.kind in kinds}


def valid_arguments(entry: str, target: Any) -> dict[str, Any]:
    """Arguments with which a function works."""
    own = OWN.get(entry, {})
    given = {}
    for name, parameter in parameters(target).items():
        if name in own or parameter.default is inspect.Parameter.empty:
            make = own.get(name) or VALID[name]
            given[name] = make()
    return given
