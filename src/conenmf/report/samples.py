"""The section with the map of samples, in the colours of components or of known classes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..data.blocks import Array
from ..markup import Html, element, style
from . import charts
from .context import ReportContext
from .page import Section, readout, rounded

__all__ = ["samples"]

_MAX_SHARES = 4  # components listed for a sample


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
            element("div", _map_controls(context), *_marks(context), readout(), class_="beside"),
            class_="wide",
        ),
        data={"samples": _sample_data(context)},
    )


def _describe_map(context: ReportContext) -> str:
    S = context.diagnosis.inspected.indices.size
    which = "All samples" if context.N == S else f"{S:,} of {context.N:,} samples, evenly spread,"
    colours = "the component that contributes most"
    if context.classes is not None:
        colours = f"their class, or of {colours}"
    if context.coordinates is not None:
        return f"{which} at the coordinates that were given, in the colour of {colours}."
    near = (
        "; the closer a sample is to a number, the larger is the share of that component, compared "
        "with the mean sample"
    )
    return (
        f"{which} in the colour of {colours}"
        f"{near if context.K > 1 else ''}. Samples that would hide each other are drawn side by "
        "side, so a large crowd means many samples."
    )


def _map(context: ReportContext) -> Html:
    layout = context.sample_map
    by = "components" if context.coordinates is None else "given coordinates"
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
        layout.svg(context.diagnosis.inspected.labels, _class_numbers(context)),
        *numbers,
        class_="map",
        id="map",
        role="img",
        aria_label=f"Map of samples by their {by}",
    )


def _class_numbers(context: ReportContext) -> Array | None:
    """The class of each inspected sample."""
    classes = context.classes
    return None if classes is None else classes.of_samples[context.diagnosis.inspected.indices]


def _map_controls(context: ReportContext) -> Html:
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
        _colour_switch() if context.classes is not None else None,
        element(
            "label",
            element("span", "Find a sample"),
            element("input", type="search", id="find", autocomplete="off", spellcheck="false"),
        ),
        class_="controls row",
    )


def _colour_switch() -> Html:
    kinds = (("class", "by class"), ("component", "by component"))
    return element(
        "div",
        *(
            element("button", text, type="button", data_colours=kind, aria_pressed="false")
            for kind, text in kinds
        ),
        class_="switch",
        role="group",
        aria_label="Colours of samples",
    )


def _marks(context: ReportContext) -> list[Html]:
    """Return what the colours mean: a list of components, and one of classes if there are any."""
    numbers = [str(k) for k in range(context.K)]
    what = "Components and how many samples each has; choose one to highlight it"
    classes = context.classes
    sizes = zip(numbers, context.diagnosis.sizes, strict=True)
    lists = [_buttons("component", sizes, what, is_hidden=classes is not None)]
    if classes is not None:
        what = "Classes and how many samples each has; choose one to highlight it"
        named = zip(classes.names, classes.sizes, strict=True)
        lists.insert(0, _buttons("class", named, what))
    return lists


def _buttons(
    kind: str, entries: Iterable[tuple[str, Any]], label: str, *, is_hidden: bool = False
) -> Html:
    buttons = (
        element(
            "button",
            charts.glyph(k),
            element("span", name, class_="of"),
            element("small", f"{int(size):,}"),
            type="button",
            data_k=k,
            aria_pressed="false",
        )
        for k, (name, size) in enumerate(entries)
    )
    items = (element("li", button) for button in buttons)
    class_ = f"legend marks{' hidden' * is_hidden}"
    return element("ul", *items, class_=class_, data_by=kind, aria_label=label)


def _sample_data(context: ReportContext) -> dict[str, Any]:
    inspected, layout = context.diagnosis.inspected, context.sample_map
    largest = np.argsort(-context.shares, axis=1, kind="stable")[:, :_MAX_SHARES]
    numbers = _class_numbers(context)
    return {
        "halfSide": round(layout.half_side, 4),
        "anchors": rounded(layout.numbers),
        "places": rounded(layout.places),
        "labels": inspected.labels.tolist(),
        "names": [context.sample_name(n) for n in range(inspected.indices.size)],
        **({} if numbers is None else {"classes": _class_names(context, numbers)}),
        "errors": [float(f"{error:.4g}") for error in inspected.errors],
        "shares": [
            [[int(k), round(100 * float(shares[k]))] for k in ks if shares[k] > 0.005]
            for shares, ks in zip(context.shares, largest, strict=True)
        ],
    }


def _class_names(context: ReportContext, numbers: Array) -> list[str]:
    assert context.classes is not None
    return [context.classes.names[number] for number in numbers]
