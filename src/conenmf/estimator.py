"""`ConeNMF`, the door for scikit-learn's users.

Here, and nowhere below, samples are rows and the words are scikit-learn's: X has shape
(n_samples, n_features), `components_` is the transpose of the paper's W, and what
`fit_transform` returns is the transpose of the paper's H.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .cones.bounds import Certificate
from .cones.rank_one import cr1_nmf
from .data.blocks import Array
from .data.doors import from_rows, is_elsewhere
from .data.matrix import Aligned, DataMatrix
from .data.validate import Negative
from .errors import FactorError, NotAvailableError, OptionError, check_components
from .names import names_of
from .pipeline import factorize
from .solve.checkpoint import Checkpoint
from .solve.inits import Init, check_factor, raise_off_zero
from .solve.losses import coefficients
from .solve.online import ConeStream
from .solve.solvers import Solver, Update
from .solve.stopping import Callback, Iteration, StopReason

__all__ = ["ConeNMF", "sklearn_init"]


class _WithNumberOfComponents:
    """A method that exists where the number of components is given."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method

    def __get__(self, model: Any, owner: type) -> Callable[..., Any]:
        if model is None:
            return self.method
        if isinstance(model.n_components, str) and model.n_components == "auto":
            raise NotAvailableError(
                "n_components='auto' needs all samples at once, and partial_fit has one batch: "
                "give a number; after fit, model.set_params(n_components=model.n_components_)"
            )
        return MethodType(self.method, model)


class ConeNMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Nonnegative matrix factorization started from cones.

    Finds nonnegative coefficients A and components C such that X is close to A C in the
    Frobenius norm. `fit_transform(X)` returns A, `components_` is C.

    Parameters
    ----------
    n_components : int or "auto"
        "auto" estimates it: from the ratios of adjacent singular values if cones are evident,
        else by parallel analysis; ``result_.K_decided_by`` says which.
    init : str, callable or array or pair of arrays
        "cr1" (cones, Algorithm 2 of the paper), "cr1++" (the same from centres drawn at random),
        "random", "nndsvd", "nndsvda", "nndsvdar", "nnsvdlrc", "spa", "snpa", "spkm", "kmeans";
        "auto" takes "cr1" for samples in cones, and elsewhere lets it compete with a start from
        singular vectors; your own components (n_components, n_features); or your own pair of
        coefficients (n_samples, n_components) and components.
    solver : {"hals", "mult", "nnlsb"} or "plain-hals" etc., Solver, callable or None
        The plain rules are those of the paper's experiments, one sweep per product and without
        extrapolation. None stops at the start.
    max_iter : int
    tol : float
        Stop when the relative error fell by less than this share of itself over 5 iterations.
    max_time : float, optional
        Seconds after which the solver stops, counted from the call. The choice of the number of
        components and of the start are not interrupted, and the exact finish comes on top.
    n_threads : int, optional
        By default all cores this process may use. The result has the same bits for any number.
    negative : {"raise", "clip"}
        "clip" reads negative entries of at most 1e-6 of the largest entry as zeros.
    callback : callable, optional
        Called after every iteration with an object that has `iteration`, `elapsed`,
        `relative_error` and `passes`; the fit stops when it returns True.
    random_state : int, RandomState, Generator or None
        For starts that draw. With None, "cr1" always gives the same result.
    verbose : int
        With 1, print a line per iteration.
    sketch : int, "auto" or None
        Iterate on a sketch of X of this rank on the way, which is much cheaper where X is dense
        and has many more samples and features than components, and finish on X itself; "auto"
        decides whether that pays, None never does it.
    max_memory : int or str, optional
        For data in files: the memory this process may take, such as "1GB"; see `open_data`.
    checkpoint : path or Checkpoint, optional
        A folder in which the fit is saved every minute; the same fit after the process was killed
        goes on from there and ends with the same bits.

    Attributes
    ----------
    components_ : array (n_components, n_features)
    n_components_ : int
    labels_ : array (n_samples,)
        The component that contributes most to each sample; -1 for samples without any.
    reconstruction_err_ : float
        Frobenius norm of the difference between X and its reconstruction.
    relative_error_ : float
        The same, divided by the norm of X.
    n_iter_ : int
        Iterations of `fit`, or batches given to `partial_fit`.
    n_samples_seen_ : int
        After `partial_fit` only: samples so far, those of an earlier `fit` included.
    history_ : History
        Relative error, seconds and passes over X after each iteration.
    stop_reason_ : StopReason
        As in `Factorization`.
    result_ : Factorization
        Everything, in the paper's letters; it can be saved. It keeps a reference to X, for
        `certify` and its other judgements, until it is pickled.

    Examples
    --------
    >>> from conenmf.cones.simulate import make_cones
    >>> X = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0)).V.T
    >>> model = ConeNMF().fit(X)
    >>> model.n_components_, model.transform(X).shape
    (4, (200, 4))
    """

    components_: Array

    def __init__(
        self,
        n_components: int | str = "auto",
        *,
        init: Init | None = "auto",
        solver: str | Solver | Update | None = "hals",
        max_iter: int = 200,
        tol: float = 1e-4,
        max_time: float | None = None,
        n_threads: int | None = None,
        negative: Negative = "raise",
        callback: Callback | None = None,
        random_state: Any = None,
        verbose: int = 0,
        sketch: int | str | None = "auto",
        max_memory: int | str | None = None,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    ) -> None:
        self.n_components = n_components
        self.init = init
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.max_time = max_time
        self.n_threads = n_threads
        self.negative = negative
        self.callback = callback
        self.random_state = random_state
        self.verbose = verbose
        self.sketch = sketch
        self.max_memory = max_memory
        self.checkpoint = checkpoint

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn the components of X (n_samples, n_features).

        X is an array, data frame or sparse matrix in memory; or a `numpy.memmap`, a dataset or
        sparse group of HDF5 or Zarr, or what `open_data` returned, which stay on disk; or a Dask
        array, which stays on its workers.
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: object = None) -> Aligned:
        """Learn the components and return the coefficients (n_samples, n_components).

        They are a Dask array if X is one, and in a file beside X if they are too large for
        `max_memory`.
        """
        V = self._read(X, reset=True)
        n_components, init = self._start(V)
        result = factorize(
            V,
            n_components,
            init=init,
            solver=self.solver,
            max_iter=self.max_iter,
            tol=self.tol,
            max_time=self.max_time,
            callback=self._callback(),
            rng=_generator(self.random_state),
            sketch=self.sketch,
            checkpoint=self.checkpoint,
        )
        self.components_ = np.ascontiguousarray(result.W.T)
        self.n_components_ = result.K
        self.labels_ = result.labels
        self.relative_error_ = result.relative_error
        self.reconstruction_err_ = result.relative_error * V.norm
        self.n_iter_ = result.n_iter
        self.history_ = result.history
        self.stop_reason_ = result.stop_reason
        self.result_ = result
        self._forget(_OF_STREAM)
        if result.stop_reason is StopReason.MAX_ITER and self.max_iter > 0 and self.tol > 0:
            warnings.warn(
                f"ConeNMF stopped at max_iter={self.max_iter} before it converged to "
                f"tol={self.tol}: increase one of them",
                ConvergenceWarning,
                stacklevel=3,  # through scikit-learn's wrapper of fit_transform
            )
        return result.H.T if is_elsewhere(X) else np.array(result.H.T)

    @_WithNumberOfComponents
    def partial_fit(self, X: Any, y: object = None) -> Self:
        """Learn from one more batch of samples, which need not be kept.

        The first call begins a stream, or continues from the model of an earlier `fit` as if
        its samples had been exactly their reconstruction; `fit` begins anew. `n_components` must
        be a number, `n_threads`, `negative` and `max_memory` are honoured, and the other options
        are those of `fit` alone. What a fit says about its samples (`labels_`,
        `relative_error_`, `result_` and so on) is removed, because it no longer holds. As long
        as the samples have had fewer directions than there are components, the rest of
        `components_` are zeros. What the order of the samples does, and does not, change is told
        in `conenmf.online.ConeStream`.

        Parameters
        ----------
        X : (n_samples, n_features), as in `fit`
        y : ignored

        Examples
        --------
        >>> from conenmf.cones.simulate import make_cones
        >>> X = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0)).V.T
        >>> model = ConeNMF(4)
        >>> for start in range(0, 200, 50):
        ...     model = model.partial_fit(X[start : start + 50])
        >>> model.n_samples_seen_, model.score(X) > 0.99
        (200, True)
        """
        K = check_components(self.n_components)
        V = self._read(X, reset=not hasattr(self, "components_"))
        stream: ConeStream | None = getattr(self, "_stream", None)
        if stream is None:
            stream = self._begin(V.shape[0], K)
        if stream.K != K:
            raise OptionError(
                f"n_components={K}, but the model to continue has {stream.K} components: "
                "change it back, or begin anew with fit or clone(model)"
            )
        stream.update(V)
        self._forget(_OF_FIT)
        self._stream = stream
        self.components_ = np.ascontiguousarray(stream.W.T, dtype=V.dtype)
        self.n_components_ = stream.K
        self.n_samples_seen_ = stream.samples
        self.n_iter_ = stream.batches
        return self

    def _begin(self, n_features: int, K: int) -> ConeStream:
        if not hasattr(self, "result_"):
            return ConeStream(n_features, K)
        W, H = self.result_.W, self.result_.H
        HH, sums = np.asarray(H @ H.T), np.asarray(H.sum(axis=1))
        return ConeStream.from_factors(W, HH, sums, H.shape[1])

    def _forget(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.__dict__.pop(name, None)

    def certify(self) -> Certificate:
        """Return how far the fit is from the best possible and from a stationary point.

        The first call reads X, to which `result_` keeps a reference; later calls do not.
        """
        check_is_fitted(self)
        if not hasattr(self, "result_"):
            raise NotAvailableError(
                "certify() judges a fit, and partial_fit keeps no samples: use "
                "conenmf.certify(from_rows(X), model.components_.T, model.transform(X).T)"
            )
        certificate: Certificate = self.result_.certify()
        return certificate

    def fit_predict(self, X: Any, y: object = None) -> Aligned:
        """Learn the components and return the label of each sample."""
        self.fit_transform(X)
        return self.labels_

    def transform(self, X: Any) -> Aligned:
        """Return the exact nonnegative least-squares coefficients of X, new samples or old."""
        return self._coefficients(X)[1]

    def inverse_transform(self, X: Any) -> Aligned:
        """Return the samples (n_samples, n_features) that these coefficients stand for."""
        check_is_fitted(self)
        coefficients_ = X if is_elsewhere(X) else np.asarray(X)
        if coefficients_.ndim != 2 or coefficients_.shape[1] != self.n_components_:
            raise FactorError(
                f"the coefficients have shape {coefficients_.shape}, "
                f"expected (n_samples, {self.n_components_})"
            )
        return coefficients_ @ self.components_

    def predict(self, X: Any) -> Aligned:
        """Return the component that contributes most to each sample, -1 where none does."""
        return self._coefficients(X)[2]

    def score(self, X: Any, y: object = None) -> float:
        """Return the share of the squared norm of X that is reconstructed, at most 1."""
        V, _, _, squared = self._coefficients(X)
        return 1.0 - squared / (V.total or 1.0)

    def _coefficients(self, X: Any) -> tuple[DataMatrix, Aligned, Aligned, float]:
        check_is_fitted(self)
        V = self._read(X, reset=False)
        H, labels, squared = coefficients(V, self.components_.T)
        return V, H.T, labels, squared

    def _read(self, X: Any, *, reset: bool) -> DataMatrix:
        elsewhere = is_elsewhere(X)
        names = names_of(X)
        if not elsewhere:
            X = validate_data(self, X, reset=reset, accept_sparse=True, ensure_all_finite=False)
        V: DataMatrix = (
            X
            if isinstance(X, DataMatrix)
            else from_rows(
                X,
                negative=self.negative,
                n_threads=self.n_threads,
                max_memory=self.max_memory,
                names=names,
            )
        )
        if elsewhere:  # scikit-learn looks at the number of features alone
            outline = np.broadcast_to(0.0, V.shape[::-1])
            validate_data(self, outline, reset=reset, skip_check_array=True)
        return V

    def _start(self, V: DataMatrix) -> tuple[int | str, Init]:
        """Check the user's own arrays in scikit-learn's layout, then turn them to the paper's."""
        init = "auto" if self.init is None else self.init
        if isinstance(init, str) or callable(init):
            return self.n_components, init
        F, N = V.shape
        pair = init if isinstance(init, tuple) else (None, init)
        if len(pair) != 2:
            raise FactorError(
                f"bad init: a tuple of {len(pair)}, expected the pair (coefficients, components)"
            )
        A, C = pair
        K = self.n_components
        if K == "auto":
            K = np.shape(C)[0] if np.ndim(C) == 2 else 1
        K = check_components(K)
        W = check_factor(C, (K, F), "components", V.dtype).T
        return K, W if A is None else (W, check_factor(A, (N, K), "coefficients", V.dtype).T)

    def _callback(self) -> Callback | None:
        if not self.verbose:
            return self.callback

        def report(progress: Iteration) -> object:
            print(
                f"[ConeNMF] iteration {progress.iteration}: relative error "
                f"{progress.relative_error:.6f} after {progress.elapsed:.2f} s"
            )
            return None if self.callback is None else self.callback(progress)

        return report

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] += self._result_html()
        return bundle

    @property
    def _repr_html_(self) -> Callable[[], str]:
        diagram = super()._repr_html_  # which does not exist if scikit-learn is told not to draw
        return lambda: str(diagram()) + self._result_html()

    def _result_html(self) -> str:
        """What a fit found, below scikit-learn's diagram."""
        return str(self.result_._repr_html_()) if hasattr(self, "result_") else ""

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


