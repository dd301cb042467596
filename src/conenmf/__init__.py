"""Nonnegative matrix factorization that knows how good its answer is.

A Python library built round Liu and Tan, "Rank-One NMF-Based Initialization for NMF and Relative
Error Bounds under a Geometric Assumption". Most users want `ConeNMF`; the functions below it take
a matrix opened with `from_rows` or `from_columns`.
"""

from .bounds import deterministic_bound, lower_bound
from .cones import Cones, cluster_cones, cr1_nmf, rank_one_factors
from .data import DataMatrix, from_columns, from_rows
from .errors import ConeNMFError
from .estimator import ConeNMF, sklearn_init
from .factorize import Factorization, factorize
from .nnls import nnls
from .rank import RankEstimate, estimate_rank, truncated_svd
from .simulate import ConeModel, make_cones
from .solvers import Progress, Rule, alternate

__version__ = "0.1.0"

__all__ = [
    "ConeModel",
    "ConeNMF",
    "ConeNMFError",
    "Cones",
    "DataMatrix",
    "Factorization",
    "Progress",
    "RankEstimate",
    "Rule",
    "alternate",
    "cluster_cones",
    "cr1_nmf",
    "deterministic_bound",
    "estimate_rank",
    "factorize",
    "from_columns",
    "from_rows",
    "lower_bound",
    "make_cones",
    "nnls",
    "rank_one_factors",
    "sklearn_init",
    "truncated_svd",
]
