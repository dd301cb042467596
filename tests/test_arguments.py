"""The public functions and the estimator refuse wrong arguments, and say which one is wrong.

`CALLS` has a valid call of every function that docs/api.rst lists, with the kind of each argument.
The tests replace one argument at a time by values that no argument of its kind may have. A function
or parameter that the reference lists and `CALLS` does not is a failure.
"""

import copy
import importlib
import inspect
import pickle
import re
from dataclasses import is_dataclass
from itertools import product
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from anndata import AnnData
from tests.entries import entries

import conenmf
from conenmf import ConeNMF, ConeNMFError, factorize, from_columns, from_rows
from conenmf.cones.clustering import cluster_cones
from conenmf.cones.simulate import make_cones
from conenmf.data.matrix import DataMatrix
from conenmf.errors import DataError
from conenmf.linalg.svd import Spectrum
from conenmf.solve.constraints import Penalties
from conenmf.solve.problem import Entries
from conenmf.text import shown

ROOT = Path(__file__).parents[1]

# --- the data of all calls --------------------------------------------------------------------

F, N, K = 8, 24, 3
MODEL = make_cones(F, K, 0.05, n_samples=N, rng=np.random.default_rng(0))
V = from_columns(MODEL.V)
X = np.ascontiguousarray(MODEL.V.T)
COUNTS = from_columns(np.floor(9 * MODEL.V))
RESULT = factorize(V, K, init="cr1")
OF_SIGMA = factorize(from_rows(X, sigma=np.ones((N, F)) + X), K, n_init=2)
W, H = RESULT.W, RESULT.H
LABELS = cluster_cones(V, K).labels
SPECTRUM = Spectrum(V)
RNG = np.random.default_rng(0)


def quiet(*args):
    return None


# --- what is wrong for each kind --------------------------------------------------------------

