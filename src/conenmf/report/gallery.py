"""The sections on what was found: components, samples, reconstructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.blocks import Array
from ..judge.metrics import unit_columns
from ..markup import Html, element, join, style
from . import charts
from .charts import Axis
from .context import ReportContext
from .page import Section, bar, degrees, legend, number, percent, readout, rounded, sentence

__all__ = ["components", "reconstructions", "samples"]

_MAX_TERMS = 12  # features listed for a component
_MAX_COMPARED_TERMS = 8  # features listed for a sample and its reconstruction
_MAX_STRONGEST_SAMPLES = 6  # listed for a component
_MAX_SHARES = 4  # components listed for a sample
_HEADROOM_RATIO = 1.05  # top of an axis, in units of the largest value


def components(context: ReportContext) -> Section:
    """Return the section with each component as an image, a curve or a list of terms."""
    description = {
        "images": "as images, from black (0) to white (the largest value)",
        "curves": "as curves over the features",
        "terms": f"by the {min(_MAX_TERMS, context.F)} features with the largest values",
    }[context.view]
    return Section.of(
        "components",
        "Components",
        "Components",
        element("p", f"{sentence(context.K_components)}, {description}, numbered from 0."),
        element("p", _describe_freedom(context)),
        element("div", id="chooser", class_="controls"),
        element(
            "div",
            *(_component(context, k) for k in range(context.K)),
            class_=f"components {context.view}",
        ),
        data={"curves": _curve_data(context)} if context.view == "curves" else None,
    )


def _describe_freedom(context: ReportContext) -> str:
    if (not_unique := context.diagnosis.freedom.in_words()) is None:
        return (
            "Whether they are unique is not known: no way was found to turn one by 5° or more "
            "without changing the reconstruction, which does not prove that there is none."
        )
    return f"{sentence(not_unique)}. Nothing is proven of those that are not marked."


def _component(context: ReportContext, k: int) -> Html:
    shares = context.shares[:, k]
    strongest = [
        n for n in np.argsort(-shares, kind="stable")[:_MAX_STRONGEST_SAMPLES] if shares[n] > 0
    ]
    bars = (
        bar(context.sample_name(n), percent(float(shares[n])), share=float(shares[n]))
        for n in strongest
    )
    return element(
        "article",
        element("h3", charts.glyph(k), f" Component {k}"),
        element("div", _component_picture(context, k), class_="picture"),
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
                    for name, value, more in _component_facts(context, k)
                ),
            ),
            element("h4", "Samples with the largest share of it"),
            element("ol", *bars, class_="bars")
            if strongest
            else element("p", "No inspected sample has a share of it."),
            class_="about",
        ),
        class_="component",
        id=f"component-{k}",
        data_k=k,
        style=charts.colour(k),
    )


def _component_facts(context: ReportContext, k: int) -> list[tuple[str, str, str]]:
    size = int(context.diagnosis.sizes[k])
    mean_share = percent(float(context.shares[:, k].mean()))
    facts = [
        ("Samples", f"{size:,} of {context.N:,}", "to which it contributes most"),
        ("Mean share", mean_share, "of a sample"),
    ]
    cones = context.diagnosis.cones
    if cones is not None:
        angle = degrees(float(cones.geometry.angles[k]))
        facts.append(("Cone", f"{int(cones.sizes[k]):,} samples", f"within {angle} of its axis"))
    freedom = context.diagnosis.freedom
    if k in freedom.visible:
        turn = f"{freedom.turn_in_words(k)}, at the same error"
        facts.append(("Not unique", "Can be turned", turn))
    return facts


def _component_picture(context: ReportContext, k: int) -> Html:
    w = context.W[:, k]
    if context.view == "images":
        return context.image(w, float(w.max()), f"component {k} as an image")
    if context.view == "curves":
        y = Axis("value", 0.0, float(w.max()) * _HEADROOM_RATIO or 1.0)
        path = context.curve.path(w, context.feature_axis, y, "own")
        return charts.chart(
            path, context.feature_axis, y, label=f"component {k} as a curve", id_=f"curve-{k}"
        )
    top = float(w.max()) or 1.0
    features = [f for f in np.argsort(-w, kind="stable")[:_MAX_TERMS] if w[f] > 0]
    bars = (
        bar(context.names.feature(int(f)), f"{w[f]:.3g}", share=float(w[f]) / top) for f in features
    )
    return element("ol", *bars, class_="bars terms")


def _curve_data(context: ReportContext) -> dict[str, Any]:
    curve = context.curve
    names = [context.names.feature(int(f)) for f in curve.order[curve.starts]]
    if curve.thinned:
        ends = np.append(curve.starts[1:], curve.order.size) - 1
        last = [context.names.feature(int(f)) for f in curve.order[ends]]
        names = [f"{a} to {b}" for a, b in zip(names, last, strict=True)]
    highs = [curve.highs(w) for w in context.W.T]
    tops = [float(w.max()) * _HEADROOM_RATIO or 1.0 for w in highs]
    return {
        "x": rounded(context.feature_axis.place(curve.x)),
        "names": names,
        "tops": [float(f"{top:.4g}") for top in tops],
        "values": [[float(f"{v:.3g}") for v in w] for w in highs],
    }


# --- samples ------------------------------------------------------------------------------------


def samples(context: ReportContext) -> Section:
    """Return the section with the map of the inspected samples."""
    return Section.of(
        "samples",
        "Samples",
        "Samples",
        element("p", _describe_map(context)),
        element(
            "figure",
            _map(context),
            element(
                "div", _map_controls(), _component_buttons(context), readout(), class_="beside"
            ),
            class_="wide",
        ),
        data={"samples": _sample_data(context)},
    )


def _describe_map(context: ReportContext) -> str:
    S = context.diagnosis.inspected.indices.size
    which = "All samples" if context.N == S else f"{S:,} of {context.N:,} samples, evenly spread,"
    near = (
        "; the closer a sample is to a number, the larger is the share of that component, compared "
        "with the mean sample"
    )
    return (
        f"{which} in the colour of the component that contributes most"
        f"{near if context.K > 1 else ''}. Samples that would hide each other are drawn side by "
        "side, so a large crowd means many samples."
    )


def _map(context: ReportContext) -> Html:
    layout = context.sample_map
    numbers = (
        element(
            "span",
            str(k),
            data_k=k,
            class_="anchor",
            style=style(
                x=f"{50 + 50 * x / layout.half_side:.2f}%",
                y=f"{50 + 50 * y / layout.half_side:.2f}%",
            ),
        )
        for k, (x, y) in enumerate(layout.numbers)
    )
    return element(
        "div",
        layout.svg(context.diagnosis.inspected.labels),
        *numbers,
        class_="map",
        id="map",
        role="img",
        aria_label="Map of samples by their components",
    )


def _map_controls() -> Html:
    zoom = (
        ("+", "in", "Zoom in"),
        ("\N{MINUS SIGN}", "out", "Zoom out"),
        ("Reset", "reset", "Show the whole map"),
    )
    return element(
        "div",
        element(
            "div",
            *(
                element("button", sign, type="button", data_zoom=to, aria_label=label, title=label)
                for sign, to, label in zoom
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


def _component_buttons(context: ReportContext) -> Html:
    buttons = (
        element(
            "button",
            charts.glyph(k),
            f" {k}",
            element("small", f" {int(size):,}"),
            type="button",
            data_k=k,
            aria_pressed="false",
        )
        for k, size in enumerate(context.diagnosis.sizes)
    )
    return element(
        "ul",
        *(element("li", button) for button in buttons),
        class_="legend marks",
        aria_label="Components and how many samples each has; choose one to highlight it",
    )


def _sample_data(context: ReportContext) -> dict[str, Any]:
    inspected, layout = context.diagnosis.inspected, context.sample_map
    largest = np.argsort(-context.shares, axis=1, kind="stable")[:, :_MAX_SHARES]
    return {
        "halfSide": round(layout.half_side, 4),
        "anchors": rounded(layout.numbers),
        "places": rounded(layout.places),
        "labels": inspected.labels.tolist(),
        "names": [context.sample_name(n) for n in range(inspected.indices.size)],
        "errors": [float(f"{error:.4g}") for error in inspected.errors],
        "shares": [
            [[int(k), round(100 * float(shares[k]))] for k in ks if shares[k] > 0.005]
            for shares, ks in zip(context.shares, largest, strict=True)
        ],
    }


# --- reconstructions ----------------------------------------------------------------------------


def reconstructions(context: ReportContext) -> Section:
    """Return the section with some samples beside their reconstructions."""
    inspected, unit = context.diagnosis.inspected, unit_columns(context.W)
    pairs = [
        (int(n), inspected.originals[:, e], unit @ inspected.coefficients[n])
        for e, n in enumerate(inspected.examples)
    ]
    keys = {
        "images": (),
        "curves": (("line original", "sample"), ("line main", "reconstruction")),
        "terms": (("bar original", "sample"), ("bar main", "reconstruction")),
    }[context.view]
    text = f"{len(pairs)} of the samples, from the smallest relative error to the largest."
    return Section.of(
        "reconstruction",
        "Reconstruction",
        "Samples and their reconstruction",
        element("p", text),
        legend(*keys) if keys else None,
        element("div", *(_pair(context, *pair) for pair in pairs), class_=f"pairs {context.view}"),
    )


def _pair(context: ReportContext, n: int, original: Array, reconstruction: Array) -> Html:
    error = float(context.diagnosis.inspected.errors[n])
    return element(
        "figure",
        _compared(context, original, reconstruction),
        element(
            "figcaption",
            element("span", context.sample_name(n), class_="of"),
            element("span", f"relative error {number(error)}", class_="value"),
        ),
    )


def _compared(context: ReportContext, original: Array, reconstruction: Array) -> Html:
    top = float(max(original.max(), reconstruction.max()))
    if context.view == "images":
        images = (("sample", original), ("reconstruction", reconstruction))
        return element(
            "div",
            *(
                element("div", context.image(pixels, top, name), element("small", name))
                for name, pixels in images
            ),
            class_="both",
        )
    if context.view == "curves":
        x, y = context.feature_axis, Axis("value", 0.0, top * _HEADROOM_RATIO or 1.0)
        lines = (
            context.curve.path(original, x, y, "original"),
            context.curve.path(reconstruction, x, y, "main"),
        )
        return charts.chart(join(lines), x, y, label="a sample and its reconstruction")
    larger = np.maximum(original, reconstruction)
    features = [
        f for f in np.argsort(-larger, kind="stable")[:_MAX_COMPARED_TERMS] if larger[f] > 0
    ]
    bars = (
        bar(
            context.names.feature(int(f)),
            f"{original[f]:.3g} / {reconstruction[f]:.3g}",
            share=float(original[f]) / top,
            again=float(reconstruction[f]) / top,
        )
        for f in features
    )
    return element("ol", *bars, class_="bars two")
