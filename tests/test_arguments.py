"""Every public function refuses every wrong argument with a named error, and accepts none.

`CALLS` has a valid call of every public function and method, and the kind of each argument. The
tests replace one argument at a time by values that no argument of its kind may have. A function,
method or parameter that docs/api.rst lists and `CALLS` does not is a failure.
"""

import copy
import importlib
import inspect
import pickle
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

import conenmf
from conenmf import ConeNMF, ConeNMFError, factorize, from_columns
from conenmf.cones.certificate import certify
from conenmf.cones.clustering import cluster_cones
from conenmf.cones.geometry import cone_geometry
from conenmf.cones.rank import estimate_rank
from conenmf.cones.simulate import make_cones
from conenmf.data.preparation import Preparation
from conenmf.data.sketch import sketch
from conenmf.judge.count_certificate import certify_counts
from conenmf.judge.uniqueness import component_freedom
from conenmf.linalg.spectrum import Spectrum
from conenmf.names import Names
from conenmf.solve.methods import Method, Slot
from conenmf.solve.online import ConeStream
from conenmf.solve.penalties import Penalties
from conenmf.solve.runs import Run
from conenmf.solve.solvers import SOLVERS, hals
from conenmf.solve.stopping import Stopping
from conenmf.text import shown

ROOT = Path(__file__).parents[1]


class Hostile:
    """An object that cannot be looked at."""

    def _refuse(self, *args, **options):
        raise RuntimeError("do not look at me")

    __repr__ = __str__ = __eq__ = __bool__ = __len__ = __iter__ = __array__ = _refuse
    __float__ = __int__ = __index__ = __fspath__ = __getitem__ = __lt__ = __gt__ = _refuse
    __hash__ = None


# --- the data of all calls --------------------------------------------------------------------

F, N, K = 8, 24, 3
MODEL = make_cones(F, K, 0.05, n_samples=N, rng=np.random.default_rng(0))
V = from_columns(MODEL.V)
X = np.ascontiguousarray(MODEL.V.T)
COUNTS = from_columns(np.floor(9 * MODEL.V))
RESULT = factorize(V, K, init="cr1", sketch=None)
PROGRAMS = conenmf.find_programs(COUNTS, 2, 2, max_iter=3)
RESULT.diagnose(effort=0)
W, H = RESULT.W, RESULT.H
CONES = cluster_cones(V, K)
LABELS = CONES.labels
SPECTRUM = Spectrum(V)
CERTIFICATE = certify(V, W, H, effort=0)
NAMES = Names.of(feature_names=map(str, range(F)))
G, C, Y = W.T @ W, X @ W, np.ones((N, K))
RNG = np.random.default_rng(0)
STOPPING = Stopping(max_iter=1)
RUN = Run(V, W, H, "hals", STOPPING)


def step(block):
    return (None,)


def quiet(*args):
    return None


# --- what is wrong for each kind --------------------------------------------------------------

# fmt: off
NAN, INF = float("nan"), float("inf")
WRONG_FOR_ALL = [object(), Hostile(), 2 + 1j, ..., pd.NA, Decimal(1), np.datetime64("2020-01-01")]
NO_NUMBER = [None, True, "3", b"3", "zebra", [3], (1, 2), np.array(3), {}, {"a": 1}, int, quiet]
NO_ARRAY = [None, "zebra", {}, {"a": 1}, [[1], [1, 2]], ["a", "b"], np.zeros(0), int, quiet, 3]
BAD_ARRAYS = [np.full((F, K), NAN), np.full((F, K), -INF), np.ones((2, 2, 2)), X + 0j]
TEXTS = ["zebra", "", "x" * 10**6]
WRONG = {
    "data": [*NO_ARRAY, *TEXTS, X, True, [X]],
    "array": [*NO_ARRAY, *BAD_ARRAYS, np.ma.masked_less(np.ones((F, K)), 2)],
    "factor": [*NO_ARRAY, *BAD_ARRAYS, -np.ones((F, K)), np.ones((1, 1)), -np.ones((K, N))],
    "spectra": [*NO_ARRAY, np.full((2, F, K), NAN), -np.ones((2, F, K)), np.ones((F, K))],
    "alpha": ["zebra", "", None, NAN, -1, [], {}, int],
    "fixed": [*NO_ARRAY, *BAD_ARRAYS, -np.ones((1, F)), np.ones((1, 1)), np.zeros((1, F))],
    "weights": ["zebra", {}, [], [[1], [1, 2]], np.ones((2, 2)), np.ones(3), object(), int],
    "vector": [None, "zebra", {}, [], [NAN] * K, [INF] * K, [-1.0] * K, ["a"] * K, np.ones((9, 9))],
    "labels": [*NO_ARRAY, np.zeros(N + 1, int), np.zeros(N), [NAN] * N, [-2] * N],
    "classes": [3, "zebra", {}, [], [NAN] * N, np.zeros((N, 2), int), [[1], [1, 2]], int, None],
    "indices": [None, 3, "zebra", {}, [0.5], [-1], [10**9], [True], [[0]], [NAN], ["a"], int],
    "matrix": [None, 3, "zebra", "", {}, [], [[1], [1, 2]], [["a"]], [[NAN]], [[-1.0]], int, quiet],
    "integer": [*NO_NUMBER, 2.5, 2.0, NAN, INF, -1, -(10**30), Fraction(1, 2), np.float64(2)],
    "size": [*NO_NUMBER, 2.5, 2.0, NAN, INF, -1, 0, 10**9, 10**30, Fraction(1, 2), np.float64(2)],
    "number": [*NO_NUMBER, NAN, 10**400, np.float32(NAN)],
    "share": [*NO_NUMBER, NAN, INF, -INF, -1, -1e-9, 10**400, np.float32(NAN)],
    "limit": [*NO_NUMBER, NAN, -INF, -1, -1e-9],
    "choice": [None, True, 3, NAN, *TEXTS, b"cr1", [], ["exact"], np.array("exact"), {}, int],
    "flag": [None, 1, 0, "yes", *TEXTS, [True], np.array([True]), {}, int, NAN],
    "text": [None, 3, True, NAN, b"x", ["a"], {}, int, np.array("x")],
    "texts": [3, True, NAN, "zebra", b"x", int, quiet],
    "rng": [None, 7, True, NAN, "zebra", [1], np.random.RandomState(0), np.random, int, quiet],
    "seed": [-1, 1.5, True, NAN, "zebra", [1], {}, int, quiet],
    "function": [None, 3, True, NAN, "zebra", [], {}, int, lambda: 0, lambda a, b, c, d, e: 0],
    "object": [None, 3, True, NAN, "zebra", [], X, int, type],
    "path": [None, 3, True, NAN, "", b"x", "a\0b", "x" * 10**5, [], {}, int, quiet],
    "shape": [3, True, NAN, "zebra", [], [1], [1, 2, 3], [2.5, 4], [-2, -4], [0, 8], ["a", 1], int],
    "memory": [True, -1, 0, NAN, INF, "zebra", "", "GB", "-1GB", [1], {}, 10**400, int],
    "init": [3, True, NAN, *TEXTS, [], {}, int, np.ones(3), (W,), (W, H, H), lambda: 0],
    "solver": [3, True, NAN, *TEXTS, "cd", ["hals"], np.array(["hals"]), {}, int, lambda: 0],
    "words": [3, True, NAN, *TEXTS, [3], [None], [["cr1"]], int, quiet],
    "axes": [3, True, NAN, "zebra", [3], {}, int, quiet],
    "annotated": [None, 3, "zebra", [], {}, X, int, quiet],
    "verbosity": [-1, NAN, 2.5, "zebra", [3], {}, int],
    "table": [None, 3, "zebra", "", {}, [], [[1], [1, 2]], [["a"]], int, quiet],
    "rank": [0, -1, True, NAN, 2.5, "zebra", [3], {}, int, quiet],
    "column": [True, NAN, 2.5, [3], {}, int],
    "columns": [None, True, NAN, 2.5, [None], [2.5], [[1]], int],
    "ks": [3, True, NAN, "zebra", [0], [-1], [2.5], [True], ["a"], [10**9], [], [NAN], int, quiet],
}
ANYTHING = "anything"  # such as the y of scikit-learn, which is ignored