_OF_FIT = (
    "labels_",
    "relative_error_",
    "reconstruction_err_",
    "history_",
    "stop_reason_",
    "result_",
)
_OF_STREAM = ("n_samples_seen_", "_stream")


def sklearn_init(
    X: Any, n_components: int, *, solver: str = "cd", random_state: Any = None
) -> tuple[Array, Array]:
    """Return the start W, H for ``sklearn.decomposition.NMF(init="custom")``.

    Parameters
    ----------
    X : array or sparse matrix (n_samples, n_features)
    n_components : int
    solver : {"cd", "mu"}
        The solver of scikit-learn's NMF that will run. "mu" cannot leave zeros, so for it
        both factors are strictly positive.
    random_state : int, RandomState, Generator or None

    Returns
    -------
    W : array (n_samples, n_components)
    H : array (n_components, n_features)

    Examples
    --------
    >>> from sklearn.decomposition import NMF
    >>> X = np.array([[2.0, 0.1], [4.0, 0.0], [0.0, 3.0]])
    >>> W, H = sklearn_init(X, 2)
    >>> NMF(2, init="custom").fit_transform(X, W=W, H=H).shape
    (3, 2)
    """
    if solver not in ("cd", "mu"):
        raise OptionError.unknown("solver", solver, ("cd", "mu"))
    V = from_rows(X)
    W, H, _ = cr1_nmf(V, n_components, rng=_generator(random_state), tol=1e-4)
    components = np.ascontiguousarray(W.T)
    if solver == "mu":
        components += W.dtype.type(0.01 * components.mean(dtype=np.float64))
    return np.ascontiguousarray(raise_off_zero(V, H).T), components


def _generator(random_state: Any) -> np.random.Generator | None:
    """Turn what scikit-learn calls a random state into a Generator."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, int | np.integer):
        return np.random.default_rng(int(random_state))
    return np.random.default_rng(check_random_state(random_state).randint(2**31))
