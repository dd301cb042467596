"""Nonnegative matrix factorization that knows how good its answer is.

A Python library built round Liu and Tan, "Rank-One NMF-Based Initialization for NMF and Relative
Error Bounds under a Geometric Assumption". Most users want `ConeNMF`; the functions below it take
a matrix opened with `from_rows`, `from_columns` or `open_data`.
"""

from . import datasets, tl
from .bounds import (
    Certificate,
    certify,
    deterministic_bound,
    largest_angle_in_orthant,
    lower_bound,
    probabilistic_bound,
    sample_size,
    weighted_bound,
)
from .checkpoint import Checkpoint
from .comparison import Comparison, compare
from .cones import Cones, cluster_cones, cr1_nmf, rank_one_factors
from .data import DataMatrix, from_columns, from_rows, open_data
from .diagnosis import Diagnosis, diagnose
from .errors import ConeNMFError
from .estimator import ConeNMF, sklearn_init
from .factorize import factorize
from .geometry import ConeGeometry, cone_geometry, enclosing_cones
from .metrics import dice, match_components, purity
from .names import Names
from .nnls import nnls
from .noise import NoiseBound, noise_bound
from .rank import RankEstimate, estimate_rank
from .report import write_report
from .result import Factorization
from .rules import Rule
from .seeding import cr1_plus_plus
from .selection import Selection, select_k
from .simulate import ConeModel, make_cone_data, make_cones
from .sketch import Sketch, sketch
from .solvers import Progress, alternate
from .spectrum import truncated_svd

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Checkpoint",
    "Comparison",
    "ConeGeometry",
    "ConeModel",
    "ConeNMF",
    "ConeNMFError",
    "Cones",
    "DataMatrix",
    "Diagnosis",
    "Factorization",
    "Names",
    "NoiseBound",
    "Progress",
    "RankEstimate",
    "Rule",
    "Selection",
    "Sketch",
    "alternate",
    "certify",
    "cluster_cones",
    "compare",
    "cone_geometry",
    "cr1_nmf",
    "cr1_plus_plus",
    "datasets",
    "deterministic_bound",
    "diagnose",
    "dice",
    "enclosing_cones",
    "estimate_rank",
    "factorize",
    "from_columns",
    "from_rows",
    "largest_angle_in_orthant",
    "lower_bound",
    "make_cone_data",
    "make_cones",
    "match_components",
    "nnls",
    "noise_bound",
    "open_data",
    "probabilistic_bound",
    "purity",
    "rank_one_factors",
    "sample_size",
    "select_k",
    "sketch",
    "sklearn_init",
    "tl",
    "truncated_svd",
    "weighted_bound",
    "write_report",
]