def wrong_values(kind):
    """Values that no argument of this kind may have; a question mark means that None is allowed."""
    name = kind.removesuffix("?")
    values = [] if name == ANYTHING else [*WRONG_FOR_ALL, *WRONG[name]]
    return [value for value in values if not (value is None and kind.endswith("?"))]


# --- a valid call of everything: the kind and the value of each argument ----------------------

DATA = {"V": ("data", V)}
SPECTRAL = {"spectrum": ("object?", SPECTRUM)}
LIMITS = {"max_iter": ("integer", 1), "tol": ("share", 0.1), "max_time": ("limit?", 1.0)}
READING = {"negative": ("choice", "raise"), "n_threads": ("size?", 1), "max_memory": ("memory?",
    "1GB"), "names": ("object?", None), "block_samples": ("integer?", 4)}
KNOWN = {"missing": ("choice", "raise"), "mask": ("weights?", np.ones((N, F), bool)), "weights":
    ("weights?", np.ones((N, F)))}
FITTING = {"init": ("init", "cr1"), "loss": ("choice", "frobenius"), "solver": ("solver?",
    "hals"), **LIMITS, "callback": ("function?", quiet), "sketch": ("rank?", None), "checkpoint":
    ("path?", None)}
HOLED = from_columns(MODEL.V, mask=np.arange(F * N).reshape(F, N) != 3)
RIDGE = {"l2_h": ("share", 0.1), "l2_w": ("share", 0.1)}
PENALISED = {"orthogonality": ("share", 0.0), "min_volume": ("share", 0.0), "sum_to_one": ("flag",
    False)}
ALPHAS = {"alpha_W": ("share", 0.1), "alpha_H": ("alpha", "same"), "l1_ratio": ("share", 0.5)}
DRAWING = {"rng": ("rng?", RNG)}
BOUNDED = {**DATA, "K": ("integer", K), "effort": ("integer", 0), **SPECTRAL}
DRAWN = {"angles": ("vector", [0.2] * K), "rates": ("vector", [1.0] * K), "weights": ("vector?",
    [1.0] * K)}
ALIKE = {"F": ("integer", 9), "K": ("size", K), "alpha": ("share", 0.1), "beta": ("share", 1.0)}
FACTORS = {"W": ("factor", W), "H": ("factor", H)}
MAPPED = {**FACTORS, "pixels_shape": ("shape", (1, N))}
NAMED = {"W": ("array", W), "names": ("object", NAMES)}
SHOWN = {"result": ("object", RESULT)}
REPLICATES = {"n_runs": ("size", 3), "loss": ("choice", "frobenius"), "resample": ("choice",
    "start"), "dispersion": ("number?", 0.1), "density_threshold": ("share", 0.5), "max_excess":
    ("limit", 0.1), "max_iter": ("integer", 3), "tol": ("share", 1e-3),
    "checkpoint": ("path?", None), **DRAWING}
CHOSEN = {**DATA, "K": ("size", K), **DRAWING, "first": ("integer?", 0), "method": ("choice",
    "exact")}
SOLVED = {"G": ("array", G), "C": ("array", C), "Y": ("array", Y)}
SCORED = {"labels_true": ("classes", LABELS), "labels_pred": ("classes", LABELS)}
NAMING = {"sample_names": ("texts?", ("a",)), "feature_names": ("texts?", ("a",)),
    "image_shape": ("shape?", (2, 4)), "pixels_shape": ("shape?", (2, 4))}
