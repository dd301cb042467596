"""`ConeNMF`, the estimator for users of scikit-learn.

Only in this module samples are rows and names are scikit-learn's: X has shape (n_samples,
n_features), `components_` is the transpose of the paper's W, and `fit_transform` returns the
transpose of the paper's H.
"""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import KW_ONLY, dataclass, replace
from types import MethodType
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from .arguments import answers, array, as_generator, choice, components, factor
from .components import components_frame, largest_features, matched_rows, named_features
from .cones.rank_one import cr1_nmf
from .data.groups import Groups
from .data.known import is_of_features, observed_only, weigh_samples
from .data.matrix import Aligned, DataMatrix
from .data.prepare import apply_preparation
from .data.resources import MemorySize
from .data.validate import Negative, unmask
from .errors import (
    ConeNMFError,
    DataError,
    DataTypeError,
    FileFormatError,
    NotAvailableError,
    Option,
    OptionError,
)
from .io.open import from_rows, is_elsewhere
from .judge.certificate import AnyCertificate, Certificate
from .judge.choose_k import choose_k, hidden_share
from .judge.diagnosis import Diagnosis
from .judge.stability import Stability, stability
from .judge.uniqueness import Uniqueness
from .names import NameList, Names, in_order, names_of
from .pipeline import check_k, factorize
from .progress import watching
from .result import Factorization
from .save import saved_factorization, write_factorization
from .scale.checkpoint import Place
from .solve.constraints import FIXED_TABLE, Fixed, Penalties
from .solve.groups import problem_of_groups
from .solve.inits import Init, check_factor, lift_zeros
from .solve.losses import Loss, get_loss
from .solve.online import ConeStream
from .solve.problem import Problem
from .solve.run import Callback, StopReason
from .solve.scenes import SCENE, abundances_of
from .solve.solvers import AnySolver
from .types import Array, Facts, Function, Pair, PathLike

_OF_SAMPLES = (  # attributes about the samples of a fit
    "labels_",
    "relative_error_",
    "reconstruction_err_",
    "history_",
    "stop_reason_",
    "groups_",
    "group_scales_",
    "group_table_",
    "result_",
    "_unknown",
)
_OF_ALL = (  # parameters that a stream of batches cannot follow
    "alpha_W",
    "alpha_H",
    "orthogonality",
    "min_volume",
    "sum_to_one",
    "fixed",
    "robust",
    "symmetric",
)
_SETTINGS_OF_X = ("Q", "Q_expected", "robust")
# What a file has besides the result: plain values, and these arrays.
_Plain: TypeAlias = bool | int | float | str | np.generic | None
_SAVED_ARRAYS = ("feature_names_in_", "_weights", "_unknown")


_OF_FACTORS = {
    "W": "is the first of a pair here: ConeNMF(init=(W, H))",
    "H": "is the second of a pair here: ConeNMF(init=(W, H)), or ConeNMF(init=H)",
}


class _ForBatches:
    """A method that exists only if the options of the model make sense for one batch alone."""

    def __init__(self, method: Function) -> None:
        self.method = method

    def __get__(self, model: Any, owner: type) -> Function:
        if model is None:
            return self.method
        if option := _needs_all_samples(model):
            problem = "partial_fit minimises plain least squares, so it is not available with "
            advice = ": use fit, which reads files larger than memory in blocks"
            raise NotAvailableError(problem, option, advice)
        if isinstance(model.n_components, str) and model.n_components == "auto":
            raise NotAvailableError(
                "n_components='auto' needs all samples at once, and partial_fit has one batch: "
                "give a number; after fit, model.set_params(n_components=model.n_components_)"
            )
        return MethodType(self.method, model)


def _needs_all_samples(model: ConeNMF) -> Option | None:
    """Return an option that a stream of batches cannot follow, or None."""
    if "stream" not in get_loss(model.loss).constraints:
        return Option("loss", model.loss)
    model._penalties()  # rejects impossible ones
    for name in _OF_ALL:
        value = getattr(model, name)
        if value is not None and not (isinstance(value, _Plain) and value in (0, "same")):
            return Option(name, value)
    if isinstance(model.missing, str) and model.missing == "zeros":
        return Option("missing", "zeros")
    if hasattr(model, "result_") and model.result_.problem.has_effects:
        return Option("groups")
    return None if getattr(model, "_weights", None) is None else Option("weights")


