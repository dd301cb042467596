"""The sections on how good a factorisation is: errors, spectrum, cones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ..cones.geometry import ConeGeometry
from ..data.blocks import Array
from ..judge.diagnosis import ConeDiagnosis
from . import drawings as draw
from .drawings import Axis
from .markup import Html, element, join, style
from .subject import (
    Section,
    Subject,
    components_of,
    degrees,
    legend,
    number,
    percent,
    readout,
    rounded,
    sentence,
)

__all__ = ["cones", "errors", "spectrum", "summary"]

_POINTS = 400  # of an error curve
_TIMES = "\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}"


def summary(subject: Subject) -> Section:
    """What was found, and how far it is from the best possible."""
    certificate, cones = subject.diagnosis.certificate, subject.diagnosis.cones
    error, K = certificate.relative_error, components_of(subject)
    facts = [
        (
            "Relative error",
            number(error),
            "Length of what is missed over length of the data; "
            f"{percent(1 - min(error, 1.0) ** 2)} of their squares are explained.",
        ),
        (
            "Best possible",
            f"≥ {number(certificate.lower_bound)}",
            f"No factorisation with {K}, however it was found, has a smaller error.",
        ),
        (
            "Gap",
            number(certificate.gap),
            "The error is at most this far from the best one possible.",
        ),
        (
            "KKT residual",
            f"{certificate.kkt_residual:.2g}",
            "How far from a point that no small change improves; 0 is such a point.",
        ),
    ]
    if cones is not None:
        facts += [
            (
                "Cones alone",
                number(cones.error),
                "The error of one direction for each cone (cr1), before any solver.",
            ),
            (
                "Proven for cones",
                f"≤ {number(cones.bound)}",
                "What that error was bound to be at most: the sine of the widest cone's angle.",
            ),
        ]
    tiles = (
        element(
            "div", element("dt", name), element("dd", value, class_="value"), element("dd", why)
        )
        for name, value, why in facts
    )
    start, why = subject.diagnosis.advice
    sentences = subject.result.summary()
    return Section.of(
        "summary",
        "Summary",
        "Summary",
        element("p", f"{sentence(sentences[0])}.", class_="lead"),
        *(element("p", f"{sentence(told)}.", class_="lead more") for told in sentences[1:]),
        element("dl", *tiles, class_="tiles"),
        element(
            "p",
            element("strong", "A start for such data: "),
            element("code", start),
            f", because {why}.",
            class_="advice",
        ),
    )


# --- error while solving ----------------------------------------------------------------------


def errors(subject: Subject) -> Section:
    """The error after each iteration, and the line that it cannot cross."""
    title = "Error while solving"
    reason = f"Stopped because {subject.result.stop_reason.description}."
    if not subject.result.history.relative_error.size:
        note = "There was no iteration: what is shown is the start, with exact coefficients."
        return Section.of("error", "Error", title, element("p", note))
    below = number(subject.diagnosis.certificate.lower_bound)
    keys = legend(("line main", "relative error"), ("line bound", f"no error can be below {below}"))
    switch = element(
        "div",
        *(
            element("button", text, type="button", data_shows=f"error-{key}", aria_pressed=on)
            for key, text, on in (
                ("iteration", "by iteration", "true"),
                ("seconds", "by time", "false"),
            )
        ),
        class_="switch controls",
        role="group",
        aria_label="What the error is drawn against",
    )
    return Section.of(
        "error",
        "Error",
        title,
        element("p", f"{subject.result.n_iter} iterations. {reason}"),
        switch,
        *(
            element("figure", _error_chart(subject, key), keys, readout())
            for key in ("iteration", "seconds")
        ),
        data={
            "charts": {
                f"error-{key}": _error_data(subject, key) for key in ("iteration", "seconds")
            }
        },
    )


def _kept(size: int) -> Array:
    """Which of many points to draw: the first ones, where most happens, and some of the rest."""
    if size <= _POINTS:
        return np.arange(size)
    places: Array = np.unique(np.geomspace(1, size, 2 * _POINTS).astype(np.intp)) - 1
    return places


def _error_points(subject: Subject, key: str) -> tuple[Array, Array, list[str]]:
    history = subject.result.history
    kept = _kept(history.relative_error.size)
    seconds, errors = history.elapsed[kept], history.relative_error[kept]
    texts = [
        f"iteration {n + 1}, {s:.3g} s: relative error {e:.5g}"
        for n, s, e in zip(kept, seconds, errors, strict=True)
    ]
    return (kept + 1.0 if key == "iteration" else seconds), errors, texts


def _error_axes(subject: Subject, key: str) -> tuple[Axis, Axis]:
    x, errors, _ = _error_points(subject, key)
    below = subject.diagnosis.certificate.lower_bound
    low, high = min(float(errors.min()), below), max(float(errors.max()), below)
    rim = 0.08 * (high - low) or 0.1 * high or 1.0
    start = 1.0 if key == "iteration" else 0.0
    return Axis(key, start, max(float(x.max()), start)), Axis(
        "relative error", max(low - rim, 0.0), high + rim
    )


def _error_chart(subject: Subject, key: str) -> Html:
    x, errors, _ = _error_points(subject, key)
    below = subject.diagnosis.certificate.lower_bound
    across, up = _error_axes(subject, key)
    a, b = across.place(x), up.place(errors)
    bound = float(up.place(np.array(below)))
    inside = join(
        (
            draw.level(bound, "bound"),
            draw.line(a, b, "main"),
            draw.dots(a, b, "main") if a.size <= 60 else None,
        )
    )
    label = (
        f"Relative error by {key}, from {number(float(errors[0]))} to "
        f"{number(float(errors[-1]))}; "
        f"no error can be below {number(below)}."
    )
    return draw.chart(inside, across, up, label=label, id_=f"error-{key}")


def _error_data(subject: Subject, key: str) -> dict[str, Any]:
    x, errors, texts = _error_points(subject, key)
    across, up = _error_axes(subject, key)
    return {"x": rounded(across.place(x)), "y": rounded(up.place(errors)), "text": texts}


# --- spectrum -----------------------------------------------------------------------------------


def spectrum(subject: Subject) -> Section:
    """The singular values, and what they say about the number of components."""
    rank, K = subject.diagnosis.rank, subject.K
    ratio = f"{rank.ratios[K - 1]:.3g}" if K <= rank.ratios.size else None
    told = (
        "Singular values tell how much each further component could explain at best. A large ratio "
        "of one to the next is where a number of components suggests itself"
    )
    largest = "the largest after the first" if rank.K > 1 else "the largest"
    if rank.K == K:
        told += f", and {largest} is at K = {K} ({ratio})."
    else:
        told += f": {largest} is at {rank.K} ({rank.ratios[rank.K - 1]:.3g}); here K = {K}"
        told += f" ({ratio})." if ratio else "."
    return Section.of(
        "spectrum",
        "Spectrum",
        "Spectrum and the number of components",
        element("p", told),
        element(
            "figure",
            _values_chart(subject),
            _ratios_chart(subject),
            legend(("dot main", "singular value"), ("bar", "ratio"), ("line chosen", f"K = {K}")),
            readout(),
        ),
        data={"charts": _spectrum_data(subject)},
    )


def _numbers_axis(subject: Subject) -> Axis:
    return Axis("number of components", 0.0, subject.diagnosis.rank.singular_values.size + 0.5)


def _values_axis(subject: Subject) -> Axis:
    values = subject.diagnosis.rank.singular_values
    positive = values[values > 1e-8 * values[0]]
    return Axis(
        "singular value", float(positive.min()) / 1.3, float(positive.max()) * 1.3, log=True
    )


def _values_chart(subject: Subject) -> Html:
    values = subject.diagnosis.rank.singular_values
    x, y = replace(_numbers_axis(subject), name=""), _values_axis(subject)
    k = np.arange(1, values.size + 1)[values >= y.low]
    a, b = x.place(k), y.place(values[k - 1])
    chosen = float(x.place(np.array(subject.K)))
    inside = (draw.upright(chosen, "chosen"), draw.line(a, b, "thin"), draw.dots(a, b, "main"))
    label = f"The {values.size} largest singular values, from {number(values[0])} down."
    return element(
        "div",
        element("h3", "Singular values"),
        draw.chart(join(inside), x, y, label=label, id_="values"),
    )


def _ratios_axis(subject: Subject) -> Axis:
    """The first ratio of nonnegative data is always large, and must not flatten the others."""
    ratios = subject.diagnosis.rank.ratios
    top = float(ratios[1:].max() if ratios.size > 1 else ratios.max())
    return Axis("ratio", 1.0, max(1.1 * top - 0.1, 1.01))


def _ratios_chart(subject: Subject) -> Html:
    ratios, K = subject.diagnosis.rank.ratios, subject.K
    x, y = _numbers_axis(subject), _ratios_axis(subject)
    k = np.arange(1, ratios.size + 1)
    a, b = x.place(k), np.minimum(y.place(ratios), 1.0)
    width = 0.6 / (ratios.size + 1.5)
    others = k != K
    inside = (
        draw.bars(a[others], b[others], width, "bar"),
        draw.bars(a[~others], b[~others], width, "bar main"),
    )
    label = "Ratio of each singular value to the next."
    return element(
        "div",
        element("h3", "Ratio of each to the next"),
        draw.chart(join(inside), x, y, label=label, id_="ratios"),
    )


def _spectrum_data(subject: Subject) -> dict[str, Any]:
    values, ratios = subject.diagnosis.rank.singular_values, subject.diagnosis.rank.ratios
    k = np.arange(1, values.size + 1)
    x = rounded(_numbers_axis(subject).place(k))
    heights = np.clip(_values_axis(subject).place(values), 0, 1)
    told = [f"singular value {n}: {value:.5g}" for n, value in zip(k, values, strict=True)]
    higher = np.clip(_ratios_axis(subject).place(ratios), 0, 1)
    compared = [f"singular value {n} is {r:.4g} times the next" for n, r in enumerate(ratios, 1)]
    return {
        "values": {"x": x, "y": rounded(heights), "text": told},
        "ratios": {"x": x[: ratios.size], "y": rounded(higher), "text": compared},
    }


# --- cones --------------------------------------------------------------------------------------


def cones(subject: Subject) -> Section:
    """How far cones are apart, and whether that is enough for the geometric assumption."""
    facts = subject.diagnosis.cones
    if facts is None:
        told = "There are no cones to show: the samples have fewer directions than components."
        return _cones_section(element("p", told))
    geometry = facts.geometry
    if subject.K == 1:
        told = f"All samples lie within {degrees(float(geometry.angles[0]))} of one axis."
        return _cones_section(element("p", told))
    figure = element(
        "figure",
        _angles_map(geometry),
        element("div", _scale(geometry.required_angle), readout(), class_="beside"),
        class_="wide",
    )
    data = {"angles": _angle_data(facts)}
    return _cones_section(element("p", _assumption(geometry)), figure, data=data)


def _cones_section(*children: Html, data: dict[str, Any] | None = None) -> Section:
    return Section.of("cones", "Cones", "Cones and the angles between them", *children, data=data)


def _assumption(geometry: ConeGeometry) -> str:
    K, needed = geometry.angles.size, geometry.required_angle
    largest, second = np.sort(geometry.angles)[::-1][:2]
    first, other = geometry.closest or (0, 1)
    verdict = "The geometric assumption holds: every angle between two axes is larger."
    if not geometry.holds:
        close = int((geometry.between <= needed).sum() - K) // 2
        verdict = (
            f"The geometric assumption does not hold: {close} of {K * (K - 1) // 2} pairs of cones "
            "are too close."
        )
    return (
        f"The two widest cones reach {degrees(largest)} and {degrees(second)} from their axes, so "
        f"axes have to be more than 3{_TIMES}{degrees(largest)} + {degrees(second)} = "
        f"{degrees(needed)} apart. {verdict} The closest are {first} and {other}, at "
        f"{degrees(float(geometry.between[first, other]))}; "
        f"{geometry.ambiguous.size:,} samples lie between cones."
    )


def _angles_map(geometry: ConeGeometry) -> Html:
    K = geometry.angles.size
    step = next(step for step in (1, 2, 5, 10, 20, 50, K) if K / step <= 14)
    numbers = [
        element("span", str(k), style=style(at=f"{100 * (k + 0.5) / K:.2f}%"))
        for k in range(0, K, step)
    ]
    widest = float(geometry.angles.max()) or 1.0
    widths = (
        element(
            "i",
            style=style(at=f"{100 * k / K:.2f}%", share=f"{100 * float(angle) / widest:.1f}%"),
        )
        for k, angle in enumerate(geometry.angles)
    )
    label = f"Angles between {K} cones; the smallest is between {geometry.closest}."
    return element(
        "div",
        element("div", *numbers, class_="y axis", aria_hidden="true"),
        element("div", draw.heat_map(geometry.between, geometry.required_angle), class_="area"),
        element("div", *widths, class_="widths", aria_hidden="true", style=style(rows=str(K))),
        element("div", *numbers, class_="x axis", aria_hidden="true"),
        element(
            "div", f"size angle, up to {degrees(widest)}", class_="width name", aria_hidden="true"
        ),
        class_="heat",
        id="angles",
        role="img",
        aria_label=label,
    )


def _scale(needed: float) -> Html:
    """What the colours mean."""
    middle = min(needed, math.pi / 2)
    parts = [element("span", "0°"), _steps("close"), element("span", degrees(middle))]
    if needed < math.pi / 2:
        parts += [_steps("apart"), element("span", "90°")]
    told = "Orange with a dot: too close. Blue: far enough."
    if needed >= math.pi / 2:
        told = f"All are too close: {degrees(needed)} are needed, more than a right angle."
    return join((element("p", *parts, class_="scale"), element("p", told, class_="hint")))


def _steps(kind: str) -> Html:
    levels = range(1, draw.LEVELS + 1)
    order = reversed(levels) if kind == "close" else levels
    return element(
        "span", *(element("i", class_=f"swatch {kind} l{n}") for n in order), class_="steps"
    )


def _angle_data(facts: ConeDiagnosis) -> dict[str, Any]:
    geometry = facts.geometry
    return {
        "between": rounded(np.degrees(geometry.between), 1),
        "sizes": rounded(np.degrees(geometry.angles), 1),
        "needed": round(math.degrees(geometry.required_angle), 1),
        "samples": facts.sizes.tolist(),
    }