GEOMETRY = cone_geometry(V, CONES.labels)
AXIS = {"ax": ("axes?", None)}
FITTED = {"X": ("matrix", X), "y": (ANYTHING, None), "feature_names": ("texts?", None)}
WEIGHTED = {**FITTED, "sample_weight": ("vector?", [1.0] * N), "mask": KNOWN["mask"], "weights":
    KNOWN["weights"]}
CALLS = {
    "ConeNMF": {"n_components": ("size", K), **FITTING, "n_threads": ("size?", 1), "negative":
        ("choice", "raise"), "max_memory": ("memory?", "1GB"), "random_state": ("seed?", 0),
        "verbose": ("verbosity", 0), **ALPHAS, **PENALISED, "fixed": ("fixed?", W.T[:1]), "missing":
        KNOWN["missing"]},
    "ConeNMF.fit": WEIGHTED,
    "ConeNMF.fit_transform": WEIGHTED,
    "ConeNMF.fit_predict": FITTED,
    "ConeNMF.partial_fit": {"X": ("matrix", X), "y": (ANYTHING, None)},
    "ConeNMF.transform": {"X": ("matrix", X), "unseen": ("choice", "warn")},
    "ConeNMF.predict": {"X": ("matrix", X)},
    "ConeNMF.score": {"X": ("matrix", X), "y": (ANYTHING, None), "sample_weight": ("vector?", [1.0]
        * N)},
    "ConeNMF.explained_share": {"X": ("matrix", X)},
    "ConeNMF.inverse_transform": {"X": ("array", H.T)},
    "ConeNMF.certify": {"effort": ("integer?", 0)},
    "factorize": {**DATA, "K": ("size", K), **FITTING, **DRAWING, "fixed": ("factor?", W[:, :1]),
        "penalties": ("object?", Penalties(l1_h=0.1))},
    "judge.judging.JudgesItself.objective_bound": {},
    "judge.judging.JudgesItself.certify": {"effort": ("integer?", 0)},
    "judge.judging.JudgesItself.diagnose": {"effort": ("integer?", 0)},
    "judge.judging.JudgesItself.uniqueness": {"max_iter": ("integer", 3), "thorough": ("flag",
        False)},
    "Factorization.summary": {},
    "Factorization.save": {"path": ("path", "result.npz")},
    "Factorization.load": {"path": ("path", "saved.npz")},
    "Factorization.plot_history": {**AXIS, "against": ("choice", "passes")},
    "Factorization.plot_spectrum": AXIS,
    "Factorization.plot_cones": AXIS,
    "Factorization.plot_components": {"axes": ("axes?", None), "components": ("indices?", [0]),
        "image_shape": ("shape?", (2, 4)), "top": ("integer", 3), "limits": ("object?", (W, W))},
    "Factorization.plot_endmembers": {**AXIS, "components": ("indices?", [0])},
    "Factorization.plot_maps": {"axes": ("axes?", None), "components": ("indices?", [0]),
        "pixels_shape": ("shape", (1, N))},
    "compare": {**DATA, "K": ("size", K), "inits": ("words", ["cr1"]), "solvers": ("words",
        ["hals"]), "labels": ("classes?", LABELS), **LIMITS, "seed": ("integer", 0), "watch":
        ("function?", None)},
    "Comparison.plot": AXIS,
    "Comparison.rows": {},
    "select_k": {**DATA, "ks": ("ks?", [2, 3]), "methods": ("words?", ["ratio"]), **DRAWING,
        **SPECTRAL, "callback": ("function?", None)},
    "stability": {**DATA, "K": ("size", 2), **REPLICATES},
    "stability_over": {**DATA, "ks": ("ks?", [2]), "callback": ("function?", None), **REPLICATES},
    "find_programs": {"V": ("data", COUNTS), "K": ("size", 2), "n_runs": ("size", 3), "n_genes":
        ("integer", 6), "genes": ("texts?", None), "log1p": ("flag", False), "refine":
        ("integer", 1), "resample": ("choice", "start"), "density_threshold": ("share", 0.5),
        "max_iter": ("integer", 3), "tol": ("share", 1e-3), **DRAWING, "callback": ("function?",
        quiet)},
    "Programs.markers": {"n": ("integer", 3)},
    "Stability.plot": {"axes": ("axes?", None)},
    "Stability.in_sentences": {},
    "Stability.limits_in_words": {},
    "Stability.move_in_words": {"k": ("integer", 0)},
    "Stability.certify": {"effort": ("integer?", 0)},
    "Stability.save": {"path": ("path", "stability.npz")},
    "Stability.load": {"path": ("path", "stable.npz")},
    "Selection.plot": {"axes": ("axes?", None)},
    "estimate_rank": {**DATA, "k_min": ("size", 2), "k_max": ("size?", 4), "normalize": ("flag",
        False), **SPECTRAL},
    "certify": {**DATA, **FACTORS, "loss": ("choice", "frobenius"), "effort": ("integer?", 0),
        **SPECTRAL, "n_fixed": ("integer", 1), "penalties": ("object?", None)},
    "diagnose": {**DATA, **FACTORS, "labels": ("labels", LABELS), "certificate": ("object?",
        CERTIFICATE), **SPECTRAL},
    "cluster_cones": CHOSEN,
    "cr1_nmf": {**CHOSEN, "tol": ("share", 0.1), **SPECTRAL},
    "make_cones": {"F": ("size", F), "K": ("size", K), "alpha": ("vector", [0.1] * K), "n_samples":
        ("size", 9), "angle": ("share?", 1.0), "axes": ("array?", None), "rates": ("vector?", [1.0]
        * K), "weights": ("vector?", [1 / 3] * K), "squared_norm": ("function?", None), "project":
        ("flag", True), "noise": ("share", 0.1), "rng": ("rng", RNG)},
    "from_rows": {"X": ("matrix", X), **READING, **KNOWN, "persist": ("flag?", None)},
    "from_columns": {"V": ("matrix", MODEL.V), **READING, **KNOWN, "mask": ("weights?", np.ones((F,
        N))), "weights": ("weights?", np.ones((F, N))), "persist": ("flag?", None)},
    "data.known.observed_only": {**DATA, **KNOWN},
    "data.known.weigh_samples": {**DATA, "weights": ("vector?", [1.0] * N), "loss": ("choice",
        "poisson")},
    "solve.weighted.Weighted": {"V": ("data", HOLED), "rescale": ("flag", True),
        "grams_every": ("integer?", 6)},
    "cones.restricted.observed_bound": {**DATA, **FACTORS, **RIDGE},
    "cones.restricted.known_bound": {**DATA, "K": ("integer", K)},
    "open_data": {"path": ("path", "table.csv"), "samples_in": ("choice", "rows"), "dataset":
        ("text?", None), "header": ("flag?", None), "names_column": ("column?", None), "drop":
        ("columns", ()), "text_column": ("column?", None), "words": ("object?", None), **READING,
        **KNOWN, "mask": ("weights?", None), "weights": ("weights?", None)},
    "from_texts": {"texts": ("texts", ["oak elm"] * 2), "words": ("object?", conenmf.Words("none",
        max_df=1.0)), "names": ("object?", None), "n_threads": ("size?", 1), "max_memory":
        ("memory?", "1GB")},
    "Words": {"stop_words": ("choice", "none"), "min_df": ("integer", 1), "max_df": ("share?",
        0.5), "max_words": ("integer?", 9), "ngrams": ("size", 1)},
    "write_report": {**SHOWN, "path": ("path", "report.html"), "options": (ANYTHING, {})},
    "tl.consensus": {"adata": ("annotated", AnnData(X)), "n_components": ("size", 2), "n_runs":
        ("size", 3), "layer": ("choice?", None), "key_added": ("text", "nmf"), "options": (ANYTHING,
        {"max_iter": 3})},
    "tl.nmf": {"adata": ("annotated", AnnData(X)), "n_components": ("size", K), "layer": ("choice?",
        None), "key_added": ("text", "nmf"), "options": (ANYTHING, {})},
    "datasets.load": {"name": ("choice", "digits"), "samples_are": ("choice?", None), "weights":
        ("choice?", None), "shrink": ("size?", 2), "download": ("flag", False), "progress":
        ("flag", False)},
    "datasets.available": {},
    "datasets.fingerprint": {"X": ("table", X), "labels": ("classes?", LABELS)},
    "datasets.tf_idf": {"counts": ("matrix", np.ones((3, 2)))},
    "datasets.log_counts": {"counts": ("matrix", np.ones((3, 2)))},
    "data.matrix.DataMatrix.columns": {"indices": ("indices", [0])},
    "data.matrix.DataMatrix.sweep": {"step": ("object", step), "aligned": (ANYTHING, ()), "reduce":
        ("object", max), "out": (ANYTHING, ()), "verify": ("flag", False), "shared": (ANYTHING,
        {})},
    "prepare": {**DATA, "normalize_total": ("share?", 1.0), "log1p": ("flag", True), "tfidf":
        ("flag", False), "normalize": ("flag", True)},
    "data.prepared.prepared": {**DATA, "preparation": ("object", Preparation(log1p=True))},
    "data.selected.take_features": {**DATA, "features": ("indices", [0, 2]), "factors": ("vector?",
        [1.0, 2.0]), "dtype": ("choice", "float32")},
    "data.preparation.Preparation": {"total": ("share?", 1.0), "log1p": ("flag", True), "idf":
        ("vector?", np.ones(F)), "normalize": ("flag", True)},
    "data.preparation.Preparation.reordered": {"features": ("indices", [0])},
    "data.views.unit_samples": DATA,
    "data.views.take_samples": {**DATA, "indices": ("indices", [0])},
    "data.views.shuffled_samples": {**DATA, "rng": ("rng", RNG)},
    "data.resampled.redrawn": {"V": ("data", COUNTS), "rng": ("rng", RNG), "dispersion": ("number",
        0.1), "balance": ("flag", True)},
    "data.resampled.balanced": {"V": ("data", COUNTS), "dispersion": ("number", 0.1)},
    "judge.dispersion.dispersion": {"V": ("data", COUNTS), "K": ("size", 2), "rng": ("rng", RNG)},
    "data.resampled.bootstrapped": {**DATA, "rng": ("rng", RNG), "loss": ("choice", "poisson")},
    "data.resampled.thinned": {"V": ("data", COUNTS), "rng": ("rng", RNG), "share": ("share", 0.5)},
    "data.resampled.drawn_counts": {**DATA, "W": ("factor", W), "H": ("factor", H), "rng": ("rng",
        RNG)},
    "data.resampled.holds_counts": DATA,
    "data.sketch.sketch": {**DATA, "rank": ("size", 2)},
    "data.sampling.draw_samples": {**DATA, "count": ("integer", 2), "rng": ("rng", RNG)},
    "data.sampling.evenly_spaced": {"n": ("integer", 9), "count": ("integer", 3)},
    "data.resources.available_memory": {"root": ("path", "/")},
    "data.resources.available_threads": {},
    "data.resources.memory_budget": {"max_memory": ("memory?", "1GB")},
    "names.Names": NAMING,
    "names.Names.of": NAMING,
    "names.Names.checked": {"n_samples": ("integer?", N), "n_features": ("integer?", F)},
    "names.Names.sample": {"index": ("integer", 0)},
    "names.Names.feature": {"index": ("integer", 0)},
    "names.Names.taking": {"features": ("indices", [0])},
    "names.Names.turned": {},
    "names.Names.updated": {"other": ("object", NAMES)},
    "names.names_of": {"table": (ANYTHING, X)},
    "linalg.nnls.nnls": {"G": ("array", G), "C": ("array", C), "Y": ("array?", Y), "max_pivots":
        ("integer?", 5)},
    "linalg.spectrum.Spectrum": {**DATA, "form_gram": ("flag?", None), "start": ("array?", None)},
    "linalg.spectrum.Spectrum.of": {**DATA, **SPECTRAL},
    "linalg.spectrum.Spectrum.singular_values": {"k": ("size", 2), "normalize": ("flag", False),
        "rough": ("flag", False), "tol": ("share", 0.1)},
    "linalg.spectrum.Spectrum.largest_share": {"k": ("size", 2)},
    "linalg.spectrum.Spectrum.energy_bound": {"k": ("size", 2), "tol": ("share", 0.1)},
    "linalg.spectrum.Spectrum.leading_subspace": {"k": ("size", 2), "tol": ("share", 0.1)},
    "linalg.spectrum.Spectrum.truncated_svd": {"k": ("size", 2), "tol": ("share", 0.1)},
    "linalg.energy.energy_above": {"values": ("vector", [4.0, 2.0]), "k": ("size", 2),
        "residual_gram": ("array", np.zeros((2, 2))), "tail": ("share", 1.0), "rest": ("share",
        3.0)},
    "linalg.energy.tail_above": {"apply": ("function", lambda x: 2 * x), "low": ("number", 0.0),
        "starts": ("array", np.eye(3)), "ceiling": ("share", 3.0), "largest": ("share?", 3.0)},
    "cones.clustering.choose_centres": {**CHOSEN, **SPECTRAL},
    "cones.rank_one.rank_one_factors": {**DATA, "cones": ("object", CONES), "tol": ("share", 0.1),
        "max_passes": ("integer", 3), "max_products": ("integer", 3)},
    "cones.rank_one.factors_from_centres": {**DATA, "centres": ("indices", CONES.centres), "Z":
        ("factor", CONES.directions), "tol": ("share", 0.1), "moved": ("flag", False)},
    "cones.rank_one.cr1_error": {**DATA, "W": ("factor", W), "H": ("array", H)},
    "cones.seeding.cr1_plus_plus": {**DATA, "K": ("size", K), **DRAWING, "runs": ("size", 1), "tol":
        ("share", 0.1)},
    "cones.seeding.draw_centres": {**DATA, "K": ("size", K), "rng": ("rng", RNG), "runs": ("size",
        1)},
    "cones.geometry.cone_geometry": {**DATA, "labels": ("labels", LABELS)},
    "cones.geometry.enclosing_cones": {**DATA, "labels": ("labels", LABELS), "tol": ("share", 0.1)},
    "cones.separation.pairwise_separation": {**DATA, "labels": ("labels", LABELS)},
    "cones.counting.count_cones": {**DATA, "deadline": ("number?", 1.0)},
    "cones.certificate.lower_bound": BOUNDED,
    "cones.dual_bound.best_lower_bound": {**BOUNDED, "effort": ("integer?", 0)},
    "cones.plane.leading_plane": {**DATA, **SPECTRAL},
    "cones.plane.rank_two_factors": {**DATA, **SPECTRAL, "plane": ("object?", None)},
    "cones.bounds.deterministic_bound": {**DATA, "W": ("factor", W), "labels": ("labels", LABELS)},
    "cones.bounds.weighted_bound": {**DATA, "labels": ("labels", LABELS), "angles": ("vector", [0.1]
        * K)},
    "cones.bounds.probabilistic_bound": DRAWN,
    "cones.bounds.smallest_limit": {**DRAWN, "F": ("integer", 9)},
    "cones.bounds.sample_size": {**DRAWN, "epsilon": ("share", 0.1), "delta": ("share", 0.1), "F":
        ("integer?", 9)},
    "cones.bounds.rank_epsilon": {**ALIKE, "rate": ("share", 1.0)},
    "cones.bounds.rank_sample_size": {**ALIKE, "delta": ("share", 0.1)},
    "cones.bounds.largest_angle_in_orthant": {"axis": ("vector", [1.0] * K)},
    "cones.noise.noise_bound": {"angles": ("vector", [0.1] * K), "separation": ("limit", 0.1),
        "noise": ("share", 0.1), "sample_noise": ("share?", 0.1), "weights": ("vector?", [1.0] *
        K)},
    "cones.noise.trimmed_bound": {"sine": ("share", 0.1), "noise": ("share", 0.1), "share":
        ("share", 0.9)},
    "cones.noisy.centres_in_noise": {**DATA, "K": ("size", K), "first": ("integer?", 0), "noise":
        ("share?", 0.1), "lloyd_steps": ("integer", 2), **SPECTRAL},
    "cones.outliers.centres_with_outliers": {**DATA, "K": ("size", K), "outliers": ("integer", 1)},
    "cones.rank.default_range": DATA,
    "cones.edge.count_above_edge": {**DATA, **SPECTRAL, "k_max": ("size", 2), "failure":
        ("share", 0.1)},
    "cones.edge.noise_edge": {"variances": ("vector", [1.0] * K), "F": ("integer", 5), "counts":
        ("vector?", [1.0] * K)},
    "cones.simulate.make_cone_data": {"n_samples": ("size", 9), "n_features": ("size", F),
        "n_components": ("size", K), "alpha": ("vector", [0.1] * K), "noise": ("share", 0.1),
        "random_state": ("seed?", 0), "options": (ANYTHING, {})},
    "cones.simulate.equal_angle_axes": {"F": ("size", F), "K": ("size", K), "angle": ("share", 1.0),
        "rng": ("rng", RNG)},
    "solve.solvers.Solver": {"update": ("function", hals), "first": ("choice", "H"), "rescale":
        ("flag", False), "floored": ("flag", False), "lift_zeros": ("flag", False), "sweeps":
        ("integer?", 1), "extrapolate": ("flag", False)},
    "solve.solvers.Solver.sweeping": {"affordable": ("limit", 1.0)},
    "solve.solvers.get_solver": {"solver": ("solver", "hals")},
    "solve.solvers.hals": {**SOLVED, "sweeps": ("integer", 1), "floor": ("share", 0.0)},
    "solve.solvers.mult": {**SOLVED, "sweeps": ("integer", 1)},
    "solve.solvers.nnlsb": SOLVED,
    "solve.loop.alternate": {**DATA, "W": ("factor", W), "H": ("array?", H), "solver": ("solver",
        "hals"), "stopping": ("object", STOPPING), "callback": ("function?", None), "leap":
        ("function?", None), "resume": ("object?", None), "save": ("function?", None)},
    "solve.loop.iterate": {**DATA, "runs": ("texts", [RUN])},
    "solve.methods.Method": {"H": ("object", Slot(SOLVERS["hals"])), "loss": (ANYTHING,
        Method.loss), "W": ("object", Slot(SOLVERS["hals"]))},
    "solve.methods.Method.of": {"solver": ("solver", "hals")},
    "solve.methods.Slot": {"solver": ("object", SOLVERS["hals"]), "penalty": ("function?", None),
        "n_fixed": ("integer", 1), "unit_columns": ("flag", False), "keeps_scale": ("flag", False)},
    "solve.losses.Frobenius": {**DATA, "rescale": ("flag", True), "whole": ("flag", False)},
    "solve.poisson.Poisson": {**DATA, "rescale": ("flag", True)},
    "solve.coefficients.coefficients": {**DATA, "W": ("factor", W), "penalties": ("object?",
        Penalties(l1_h=0.1))},
    "solve.fixed.Fixed": {"W": ("factor", W), "names": ("texts?", list("abc"))},
    "solve.fixed.what_is_left": {**DATA, "W": ("factor", W), "H": ("factor?", H)},
    "solve.penalties.Penalties": {"l1_h": ("share", 0.1), "l1_w": ("share", 0.1), **RIDGE,
        **PENALISED},
    "solve.penalties.Penalties.as_in_sklearn": {"shape": (ANYTHING, (F, N)), **ALPHAS,
        **PENALISED},
    "solve.penalties.sum_to_one": {**SOLVED, "Y": ("array?", Y)},
    "cones.restricted.bound_given": {**DATA, "A": ("factor", W), "K": ("integer", K)},
    "cones.restricted.objective_bound": {**DATA, "K": ("integer", K), **RIDGE, "sum_to_one":
        ("flag", False), **SPECTRAL},
    "solve.held_out.held_out_share": {**DATA, "W": ("factor", W), "weights": ("vector?", [1.0] * N),
        "n_folds": ("integer", 5)},
    "solve.held_out_counts.held_out_deviance": {**DATA, "W": ("factor", W), "weights": ("vector?",
        [1.0] * N), "n_folds": ("integer", 5)},
    "solve.goals.best_coefficients": {**DATA, "W": ("factor", W), "loss": ("choice", "poisson"),
        "penalties": ("object?", None), "unseen": ("choice", "warn")},
    "solve.count_margins.margins": DATA,
    "solve.count_coefficients.regressions": {**DATA, "W": ("factor", W), "penalties": ("object?",
        None)},
    "solve.stopping.Stopping": {**LIMITS, "window": ("integer", 5), "exact": ("share", 0.1),
        "is_plateau": ("function?", None)},
    "solve.inits.initialize": {**DATA, "K": ("size", K), "init": ("init", "cr1"), "solver":
        ("object?", None), **DRAWING, **SPECTRAL},
    "solve.race.run_race": {**DATA, "K": ("size", K), "solver": ("object?", None), **DRAWING,
        "rank": ("rank?", None), "remaining": ("object", lambda: None), **SPECTRAL,
        "callback": ("function?", None)},
    "solve.prospect.prospect": {**DATA, "K": ("size", K), "S": ("object?", sketch(V, 5)),
        **SPECTRAL},
    "solve.initial.lift_zeros": {**DATA, "H": ("array", H)},
    "solve.cone_inits.mixing": {**DATA, "K": ("size", K), "axes": ("factor?", W)},
    "solve.cone_inits.lie_in_cones": {**DATA, "W": ("factor", W), "error": ("share", 0.1)},
    "solve.near_separable.separable_bound": {**DATA, "samples": ("indices", [0, 1])},
    "solve.separable.spa": {**DATA, "K": ("size", K)},
    "solve.separable.snpa": {**DATA, "K": ("size", K)},
    "solve.checkpoint.Checkpoint": {"folder": ("path", "folder"), "every": ("limit", 1.0)},
    "solve.online.ConeStream": {"F": ("integer", F), "K": ("size", K)},
    "solve.online.ConeStream.from_factors": {"W": ("factor", W), "HH": ("factor", H @ H.T), "sums":
        ("vector", H.sum(axis=1)), "n_samples": ("integer", N)},
    "solve.online.ConeStream.update": DATA,
    "estimator.sklearn_init": {"X": ("matrix", X), "n_components": ("size", K), "solver": ("choice",
        "cd"), "random_state": ("seed?", 0)},
    "judge.identifiability.uniqueness_radii": {**DATA, **FACTORS},
    "judge.other_factors.exact_uniqueness": {"W": ("factor", W), "freedom": ("object",
        component_freedom(V, W, H)), "n_given": ("integer", 0), "sum_to_one": ("flag", False)},
    "uniqueness": {**DATA, **FACTORS, "loss": ("choice", "frobenius"), "n_given": ("integer", 0),
        "max_iter": ("integer", 3), "thorough": ("flag", False), "sum_to_one": ("flag", False)},
    "Uniqueness.in_words": {"k": ("integer", 0), "names": ("texts?", list("abcd")[:K])},
    "Uniqueness.summary": {},
    "Uniqueness.lines": {"names": ("texts?", list("abcd")[:K])},
    "Uniqueness.other": {"k": ("integer", 0)},
    "Uniqueness.plot": {"W": ("factor", W), "axes": ("axes?", None)},
    "judge.uniqueness.component_freedom": {**DATA, **FACTORS},
    "judge.uniqueness.Freedom.turned": {**FACTORS, "k": ("integer", 1)},
    "judge.uniqueness.Freedom.turn_in_words": {"k": ("integer", 0), "names": ("texts?",
        list("abcd")[:K])},
    "judge.uniqueness.Freedom.in_words": {},
    "judge.named.NamedComponents.top_features": {"n": ("integer", 3), "feature_names": ("texts?",
        list("abcdefgh"))},
    "judge.named.NamedComponents.components_frame": {"feature_names": ("texts?", None)},
    "judge.named.largest_features": {**NAMED, "n": ("integer", 3)},
    "judge.selection.choose_k": {**DATA, **SPECTRAL, "max_time": ("limit?", 1.0)},
    "judge.divergence_bound.divergence_bound": {**DATA, "K": ("integer", K), "effort": ("integer",
        1)},
    "judge.noise_floor.noise_floor": {**DATA, "W": ("factor", W), "H": ("factor", H), "refit":
        ("flag", False), "n_draws": ("integer", 2), "rng": ("rng?", RNG)},
    "judge.count_certificate.certify_counts": {**DATA, "W": ("factor", W), "H": ("factor", H),
        "effort": ("integer", 1), "floor": ("flag", False), "n_fixed": ("integer", 1),
        "penalties": ("object?", None)},
    "judge.count_certificate.CountCertificate.floor_in_words": {},
    "judge.count_certificate.CountCertificate.bound_in_words": {"K": ("integer", K)},
    "judge.poisson_gaps.poisson_gaps": {**DATA, "W": ("factor", W), "H": ("factor", H), "n_fixed":
        ("integer", 1), "penalties": ("object?", None)},
    "judge.relevance.determine_relevance": {**DATA, "K": ("size", K), "prior": ("choice", "l1"),
        "noise": ("share?", 0.1), "shape": ("limit?", 3.0), "tol": ("share", 0.1), "max_iter":
        ("integer", 1), **DRAWING},
    "judge.metrics.dice": SCORED,
    "judge.metrics.purity": SCORED,
    "judge.metrics.scores": SCORED,
    "judge.consensus.consensus": {"spectra": ("spectra", np.stack([W] * 3)), "density_threshold":
        ("share", 0.5)},
    "judge.stability_range.StabilityRange.plot": AXIS,
    "judge.stability_range.StabilityRange.save": {"path": ("path", "range.npz")},
    "judge.stability_range.StabilityRange.load": {"path": ("path", "ranged.npz")},
    "judge.metrics.match_components": {"W": ("array", W), "W_other": ("array", W)},
    "judge.plots.history": {"errors": ("object", RESULT.history), **AXIS, "against": ("choice",
        "passes"), "below": ("number?", 0.1)},
    "judge.plots.curves": {"histories": ("object", {"a": RESULT.history}), **AXIS},
    "judge.plots.spectrum": {"rank": ("object", estimate_rank(V)), "K": ("integer", K), **AXIS},
    "judge.plots.components": {**NAMED, "axes": ("axes?", None), "which": ("indices?", [0]), "top":
        ("integer", 3), "limits": ("object?", (W, W))},
    "judge.plots.endmembers": {**NAMED, **AXIS, "which": ("indices?", [0])},
    "judge.plots.maps": {**MAPPED, "axes": ("axes?", None), "which": ("indices?", [0])},
    "judge.maps.abundance_maps": {**MAPPED, "max_pixels": ("integer?", 5)},
    "judge.plots.cones": {"geometry": ("object", GEOMETRY), **AXIS},
    "judge.plots.scores": {"ks": ("vector", [2, 3]), "axes": ("axes?", None), "votes": ("object",
        {"a": (np.ones(2), 2)}), "meanings": ("object?", {"a": "score"})},
    "export.write_tables": {"result": ("object", RESULT), "folder": ("path", "."), "kind":
        ("choice", "csv"), "batch_rows": ("integer", 5)},
    "export.write_coefficients": {"path": ("path", "a.csv"), "A": ("table", H.T), "names":
        ("object", Names()), "component_names": ("texts?", list("abcd")[:K])},
    "export.annotate": {"adata": ("annotated", AnnData(X)), **SHOWN, "key": ("text", "nmf")},
    "export.annotate_file": {"source": ("path", "a.h5ad"), "target": ("path", "b.h5ad"), "result":
        ("object", RESULT), "key": ("text", "nmf")},
    "cells.tables.write_programs": {"programs": ("object", PROGRAMS), "folder": ("path", "."),
        "name": ("text", "a"), "source": ("text?", None), "genes": ("text?", None), "counts":
        ("data?", COUNTS), "copy_of": ("path?", None), "key": ("text", "nmf"), "force": ("flag",
        True)},
    "report.render": {**SHOWN, "title": ("text?", None), "source": ("text?", None), "view":
        ("choice", "auto"), "image_shape": ("shape?", None), "pixels_shape": ("shape?", None),
        "classes": ("classes?", LABELS), "coordinates": ("array?", H[:2].T), "texts":
        ("texts?", ["a"] * N), "stability": ("object?", None), "extra": ("object?", None)},
}
# fmt: on
INSTANCES = {
    "Comparison": conenmf.compare(V, K, inits=["cr1"], solvers=["hals"], max_iter=1),
    "ConeNMF": ConeNMF(K, init="cr1").fit(X),
    "ConeStream": ConeStream(F, K),
    "CountCertificate": certify_counts(V, W, H, effort=0, floor=False),
    "DataMatrix": V,
    "Factorization": RESULT,
    "Freedom": component_freedom(V, W, H),
    "JudgesItself": RESULT,
    "NamedComponents": RESULT,
    "Preparation": Preparation(idf=np.ones(F)),
    "Programs": PROGRAMS,
    "Names": NAMES,
    "Selection": conenmf.select_k(V, [2, 3], methods=["ratio"]),
    "Solver": SOLVERS["hals"],
    "Spectrum": SPECTRUM,
    "Stability": conenmf.stability(V, 2, 3, max_iter=3),
    "StabilityRange": conenmf.stability_over(V, [2], 3, max_iter=3),
    "Uniqueness": conenmf.uniqueness(V, W, H),
}
RESULTS = re.compile(  # and parts, which our own functions construct
    r"""
    (Finish|Programs|JudgesItself|Observed|Weighed|Uniqueness|Stability|StabilityRange|Consensus|
    Factorization|Comparison|Selection|Certificate|Diagnosis|ConeNMFError|Dataset\w*|DATASETS|
    Description|Download|DataMatrix|Sketch|\w+Warning|Traffic|EnergyBound|Cones|ConeGeometry|
    Separation|ConeCount|Vocabulary|LowerBound|DivergenceBound|PoissonGaps|NoiseFloor|
    CountCertificate|NoiseBound|RankEstimate|ConeModel|Penalty|Run|Solution|Loss|Margins|Regressions|
    Iteration|StopReason|History|Arena|Race|Entrant|RaceOutcome|Prospect|InitialFactors|
    StreamCones|NamedComponents|NoisyCentres|Plane|EdgeCount|Relevance|CoveringCentres|SeparableBound|ConeDiagnosis|InspectedSamples|Freedom|Vote|Decision|Contender)
    """,
    re.VERBOSE,
)
PROTOCOL = re.compile(  # methods that only the loop, the storage and the report call
    r"""
    (Fixed|Penalties|Weighed|Observed)\.(?!as_in_sklearn)\w+ |
    (Run|Loss|Frobenius|Poisson|Weighted|Penalty|Slot|Race|Prospect|Sketch)\.\w+ |
    (Diagnosis|Contender)\.\w+ | Uniqueness\.(arrays|from_arrays) |
    (Words|Vocabulary)\.counted |
    ConeNMF\.set_(fit|score|transform)_request | Preparation\.(plain|of_plain|in_words) |
    Stopping\.(reason|converged_at) | StreamCones\.empty | DataMatrix\.(?!sweep|columns)\w+
    """,
    re.VERBOSE,
)