# fmt: off
NAN, INF = float("nan"), float("inf")
WRONG_FOR_ALL = [object(), 2 + 1j]
NO_NUMBER = [None, True, "3", "zebra", [3], (1, 2), np.array(3), {"a": 1}, int]
NO_ARRAY = [None, "zebra", {"a": 1}, [[1], [1, 2]], ["a", "b"], np.zeros(0), int, 3]
BAD_ARRAYS = [np.full((F, K), NAN), np.full((F, K), -INF), np.ones((2, 2, 2)), X + 0j]
TEXTS = ["zebra", ""]
WRONG = {
    "data": [*NO_ARRAY, "", np.where(X > 0.5, NAN, X), -X, "table.csv", True, [X]],
    "array": [*NO_ARRAY, *BAD_ARRAYS, np.ma.masked_less(np.ones((F, K)), 2)],
    "factor": [*NO_ARRAY, *BAD_ARRAYS, -np.ones((F, K)), np.ones((1, 1)), -np.ones((K, N))],
    "known": [*NO_ARRAY, *BAD_ARRAYS, -np.ones((F, K))],  # of features that are not named yet
    "spectra": [*NO_ARRAY, np.full((2, F, K), NAN), -np.ones((2, F, K)), np.ones((F, K))],
    "alpha": ["zebra", None, NAN, -1, [], {}],
    "fixed": [*NO_ARRAY, *BAD_ARRAYS, -np.ones((1, F)), np.ones((1, 1))],
    "weights": ["zebra", {}, [], [[1], [1, 2]], np.ones((2, 2)), np.ones(3)],
    "sigma": ["zebra", {}, [], [[1], [1, 2]], np.ones((2, 2)), np.ones(3), np.zeros((N, F))],
    "vector": [None, "zebra", {}, [], [NAN] * K, [INF] * K, [-1.0] * K, ["a"] * K, np.ones((9, 9))],
    "labels": [*NO_ARRAY, np.zeros(N + 1, int), np.zeros(N), [NAN] * N, [-2] * N],
    "classes": [3, "zebra", {}, [], [NAN] * N, np.zeros((N, 2), int), [[1], [1, 2]], None],
    "groups": [3, "zebra", {}, [], [NAN] * N, np.zeros((N, 2), int), [[1], [1, 2]], np.arange(N)],
    "indices": [None, 3, "zebra", {}, [0.5], [-1], [10**9], [True], [[0]], ["a"]],
    "features": [3, "zebra", [0.5], [-1], [10**9], [True], [[0]], ["a"]],
    "matrix": [None, 3, "zebra", {}, [], [[1], [1, 2]], [["a"]], [[NAN]], [[-1.0]]],
    "integer": [*NO_NUMBER, 2.5, 2.0, NAN, INF, -1],
    "size": [*NO_NUMBER, 2.5, 2.0, NAN, INF, -1, 0, 10**9],
    "number": [*NO_NUMBER, NAN],
    "share": [*NO_NUMBER, NAN, INF, -INF, -1, -1e-9],
    "limit": [*NO_NUMBER, NAN, -INF, -1, -1e-9],
    "missing": [None, True, NAN, INF, *TEXTS, [], ["exact"], np.array("exact"), {}],
    "choice": [None, True, 3, NAN, *TEXTS, [], ["exact"], np.array("exact"), {}],
    "loss": [None, True, NAN, INF, "1.5", *TEXTS, [], ["poisson"], np.array("poisson"), {}],
    "flag": [None, 1, 0, "yes", [True], np.array([True]), {}],
    "text": [None, 3, True, NAN, b"x", ["a"], {}],
    "texts": [3, True, "zebra", b"x"],
    "rng": [None, 7, True, "zebra", [1], np.random.RandomState(0)],
    "seed": [-1, 1.5, True, "zebra", [1], {}],
    "function": [None, 3, True, "zebra", [], {}, lambda: 0, lambda a, b, c, d, e: 0],
    "object": [None, 3, True, "zebra", [], X, int],
    "path": [None, 3, True, "", b"x", [], {}],
    "shape": [3, True, "zebra", [], [1], [1, 2, 3], [2.5, 4], [-2, -4], [0, 8], ["a", 1]],
    "memory": [True, -1, 0, NAN, INF, *TEXTS, "GB", "-1GB", [1], {}],
    "init": [3, True, *TEXTS, [], {}, np.ones(3), (W,), (W, H, H), lambda: 0],
    "solver": [3, True, *TEXTS, "cd", ["hals"], {}, lambda: 0],
    "words": [3, True, *TEXTS, [3], [None], [["cr1"]]],
    "axes": [3, True, "zebra", [3], {}],
    "annotated": [None, 3, "zebra", [], {}, X],
    "verbosity": [-1, NAN, 2.5, "zebra", [3], {}],
    "some": [0, -1, True, NAN, 2.5, "zebra", {}],
    "starts": [0, -1, True, NAN, 2.5, "zebra", [3], {}],
    "rank": [0, -1, True, NAN, 2.5, "zebra", [3], {}],
    "column": [True, NAN, 2.5, [3], {}],
    "columns": [None, True, 2.5, [None], [2.5], [[1]]],
    "place": [True, NAN, 2.5, [3], {}, "zebra", 10**9],
    "places": [3, True, "zebra", [-1], [2.5], [True], ["a"], [10**9], [NAN]],
    "ks": [3, True, "zebra", [0], [-1], [2.5], [True], ["a"], [10**9], [], [NAN]],
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
KNOWN = {"missing": ("missing", "raise"), "mask": ("weights?", np.ones((N, F), bool)), "weights":
    ("weights?", np.ones((N, F))), "sigma": ("sigma?", np.ones((N, F)))}
FITTING = {"init": ("init", "cr1"), "loss": ("loss", "frobenius"), "solver": ("solver?",
    "hals"), **LIMITS, "callback": ("function?", quiet), "checkpoint": ("path?", None)}
STARTS = {"n_init": ("starts", "auto")}
RIDGE = {"l2_h": ("share", 0.1), "l2_w": ("share", 0.1)}
PENALISED = {"orthogonality": ("share", 0.0), "min_volume": ("share", 0.0), "sum_to_one": ("flag",
    False)}
ALPHAS = {"alpha_W": ("share", 0.1), "alpha_H": ("alpha", "same"), "l1_ratio": ("share", 0.5)}
DRAWING = {"rng": ("rng?", RNG)}
DRAWN = {"angles": ("vector", [0.2] * K), "rates": ("vector", [1.0] * K), "weights": ("vector?",
    [1.0] * K)}
FACTORS = {"W": ("factor", W), "H": ("factor", H)}
SCANPY = {"use_highly_variable": ("flag", False), "verbose": ("flag", False),
    "groups": (ANYTHING, None)}
SHOWN = {"result": ("object", RESULT)}
PROBLEM = {"problem": ("object?", None)}
REPLICATES = {**PROBLEM, "density_threshold": ("share", 0.5), "max_excess": ("limit", 0.1),
    "n_runs": ("size", 3), "loss": ("loss", "frobenius"), "resample": ("choice",
    "start"), "dispersion": ("number?", 0.1), "max_iter": ("integer", 3), "tol": ("share", 1e-3),
    "checkpoint": ("path?", None), "classes": ("classes?", LABELS), **DRAWING}
CHOSEN = {**DATA, "K": ("size", K), **DRAWING, "first": ("integer?", 0), "method": ("choice",
    "exact")}
NAMING = {"sample_names": ("texts?", ("a",)), "feature_names": ("texts?", ("a",)),
    "image_shape": ("shape?", (2, 4)), "pixels_shape": ("shape?", (2, 4))}
FITTED = {"X": ("matrix", X), "y": (ANYTHING, None), "feature_names": ("texts?", None)}
WEIGHTED = {**FITTED, "sample_weight": ("vector?", [1.0] * N), "mask": KNOWN["mask"], "weights":
    KNOWN["weights"], "sigma": KNOWN["sigma"]}
ESTIMATOR = {
    "ConeNMF": {"n_components": ("size", K), **FITTING, **STARTS, "n_threads": ("size?", 1),
        "negative": ("choice", "raise"), "max_memory": ("memory?", "1GB"),
        "random_state": ("seed?", 0), "verbose": ("verbosity", 0), **ALPHAS, **PENALISED,
        "fixed": ("fixed?", W.T[:1]), "missing": KNOWN["missing"],
        "robust": ("choice?", None), "symmetric": ("flag", False)},
    "ConeNMF.fit": WEIGHTED,
    "ConeNMF.fit_transform": WEIGHTED,
    "ConeNMF.fit_predict": FITTED,
    "ConeNMF.partial_fit": {"X": ("matrix", X), "y": (ANYTHING, None), "sample_weight": ("vector?",
        [1.0] * N)},
    "ConeNMF.transform": {"X": ("matrix", X), "unseen": ("choice", "warn"), "groups": ("groups?",
        None)},
    "ConeNMF.predict": {"X": ("matrix", X)},
    "ConeNMF.score": {"X": ("matrix", X), "y": (ANYTHING, None), "sample_weight": ("vector?", [1.0]
        * N)},
    "ConeNMF.explained_share": {"X": ("matrix", X)},
    "ConeNMF.inverse_transform": {"X": ("array", H.T)},
    "ConeNMF.certify": {"X": ("matrix?", X), "effort": ("integer?", 0)},
    "ConeNMF.diagnose": {"X": ("matrix?", X), "options": (ANYTHING, {"effort": 0})},
    "ConeNMF.uniqueness": {"X": ("matrix?", X), "max_iter": ("integer", 1), "thorough": ("flag",
        False)},
    "ConeNMF.save": {"path": ("path", "model.npz")},
    "ConeNMF.load": {"path": ("path", "model.npz")},
}
OPTIONS = {  # classes in which users state what they want
    "data.prepare.Words": {"stop_words": ("choice", "none"), "min_df": ("integer", 1),
        "max_df": ("share?",
        0.5), "max_words": ("integer?", 9), "ngrams": ("size", 1)},
    "names.Names": NAMING,
    "Problem": {"loss": ("loss", "frobenius"), "penalties": ("object?", None),
        "fixed": ("known?", W[:, :1]), "entries": (ANYTHING, Entries()),
        "groups": (ANYTHING, None), "symmetric": ("flag", False)},
    "solve.constraints.Penalties": {"l1_h": ("share", 0.1), "l1_w": ("share", 0.1), **RIDGE,
        **PENALISED},
}
FUNCTIONS = {
    "factorize": {**DATA, "K": ("size", K), **FITTING, **STARTS, **DRAWING, "fixed": ("factor?",
        W[:, :1]), "penalties": ("object?", Penalties(l1_h=0.1)), "groups": ("groups?", None),
        "robust": ("choice?", None), "symmetric": ("flag", False)},
    "compare": {**DATA, "K": ("size", K), "inits": ("words", ["cr1"]), "solvers": ("words",
        ["hals"]), "labels": ("classes?", LABELS), **LIMITS, "seed": ("integer", 0), "watch":
        ("function?", None), "others": (ANYTHING, None)},
    "select_k": {**DATA, **PROBLEM, "ks": ("ks?", [2, 3]), "loss": ("loss", "frobenius"),
        "budget": ("number?", 1.0), "callback": ("function?", None)},
    "components_for": {**DATA, "error": ("share", 0.3), "loss": ("loss", "frobenius"), "problem":
        ("object?", conenmf.Problem(fixed=W[:, :1]))},
    "stability": {**DATA, "K": ("size", 2), "prune": ("flag", False), **REPLICATES},
    "judge.stability.stability_over": {**DATA, "ks": ("ks?", [2]), "callback": ("function?",
        None), **REPLICATES},
    "fields.cells.find_programs": {"V": ("data", COUNTS), "K": ("size", 2), "n_runs": ("size",
        3), "n_genes":
        ("integer", 6), "genes": ("texts?", None), "log1p": ("flag", False), "refine":
        ("integer", 1), "resample": ("choice", "start"), "density_threshold": ("share", 0.5),
        "max_iter": ("integer", 3), "tol": ("share", 1e-3), "checkpoint": ("path?", None),
        **DRAWING, "callback": ("function?",
        quiet), "classes": ("classes?", LABELS), "groups": (ANYTHING, None)},
    "cones.counting.estimate_rank": {**DATA, "k_min": ("size", 2), "k_max": ("size?", 4),
        "normalize": ("flag",
        False), **SPECTRAL},
    "certify": {**DATA, **FACTORS, "loss": ("loss", "frobenius"), "effort": ("integer?", 0),
        **SPECTRAL, **PROBLEM},
    "diagnose": {**DATA, **FACTORS, "loss": ("loss", "frobenius"), **PROBLEM,
        "groups": ("classes?", LABELS), "classes": ("classes?", LABELS),
        "n_splits": ("integer", 0)},
    "uniqueness": {**DATA, **FACTORS, "loss": ("loss", "frobenius"), **PROBLEM,
        "max_iter": ("integer", 3), "thorough": ("flag", False)},
    "cluster_cones": CHOSEN,
    "cr1_nmf": {**CHOSEN, "tol": ("share", 0.1), **SPECTRAL},
    "make_cones": {"F": ("size", F), "K": ("size", K), "alpha": ("vector", [0.1] * K), "n_samples":
        ("size", 9), "angle": ("share?", 1.0), "axes": ("array?", None), "rates": ("vector?", [1.0]
        * K), "weights": ("vector?", [1 / 3] * K), "squared_norm": ("function?", None), "project":
        ("flag", True), "noise": ("share", 0.1), "rng": ("rng", RNG)},
    "from_rows": {"X": ("matrix", X), **READING, **KNOWN, "persist": ("flag?", None)},
    "judge.displacement.displacement": {**DATA, **PROBLEM, "W": ("factor", W),
        "H": ("factor", H), "rises": ("vector", [4.0]), "features": ("features?", [0])},
    "fields.measurements.measurements": {"X": ("matrix", X), "sigma": ("sigma?", np.ones((N, F))),
        "weak": ("places", []), "bad": ("places", [1]), "total": ("place?", None), "options":
        (ANYTHING, {})},
    "fields.measurements.bootstrap": {**SHOWN, "n_runs": ("size", 2), "min_correlation": ("share",
        0.6), **DRAWING},
    "fields.measurements.Q_of_starts": {"result": ("object", OF_SIGMA)},
    "fit_ratings": {"X": ("matrix", np.where(MODEL.V.T > np.median(MODEL.V), MODEL.V.T, 0.0)), "K":
        ("rank", 2), "callback": ("function?", None)},
    "from_columns": {"V": ("matrix", MODEL.V), **READING, **KNOWN, "mask": ("weights?", np.ones((F,
        N))), "weights": ("weights?", np.ones((F, N))), "sigma": ("sigma?", None),
        "persist": ("flag?", None)},
    "from_texts": {"texts": ("texts", ["oak elm"] * 2), "words": ("object?",
        conenmf.data.prepare.Words("none", max_df=1.0)), "names": ("object?", None), "n_threads":
        ("size?", 1), "max_memory": ("memory?", "1GB")},
    "open_data": {"path": ("path", "table.csv"), "samples_in": ("choice", "rows"), "dataset":
        ("text?", None), "header": ("flag?", None), "names_column": ("column?", None), "drop":
        ("columns", ()), "text_column": ("column?", None), "words": ("object?", None), **READING,
        **KNOWN, "mask": ("weights?", None), "weights": ("weights?", None),
        "sigma": ("sigma?", None), "triples": ("columns?", None)},
    "prepare": {**DATA, "normalize_total": ("share?", 1.0), "log1p": ("flag", True), "tfidf":
        ("flag", False), "normalize": ("flag", True), "floor": ("share", 0.0)},
    "write_report": {**SHOWN, "path": ("path", "report.html"), "options": (ANYTHING, {})},
    "tl.consensus": {"adata": ("annotated", AnnData(X)), "n_components": ("some", 2), "n_runs":
        ("size", 3), "layer": ("choice?", None), "key_added": ("text", "nmf"), **SCANPY, "options":
        (ANYTHING, {"max_iter": 3})},
    "tl.nmf": {"adata": ("annotated", AnnData(X)), "n_components": ("some", K), "layer": ("choice?",
        None), "key_added": ("text", "nmf"), **SCANPY, "options": (ANYTHING, {})},
    "datasets.load": {"name": ("choice", "digits"), "samples_are": ("choice?", None), "weights":
        ("choice?", None), "download": ("flag", False), "progress":
        ("flag", False)},
    "datasets.available": {},
    "cones.geometry.cone_geometry": {**DATA, "labels": ("labels", LABELS)},
    "cones.counting.count_cones": DATA,
    "judge.certificate.lower_bound": {**DATA, "K": ("integer", K), "effort": ("integer", 0),
        **SPECTRAL},
    "cones.bounds.deterministic_bound": {**DATA, "W": ("factor", W), "labels": ("labels", LABELS)},
    "cones.bounds.probabilistic_bound": DRAWN,
    "cones.simulate.make_cone_data": {"n_samples": ("size", 9), "n_features": ("size", F),
        "n_components": ("size", K), "alpha": ("vector", [0.1] * K), "noise": ("share", 0.1),
        "random_state": ("seed?", 0), "options": (ANYTHING, {})},
    "estimator.sklearn_init": {"X": ("matrix", X), "n_components": ("size", K), "solver": ("choice",
        "cd"), "random_state": ("seed?", 0)},
    "judge.matching.match_spectra": {"library": ("array", W.T), "found": ("array", W.T),
        "library_abundances": ("array?", H.T), "abundances": ("array?", H.T)},
    "judge.matching.match_components": {"W": ("array", W), "W_other": ("array", W)},
    "judge.scores.scores": {"labels_true": ("classes", LABELS), "labels_pred": ("classes",
        LABELS)},
    "export.write_tables": {**SHOWN, "folder": ("path", "."), "kind": ("choice", "csv")},
    "export.annotate": {"adata": ("annotated", AnnData(X)), **SHOWN, "key": ("text", "nmf"),
        "genes": (ANYTHING, None)},
}
# fmt: on
CALLS = {**ESTIMATOR, **OPTIONS, **FUNCTIONS}
MODEL_OF_X = ConeNMF(K, init="cr1").fit(X)


def public():
    """The functions and classes in docs/api.rst by their paths, errors left out."""
    page = (ROOT / "docs" / "api.rst").read_text("utf-8").partition("\nErrors\n")[0]
    for path in re.findall(r"^   ([A-Za-z_][\w.]*)$", page, re.MULTILINE):
        module, _, name = path.rpartition(".")
        yield path, getattr(importlib.import_module(f"conenmf.{module}".rstrip(".")), name)


TARGETS = dict(public())


def test_every_public_function_and_parameter_has_a_valid_example():
    assert {path for path, target in TARGETS.items() if not inspect.isclass(target)} == set(
        FUNCTIONS
    )
    for path, arguments in {**OPTIONS, **FUNCTIONS}.items():
        assert sorted(inspect.signature(TARGETS[path]).parameters) == sorted(arguments), path


def call(path, /, **changed):
    """Call a public function with its example, in which some arguments are changed."""
    values = {name: value for name, (_, value) in CALLS[path].items()} | changed
    if path == "ConeNMF":
        return ConeNMF(**values).fit(X)  # as in scikit-learn, options are checked there
    if path.startswith("ConeNMF."):  # a failed fit leaves marks
        target = getattr(copy.copy(MODEL_OF_X), path.partition(".")[2])
    else:
        target = TARGETS[path]
    bound = inspect.signature(target).bind_partial()
    bound.arguments.update(values)
    return target(*bound.args, **bound.kwargs)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the file that an example reads."""
    monkeypatch.chdir(tmp_path)
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    np.savetxt("table.csv", X, delimiter=",")
    MODEL_OF_X.save("model.npz")
    yield tmp_path
    plt.close("all")


# What messages call an argument where they do not use its name in Python.
CALLED = {
    "H": "W",
    "K": "components|programs|fewer than the \\d+ asked for",
    "V": ".*",  # the data: a message says which entry, row or type is wrong
    "W": "H",
    "X": ".*",
    "init": "W|components",
    "k_max": "search range",
    "k_min": "search range",
    "kind": "tables",
    "ks": "components",
    "n_components": "K|components|ks",
    "n_features": "F",
    "sample_weight": "weights",
    "which": "components",
}


# The last one is scikit-learn's own message.
REMEDY = re.compile(
    r"expect|choose|try|give|use|ask for|reshape|convert|fill|leave|needs|within|supported|remove"
    r"|must (be|agree)|from \d+ to \d+|inhomogeneous shape"
)


def is_said(problem, value):
    """Whether an error gives a plain value, or the shape or type of an array, and a remedy."""
    words = str(problem).casefold()
    is_plain = isinstance(value, bool | int | float | str | None) and value != ""
    has_value = not is_plain or str(value).casefold() in words or type(value).__name__ in words
    has_shape = re.search("shape|type|dimensions|2d array", words) is not None
    return (has_value or has_shape) and REMEDY.search(words) is not None


def is_named(problem, argument):
    """Whether an error is one of ours, names the argument, is short, and can be pickled."""
    again = pickle.loads(pickle.dumps(problem))
    words = f"{argument}|{CALLED[argument]}" if argument in CALLED else argument
    is_ours = isinstance(problem, ConeNMFError) and len(str(problem)) < 1000
    is_same = (type(again), str(again)) == (type(problem), str(problem))
    return is_ours and is_same and re.search(rf"\b({words})\b", str(problem)) is not None


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
                if not (is_named(problem, name) and is_said(problem, value)):
                    raw.append(f"{name}={shown(value)}: {type(problem).__name__}: {problem}")
    assert (raw, accepted) == ([], [])


# --- what people have -------------------------------------------------------------------------

READERS = [path for path, arguments in FUNCTIONS.items() if "V" in arguments]
READERS.remove("from_columns")  # its V has samples in columns


def titles(rows):
    """The names of the samples and features of the data frames."""
    return [f"oak {n}" for n in range(len(rows))], [f"elm {f}" for f in range(rows.shape[1])]


def on_disk(rows, folder):
    np.save(folder / "rows.npy", rows)
    return np.load(folder / "rows.npy", mmap_mode="r")


CONTAINERS = {
    "array": lambda rows, folder: rows,
    "pandas": lambda rows, folder: pd.DataFrame(rows, *titles(rows)),
    "polars": lambda rows, folder: pl.DataFrame(rows, schema=titles(rows)[1]),
    "csr": lambda rows, folder: sp.csr_array(rows),
    "csc": lambda rows, folder: sp.csc_matrix(rows),
    "memmap": on_disk,
    "dask": lambda rows, folder: da.from_array(rows, chunks=(10, -1)),
}
READINGS = [*product(READERS, CONTAINERS)]
READINGS.remove(("judge.displacement.displacement", "dask"))  # which needs data in memory


def leaves(answer):
    """What an answer consists of, as arrays and plain values, without times."""
    if isinstance(answer, DataMatrix):
        yield from (entries(answer), answer.names, answer.remarks)
    elif isinstance(answer, dict):
        for name, part in answer.items():
            if name not in ("data", "elapsed", "seconds", "spectrum"):
                yield name
                yield from leaves(part)
    elif isinstance(answer, tuple) and hasattr(answer, "_asdict"):
        yield from leaves(answer._asdict())
    elif isinstance(answer, tuple | list):
        for part in answer:
            yield from leaves(part)
    elif is_dataclass(answer):
        yield type(answer)
        yield from leaves(vars(answer))
    else:
        yield np.asarray(answer) if hasattr(answer, "dtype") else answer


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("path", "container"), READINGS)
def test_every_function_reads_what_from_rows_reads(path, container, tmp_path):
    rows = np.ascontiguousarray(entries(CALLS[path]["V"][1]).T)
    given = CONTAINERS[container](rows, tmp_path)
    same = {"spectrum": None} if "spectrum" in CALLS[path] else {}
    found, expected = (
        list(leaves(call(path, V=V, **same, **fresh(path)))) for V in (given, from_rows(given))
    )
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_equal(one, other)


def fresh(path):
    return {"rng": np.random.default_rng(0)} if "rng" in CALLS[path] else {}


def test_names_of_data_frames_reach_the_result():
    frame = pd.DataFrame(X, *titles(X))
    names = factorize(frame, K).names
    assert names.sample_names == tuple(frame.index)
    assert names.feature_names == tuple(frame.columns)


@pytest.mark.parametrize("path", READERS)
def test_errors_show_the_call_that_reads_such_data(path, refuses):
    rows = entries(CALLS[path]["V"][1]).T.copy()
    rows[3, 2] = np.nan
    message = r"row 3.*, column 2.* is NaN: .*; options .* go to from_rows"
    refuses(DataError, message, call, path, V=rows)
    rows[3, 2] = -1
    message = r"row 3.*, column 2.* is -1.*; options .* go to from_rows"
    refuses(DataError, message, call, path, V=rows)
