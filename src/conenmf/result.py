"""The result of a factorization: factors, the decisions of the fit, and the quality of the factors.

`certify()` and `diagnose()` need the data. They compute once, and the result stores the answer in a
field. A result refers to its data, but is pickled and saved without them. `save` defines the file
format, and `judge.plots` draws figures.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import plots
from .arguments import flag, instance, integer, number
from .components import components_frame, largest_features, named_features
from .data.matrix import Aligned, DataMatrix, measure_block
from .data.prepare import Preparation, Vocabulary
from .errors import DataChangedError, NotAvailableError, Option
from .judge.association import followers
from .judge.certificate import (
    AnyCertificate,
    Certificate,
    certify,
    usual_effort,
)
from .judge.choose_k import Selection
from .judge.details import Details, describe, error_in_words
from .judge.diagnosis import Diagnosis, Fit, is_bounded, judge, search_iterations
from .judge.halves import N_SPLITS, HalfFit, Watch
from .judge.requirement import Requirement, Search
from .judge.residuals import Residuals, advice_on_sigma, residuals
from .judge.uniqueness import Uniqueness, uniqueness
from .linalg.svd import KnownSpectrum
from .names import NameList, Names
from .plots import Which
from .save import saved_factorization, write_factorization
from .solve.problem import Problem
from .solve.race import Race
from .solve.run import History, StopReason
from .solve.scenes import ENDMEMBERS, abundances
from .solve.symmetric import in_words
from .text import counted
from .types import Array, Facts, Pair, PathLike, Shape, Texts

_CHANGED = (
    "the data were changed after the fit, so it cannot be judged: fit again, and call certify() or "
    "diagnose() before changing the data"
)


@dataclass(frozen=True, eq=False)
class Factorization:
    """A factorization V ~ W H, how it was computed, and how good it is.

    Attributes
    ----------
    W : array (F, K)
    H : array (K, N)
    labels : array (N,), integers
        argmax_k ||w_k|| H(k, n): the component that contributes most to each sample; -1 for a
        sample that uses none. For a node of a graph, argmax_k W(n, k) ||h_k||.
    shares : array (K,)
        The share of each component in the reconstruction, <w_k h_k, WH> / ||WH||^2. The shares sum
        to 1. Components are sorted by share, the largest first; without a solver they keep the
        order of the init.
    problem : Problem
        What the fit minimised: the loss, penalties, known components, and what is known of the
        entries.
    objective : float
        The loss of these factors plus penalties; for least squares the loss is ||V - W H||^2. With
        groups it is that of V divided by their scales.
    relative_error : float
        The error relative to the data, ||V - W H|| / ||V|| for least squares. With groups it is
        ||V - diag(b) W H|| / ||V||, the error of the model in the units of the data.
    history : History
        Relative error after each iteration of the solver, with seconds and passes since the call.
        With groups it is the error of what the run minimises, V divided by their scales.
        It does not include the iterations of inits that lost a race, but a callback sees these.
    stop_reason : StopReason
        Equal to one of "converged", "exact", "max_iter", "max_time", "callback",
        "interrupted", and "init" without a solver; its `description` explains the reason.
    seconds : mapping
        Time of each stage: "rank", "init", "solve", "finish".
    passes : float
        The number of passes over V, not counting the first one, which checks the entries.
    settings : mapping
        The options of the call, as plain values.
    K_decided_by : str
        "user" if K was given, otherwise the sentence of `select_k`: an interval, a grade and the
        reason.
    init_used : str
        The init that led to the result; "auto" may have chosen it.
    race : Race or None
        The inits that competed, with their errors, if ``init="auto"`` held a race.
    certificate : Certificate, CountCertificate or None
        The result of `certify()`; None until it is called.
    first_certificate : Certificate, CountCertificate or None
        The certificate with effort 0, which a result keeps when it is pickled or saved.
    diagnosis : Diagnosis or None
        The result of `diagnose()`; None until it is called.
    known_uniqueness : Uniqueness or None
        The result of `uniqueness()`; None until it is called.
    names : Names
        The names of samples and features, if the data have any.
    affinities : array (K, K) or None
        S of a graph V ~ W S W', if the fit was ``symmetric``.
    vocabulary : Vocabulary or None
        The words of texts and their
        weights, which `from_texts` needs to read new texts.
    preparation : Preparation or None
        The steps that `prepare` applied to the data, so that `apply_preparation` can repeat them on
        new samples.
    sample_weights : array (N,), or None
        The weights of the samples in a robust fit: near 1 for a sample that the components
        describe, near 0 for a wild one.
    selection : Selection or None
        The evidence for the number of components, if it was estimated.
    spectrum, data : Spectrum or None, DataMatrix or None
        The singular values computed so far, for `certify()`, and the data; None if the result was
        pickled or loaded.

    Examples
    --------
    >>> from conenmf import factorize, from_columns
    >>> result = factorize(from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]]), 1, tol=1e-9)
    >>> result.W.shape, result.H.shape, result.stop_reason
    ((2, 1), (1, 3), <StopReason.CONVERGED: 'converged'>)
    >>> certificate = result.certify()
    >>> for sentence in result.summary():
    ...     print(sentence)
    1 component; relative error 0.4672
    no factorization with 1 component can have an error below 0.4672, and one attains it
    """

    W: Array
    H: Aligned
    labels: Aligned
    shares: Array
    problem: Problem
    objective: float
    relative_error: float
    history: History
    stop_reason: StopReason
    seconds: Mapping[str, float]
    passes: float
    settings: Mapping[str, Any]
    K_decided_by: str
    init_used: str
    race: Race | None = None
    certificate: AnyCertificate | None = None
    first_certificate: AnyCertificate | None = None
    diagnosis: Diagnosis | None = None
    known_uniqueness: Uniqueness | None = None
    names: Names = field(default_factory=Names)
    affinities: Array | None = None
    vocabulary: Vocabulary | None = None
    preparation: Preparation | None = None
    sample_weights: Array | None = field(default=None, repr=False)
    selection: Selection | None = field(default=None, repr=False)
    spectrum: KnownSpectrum = field(default=None, repr=False)
    data: DataMatrix | None = field(default=None, repr=False)

    def __getstate__(self) -> Facts:
        """Leave out the data and their spectrum."""
        return {**vars(self), "spectrum": None, "data": None}

    def __setstate__(self, state: Facts) -> None:
        """Restore the reason, which skops saves as a text."""
        vars(self).update(state, stop_reason=StopReason(state["stop_reason"]))

    def __copy__(self) -> Factorization:
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Factorization:
        """Copy everything but the data, which no method changes."""
        shared = {"spectrum": self.spectrum, "data": self.data}
        return replace(self, **copy.deepcopy(self.__getstate__(), memo) | shared)

    @property
    def K(self) -> int:
        """The number of components."""
        return int(self.W.shape[1])

    @property
    def n_samples(self) -> int:
        """The number of samples, N."""
        return int(self.H.shape[1])

    @property
    def n_features(self) -> int:
        """The number of features, F."""
        return int(self.W.shape[0])

    @property
    def components(self) -> Array:
        """The components (K, F), one per row, as `ConeNMF.components_`: W transposed."""
        return self.W.T

    @property
    def coefficients(self) -> Aligned:
        """The coefficients (N, K) of the samples, as `ConeNMF.transform` returns: H transposed.

        If the brightness of a scene varies, H is brightness times abundances; these are returned.
        """
        return abundances(self.H.T) if self.is_shaded else self.H.T

    @property
    def is_shaded(self) -> bool:
        """Whether the brightness of the pixels of a scene varies, see `solve.scenes`."""
        return bool(self.settings.get("is_shaded"))

    @property
    def brightness(self) -> Aligned:
        """The brightness (N,) of the pixels of a scene, if it varies: the sums of H."""
        return self.H.sum(axis=0)

    @property
    def component_names(self) -> Texts:
        """The names of the components: names of known components, else "component 0" and so on."""
        fixed = self.problem.fixed
        given = () if fixed is None or fixed.names is None else fixed.names
        given = self.settings.get("component_names") or given
        return (*given, *(f"component {k}" for k in range(len(given), self.K)))

    @property
    def n_iter(self) -> int:
        """The number of iterations of the solver."""
        return int(self.history.relative_error.size)

    @property
    def loss(self) -> str:
        """The name of the loss, such as "frobenius"."""
        return self.problem.loss.name

    @property
    def advice(self) -> str:
        """What to do if the run found nothing or ended too early; "" if neither is the case."""
        if self.relative_error >= 1 and not self.problem.penalties.are_none:
            return "the penalties are so large that nothing is left of W H: make them smaller"
        max_iter, tol = (self.settings.get(name) for name in ("max_iter", "tol"))
        if self.stop_reason is not StopReason.MAX_ITER or not (max_iter and tol):
            return ""
        return f"stopped at {max_iter=} before it converged to {tol=}: increase one of them"

    @property
    def total_seconds(self) -> float:
        """The time of all stages."""
        return sum(self.seconds.values())

    def summary(self) -> Texts:
        """Describe the result in sentences.

        After `diagnose()` it has the headline and the findings of the diagnosis; before, it has the
        results of `certify()` and `uniqueness()` if you have called them.
        """
        lines = self.opening()
        if self.diagnosis is not None:
            lines.append(self.diagnosis.headline)
            return (*lines, *(f"{row.name}: {row.finding}" for row in self.diagnosis.rows))
        if self.certificate is not None:
            lines += self.certificate.sentences(self.K)
        if self.known_uniqueness is not None:
            lines.append(self.known_uniqueness.summary())
        return tuple(lines)

    def opening(self) -> list[str]:
        """Return the first sentences of `summary`: the error, and how K was chosen."""
        K = counted(self.K, "component")
        lines = [f"{K}; {self._error_in_words()}"]
        if self.K_decided_by != "user":
            lines.append(self.K_decided_by)
        lines += [self.settings.get("ratings", ""), self.settings.get("scene", "")]
        lines += [self.settings.get(name, {}).get("words", "") for name in ("reference", "robust")]
        if self.affinities is not None:
            lines.append(in_words(self.affinities))
        if self.problem.groups is not None:
            lines.append(self.problem.groups.sentence)
        if (Q := self.settings.get("Q")) is not None:
            expected = self.settings["Q_expected"]
            said = f"Q {Q:.6g}, more parameters than known entries"
            if expected > 0:
                said = f"Q {Q:.6g}, {Q / expected:.4g} of the expected {expected:.0f}"
            lines.append("; ".join(filter(None, (said, advice_on_sigma(Q, expected)))))
        lines += followers(self.settings.get("class_shares", {}))
        return list(filter(None, lines))

    def _error_in_words(self) -> str:
        return error_in_words(self.problem, self.relative_error, self.objective)

    def _remember(self, **values: object) -> None:
        vars(self).update(values)  # the fields are frozen for other code

    def certify(self, *, effort: int | None = None) -> AnyCertificate:
        """Return the certificate: the error, a lower bound for it, the distance from stationarity.

        With the Poisson loss it is a `CountCertificate`, which also has the noise floor.

        The first call reads the data; later calls return `certificate`, unless you pass more
        effort. A result that was pickled or loaded has no data. If `certify()` was not called
        before that, it returns `first_certificate`, whose effort is 0 and whose bound may be lower.

        Parameters
        ----------
        effort : int, optional
            As in `conenmf.certify`; by default that of the certificate, or 3 for dense data, 1 for
            sparse data and 6 for the Poisson loss.
        """
        certificate = self.certificate or (self.first_certificate if self.data is None else None)
        effort = self._effort(effort, certificate)
        if certificate is None or effort > certificate.effort:
            V = self._require_data("certify(V, W, H)")
            certificate = self._judge(V, effort)
            self._remember(certificate=certificate)
        return certificate

    def objective_bound(self) -> float:
        """Return a lower bound for the objective, which includes the penalties.

        The bound takes L2 penalties into account, and the constraint that coefficients sum to one.
        It treats other penalties as zero, so it may be far below the objective. If entries are
        missing or weighted, it is above 0 only with L2 penalties on both factors. For the Poisson
        loss it is the bound for the divergence alone. The method needs the data.
        """
        V = self._require_data("objective_bound()")
        bounds = self.problem.loss.bounds(V, self.spectrum)
        if bounds is None:
            problem = "no lower bound is known for this loss: "
            raise NotAvailableError(problem, Option("loss", self.loss))
        return bounds.objective(self.W, self._H_of(V), self.problem.penalties)

    def components_for(self, error: float | None = None) -> Requirement:
        """Say how many components an error needs at least, by a bound, and at most, by a fit.

        The fit itself counts as one of at most 8 fits; see `conenmf.components_for`. Penalties do
        not count. The method needs the data.

        Parameters
        ----------
        error : float, optional
            A relative error from 0 to below 1; by default that of the fit.
        """
        V = self._require_data("components_for(V, error)")
        error = self.relative_error if error is None else error
        search = Search(V, self.problem, self.spectrum)
        search.errors[self.K] = self.relative_error
        return search.requirement(number("error", error, at_least=0, below=1))

    def diagnose(
        self,
        *,
        groups: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        n_splits: int = N_SPLITS,
        effort: int | None = None,
        watch: Watch = str,
    ) -> Diagnosis:
        """Judge the fit: whether its components may be interpreted, and what keeps them from it.

        Both halves of random splits of the samples are fitted again. The whole call takes about as
        long as three fits; small data are also searched for other factors. Later calls return
        `diagnosis`, unless you pass arguments.

        Parameters
        ----------
        groups : array (N,), optional
            The group of each sample, such as its donor. Halves of the samples are then halves of
            the groups, and a component that follows a group is to be interpreted with care.
        classes : array (N,), optional
            Known classes of the samples; a component that follows them is marked too.
        n_splits : int
            The number of splits into halves. With 0, only the data and the error are judged.
        effort : int, optional
            The effort of the certificate.
        watch : callable, optional
            Called with a note such as "split 2 of 3" after each iteration of the fits of halves;
            True ends them, and the finished splits count.
        """
        asks = groups is not None or classes is not None or n_splits != N_SPLITS
        if self.diagnosis is not None and not asks:
            if effort is not None:
                self.certify(effort=effort)
            return self.diagnosis
        V = self._require_data("diagnose(V, W, H)")
        n_splits = integer("n_splits", n_splits, at_least=0)
        (squared,) = V.sweep(lambda block: (float(measure_block(block)[0].sum()),))
        if not np.isclose(squared, V.total, rtol=1e-6):
            raise DataChangedError(_CHANGED)
        max_iter = search_iterations(V, self.K, self.problem.loss) if n_splits else 0
        is_whole = self.init_used in ENDMEMBERS and not self.n_iter
        fit = Fit(
            V=V.original,
            W=self.W,
            H=self.H,
            how=HalfFit(self.problem, self.init_used if is_whole else "random"),
            certificate=self._certificate(V, effort),
            details=self._described(V),
            others=self.uniqueness(max_iter=max_iter),
            error=self._error_in_words(),
            advice=self.advice,
            K_decided_by=self.K_decided_by,
            Q=self.settings.get("Q"),
            Q_expected=self.settings.get("Q_expected", 0.0),
            names=self.component_names,
            inflation=1.0 if self.selection is None else self.selection.inflation,
        )
        diagnosis = judge(fit, groups, classes, n_splits, watch)
        self._remember(diagnosis=diagnosis)
        return diagnosis

    def _certificate(self, V: DataMatrix, effort: int | None) -> AnyCertificate | None:
        """Return the best known certificate, or a new one if it is asked for or takes little."""
        known = self.certificate
        is_cheap = known is None and is_bounded(V, self.K, self.problem.loss)
        has_bounds = self.problem.loss.bounds(V) is not None
        if has_bounds and (is_cheap or effort is not None):
            return self.certify(effort=effort)
        certificate = known or self.first_certificate  # all there is if there are no bounds
        self._remember(certificate=certificate)
        return certificate

    def _described(self, V: DataMatrix) -> Details:
        own = V.unweighed
        V, spectrum = (V, self.spectrum) if own is None else (own.V, None)
        details = describe(V, self.W, self.H, self.labels, spectrum=spectrum)
        if "Q" not in self.settings:
            return details
        return replace(details, residuals=self.residuals().summary())

    def _details(self) -> Details:
        """Return the details of the diagnosis, or compute them alone."""
        if self.diagnosis is not None:
            return self.diagnosis.details
        return self._described(self._require_data("diagnose(V, W, H)"))

    def uniqueness(self, *, max_iter: int = 200, thorough: bool = False) -> Uniqueness:
        """Look for other factors that fit as well, or prove that there are none of W H.

        The search takes about as long as the fit; `max_iter` is its approximate number of
        iterations. A `thorough` search tries many more directions and may take tens of times as
        long (`conenmf.uniqueness`). The result stores the answer, and searches again only if you
        ask for a longer search. For fits with penalties or missing entries, the search looks only
        for other factors with exactly the same product W H, because other products would change
        the penalties or the values of unknown entries.

        Parameters
        ----------
        max_iter : int
            Approximate number of iterations of the search; 0 for none.
        thorough : bool
            Try many more directions.
        """
        max_iter = integer("max_iter", max_iter, at_least=0)
        thorough = flag("thorough", thorough)
        known = self.known_uniqueness
        if not (self.problem.penalties.are_none and self.problem.entries.are_whole):
            max_iter = 0
            thorough = False
        is_more = known is None or (max_iter > 0 and not known.was_searched)
        if known is None or is_more or (thorough and not known.directions.any()):
            V = self._require_data("uniqueness(V, W, H)")
            known = uniqueness(
                V,
                self.W,
                self._H_of(V),
                problem=self.problem,
                max_iter=max_iter,
                thorough=thorough,
            )
            self._remember(known_uniqueness=known)
        return known

    def residuals(self) -> Residuals:
        """Return the residuals in units of sigma, and Q: in total, by feature and by sample.

        See `conenmf.judge.residuals`. The method needs the data, and a least-squares fit.
        """
        V = self._require_data("residuals(V, W, H)", knows_groups=True)
        if "sigma" not in self.problem.loss.constraints:
            raise NotAvailableError(f"Q is for least squares, and the loss is {self.loss}")
        return residuals(V, self.W, self._H_of(V), groups=self.problem.groups)

    def _H_of(self, V: DataMatrix) -> Aligned:
        """Return H for the fitted data, whose samples may have weights."""
        return self.H if V.unweighed is None else V.unweighed.weighed(self.H)

    def _effort(self, asked: int | None, certificate: AnyCertificate | None) -> int:
        """Return the given effort, or the effort of the certificate, or the default."""
        if asked is not None:
            return integer("effort", asked, at_least=0)
        if certificate is not None:
            return certificate.effort
        return 0 if self.data is None else usual_effort(self.data, self.loss)

    def _judge(self, V: DataMatrix, effort: int) -> AnyCertificate:
        certificate = certify(
            V,
            self.W,
            self._H_of(V),
            problem=self.problem,
            effort=effort,
            spectrum=self.spectrum,
        )
        first: Any = self.first_certificate
        has_penalties = not self.problem.penalties.are_none
        if has_penalties and first and isinstance(certificate, Certificate):
            # stationarity includes the penalties, which only the fit knows
            certificate = replace(certificate, kkt_residual=first.kkt_residual)
        if not np.isclose(certificate.relative_error, self.relative_error, rtol=1e-6):
            raise DataChangedError(_CHANGED)
        return certificate

    @property
    def groups(self) -> Texts | None:
        """The names of the groups of a fit with groups; otherwise None."""
        return getattr(self.problem.groups, "names", None)

    @property
    def group_scales(self) -> Array | None:
        """How much larger each feature is in each group (G, F), for a fit with groups."""
        return getattr(self.problem.groups, "scales", None)

    @property
    def group_table(self) -> Array | None:
        """Which components each group uses (G, K), for a fit with groups."""
        return getattr(self.problem.groups, "table", None)

    def _require_data(self, function: str, *, knows_groups: bool = False) -> DataMatrix:
        if not knows_groups:
            self.problem.require_no_effects(function.partition("(")[0])
        if self.data is None:
            raise NotAvailableError(
                f"{function.partition('(')[0]}() needs the data, which are not kept when a result "
                "is pickled or saved: call it before, give the data to a fitted model, as in "
                f"model.certify(X), or use conenmf.{function}"
            )
        return self.data

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
        return largest_features(self.W, named_features(self.W, self.names, feature_names), n)

    def components_frame(self, *, feature_names: NameList = None) -> Any:
        """Return the components as a pandas data frame: a row each, features in columns.

        Parameters
        ----------
        feature_names : names, optional
            By default the names that came with the data.
        """
        names = named_features(self.W, self.names, feature_names)
        return components_frame(self.W, names, self.component_names)

    def __repr__(self) -> str:
        return (
            f"Factorization(F={self.n_features}, N={self.n_samples}, K={self.K}, "
            f"relative_error={self.relative_error:.4g}, n_iter={self.n_iter}, "
            f"stop_reason={str(self.stop_reason)!r})"
        )

    def _repr_html_(self) -> str:
        return "<br>".join(map(escape, [repr(self), *self.summary()]))

    def plot_history(self, ax: object = None, *, against: str = "iteration") -> plots.Axes:
        """Draw the relative error after each iteration; return the matplotlib axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
        against : {"iteration", "seconds", "passes"}
        """
        known = self.certificate
        below = None if known is None or not known.is_bound_telling else known.lower_bound
        return plots.history(self.history, ax, against=against, below=below)

    def plot_spectrum(self, ax: object = None) -> plots.Axes:
        """Draw the singular values and their ratios; return the matplotlib axes.

        Parameters
        ----------
        ax : matplotlib axes, optional
        """
        return plots.spectrum(self._details().rank, self.K, ax)

    def plot_components(
        self,
        axes: object = None,
        *,
        components: Which = None,
        image_shape: Shape | None = None,
        top: int = 10,
        limits: Pair | None = None,
    ) -> Array:
        """Draw the components as images, as their `top` features, or as curves.

        Draws images if an image shape is known or given, the features with the largest entries if
        features have names, and otherwise curves over the features.

        Parameters
        ----------
        axes : array of matplotlib axes, optional
            One for each component to draw.
        components : integers, optional
            Which components to draw; by default all.
        image_shape : (rows, columns), optional
        top : int
        limits : pair of arrays (F, K), optional
            The lower and the upper limit of every entry, for example from `uniqueness()` or
            `stability`; features and curves then have bands.

        Returns
        -------
        array of axes
        """
        names = self.names if image_shape is None else Names(image_shape=image_shape)
        names.checked(self.n_samples, self.n_features)
        return plots.components(self.W, names, axes, which=components, top=top, limits=limits)

    def plot_endmembers(self, ax: object = None, *, components: Which = None) -> plots.Axes:
        """Draw all components as curves in one frame, each scaled to norm 1; return the axes.

        The x axis shows the names of features if these are numbers, such as wavelengths.

        Parameters
        ----------
        ax : matplotlib axes, optional
        components : integers, optional
            By default all.
        """
        return plots.endmembers(self.W, self.names, ax, which=components)

    def plot_contributions(self, ax: object = None, *, components: Which = None) -> plots.Axes:
        """Draw how much each component contributes to the sum of each sample; return the axes.

        The x axis shows time if the names of samples are dates.

        Parameters
        ----------
        ax : matplotlib axes, optional
        components : integers, optional
            By default all.
        """
        return plots.contributions(self.W, np.asarray(self.H), self.names, ax, which=components)

    def plot_maps(
        self,
        axes: object = None,
        *,
        components: Which = None,
        pixels_shape: Shape | None = None,
    ) -> Array:
        """Draw abundance maps, if samples are the pixels of an image; return the axes.

        Parameters
        ----------
        axes : array of matplotlib axes, optional
            One for each component to draw.
        components : integers, optional
            Which components to draw; by default all.
        pixels_shape : (rows, columns), optional
            The shape of the image; by default the shape of the data, if they were a cube.
        """
        shape = self.names.pixels_shape if pixels_shape is None else pixels_shape
        if shape is None:
            problem = "samples are not known to be the pixels of an image: give "
            raise NotAvailableError(problem, Option("pixels_shape"), ", rows and columns")
        return plots.maps(self.W, self.H, shape, axes, which=components)

    def plot_cones(self, ax: object = None) -> plots.Axes:
        """Draw the angles between cones, and mark those too small for the assumption.

        Parameters
        ----------
        ax : matplotlib axes, optional
        """
        cones = self._details().cones
        if cones is None:
            raise NotAvailableError(
                "there are no cones to draw: the samples have fewer directions than there are "
                "components"
            )
        return plots.cones(cones.geometry, ax)

    def save(self, path: PathLike) -> None:
        """Write everything to one ``.npz`` file, without pickle.

        The file gets exactly this name, and replaces an earlier file only when it is complete. It
        does not contain the data. It contains the certificate and the diagnosis if they have been
        computed. `ConeNMF.save` also stores the model.

        Parameters
        ----------
        path : path
        """
        write_factorization(path, vars(self))

    @classmethod
    def load(cls, path: PathLike) -> Factorization:
        """Read a file written by `save`; any other or damaged file raises `FileFormatError`.

        Parameters
        ----------
        path : path
        """
        with saved_factorization(path) as (fields, _):
            return cls(**fields)


def result_of(fitted: object) -> Factorization:
    """Return a result as it is, or the result of a fitted model."""
    result = getattr(fitted, "result_", fitted)
    return instance("result", result, Factorization, "factorize, or a fitted ConeNMF")
