"""What the estimator is given, in scikit-learn's words, as the core wants it.

X and its names become a `DataMatrix`, an init and known components become W and H, and penalties
get the paper's letters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from .arguments import components, factor
from .data.blocks import Array
from .data.known import Given, is_of_features, observed_only
from .data.matrix import DataMatrix
from .data.prepare import prepared
from .data.validate import checked_components, unmasked
from .errors import DataError, DataTypeError, OptionError
from .io.open import from_rows, is_elsewhere
from .judge.scores import matched_rows
from .names import Names, in_order, names_of
from .result import Factorization
from .solve.constraints import FIXED_TABLE, Fixed, Penalties
from .solve.inits import Init, check_factor

__all__ = ["ReadsInputs"]


class ReadsInputs:
    """The methods of `ConeNMF` that read what it is given."""

    n_components: Any
    init: Any
    fixed: Any
    missing: str
    components_: Array
    result_: Factorization

    def _options(self, *names: str) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    def _penalties(self, V: DataMatrix) -> Penalties:
        names = ("alpha_W", "alpha_H", "l1_ratio", "orthogonality", "min_volume", "sum_to_one")
        N = V.shape[1] if V.unweighed is None else V.unweighed.n_counted
        return Penalties.as_in_sklearn((V.shape[0], N), **self._options(*names))

    def _fixed_in_letters(self, V: DataMatrix) -> Fixed | None:
        """Return components given in rows as columns, in the order of the features of V."""
        if self.fixed is None:
            return None
        names = names_of(self.fixed)
        W = factor("fixed", self.fixed, ("n", "F")).T
        return Fixed(matched_rows(W, names, V, FIXED_TABLE), names.sample_names)

    def _named_components(self) -> tuple[Array, Names]:
        check_is_fitted(self)
        if hasattr(self, "result_"):
            return self.components_.T, self.result_.names
        return self.components_.T, Names.of(feature_names=getattr(self, "feature_names_in_", None))

    def _read(
        self,
        X: Any,
        *,
        reset: bool,
        feature_names: Iterable[object] | None = None,
        mask: Any = None,
        weights: Any = None,
    ) -> DataMatrix:
        """Open X: scikit-learn checks its form, if it is in memory, and the door its values.

        Weights of features are kept for later data.
        """
        given = Given(self.missing, mask, weights)
        options = self._options("negative", "n_threads", "max_memory") | given._asdict()
        options["names"] = names = Names.of(feature_names=feature_names)
        V: DataMatrix
        if not is_elsewhere(X):
            options["names"] = names_of(X).updated(names)
            X = self._checked(unmasked(X, self.missing), reset=reset, accept_sparse=True)
            V = from_rows(X, **options)
        elif isinstance(X, DataMatrix) and feature_names is not None:
            raise OptionError("X is open already: give names=Names.of(...) where it is opened")
        else:
            is_open = isinstance(X, DataMatrix)
            if is_open and given.missing == "nan":  # they have none
                given = given._replace(missing="raise")
            V = given.applied(X, "rows") if is_open else from_rows(X, **options)
            if not reset:
                matched_rows(*self._named_components(), V)  # its error names features
            outline = np.broadcast_to(0.0, V.shape[::-1])  # for the number of features
            self._checked(outline, reset=reset, skip_check_array=True)
        done = None if reset or not hasattr(self, "result_") else self.result_.preparation
        if done is not None and V.preparation is None:
            V = prepared(V, done)
        if reset:
            is_short = is_of_features(weights)
            self._weights = in_order(V.names, "weights", weights, "feature") if is_short else None
        if reset or getattr(self, "_weights", None) is None:
            return V
        known = np.asarray(self._weights)
        return observed_only(V, weights=matched_rows(known, self._named_components()[1], V))

    def _checked(self, X: Any, **options: Any) -> Any:
        """Let scikit-learn check X; its errors keep their words, and get a name."""
        X = np.asarray(X) if isinstance(X, np.matrix) else X  # which scikit-learn refuses
        try:
            return validate_data(self, X, ensure_all_finite=False, **options)
        except Exception as problem:
            raise DataTypeError(str(problem)[:1000]) from problem  # it may hold a long text

    def _init_in_letters(self, V: DataMatrix) -> tuple[int | str, Init]:
        """Return K and init for `factorize`; arrays are checked, then turned to W and H."""
        init = "auto" if self.init is None else self.init
        if isinstance(init, str) or callable(init):
            return self.n_components, init
        F, N = V.shape
        pair = init if isinstance(init, tuple) else (None, init)
        if len(pair) != 2:
            raise DataError(
                f"init is a tuple of {len(pair)}, expected the pair (coefficients, components)"
            )
        A, C = pair
        of_A, of_C = names_of(A).feature_names, names_of(C).sample_names
        of_both = of_C if of_A and of_C and {*of_A} == {*of_C} else None
        names = replace(V.names, feature_names=of_both)
        A = in_order(names, "coefficients", A, "sample", "feature" if of_both else "")
        C = in_order(V.names, "components", C, "", "feature")
        K = self.n_components
        if isinstance(K, str) and K == "auto":
            K = len(factor("components", C, ("K", F)))
        K = checked_components(components(K, auto=True), V)
        W = check_factor(C, (K, F), "components", V.dtype).T
        return K, W if A is None else (W, check_factor(A, (N, K), "coefficients", V.dtype).T)