@dataclass(eq=False, repr=False)
class ConeNMF(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Nonnegative matrix factorization that knows how good its answer is.

    Finds nonnegative coefficients A and components C such that A C approximates X, by least squares
    or another loss. `fit_transform(X)` returns A, and `components_` is C.

    Parameters
    ----------
    n_components : int or "auto"
        Number of components. "auto" estimates it as `select_k` does; ``result_.K_decided_by`` says
        whether the estimate is proved, supported or a guess.
    init : str, callable, array or pair of arrays
        The factors that the solver starts from. "auto" uses one good init, and tries others if
        they are likely to lower the error; ``result_.race`` has their errors. Otherwise pass a
        name, such as "cr1" (cones, Algorithm 2 of the paper), "nndsvd" or "random"; a function
        ``(V, K, rng) -> (W, H or None)`` in the paper's letters; your own components (n_components,
        n_features); or a pair of coefficients (n_samples, n_components) and components.
    n_init : int or "auto"
        How many random starts run to their end, beside the first one of "auto"; the best is
        returned, and ``result_.race`` has the error and the seed of each. With a named init, the
        number of its starts. With "auto", other inits compete only if this is likely to help. If
        entries have different weights, up to 40 random starts compete, until four agree with the
        best.
    loss : {"frobenius", "poisson", "itakura-saito"}, float or Loss
        What the fit minimises: the squared error; the Kullback-Leibler divergence ("kl"), which is
        the Poisson likelihood of counts; the Itakura-Saito divergence ("is"), for power spectra;
        the beta divergence of a number, such as 1.5; or a loss of your own.
    solver : str, Solver, callable or None
        "auto" means "hals" for least squares, and "newton" for the Poisson loss. Least squares also
        has "mult" and "nnlsb", and "plain-hals", "plain-mult" and "plain-nnlsb" as in the paper's
        experiments. You can also pass an update function ``(G, C, Y) -> Y``. None returns the
        factors of the init.
    max_iter : int
        Largest number of iterations. If the solver has not converged by then, it raises a
        ConvergenceWarning.
    tol : float
        Stop when the relative error falls by less than this fraction over 5 iterations.
    max_time : float or None
        Stop this many seconds after the call.
    callback : callable, optional
        Called with an `Iteration` after every iteration; returning True ends the fit.
    checkpoint : path or Checkpoint, optional
        A folder in which the fit is saved every minute. After an interruption, the same call
        resumes and gives the same result as an uninterrupted fit.
    alpha_W, alpha_H, l1_ratio : float
        Penalties as in scikit-learn's NMF, with the same objective. `alpha_W` times the number of
        features is the weight of the penalty on the coefficients; `alpha_H` (by default equal to
        `alpha_W`) times the number of samples is the weight of the penalty on the components. The
        share `l1_ratio` is L1, the rest is L2. If only one weight is above 0, the components get
        unit length. `transform` also applies the penalty on the coefficients.
    orthogonality : float
        Weight of a penalty on samples that use several components. The larger it is, the fewer
        components each sample uses.
    min_volume : float or "auto"
        Weight of a penalty on the volume of the components, relative to the squared norm of X, so
        that it does not depend on the units of X. "auto" estimates it from the noise in X.
    sum_to_one : bool
        Make the coefficients of each sample sum to one, like abundances. This alone does not
        determine the components: add ``min_volume="auto"``, or use `for_scenes`.
    fixed : array or data frame (n_fixed, n_features), optional
        Known components, in rows. They do not change, they come first, and `n_components` includes
        them. The columns of a data frame are matched with the features by name.
    missing : {"raise", "nan", "zeros"} or a number
        Which entries are missing. With "raise", none: NaN raises an error. With "nan", NaN and
        masked entries. With "zeros", zeros, or in a sparse matrix the entries that are not stored,
        such as unknown ratings. With a number such as -999, entries equal to it, and NaN.
        `transform` uses the known entries of each sample, and `inverse_transform` imputes the
        missing ones.
    robust : {"samples", "entries"} or None
        Do not let a few wild samples, or wild entries, decide the components. The fit weighs them
        down, for least squares without penalties; ``result_.sample_weights`` has the weights of
        samples. "samples" needs complete data, "entries" dense data. `transform` does not change.
    n_threads : int or None
        Number of threads; None uses all processors. It does not change the result, not even by
        rounding.
    negative : {"raise", "clip", "keep"}
        What to do with negative entries: raise an error; replace them by zeros if they are as small
        as rounding errors; or keep them as noise around zero.
    symmetric : bool
        Whether X has the weights of the edges of a graph, so that X ~ W S W'. W, with a row for
        each node, has unit columns and is ``components_.T``; S is ``result_.affinities``; the
        coefficients are W S. `labels_` has the group of each node, which contributes most to its
        edges. New nodes and judges of W H are not available: `transform`, `diagnose`, `stability`.
    max_memory : int or str, optional
        Memory for data and results, such as "4GB"; larger files are read in blocks. The default is
        half of the memory of the machine.
    random_state : int, RandomState, Generator or None
        Seed for random inits. With None, "auto" and "cr1" always give the same result.
    verbose : int
        With 1, show progress: a bar if rich is installed, and otherwise one line per iteration.

    Attributes
    ----------
    components_ : array (n_components, n_features)
        The nonnegative components C, one per row, in the units of X. Only the product A C is
        determined. With the Poisson loss each component sums to one; with a penalty on one factor
        it has unit length. Otherwise the split of the scale is that of the init, which for
        "nndsvd" is even: X / 16 divides A and C by 4. Put a StandardScaler before a penalised
        classifier, so that the split does not matter.
    n_components_ : int
        The number of components, given or estimated.
    labels_ : array (n_samples,)
        The component that contributes most to each sample; -1 for a sample that uses none.
    reconstruction_err_, relative_error_ : float
        The Frobenius norm of X - A C, and this norm divided by the norm of X. With the Poisson
        loss: the square root of twice the divergence, as in scikit-learn, and the divergence
        divided by the divergence of the best single component. With groups, A C of a sample is
        multiplied by the scales of its group: X - (A C) * group_scales_[g].
    n_iter_ : int
        Iterations of `fit`, or batches passed to `partial_fit`; 1 if there is only the pass that
        computes the coefficients, as with ``solver=None`` (``result_.n_iter`` is then 0).
    n_samples_seen_ : int
        After `partial_fit` only: the number of samples so far, including those of an earlier `fit`.
    history_, stop_reason_ : History, StopReason
        As in `Factorization`.
    groups_, group_scales_, group_table_ : tuple of str, array (G, n_features), array (G, K)
        After a fit with groups: their names, how much larger each feature is in each, and which
        components each uses; otherwise None.
    result_ : Factorization
        The result in the paper's letters, with more attributes; it can be saved. It keeps a
        reference to X, which `certify` needs, until it is pickled.

    Examples
    --------
    >>> from conenmf.cones.simulate import make_cones
    >>> X = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0)).V.T
    >>> model = ConeNMF().fit(X)
    >>> model.n_components_, model.transform(X).shape
    (4, (200, 4))
    """

    n_components: int | str = "auto"
    _: KW_ONLY
    init: Init | None = "auto"
    n_init: int | str = "auto"
    loss: str | float | Loss = "frobenius"
    solver: AnySolver | None = "auto"
    max_iter: int = 200
    tol: float = 1e-5
    max_time: float | None = None
    callback: Callback | None = None
    checkpoint: Place = None
    alpha_W: float = 0.0  # noqa: N815
    alpha_H: float | str = "same"  # noqa: N815
    l1_ratio: float = 0.0
    orthogonality: float = 0.0
    min_volume: float | str = 0.0
    sum_to_one: bool = False
    fixed: object = None
    missing: str | float = "raise"
    robust: str | None = None
    n_threads: int | None = None
    negative: Negative = "raise"
    symmetric: bool = False
    max_memory: MemorySize = None
    random_state: int | Generator | np.random.RandomState | None = None
    verbose: int = 0

    @classmethod
    def for_scenes(cls, n_components: int | str = "auto", **options: Any) -> Self:
        """Return a model that unmixes a hyperspectral scene, whose pixels are the rows of X.

        The components are the spectra of the materials (endmembers), and the coefficients are
        their abundances, which sum to one in each pixel. The pixels decide whether endmembers are
        the corners of a simplex, so that no pixel needs to be pure, or means of nearly pure pixels,
        and whether brightness varies; ``result_.summary()`` says why. See `conenmf.solve.scenes`.

        The model has ``init="scene"``, ``solver=None``, ``sum_to_one=True`` and
        ``negative="keep"``; `options` may replace these and add others. With ``init="simplex"`` or
        ``"pure-pixels"`` there is no choice, and brightness does not vary. If it varies, H of
        ``result_`` is brightness times abundances, so that errors are those of W H;
        `inverse_transform` of abundances has brightness 1.

        Parameters
        ----------
        n_components : int or "auto"
            The number of materials.
        **options
            Other options of `ConeNMF`.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> spectra = rng.random((3, 40))
        >>> scene = rng.dirichlet(np.ones(3), 900) @ spectra + 0.01 * rng.normal(size=(900, 40))
        >>> model = ConeNMF.for_scenes(3)
        >>> abundances = model.fit_transform(scene)
        >>> bool(np.abs(abundances.sum(axis=1) - 1).max() < 1e-6)
        True
        """
        return cls(n_components, **SCENE | options)

    @answers(**_OF_FACTORS)
    def fit(
        self,
        X: object,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        feature_names: NameList = None,
        mask: object = None,
        weights: object = None,
        sigma: object = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Learn the components of X (n_samples, n_features).

        Parameters
        ----------
        X : array (n_samples, n_features)
            Or anything else that `from_rows` reads, in memory, on disk or on Dask workers, or a
            matrix returned by `open_data`.
        y : object
            Ignored.
        sample_weight : array (n_samples,), optional
            A weight of 2 is equivalent to repeating the sample. The Itakura-Saito and other beta
            losses take whole numbers only.
        feature_names : names, optional
            For X without names, such as the words of a sparse matrix.
        mask : array like X, optional
            True where an entry is known.
        weights : array like X, or (n_features,), optional
            The weights of the squared errors of the entries. `transform` uses weights of features
            too.
        sigma : array like X, optional
            The uncertainties of the entries. Their weights are 1 / sigma^2, so that the fit
            minimises Q, see `Factorization.residuals`.
        groups : array (n_samples,), optional
            The group of each sample, such as its donor, batch or day. Every group gets a scale for
            each feature, and a table says which components it uses; see `factorize`.

        Examples
        --------
        >>> X = np.array([[2.0, 0.0, 1.0], [4.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
        >>> model = ConeNMF(2).fit(X, feature_names=["oak", "salt", "elm"])
        >>> model.top_features(2)
        [['oak', 'elm'], ['salt']]
        """
        self.fit_transform(
            X,
            None,
            sample_weight,
            feature_names=feature_names,
            mask=mask,
            weights=weights,
            sigma=sigma,
            groups=groups,
        )
        return self

    @answers(**_OF_FACTORS)
    def fit_transform(
        self,
        X: object,
        y: object = None,
        sample_weight: ArrayLike | None = None,
        *,
        feature_names: NameList = None,
        mask: object = None,
        weights: object = None,
        sigma: object = None,
        groups: ArrayLike | None = None,
    ) -> Aligned:
        """Learn the components and return the coefficients (n_samples, n_components).

        The coefficients are a Dask array if X is one. If they are too large for `max_memory`, they
        are a `numpy.memmap`.

        Parameters
        ----------
        X, y, sample_weight, feature_names, mask, weights, sigma, groups
            As in `fit`.
        """
        V = self._read(
            X, reset=True, feature_names=feature_names, mask=mask, weights=weights, sigma=sigma
        )
        n_components, init = self._init_in_letters(V)
        loss = get_loss(self.loss)
        if sample_weight is not None:
            V = weigh_samples(V, sample_weight, loss.degree)
        problem = self._problem(V)
        with watching(self.verbose, self.callback, self.max_iter, V) as callback:
            result = factorize(
                V,
                n_components,
                init=init,
                n_init=self.n_init,
                callback=callback,
                rng=_generator(self.random_state),
                loss=self.loss,
                fixed=problem.fixed,
                penalties=problem.penalties,
                symmetric=problem.symmetric,
                groups=groups,
                solver=self.solver,
                checkpoint=self.checkpoint,
                max_iter=self.max_iter,
                tol=self.tol,
                max_time=self.max_time,
                robust=self.robust,
            )
        self._take(result)
        fitted = V if result.data is None else result.data
        deviance = loss.on(fitted, rescale=False).deviance(result.relative_error)
        self.reconstruction_err_ = math.sqrt(deviance)
        self._unknown = None if V.observed is None else V.observed.empty_features
        for name in ("n_samples_seen_", "_stream"):
            self.__dict__.pop(name, None)
        if advice := result.advice:  # stacklevel: the call goes through scikit-learn's wrapper
            warnings.warn(f"ConeNMF {advice}", ConvergenceWarning, stacklevel=3)
        Ht = result.H.T
        if result.is_shaded:
            Ht = abundances_of(V.original, result.H)
        return Ht if is_elsewhere(X) else np.array(Ht)

    def __setstate__(self, state: Facts) -> None:
        if "stop_reason_" in state:  # a text in files of skops
            state = {**state, "stop_reason_": StopReason(state["stop_reason_"])}
        super().__setstate__(state)

    def _take(self, result: Factorization) -> None:
        self.result_ = result
        self.components_ = np.ascontiguousarray(result.W.T)
        self.n_components_ = result.K
        self.n_iter_ = max(result.n_iter, 1)  # scikit-learn expects at least one
        self.labels_ = result.labels
        self.history_ = result.history
        self.relative_error_ = result.relative_error
        self.stop_reason_ = result.stop_reason
        self.groups_ = result.groups
        self.group_scales_ = result.group_scales
        self.group_table_ = result.group_table

    @_ForBatches
    def partial_fit(
        self, X: object, y: object = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Update the components with one more batch of samples; earlier batches are not needed.

        The first call begins a stream. After an earlier `fit`, it continues as if the samples of
        the fit had been equal to their reconstruction. `fit` starts again from the beginning.
        `n_components` must be a number. Only the options `n_threads`, `negative`, `max_memory` and
        ``solver=None`` are used. The method does not exist (`hasattr` is False) with another loss,
        penalties, `fixed`, `sum_to_one`, `robust`, ``missing="zeros"``, or after a fit with weights
        of features, or with groups that differ. With ``solver=None`` the components are the axes of
        the cones found so far; for samples in cones, their error is at most 1.05 times the error of
        cr1-nmf on all samples at once. Attributes that describe the samples of a fit (`labels_`,
        `result_` and so on) are removed. Components that have no samples yet are zero.
        `conenmf.solve.online.ConeStream` states the guarantees.

        Parameters
        ----------
        X : array (n_samples, n_features), or anything that `fit` reads
            The batch; every entry must be known.
        y : object
            Ignored.
        sample_weight : array (n_samples,), optional
            A weight of 2 is equivalent to repeating the sample.

        Examples
        --------
        >>> from conenmf.cones.simulate import make_cones
        >>> X = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0)).V.T
        >>> model = ConeNMF(4)
        >>> for start in range(0, 200, 50):
        ...     model = model.partial_fit(X[start : start + 50])
        >>> model.n_samples_seen_, model.explained_share(X) > 0.99
        (200, True)
        """
        K = components(self.n_components)
        V = self._read(X, reset=not hasattr(self, "components_"))
        if V.observed is not None:
            raise NotAvailableError("partial_fit takes no missing entries: use fit")
        V = weigh_samples(V, sample_weight, get_loss(self.loss).degree)
        stream = getattr(self, "_stream", None) or self._new_stream(V.n_features, K)
        if stream.K != K:
            raise OptionError(
                f"n_components={K}, but the model to continue has {stream.K} components: "
                "change it back, or start from the beginning with fit or clone(model)"
            )
        stream.update(V)
        for name in _OF_SAMPLES:
            self.__dict__.pop(name, None)
        self._stream = stream
        W = stream.axes if self.solver is None else stream.W
        self.components_ = np.ascontiguousarray(W.T, dtype=V.dtype)
        self.n_components_ = stream.K
        self.n_samples_seen_ = stream.n_samples
        self.n_iter_ = stream.n_batches
        return self

    def _new_stream(self, n_features: int, K: int) -> ConeStream:
        if not hasattr(self, "result_"):
            return ConeStream(n_features, K)
        W = self.result_.W
        H = self.result_.H
        HH = np.asarray(H @ H.T)
        sums = np.asarray(H.sum(axis=1))
        return ConeStream.from_factors(W, HH, sums, H.shape[1])

    def certify(self, X: object = None, *, effort: int | None = None) -> AnyCertificate:
        """Return the certificate: the error, a lower bound for it, and the gap between them.

        `conenmf.certify` does the same for any factors.

        Parameters
        ----------
        X : array (n_samples, n_features), or anything that `fit` reads, optional
            Judge the components on X instead of the data of the fit, as in `diagnose`.
        effort : int, optional
            More effort may raise the bound, and never lowers one that is certain. The default is 3
            for dense data, 1 for sparse data, and 6 for the Poisson loss.

        Examples
        --------
        >>> X = np.array([[3.0, 0.0], [3.0, 4.0], [0.0, 5.0]])
        >>> certificate = ConeNMF(1, tol=1e-9).fit(X).certify()
        >>> certificate.lower_bound <= certificate.relative_error, certificate.gap < 1e-6
        (True, True)
        """
        return self._result_on(X).certify(effort=effort)

    def diagnose(self, X: object = None, **options: Any) -> Diagnosis:
        """Describe the fit and its data, as `Factorization.diagnose` does.

        With X, the components are judged on X: on new samples, or on the data of the fit after the
        model was loaded or unpickled, since a file does not contain the data. The coefficients are
        then those of `transform`.

        Parameters
        ----------
        X : array (n_samples, n_features), or anything that `fit` reads, optional
            By default the data of the fit.
        **options
            The options of `Factorization.diagnose`.

        Examples
        --------
        >>> X = np.array([[3.0, 0.0], [3.0, 4.0], [0.0, 5.0]])
        >>> model = ConeNMF(1).fit(X)
        >>> model.diagnose() is model.result_.diagnosis
        True
        """
        return self._result_on(X).diagnose(**options)

    def uniqueness(
        self, X: object = None, *, max_iter: int = 200, thorough: bool = False
    ) -> Uniqueness:
        """Decide for each component whether it is unique, can be moved, or neither is known.

        Parameters
        ----------
        X : array (n_samples, n_features), or anything that `fit` reads, optional
            Judge the components on X instead of the data of the fit, as in `diagnose`.
        max_iter : int
        thorough : bool
            As in `Factorization.uniqueness`.
        """
        return self._result_on(X).uniqueness(max_iter=max_iter, thorough=thorough)

    def _result_on(self, X: object) -> Factorization:
        """Return the result of the fit, or, if there is X, what its components give for X."""
        check_is_fitted(self)
        result: Factorization | None = getattr(self, "result_", None)
        if X is None:
            if result is None:
                raise NotAvailableError(
                    "partial_fit keeps no samples, so there is no fit to judge or to save: give "
                    "samples, as in model.certify(X), or pickle the model"
                )
            return result
        V, W = self._read_with_components(X)
        if result is None:  # a stream, which has least squares and no penalties
            return factorize(V, W.shape[1], init=W, solver=None)
        if V is result.data:
            return result
        result.problem.require_no_effects("a judgement on other samples")
        problem = result.problem.of_components(V, W)
        end, error = problem.finish(V, W, sort=False, near=self._near(V))
        settings = {key: one for key, one in result.settings.items() if key not in _SETTINGS_OF_X}
        return replace(
            result,
            W=W,
            H=end.H,
            labels=end.labels,
            shares=end.shares,
            affinities=end.affinities,
            objective=end.objective,
            relative_error=error,
            settings=settings,
            sample_weights=None,
            problem=problem,
            names=replace(result.names, sample_names=None, pixels_shape=None).updated(V.names),
            data=V,
            first_certificate=Certificate.of(error, end.kkt_residual),
            certificate=None,
            diagnosis=None,
            known_uniqueness=None,
            spectrum=None,
        )

    def save(self, path: PathLike) -> None:
        """Write the fitted model to one ``.npz`` file, without pickle; `load` reads it.

        The file contains ``result_``, as written by `Factorization.save`, and the parameters that
        are numbers, texts or None. It does not contain the data, nor parameters that are functions,
        arrays or random generators; a loaded model needs these only to be fitted again.

        Parameters
        ----------
        path : path

        Examples
        --------
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
        >>> model = ConeNMF(1).fit(np.array([[1.0, 2.0], [2.0, 4.0]]))
        >>> model.save(path)
        >>> ConeNMF.load(path).transform([[3.0, 6.0]]) == model.transform([[3.0, 6.0]])
        array([[ True]])
        """
        result = self._result_on(None)
        parameters = {**vars(self), "loss": getattr(self.loss, "name", self.loss)}
        state = {
            name: value
            for name, value in parameters.items()
            if name in _SAVED_ARRAYS or isinstance(value, _Plain)
        }
        write_factorization(path, vars(result), state)

    @classmethod
    def load(cls, path: PathLike) -> Self:
        """Read a model that `save` wrote; it is fitted, and gives the same coefficients.

        Parameters that the file does not contain get their defaults, and a warning names them. Any
        other or damaged file raises `FileFormatError`.

        Parameters
        ----------
        path : path
        """
        with saved_factorization(path) as (fields, state):
            if state is None:
                problem = f"{os.fspath(path)} has a result, but no model: "
                raise FileFormatError(problem, "use Factorization.load, or write it by model.save")
            model = cls()
            for name, value in state.items():
                kind = object if name == "feature_names_in_" else None  # as scikit-learn has them
                setattr(model, name, np.asarray(value, kind) if isinstance(value, list) else value)
            model._take(Factorization(**fields))
        left_out = sorted(model.get_params(deep=False).keys() - state.keys())
        if left_out:
            problem = f"the file of the model does not contain {', '.join(left_out)}, "
            advice = "which have their defaults now: set them before you fit the model again"
            warnings.warn(problem + advice, stacklevel=2)
        return model

    def fit_predict(
        self, X: object, y: object = None, *, feature_names: NameList = None
    ) -> Aligned:
        """Learn the components and return `labels_`, the main component of each sample.

        Parameters
        ----------
        X, y, feature_names
            As in `fit`.
        """
        self.fit_transform(X, feature_names=feature_names)
        return self.labels_

    def transform(
        self, X: object, *, unseen: str = "warn", groups: ArrayLike | None = None
    ) -> Aligned:
        """Return the coefficients of X (n_samples, n_features) that minimise the loss.

        For the samples of the fit, `fit_transform` returns the same, as the coefficients depend on
        X and the components alone. Some beta divergences, such as Itakura-Saito's, are not convex
        in the coefficients: of several local minima `transform` takes the lowest, and a fit keeps
        the coefficients of its run for the few samples where they are lower still. So with as many
        samples as in the fit, `transform` also starts from its coefficients. If you pass only some
        of the samples, their coefficients may differ.

        Parameters
        ----------
        X : array (n_samples, n_features), or anything that `fit` reads
            May contain the samples of the fit or new samples.
        unseen : {"warn", "raise"}
            The counts of a feature that is zero in all components, such as a new word, make the
            Poisson loss infinite. Leave them out with a warning, or raise an error.
        groups : array (n_samples,), optional
            The group of each sample, for a model that was fitted with groups. Groups of the fit
            keep their scales. A new group of at least 20 samples gets its own from all its samples
            in X; with fewer, its scales are one. Without groups all scales are one.

        Examples
        --------
        >>> model = ConeNMF(1, tol=1e-9).fit(np.array([[1.0, 2.0], [2.0, 4.0]]))
        >>> A = model.transform([[3.0, 6.0]])
        >>> model.inverse_transform(A).round(6)
        array([[3., 6.]])
        """
        V, A, *_ = self._coefficients(X, unseen, groups)
        return abundances_of(V, A.T) if self._is_shaded else A

    def inverse_transform(self, X: Any) -> Aligned:
        """Return the reconstruction X C (n_samples, n_features) for coefficients X.

        After a fit with groups it is that of an average group: multiply the rows of group g by
        ``group_scales_[g]`` to compare them with the data.

        Parameters
        ----------
        X : array (n_samples, n_components)
            Coefficients, such as `transform` returns.
        """
        check_is_fitted(self)
        A = X if is_elsewhere(X) else array("X", X, ("n", self.n_components_), error=DataError)
        reconstruction = A @ self.components_
        unknown = getattr(self, "_unknown", None)
        if unknown is None or not unknown.any():
            return reconstruction
        return np.where(unknown, np.nan, reconstruction)

    def predict(self, X: object) -> Aligned:
        """Return the component that contributes most to each sample; -1 if none does.

        Parameters
        ----------
        X : array (n_samples, n_features), or anything that `fit` reads

        Examples
        --------
        >>> model = ConeNMF(2).fit(np.array([[2.0, 0.1], [4.0, 0.0], [0.0, 3.0]]))
        >>> first, second = model.predict([[5.0, 0.0], [0.0, 1.0]])
        >>> first != second
        np.True_
        """
        return self._coefficients(X)[2]

    def score(self, X: object, y: object = None, sample_weight: ArrayLike | None = None) -> float:
        """Return how well the components predict hidden features; at most 1.

        The method predicts one fifth of the features from the others, for each fifth in turn. The
        score is the predicted share of the squared norm, or of the divergence with another loss.
        It falls again if there are so many components that they fit noise, so a grid search can
        choose the number. If entries are missing, the method hides known entries instead of
        features, a third at a time.

        Parameters
        ----------
        X : array (n_samples, n_features), or anything that `fit` reads
        y : object
            Ignored.
        sample_weight : array (n_samples,), optional
            The weight of each sample, at least 0.
        """
        self._require_two_factors()
        V = self._read(X, reset=False)
        if sample_weight is not None:
            sample_weight = in_order(V.names, "sample_weight", sample_weight, "sample")
            sample_weight = array("sample_weight", sample_weight, V.shape[1:], at_least=0)
        W = self.components_.T
        problem = Problem(self.loss, self._penalties(V))
        problem = problem_of_groups(V, problem, W, self._groups_for(V), None)  # warns of groups
        if V.observed is None:
            return problem.loss.held_out(V, W, sample_weight)
        weights = 1.0 if sample_weight is None else np.asarray(sample_weight, float)
        return hidden_share(V, W, problem, weights)

    def explained_share(self, X: object) -> float:
        """Return the share of the squared norm of X, or of its deviance, that the model explains.

        With least squares it is ``1 - relative_error_**2`` for the data of the fit, unless that had
        groups: scales are one here.

        Parameters
        ----------
        X : array (n_samples, n_features), or anything that `fit` reads
        """
        V, _, _, value = self._coefficients(X)
        return 1.0 - value / (get_loss(self.loss).on(V, rescale=False).total if V.nonzero else 1.0)

    def _coefficients(
        self, X: object, unseen: str = "warn", groups: ArrayLike | None = None
    ) -> tuple[DataMatrix, Aligned, Aligned, float]:
        self._require_two_factors()
        V, W = self._read_with_components(X)
        unseen = choice("unseen", unseen, ("warn", "raise"))
        problem = Problem(self.loss, self._penalties(V))
        if self._is_shaded:
            problem = Problem(self.loss, replace(problem.penalties, sum_to_one=False))
        problem = problem_of_groups(V, problem, W, self._groups_for(V), groups)
        H, labels, value = problem.coefficients(V, W, near=self._near(V), unseen=unseen)
        return V, H.T, labels, value

    def _require_two_factors(self) -> None:
        check_is_fitted(self)
        if hasattr(self, "result_"):
            self.result_.problem.require_two_factors("the coefficients of new nodes are")

    @property
    def _is_shaded(self) -> bool:
        return hasattr(self, "result_") and self.result_.is_shaded

    def _groups_for(self, V: DataMatrix) -> Groups | None:
        """Return the groups of the fit, with scales in the order of the features of V."""
        groups = self.result_.problem.groups if hasattr(self, "result_") else None
        if groups is None:
            return None
        places = np.arange(self.result_.n_features)[:, None]
        found: Groups = groups.of_features(matched_rows(places, self.result_.names, V)[:, 0])
        return found

    def _near(self, V: DataMatrix) -> Aligned | None:
        """Return the coefficients of the fit for as many samples, if the loss is not convex."""
        result = getattr(self, "result_", None)
        if result is None or result.H.shape[1] != V.n_samples:
            return None
        Ht = get_loss(self.loss).near(result.H)
        return None if Ht is None else V.align(Ht)

    def top_features(self, n: int = 10, *, feature_names: NameList = None) -> list[list[str]]:
        """Return the names of the n largest features of each component, largest first.

        Features that are zero in a component are left out.

        Parameters
        ----------
        n : int
        feature_names : names, optional
            By default those that came with the data; without any, features are called "feature 0"
            and so on.
        """
        W, names = self._named_components()
        return largest_features(W, named_features(W, names, feature_names), n)

    def components_frame(self, *, feature_names: NameList = None) -> Any:
        """Return the components as a pandas data frame: a row each, features in columns.

        Parameters
        ----------
        feature_names : names, optional
            By default the names that came with the data.
        """
        W, names = self._named_components()
        index = [f"component {k}" for k in range(W.shape[1])]
        if hasattr(self, "result_"):
            index = list(self.result_.component_names)
        return components_frame(W, named_features(W, names, feature_names), index)

    def stability(
        self,
        X: object,
        n_runs: int = 20,
        *,
        resample: str = "samples",
        density_threshold: float = 0.5,
        max_excess: float = 0.01,
        checkpoint: Place = None,
        mask: object = None,
        weights: object = None,
        sigma: object = None,
    ) -> Stability:
        """Fit resampled data many times, and measure how stable each component is.

        The model does not change. The method uses its `n_components`, `loss`, penalties, `fixed`,
        `max_iter`, `tol`, `random_state` and the options for reading X; every run begins from a
        random init. If `n_components` is "auto", the number of an earlier `fit` is used, or one is
        chosen for X.

        Parameters
        ----------
        X : array (n_samples, n_features), or anything that `fit` reads
        n_runs : int
            Number of fits.
        resample, density_threshold, max_excess, checkpoint
            As in `conenmf.stability`.
        mask, weights, sigma
            As in `fit`.

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
        if hasattr(self, "result_"):
            self.result_.problem.require_no_effects("stability")
        model = self if is_fitted else clone(self)
        V = model._read(X, reset=not is_fitted, mask=mask, weights=weights, sigma=sigma)
        problem = self._problem(V)
        problem.require_two_factors("stability is")
        K = check_k(self.n_components, V)
        if isinstance(K, str):
            K = self.n_components_ if is_fitted else choose_k(V, problem).K
            K = max(K, problem.n_fixed + 1)
        return stability(
            V,
            K,
            n_runs,
            problem=problem,
            resample=resample,
            density_threshold=density_threshold,
            max_excess=max_excess,
            max_iter=self.max_iter,
            tol=self.tol,
            rng=_generator(self.random_state),
            checkpoint=checkpoint,
        )

    def _penalties(self, V: DataMatrix | None = None) -> Penalties:
        """Return the penalties for V, or for data of one entry."""
        F, N = (1, 1.0) if V is None else V.shape
        if V is not None and V.unweighed is not None:
            N = V.unweighed.n_counted
        return Penalties.as_in_sklearn(
            (F, N),
            alpha_W=self.alpha_W,
            alpha_H=self.alpha_H,
            l1_ratio=self.l1_ratio,
            orthogonality=self.orthogonality,
            min_volume=self.min_volume,
            sum_to_one=self.sum_to_one,
        )

    def _problem(self, V: DataMatrix) -> Problem:
        """Return what a fit of V minimises."""
        fixed = None if self.fixed is None else self._fixed_in_letters(V)
        return Problem(self.loss, self._penalties(V), fixed, symmetric=self.symmetric)

    def _fixed_in_letters(self, V: DataMatrix) -> Fixed:
        """Return known components, given as rows, as columns in the order of the features of V."""
        names = names_of(self.fixed)
        W = factor("fixed", self.fixed, ("n", "F")).T
        return Fixed(matched_rows(W, names, V, FIXED_TABLE), names.sample_names)

    def _read_with_components(self, X: object) -> tuple[DataMatrix, Array]:
        """Open X, and return it with the components W (F, K) in the order of its features."""
        components, names = self._named_components()
        V = self._read(X, reset=False)
        return V, matched_rows(components, names, V)

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
        feature_names: NameList = None,
        weights: Any = None,
        **known: Any,
    ) -> DataMatrix:
        """Open X: scikit-learn checks the type and shape of data in memory, `from_rows` values.

        Weights of features are kept for later data.
        """
        given = {"missing": self.missing, "weights": weights, **known}
        options = {
            "negative": self.negative,
            "n_threads": self.n_threads,
            "max_memory": self.max_memory,
            **given,
        }
        names = options["names"] = Names.of(feature_names=feature_names)
        V: DataMatrix
        if not is_elsewhere(X):
            found = names_of(X)
            options["names"] = found.updated(names)
            X = unmask(X, self.missing)
            if not (reset or hasattr(self, "feature_names_in_") or found.feature_names is None):
                X = np.asarray(X)  # fitted on a DataMatrix, whose names `matched_rows` compares
            X = self._checked(X, reset=reset, accept_sparse=True)
            V = from_rows(X, **options)
        elif isinstance(X, DataMatrix) and feature_names is not None:
            raise OptionError("X is open already: give names=Names.of(...) where it is opened")
        else:
            is_open = isinstance(X, DataMatrix)
            if is_open and self.missing != "zeros":  # it has no missing entries
                given["missing"] = "raise"
            V = observed_only(X, **given) if is_open else from_rows(X, **options)
            if not reset:
                matched_rows(*self._named_components(), V)  # its error names features
            outline = np.broadcast_to(0.0, V.shape[::-1])  # to check the number of features
            self._checked(outline, reset=reset, skip_check_array=True)
        done = None if reset or not hasattr(self, "result_") else self.result_.preparation
        if done is not None and V.preparation is None:
            V = apply_preparation(V, done)
        if reset:
            self._weights = None
            if weights is not None and is_of_features(weights):
                self._weights = in_order(V.names, "weights", weights, "feature")
        if reset or getattr(self, "_weights", None) is None:
            return V
        own = np.asarray(self._weights)
        return observed_only(V, weights=matched_rows(own, self._named_components()[1], V))

    def _checked(self, X: object, **options: Any) -> Any:
        """Let scikit-learn check X, and raise its errors as `DataTypeError`."""
        X = np.asarray(X) if isinstance(X, np.matrix) else X  # scikit-learn rejects matrices
        try:
            return validate_data(self, X, ensure_all_finite=False, **options)
        except ConeNMFError:  # an option that scikit-learn asked for, such as the loss
            raise
        except Exception as problem:
            advice = ""
            if getattr(X, "ndim", 2) == 3:
                advice = " If it is a cube, pass X.reshape(-1, X.shape[2]): a row per pixel."
            raise DataTypeError(str(problem)[:1000] + advice) from problem  # the text may be long

    def _init_in_letters(self, V: DataMatrix) -> tuple[int | str, Init]:
        """Return K and init for `factorize`; arrays are checked, then transposed to W and H.

        The coefficients are those of the samples of V, before samples get weights.
        """
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
        of_A = names_of(A).feature_names
        of_C = names_of(C).sample_names
        of_both = of_C if of_A and of_C and {*of_A} == {*of_C} else None
        names = replace(V.names, feature_names=of_both)
        A = in_order(names, "coefficients", A, "sample", "feature" if of_both else "")
        C = in_order(V.names, "components", C, "", "feature")
        K = self.n_components
        if isinstance(K, str) and K == "auto":
            K = len(factor("components", C, ("K", F)))
        K = int(check_k(K, V))
        W = check_factor(C, (K, F), "components", V.dtype).T
        return K, W if A is None else (W, check_factor(A, (N, K), "coefficients", V.dtype).T)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = "sparse" in get_loss(self.loss).constraints
        tags.input_tags.positive_only = self.negative != "keep"
        tags.input_tags.allow_nan = self.missing not in ("raise", "zeros")
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


