"""What the estimator does with many fits instead of one."""

from __future__ import annotations

import os
from typing import Any

from sklearn.base import clone

from .data.matrix import DataMatrix
from .errors import NotAvailableError
from .judge.choose_k import choose_k
from .judge.stability import Stability, stability
from .scale.checkpoint import Checkpoint
from .settings import checked_K, scikit_learn_rng
from .solve.constraints import Penalties

__all__ = ["FitsManyTimes"]


class FitsManyTimes:
    """The method of `ConeNMF` that fits many times; its options are described there."""

    n_components: Any
    loss: Any
    max_iter: Any
    tol: Any
    fixed: Any
    random_state: Any
    n_components_: int
    _read: Any
    _penalties: Any

    def stability(
        self,
        X: Any,
        n_runs: int = 20,
        *,
        resample: str = "samples",
        density_threshold: float = 0.5,
        max_excess: float = 0.01,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    ) -> Stability:
        """Fit X many times, and return which components are found again, and how exactly.

        The model is not changed. Of its options, those are used that say how X is read, and
        `n_components`, `loss`, `max_iter`, `tol` and `random_state`; runs begin at random. If
        `n_components` is "auto", it is that of an earlier `fit`, or chosen for X.

        Parameters
        ----------
        X : array (n_samples, n_features), or anything that `fit` reads
        n_runs : int
        resample, density_threshold, max_excess, checkpoint
            See `conenmf.stability`.

        Returns
        -------
        Stability
            In the paper's letters: the components of the consensus are the columns of its W.

        Examples
        --------
        >>> import numpy as np
        >>> from conenmf import ConeNMF
        >>> rng = np.random.default_rng(0)
        >>> X = np.kron(np.eye(3), np.ones((9, 4))) * rng.random((27, 12))
        >>> ConeNMF(3).stability(X, 6).verdict
        'stable'
        """
        is_fitted = hasattr(self, "components_")
        V: DataMatrix = (self if is_fitted else clone(self))._read(X, reset=not is_fitted)
        penalties: Penalties = self._penalties(V)
        if self.fixed is not None or V.observed is not None or not penalties.are_none:
            raise NotAvailableError(
                "stability() takes no penalties, fixed components or missing entries: leave out "
                "what the model has of them"
            )
        K = checked_K(self.n_components, V)
        if isinstance(K, str):
            K = self.n_components_ if is_fitted else choose_k(V).K
        return stability(
            V,
            K,
            n_runs,
            loss=self.loss,
            resample=resample,
            density_threshold=density_threshold,
            max_excess=max_excess,
            max_iter=self.max_iter,
            tol=self.tol,
            rng=scikit_learn_rng(self.random_state),
            checkpoint=checkpoint,
        )
