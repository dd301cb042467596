"""Nonnegative matrix factorization that knows how good its answer is.

A Python library built on Liu and Tan, "Rank-One NMF-Based Initialization for NMF and Relative
Error Bounds under a Geometric Assumption". Most users want `ConeNMF`; the functions beside it
read the same data, with samples in rows, or take a matrix opened with `from_rows`, `from_columns`
or `open_data`. Everything else is public in its folder: `conenmf.data`, `conenmf.linalg`,
`conenmf.cones`, `conenmf.solve` and `conenmf.judge`.

Names are imported when they are first used, so that ``import conenmf`` is fast.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in `typing`, whose import would take a third of the time of this one
if TYPE_CHECKING:
    from typing import Any

    from . import datasets, tl
    from .comparison import compare
    from .cones.clustering import cluster_cones
    from .cones.rank_one import cr1_nmf
    from .cones.simulate import make_cones
    from .errors import ConeNMFError
    from .estimator import ConeNMF
    from .fields.ratings import fit_ratings
    from .io.open import from_columns, from_rows, from_texts, open_data, prepare
    from .judge.certificate import certify
    from .judge.choose_k import select_k
    from .judge.diagnosis import diagnose
    from .judge.requirement import components_for
    from .judge.stability import stability
    from .judge.uniqueness import uniqueness
    from .pipeline import factorize
    from .report import write_report
    from .result import Factorization
    from .solve.problem import Problem

__version__ = "0.2.0"

_HOMES = {
    "ConeNMF": "estimator",
    "ConeNMFError": "errors",
    "Factorization": "result",
    "Problem": "solve.problem",
    "certify": "judge.certificate",
    "cluster_cones": "cones.clustering",
    "compare": "comparison",
    "components_for": "judge.requirement",
    "cr1_nmf": "cones.rank_one",
    "diagnose": "judge.diagnosis",
    "factorize": "pipeline",
    "fit_ratings": "fields.ratings",
    "from_columns": "io.open",
    "from_rows": "io.open",
    "from_texts": "io.open",
    "make_cones": "cones.simulate",
    "open_data": "io.open",
    "prepare": "io.open",
    "select_k": "judge.choose_k",
    "stability": "judge.stability",
    "uniqueness": "judge.uniqueness",
    "write_report": "report",
}
_FOLDERS = ("cells", "cones", "data", "errors", "judge", "linalg", "solve")

__all__ = [
    "ConeNMF",
    "ConeNMFError",
    "Factorization",
    "Problem",
    "certify",
    "cluster_cones",
    "compare",
    "components_for",
    "cr1_nmf",
    "datasets",
    "diagnose",
    "factorize",
    "fit_ratings",
    "from_columns",
    "from_rows",
    "from_texts",
    "make_cones",
    "open_data",
    "prepare",
    "select_k",
    "stability",
    "tl",
    "uniqueness",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in __all__ or name in _FOLDERS:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_FOLDERS})
