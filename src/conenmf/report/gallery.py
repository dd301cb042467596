"""The sections on what was found: components, samples, reconstructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.blocks import Array
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

__all__ = ["components", "reconstructions", "samples"]

_TERMS = 12  # heaviest features of a component
_COMPARED = 8  # features of a sample beside its reconstruction
_STRONGEST = 6  # samples of a component
_SHARES = 4  # components of a sample that are told


def components(subject: Subject) -> Section:
    """Each component as people of its field look at it."""
    how = {
        "images": "as images, from black for nothing to white for the largest entry",
        "curves": "as curves over the features",
        "terms": f"by the {min(_TERMS, subject.F)} heaviest features",
    }[subject.view]
    return Section.of(
        "components",
        "Components",
        "Components",
        element("p", f"{sentence(components_of(subject))}, {how}, numbered from 0."),
        element("div", id="chooser", class_="controls"),
        element(
            "div",
            *(_component(subject, k) for k in range(subject.K)),
            class_=f"components {subject.view}",
        ),
        data={"curves": _curve_data(subject)} if subject.view == "curves" else None,
    )


def _component(subject: Subject, k: int) -> Html:
    w = subject.result.W[:, k].astype(np.float64, copy=False)
    size = int(subject.diagnosis.sizes[k])
    facts = [
        ("Samples", f"{size:,} of {subject.N:,}", "to which it contributes most"),
        ("Contribution", percent(float(subject.shares[:, k].mean())), "of a sample, on average"),
    ]
    cones = subject.diagnosis.cones
    if cones is not None:
        angle = degrees(float(cones.geometry.angles[k]))
        facts.append(
            ("Its cone", f"{int(cones.sizes[k]):,} samples", f"within {angle} of its axis")
        )
    share = subject.shares[:, k]
    strongest = [n for n in np.argsort(-share, kind="stable")[:_STRONGEST] if share[n] > 0]
    return element(
        "article",
        element("h3", draw.glyph(k), f" Component {k}"),
        element("div", _component_picture(subject, w, k), class_="picture"),
        element(
            "div",
            element(
                "dl",
                *(
                    element(
                        "div",
                        element("dt", name),
                        element("dd", value, " ", element("small", more)),
                    )
                    for name, value, more in facts
                ),
            ),
            element("h4", "Samples with the largest share of it"),
            element(
                "ol",
                *(
                    element(
                        "li",
                        element("span", subject.sample(n), class_="of"),
                        element("span", percent(float(subject.shares[n, k])), class_="value"),
                        style=style(share=f"{100 * float(subject.shares[n, k]):.1f}%"),
                    )
                    for n in strongest
                ),
                class_="bars",
            )
            if strongest
            else element("p", "None of the samples that were looked at has any of it."),
            class_="about",
        ),
        class_="component",
        id=f"component-{k}",
        data_k=k,
        style=draw.colour(k),
    )


def _component_picture(subject: Subject, w: Array, k: int) -> Html:
    if subject.view == "images":
        return subject.image(w, float(w.max()), f"component {k} as an image")
    if subject.view == "curves":
        y = Axis("weight", 0.0, float(w.max()) * 1.05 or 1.0)
        path = subject.curve.path(w, subject.feature_axis, y, "own")
        return draw.chart(
            path, subject.feature_axis, y, label=f"component {k} as a curve", id_=f"curve-{k}"
        )
    top = float(w.max()) or 1.0
    heaviest = [f for f in np.argsort(-w, kind="stable")[:_TERMS] if w[f] > 0]
    return element(
        "ol", *(_bar(subject, int(f), float(w[f]), top) for f in heaviest), class_="bars terms"
    )


def _bar(subject: Subject, f: int, weight: float, top: float) -> Html:
    return element(
        "li",
        element("span", subject.names.feature(f), class_="of"),
        element("span", f"{weight:.3g}", class_="value"),
        style=style(share=f"{100 * weight / top:.1f}%"),
    )


def _curve_data(subject: Subject) -> dict[str, Any]:
    curve, W = subject.curve, subject.result.W.astype(np.float64, copy=False)
    first = [subject.names.feature(int(f)) for f in curve.order[curve.starts]]
    if curve.thinned:
        ends = np.append(curve.starts[1:], curve.order.size) - 1
        last = [subject.names.feature(int(f)) for f in curve.order[ends]]
        first = [f"{a} to {b}" for a, b in zip(first, last, strict=True)]
    highs = [curve.highs(w) for w in W.T]
    tops = [float(w.max()) * 1.05 or 1.0 for w in highs]
    return {
        "x": rounded(subject.feature_axis.place(curve.x)),
        "names": first,
        "tops": [float(f"{top:.4g}") for top in tops],
        "values": [[float(f"{v:.3g}") for v in w] for w in highs],
    }


# --- samples ------------------------------------------------------------------------------------


def samples(subject: Subject) -> Section:
    """Samples on a plane, between the components that they are made of."""
    looked_at = subject.diagnosis.inspected
    anchors, places = subject.plane
    reach = draw.extent(anchors, places)
    numbers = (
        element(
            "span",
            str(k),
            data_k=k,
            class_="anchor",
            style=style(
                x=f"{50 + 50 * x / reach:.2f}%",
                y=f"{50 + 50 * y / reach:.2f}%",
            ),
        )
        for k, (x, y) in enumerate(draw.numbered(anchors, places))
    )
    shown = looked_at.indices.size
    which = (
        "All samples"
        if shown == subject.N
        else f"{shown:,} of {subject.N:,} samples, evenly spread,"
    )
    near = (
        ""
        if subject.K == 1
        else "; the closer to a number, the more of that component, compared with the mean sample"
    )
    told = (
        f"{which} in the colour of the component that contributes most{near}. Samples that would "
        "hide each other stand side by side, so a large crowd is many samples."
    )
    controls = element(
        "div",
        element(
            "div",
            *(
                element(
                    "button", sign, type="button", data_zoom=zoom, aria_label=label, title=label
                )
                for sign, zoom, label in (
                    ("+", "in", "Zoom in"),
                    ("\N{MINUS SIGN}", "out", "Zoom out"),
                    ("Reset", "reset", "Show the whole map"),
                )
            ),
            class_="switch",
            role="group",
            aria_label="Zoom",
        ),
        element(
            "label",
            "Find a sample ",
            element("input", type="search", id="find", autocomplete="off", spellcheck="false"),
        ),
        class_="controls row",
    )
    legend = element(
        "ul",
        *(
            element(
                "li",
                element(
                    "button",
                    draw.glyph(k),
                    f" {k}",
                    element("small", f" {int(size):,}"),
                    type="button",
                    data_k=k,
                    aria_pressed="false",
                ),
            )
            for k, size in enumerate(subject.diagnosis.sizes)
        ),
        class_="legend marks",
        aria_label="Components and how many samples each has; choose one to see it alone",
    )
    return Section.of(
        "samples",
        "Samples",
        "Samples",
        element("p", told),
        element(
            "figure",
            element(
                "div",
                draw.sample_map(anchors, places, looked_at.labels),
                *numbers,
                class_="map",
                id="map",
                role="img",
                aria_label="Map of samples by the components they are made of",
            ),
            element("div", controls, legend, readout(), class_="beside"),
            class_="wide",
        ),
        data={"samples": _sample_data(subject)},
    )


def _sample_data(subject: Subject) -> dict[str, Any]:
    looked_at = subject.diagnosis.inspected
    anchors, places = subject.plane
    strongest = np.argsort(-subject.shares, axis=1, kind="stable")[:, :_SHARES]
    return {
        "reach": round(draw.extent(anchors, places), 4),
        "anchors": rounded(draw.numbered(anchors, places)),
        "places": rounded(places),
        "labels": looked_at.labels.tolist(),
        "names": [subject.sample(n) for n in range(looked_at.indices.size)],
        "errors": [float(f"{error:.4g}") for error in looked_at.errors],
        "shares": [
            [[int(k), round(100 * float(of[k]))] for k in ks if of[k] > 0.005]
            for of, ks in zip(subject.shares, strongest, strict=True)
        ],
    }


# --- reconstructions ----------------------------------------------------------------------------


def reconstructions(subject: Subject) -> Section:
    """Some samples beside what the components make of them."""
    looked_at, W = subject.diagnosis.inspected, subject.result.W.astype(np.float64, copy=False)
    lengths = np.linalg.norm(W, axis=0)
    unit = np.divide(W, lengths, out=np.zeros_like(W), where=lengths > 0)
    pairs = [
        (int(n), looked_at.originals[:, e], unit @ looked_at.coefficients[n])
        for e, n in enumerate(looked_at.examples)
    ]
    keys = {
        "images": (),
        "curves": (("line original", "sample"), ("line main", "reconstruction")),
        "terms": (("bar original", "sample"), ("bar main", "reconstruction")),
    }[subject.view]
    return Section.of(
        "reconstruction",
        "Reconstruction",
        "Samples and their reconstruction",
        element("p", f"{len(pairs)} of the samples, from the best reconstructed to the worst."),
        legend(*keys) if keys else None,
        element(
            "div",
            *(_pair(subject, n, original, again) for n, original, again in pairs),
            class_=f"pairs {subject.view}",
        ),
    )


def _pair(subject: Subject, n: int, original: Array, again: Array) -> Html:
    error = float(subject.diagnosis.inspected.errors[n])
    return element(
        "figure",
        _compared(subject, original, again),
        element(
            "figcaption",
            element("span", subject.sample(n), class_="of"),
            element("span", f"relative error {number(error)}", class_="value"),
        ),
    )


def _compared(subject: Subject, original: Array, again: Array) -> Html:
    top = float(max(original.max(), again.max()))
    if subject.view == "images":
        both = (("sample", original), ("reconstruction", again))
        return element(
            "div",
            *(
                element("div", subject.image(values, top, what), element("small", what))
                for what, values in both
            ),
            class_="both",
        )
    if subject.view == "curves":
        x, y = subject.feature_axis, Axis("value", 0.0, top * 1.05 or 1.0)
        lines = (
            subject.curve.path(original, x, y, "original"),
            subject.curve.path(again, x, y, "main"),
        )
        return draw.chart(join(lines), x, y, label="a sample and its reconstruction")
    heaviest = np.argsort(-np.maximum(original, again), kind="stable")[:_COMPARED]
    rows = (
        element(
            "li",
            element("span", subject.names.feature(int(f)), class_="of"),
            element("span", f"{original[f]:.3g} / {again[f]:.3g}", class_="value"),
            style=style(
                share=f"{100 * float(original[f]) / (top or 1.0):.1f}%",
                again=f"{100 * float(again[f]) / (top or 1.0):.1f}%",
            ),
        )
        for f in heaviest
        if max(original[f], again[f]) > 0
    )
    return element("ol", *rows, class_="bars two")