ConeNMF.__init__ = answers(  # type: ignore[method-assign]
    beta_loss="is `loss` here: a name such as 'poisson' (Kullback-Leibler), or a number",
    batch_size="is not needed here: `fit` reads large data in blocks, and each call of "
    "`partial_fit` takes one batch",
    shuffle="is not needed here: components are updated in a fixed order",
)(ConeNMF.__init__)


def sklearn_init(
    X: object,
    n_components: int,
    *,
    solver: str = "cd",
    random_state: int | Generator | np.random.RandomState | None = None,
) -> Pair:
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
    solver = choice("solver", solver, ("cd", "mu"))
    V = from_rows(X)
    W, H, _ = cr1_nmf(V, n_components, rng=_generator(random_state), tol=1e-4)
    components = np.ascontiguousarray(W.T)
    if solver == "mu":
        components += W.dtype.type(0.01 * components.mean(dtype=float))
    return np.ascontiguousarray(lift_zeros(V, H).T), components


def _generator(random_state: object) -> Generator | None:
    """Convert a random state of scikit-learn to a Generator."""
    if isinstance(random_state, np.random.RandomState) or random_state is np.random:
        from sklearn.utils import check_random_state  # slow to import

        random_state = check_random_state(random_state).randint(2**31)
    return None if random_state is None else as_generator("random_state", random_state)