def listed():
    """What docs/api.rst lists, errors left out."""
    page = (ROOT / "docs" / "api.rst").read_text("utf-8").partition("\nErrors\n")[0]
    return re.findall(r"^   ([A-Za-z_][\w.]*)$", page, re.MULTILINE)


def callables():
    """Every public function, class and method by its path."""
    for path in listed():
        module, _, name = path.rpartition(".")
        thing = getattr(importlib.import_module(f"conenmf.{module}".rstrip(".")), name)
        if not RESULTS.fullmatch(name):
            yield path, thing
        if inspect.isclass(thing) and not issubclass(thing, BaseException | str):
            for method in vars(thing):
                is_public = not method.startswith("_") and inspect.isroutine(getattr(thing, method))
                if is_public and not PROTOCOL.fullmatch(f"{name}.{method}"):
                    yield f"{path}.{method}", getattr(INSTANCES.get(name, thing), method)


TARGETS = dict(callables())


def test_every_public_function_and_parameter_has_a_valid_example():
    assert set(TARGETS) == set(CALLS)
    for path, target in TARGETS.items():
        assert sorted(inspect.signature(target).parameters) == sorted(CALLS[path]), path


def call(path, /, **changed):
    """Call a public function with its example, in which some arguments are changed."""
    values = {name: value for name, (_, value) in CALLS[path].items()} | changed
    if path == "ConeNMF":
        return ConeNMF(**values).fit(X)  # as in scikit-learn, options are checked there
    if path.startswith("ConeNMF."):  # a failed fit leaves marks
        target = getattr(copy.copy(INSTANCES["ConeNMF"]), path.partition(".")[2])
    else:
        target = TARGETS[path]
    bound = inspect.signature(target).bind_partial()
    bound.arguments.update(values)
    return target(*bound.args, **bound.kwargs)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the examples read."""
    monkeypatch.chdir(tmp_path)
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    np.savetxt("table.csv", X, delimiter=",")
    RESULT.save("saved.npz")
    INSTANCES["Stability"].save("stable.npz")
    INSTANCES["StabilityRange"].save("ranged.npz")
    AnnData(X).write_h5ad("a.h5ad")
    yield tmp_path
    plt.close("all")


def is_named(problem):
    """Whether an error is one of ours, short, and the same after it was pickled."""
    again = pickle.loads(pickle.dumps(problem))
    is_ours = isinstance(problem, ConeNMFError) and len(str(problem)) < 1000
    return is_ours and (type(again), str(again)) == (type(problem), str(problem))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", CALLS)
def test_wrong_arguments_have_named_errors_and_none_is_accepted(path, folder):
    call(path)
    raw, accepted = [], []
    for name, (kind, _) in CALLS[path].items():
        for value in wrong_values(kind):
            try:
                call(path, **{name: value})
                accepted.append(f"{name}={shown(value)}")
            except Exception as problem:
                if not is_named(problem):
                    raw.append(f"{name}={shown(value)}: {type(problem).__name__}: {problem}")
    assert (raw, accepted) == ([], [])
