"""The sections on how good a factorisation is: the summary, the error, the singular values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..cones.certificate import Certificate
from ..data.blocks import Array
from ..judge.certificate import CountCertificate
from ..judge.diagnosis import shown_bound
from ..markup import Html, element, join
from ..result import Factorization
from ..solve.race import Race
from ..text import counted, visible
from . import charts
from .charts import Axis
from .context import ReportContext
from .page import Section, legend, number, percent, readout, rounded, sentence, tiles

__all__ = ["errors", "spectrum", "summary"]

_MAX_POINTS = 400  # of an error curve before it is thinned
_MAX_DOTS = 60  # iterations up to which each is marked on the curve
_DESCRIBED = "Here and in the cones, the reconstruction replaces the entries that are missing."
_ROUNDING_RATIO = 1e-8  # singular values below this share of the largest are not drawn


def summary(context: ReportContext) -> Section:
    """Return the section on the error and its bounds."""
    first, *more = context.result.summary()
    return Section.of(
        "summary",
        "How good",
        "How good it is",
        element("p", f"{sentence(first)}.", class_="lead"),
        *(element("p", f"{sentence(line)}.", class_="lead more") for line in more),
        tiles(_facts(context)),
        element(
            "p",
            "The certificate judges the error, not the truth of the ",
            element("a", "components", href="#components"),
            ": others may have the same error.",
            class_="advice",
        ),
    )


def _facts(context: ReportContext) -> list[tuple[str, str, str]]:
    """Return names, values and explanations."""
    certificate = context.diagnosis.certificate
    if isinstance(certificate, CountCertificate):
        return _facts_of_counts(certificate, context.K_components)
    error = certificate.relative_error
    return [
        (
            "Relative error",
            number(error),
            f"Norm of the residual divided by the norm of the {_judged_by(context)}; "
            f"{percent(1 - min(error, 1.0) ** 2)} of the squared norm is explained.",
        ),
        *_facts_of_bound(context, certificate),
        (
            "KKT residual",
            f"{certificate.kkt_residual:.2g}",
            "Distance from a stationary point, where no small change lowers the error; 0 at such "
            "a point.",
        ),
    ]


def _facts_of_bound(context: ReportContext, certificate: Certificate) -> list[tuple[str, str, str]]:
    known = context.result.settings.get("observed")
    if known and certificate.lower_bound == 0:
        explanation = (
            "None is known: where entries are missing, factors can be anything, and no part of the "
            "data that is large enough is known as a whole."
        )
        return [("Lower bound", "none", explanation)]
    origin = _bound_history(certificate)
    if known:
        origin = "It is that of a rectangle of the data of which every entry is known."
    return [
        (
            "Lower bound",
            number(certificate.lower_bound),
            f"{sentence(certificate.proven)}: no nonnegative factorisation with "
            f"{context.K_components} has a smaller relative error. {origin}",
        ),
        (
            "Gap",
            number(certificate.gap),
            "Relative error minus lower bound: the error is at most this far above the optimum. It "
            "judges the error, not the truth of the components.",
        ),
    ]


def _facts_of_counts(certificate: CountCertificate, K: str) -> list[tuple[str, str, str]]:
    facts = [
        (
            "Deviance explained",
            percent(max(certificate.deviance_explained, 0.0)),
            f"Of what one component leaves, whose divergence is {certificate.of_margins:,.0f}; "
            f"{K} leave {certificate.divergence:,.0f}.",
        )
    ]
    floor = certificate.floor_in_words()
    if floor:
        spread = f"{certificate.noise_floor:,.0f} ± {certificate.floor_spread:,.0f}"
        facts.append(("Noise floor", spread, f"The divergence is {floor}."))
    if certificate.is_bound_telling:
        below = certificate.proven_share * certificate.divergence
        facts.append(
            (
                "Lower bound",
                f"{below:,.0f}",
                f"{sentence(certificate.proven)}: no nonnegative factorisation with {K} has a "
                f"smaller divergence; this one is {percent(certificate.proven_share)} of it.",
            )
        )
    gaps = f"{certificate.coefficient_gap:.2g}, {certificate.component_gap:.2g}"
    explanation = (
        "By so much the divergence could fall at most, if only the coefficients were changed, and "
        "if only the components were. Small numbers say that the solver has ended."
    )
    return [*facts, ("Duality gaps", gaps, explanation)]


def _judged_by(context: ReportContext) -> str:
    return "entries that are known" if context.result.settings.get("observed") else "data"


def _error_name(result: Factorization) -> str:
    """What the history shows, for axes and legends."""
    return "relative error" if result.loss == "frobenius" else "share of the deviance left"


def _bound_history(certificate: Certificate) -> str:
    if certificate.is_attained:
        return "Some factorisation attains it."
    return (
        f"For factors of any sign it is {number(certificate.eckart_young)}; nonnegativity closes "
        f"{percent(certificate.closed)} of the gap to that."
    )


# --- error while solving ----------------------------------------------------------------------


def errors(context: ReportContext) -> Section:
    """Return the section on the error after each iteration, beside its lower bound."""
    title, result = "Error while solving", context.result
    if not result.n_iter:
        text = (
            "There was no iteration: the result is the initialisation, with the best coefficients "
            "for its components."
        )
        return Section.of("error", "Error", title, element("p", text))
    keys = [("line main", _error_name(result))]
    below = shown_bound(context.diagnosis.certificate)
    if below is not None:
        keys.append(("line bound", f"lower bound {number(below)}"))
    switch = element(
        "div",
        *(
            element("button", text, type="button", data_shows=f"error-{key}", aria_pressed=pressed)
            for key, text, pressed in (
                ("iteration", "by iteration", "true"),
                ("seconds", "by time", "false"),
            )
        ),
        class_="switch controls",
        role="group",
        aria_label="Horizontal axis of the error",
    )
    iterations = counted(result.n_iter, "iteration")
    curves = {key: _ErrorCurve(context, key) for key in ("iteration", "seconds")}
    return Section.of(
        "error",
        "Error",
        title,
        element("p", f"{iterations}. {_why_ended(result)}."),
        switch,
        *(element("figure", curve.chart(), legend(*keys), readout()) for curve in curves.values()),
        _race(result.race) if result.race is not None else None,
        data={"charts": {f"error-{key}": curve.data() for key, curve in curves.items()}},
    )


def _why_ended(result: Factorization) -> str:
    if result.is_on_plateau:
        return sentence(result.ending)
    return f"Stopped because {result.ending}"


def _race(race: Race) -> Html:
    """Return the table of the inits that competed."""
    titles = ("init", "relative error reached", "iterations", "seconds")
    rows = (
        element(
            "tr",
            element("th", visible(one.init), scope="row"),
            element("td", number(one.relative_error)),
            element("td", str(one.iterations)),
            element("td", f"{one.seconds:.2g}"),
        )
        for one in race.entrants
    )
    winner = visible(race.winner.init)
    text = f"These inits competed on {race.place}; the solver continued from {winner}."
    if len(race.entrants) == 1:
        bound = number(race.lower_bound)
        text = f"Only {winner} was run, on {race.place}, where the lower bound is about {bound}."
    head = element("tr", *(element("th", title, scope="col") for title in titles))
    return element(
        "div",
        element("h3", "Race of inits"),
        element("p", text),
        element("table", element("thead", head), element("tbody", *rows)),
    )


class _ErrorCurve:
    """The relative error against the iteration or the seconds."""

    def __init__(self, context: ReportContext, key: str) -> None:
        history = context.result.history
        index = _thinned(history.relative_error.size)
        self.key, self.below = key, shown_bound(context.diagnosis.certificate)
        self.name = _error_name(context.result)
        self.errors, self.seconds = history.relative_error[index], history.elapsed[index]
        self.iterations = index + 1
        x = self.iterations.astype(float) if key == "iteration" else self.seconds
        below = [] if self.below is None else [self.below]
        low = min([float(self.errors.min()), *below])
        high = max([float(self.errors.max()), *below])
        rim = 0.08 * (high - low) or 0.1 * high or 1.0
        first = 1.0 if key == "iteration" else 0.0
        self.y_axis = Axis(self.name, max(low - rim, 0.0), high + rim)
        self.x_axis = Axis(key, first, max(float(x.max()), first))
        self.x, self.y = self.x_axis.place(x), self.y_axis.place(self.errors)

    def chart(self) -> Html:
        level, bound = None, ""
        if self.below is not None:
            level = charts.level(float(self.y_axis.place(np.array(self.below))), "bound")
            bound = f"; the lower bound is {number(self.below)}"
        drawing = join(
            (
                level,
                charts.line(self.x, self.y, "main"),
                charts.dots(self.x, self.y, "main") if self.x.size <= _MAX_DOTS else None,
            )
        )
        label = (
            f"{sentence(self.name)} by {self.key}, from {number(float(self.errors[0]))} to "
            f"{number(float(self.errors[-1]))}{bound}."
        )
        return charts.chart(drawing, self.x_axis, self.y_axis, label=label, id_=f"error-{self.key}")

    def data(self) -> dict[str, Any]:
        points = zip(self.iterations, self.seconds, self.errors, strict=True)
        texts = [f"iteration {n}, {s:.3g} s: {self.name} {e:.5g}" for n, s, e in points]
        return {"x": rounded(self.x), "y": rounded(self.y), "text": texts}


def _thinned(n_iter: int) -> Array:
    """Return the iterations to draw, from 0: all first ones, then fewer and fewer."""
    if n_iter <= _MAX_POINTS:
        return np.arange(n_iter)
    index: Array = np.unique(np.geomspace(1, n_iter, 2 * _MAX_POINTS).astype(np.intp)) - 1
    return index


# --- spectrum -----------------------------------------------------------------------------------


def spectrum(context: ReportContext) -> Section:
    """Return the section on the singular values and the number of components they suggest."""
    rank, K = context.diagnosis.rank, context.K
    largest = "The largest ratio after the first" if rank.K > 1 else "The largest ratio"
    text = (
        "The singular values bound how much of the data each further component can explain. A "
        "large ratio of one singular value to the next suggests a number of components. "
        f"{largest} is at K = {rank.K} ({rank.ratios[rank.K - 1]:.3g})"
    )
    if rank.K == K:
        text += ", the number of components here."
    else:
        ratio = f", whose ratio is {rank.ratios[K - 1]:.3g}" if K <= rank.ratios.size else ""
        text += f"; this result has K = {K}{ratio}."
    return Section.of(
        "spectrum",
        "Spectrum",
        "Spectrum and the number of components",
        element("p", text),
        element("p", _DESCRIBED) if context.is_completed else None,
        element(
            "figure",
            _values_chart(context),
            _ratios_chart(context),
            legend(("dot main", "singular value"), ("bar", "ratio"), ("line chosen", f"K = {K}")),
            readout(),
        ),
        data={"charts": _spectrum_data(context)},
    )


def _K_axis(context: ReportContext) -> Axis:
    return Axis("number of components", 0.0, context.diagnosis.rank.singular_values.size + 0.5)


def _values_axis(context: ReportContext) -> Axis:
    values = context.diagnosis.rank.singular_values
    positive = values[values > _ROUNDING_RATIO * values[0]]
    return Axis(
        "singular value", float(positive.min()) / 1.3, float(positive.max()) * 1.3, log=True
    )


def _values_chart(context: ReportContext) -> Html:
    values = context.diagnosis.rank.singular_values
    x_axis, y_axis = replace(_K_axis(context), name=""), _values_axis(context)
    k = np.arange(1, values.size + 1)[values >= y_axis.low]
    x, y = x_axis.place(k), y_axis.place(values[k - 1])
    at_K = float(x_axis.place(np.array(context.K)))
    drawing = (charts.upright(at_K, "chosen"), charts.line(x, y, "thin"), charts.dots(x, y, "main"))
    label = f"The {values.size} largest singular values, from {number(values[0])} down."
    return element(
        "div",
        element("h3", "Singular values"),
        charts.chart(join(drawing), x_axis, y_axis, label=label, id_="values"),
    )


def _ratios_axis(context: ReportContext) -> Axis:
    return Axis("ratio", 1.0, context.diagnosis.rank.highest_shown)


def _ratios_chart(context: ReportContext) -> Html:
    ratios, K = context.diagnosis.rank.ratios, context.K
    x_axis, y_axis = _K_axis(context), _ratios_axis(context)
    k = np.arange(1, ratios.size + 1)
    x, y = x_axis.place(k), np.minimum(y_axis.place(ratios), 1.0)
    width = 0.6 / (ratios.size + 1.5)
    others = k != K
    drawing = (
        charts.bars(x[others], y[others], width, "bar"),
        charts.bars(x[~others], y[~others], width, "bar main"),
    )
    label = "Ratio of each singular value to the next."
    return element(
        "div",
        element("h3", "Ratio of each to the next"),
        charts.chart(join(drawing), x_axis, y_axis, label=label, id_="ratios"),
    )


def _spectrum_data(context: ReportContext) -> dict[str, Any]:
    values, ratios = context.diagnosis.rank.singular_values, context.diagnosis.rank.ratios
    k = np.arange(1, values.size + 1)
    x = rounded(_K_axis(context).place(k))
    return {
        "values": {
            "x": x,
            "y": rounded(np.clip(_values_axis(context).place(values), 0, 1)),
            "text": [f"singular value {n}: {v:.5g}" for n, v in zip(k, values, strict=True)],
        },
        "ratios": {
            "x": x[: ratios.size],
            "y": rounded(np.clip(_ratios_axis(context).place(ratios), 0, 1)),
            "text": [
                f"singular value {n} is {r:.4g} times the next" for n, r in enumerate(ratios, 1)
            ],
        },
    }
