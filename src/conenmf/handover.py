"""An init for scikit-learn's own NMF: the factors of cr1-nmf, as it wants them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arguments import choice
from .cones.rank_one import cr1_nmf
from .data.blocks import Array
from .io.open import from_rows
from .settings import scikit_learn_rng
from .solve.inits import lift_zeros

__all__ = ["sklearn_init"]


def sklearn_init(
    X: Any, n_components: int, *, solver: str = "cd", random_state: Any = None
) -> tuple[Array, Array]:
    """Return W (n_samples, K) and H (K, n_features) for scikit-learn's ``NMF(init="custom")``.

    Parameters
    ----------
    X : array or sparse matrix (n_samples, n_features)
    n_components : int
    solver : {"cd", "mu"}
        The solver of scikit-learn's NMF that will run. "mu" cannot leave zeros, so for it
        both factors are strictly positive.
    random_state : int, RandomState, Generator or None

    Examples
    --------
    >>> from sklearn.decomposition import NMF
    >>> X = np.array([[2.0, 0.1], [4.0, 0.0], [0.0, 3.0]])
    >>> W, H = sklearn_init(X, 2)
    >>> NMF(2, init="custom").fit_transform(X, W=W, H=H).shape
    (3, 2)
    """
    solver, V = choice("solver", solver, ("cd", "mu")), from_rows(X)
    W, H, _ = cr1_nmf(V, n_components, rng=scikit_learn_rng(random_state), tol=1e-4)
    components = np.ascontiguousarray(W.T)
    if solver == "mu":
        components += W.dtype.type(0.01 * components.mean(dtype=np.float64))
    return np.ascontiguousarray(lift_zeros(V, H).T), components
