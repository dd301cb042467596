"""The section on cones: the angles between them, and what is known of the assumption."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..cones.geometry import ConeGeometry
from ..cones.separation import Separation
from ..data.blocks import Array
from ..judge.diagnosis import NO_GUARANTEE, ConeDiagnosis
from ..markup import Html, element, join, style
from .context import ReportContext
from .page import Section, degrees, number, readout, rounded, sentence, tiles

__all__ = ["cones"]

_N_LEVELS = 6  # of colour on either side of the required angle
_MAX_NUMBERS = 14  # along an axis of the map
_TIMES_SIGN = "\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}"


def cones(context: ReportContext) -> Section:
    """Return the section."""
    diagnosis = context.diagnosis.cones
    if diagnosis is None:
        text = "There are no cones to show: the samples have fewer directions than components."
        return _section(element("p", text))
    geometry = diagnosis.geometry
    facts = tiles(_facts(diagnosis))
    if context.K == 1:
        text = f"All samples lie within {degrees(float(geometry.angles[0]))} of one axis."
        return _section(element("p", text), facts, _advice(context))
    figure = element(
        "figure",
        _angle_map(geometry),
        element("div", _scale(geometry.required_angle), readout(), class_="beside"),
        class_="wide",
    )
    return _section(
        element("p", _WHAT_FOR),
        element("p", _describe_assumption(geometry)),
        figure,
        facts,
        _advice(context),
        data={"angles": _angle_data(diagnosis)},
    )


_WHAT_FOR = (
    "Algorithm 1 groups the samples into cones, one for each component. They describe the data and "
    "suggest an init. Where cones are narrow and far apart, the geometric assumption, the paper "
    "guarantees that they are found."
)


def _section(*children: Html, data: dict[str, Any] | None = None) -> Section:
    return Section.of("cones", "Cones", "Cones and the angles between them", *children, data=data)


def _facts(diagnosis: ConeDiagnosis) -> list[tuple[str, str, str]]:
    return [
        (
            "Error of cr1-nmf",
            number(diagnosis.error),
            "Relative error of one rank-one factor for each cone, before any solver.",
        ),
        (
            "Upper bound for cr1-nmf",
            number(diagnosis.bound),
            "Proven upper bound for that error: the sine of the largest angle between a sample "
            "and the factor of its cone.",
        ),
    ]


def _advice(context: ReportContext) -> Html:
    init, reason = context.diagnosis.advice
    return element(
        "p",
        element("strong", "Advised init: "),
        element("code", init),
        f", because {reason}.",
        class_="advice",
    )


def _describe_assumption(geometry: ConeGeometry) -> str:
    K, required = geometry.angles.size, geometry.required_angle
    largest, second = np.sort(geometry.angles)[::-1][:2]
    first, other = geometry.closest or (0, 1)
    needed = (
        f"3{_TIMES_SIGN}{degrees(largest)} + {degrees(second)} = {degrees(required)} apart, by the "
        "two largest size angles"
    )
    if geometry.holds:
        verdict = (
            f"The geometric assumption holds: all axes are more than {needed}, so the guarantee "
            "applies."
        )
    elif required >= np.pi / 2:
        verdict = (
            f"These cones are too wide for it, as is usual: axes would have to be more than "
            f"{needed}, and nonnegative data have none beyond 90.0°. {_CALM}"
        )
    else:
        close = int((geometry.between <= required).sum() - K) // 2
        verdict = (
            f"The guarantee needs axes more than {needed}; {close} of {K * (K - 1) // 2} pairs are "
            f"closer, so the assumption {geometry.verdict}. {_CALM}"
        )
    return (
        f"{verdict} The closest axes, of cones {first} and {other}, "
        f"are {degrees(float(geometry.between[first, other]))} apart; "
        f"{_count_ambiguous(geometry)} between cones. {_describe_samples(geometry.pairwise)}"
    )


_CALM = f"{sentence(NO_GUARANTEE)}."


def _describe_samples(apart: Separation) -> str:
    least, most = ("as little as", "up to") if apart.is_exact else ("at least", "at most")
    enough = ": enough for Algorithm 1 to find these clusters, whichever sample comes first"
    return (
        f"Two samples of different cones are {least} {degrees(max(apart.between, 0.0))} apart, "
        f"two of one cone {most} {degrees(apart.within)}{enough if apart.value > 0 else ''}."
    )


def _count_ambiguous(geometry: ConeGeometry) -> str:
    count = geometry.ambiguous.size
    return {0: "no sample lies", 1: "1 sample lies"}.get(count, f"{count:,} samples lie")


def _angle_map(geometry: ConeGeometry) -> Html:
    K = geometry.angles.size
    step = next(step for step in (1, 2, 5, 10, 20, 50, K) if K / step <= _MAX_NUMBERS)
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
        element("div", _heat_map(geometry.between, geometry.required_angle), class_="area"),
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


def _heat_map(angles: Array, required: float) -> Html:
    """Return squares coloured by how far an angle is from the required one; a dot if smaller.

    Below the required angle colours deepen towards 0, above it towards a right angle. If no angle
    can be as large as required, colours deepen from 0 to a right angle, without dots.
    """
    K = angles.shape[0]
    off_diagonal = ~np.eye(K, dtype=bool)
    middle = required if required < np.pi / 2 else 0.0
    close = (angles <= middle) & off_diagonal & (middle > 0)
    span = np.where(close, middle, np.pi / 2 - middle)
    share = np.divide(np.abs(angles - middle), span, out=np.ones_like(angles), where=span > 0)
    levels = np.clip(np.ceil(share * _N_LEVELS), 1, _N_LEVELS).astype(int)
    levels = np.where(close, -levels, levels)
    squares = []
    for level in (*range(-_N_LEVELS, 0), *range(1, _N_LEVELS + 1)):
        rows, columns = np.nonzero((levels == level) & off_diagonal)
        if rows.size:
            d = "".join(f"M{c} {r}h1v1h-1z" for r, c in zip(rows, columns, strict=True))
            class_ = f"{'close' if level < 0 else 'apart'} l{abs(level)}"
            squares.append(element("path", d=d, class_=class_))
    rows, columns = np.nonzero(close)
    marks = "".join(f"M{c + 0.5} {r + 0.5}h0" for r, c in zip(rows, columns, strict=True))
    return element(
        "svg",
        *squares,
        element("path", d=marks, class_="mark") if marks else None,
        viewBox=f"0 0 {K} {K}",
        aria_hidden="true",
        focusable="false",
    )


def _scale(required: float) -> Html:
    """Return what the colours mean."""
    parts = [
        element("span", "0°"),
        _swatches("close"),
        element("span", degrees(min(required, math.pi / 2))),
    ]
    text = "Blue: far enough apart for the guarantee. Orange with a dot: closer."
    if required < math.pi / 2:
        parts += [_swatches("apart"), element("span", "90°")]
    else:
        parts = [element("span", "0°"), _swatches("apart"), element("span", "90°")]
        text = "The deeper, the farther apart are the axes of two cones."
    return join((element("p", *parts, class_="scale"), element("p", text, class_="hint")))


def _swatches(kind: str) -> Html:
    levels = range(1, _N_LEVELS + 1)
    order = reversed(levels) if kind == "close" else levels
    return element(
        "span", *(element("i", class_=f"swatch {kind} l{n}") for n in order), class_="steps"
    )


def _angle_data(diagnosis: ConeDiagnosis) -> dict[str, Any]:
    geometry = diagnosis.geometry
    return {
        "between": rounded(np.degrees(geometry.between), 1),
        "sizes": rounded(np.degrees(geometry.angles), 1),
        "required": round(math.degrees(geometry.required_angle), 1),
        "samples": diagnosis.sizes.tolist(),
    }
