"""The sections on components, and on samples beside their reconstructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.blocks import Array
from ..judge.scores import unit_columns
from ..markup import Html, element, join
from ..pictures import png
from ..text import counted, visible
from . import charts, overview
from .charts import Axis
from .context import ReportContext
from .page import Section, bar, degrees, legend, number, percent, rounded, sentence

__all__ = ["components", "reconstructions"]

_MAX_TERMS = 12  # features listed for a component
_MAX_COMPARED_TERMS = 8  # features listed for a sample and its reconstruction
_HEADROOM_RATIO = 1.05  # top of an axis, in units of the largest value


def components(context: ReportContext) -> Section:
    """Return the section with each component as an image, a curve or a list of terms."""
    description = {
        "images": "as images, from black (0) to white (the largest value)",
        "curves": "as curves over the features",
        "terms": f"by the {min(_MAX_TERMS, context.F)} features with the largest values",
    }[context.view]
    table = overview.table(context)
    is_words = context.view == "terms"  # whose table says more than small pictures could
    choosing = f" Choose one to see more of it{' below the table' * is_words}."
    data: dict[str, Any] = {"factors": overview.factor_data(context)}
    if context.view == "curves":
        data["curves"] = _curve_data(context)
        if context.K > 1:
            pointed = overview.curve_texts(context, data["curves"]["names"])
            data["charts"] = {"endmembers": pointed}
    return Section.of(
        "components",
        "Components",
        "Components",
        element(
            "p",
            f"{sentence(context.K_components)}, {description}, numbered from 0.",
            element("span", choosing, class_="controls") if context.K > 1 else None,
        ),
        overview.endmembers(context),
        table if is_words else None,
        element("div", id="chooser", class_=f"controls{' bare' * is_words}"),
        element(
            "div",
            *(_component(context, k) for k in range(context.K)),
            class_=f"components {context.view}",
        ),
        None if is_words else table,
        overview.downloads(context),
        _describe_bands(context),
        element("p", _describe_uniqueness(context), class_="hint"),
        data=data,
    )


def _describe_uniqueness(context: ReportContext) -> str:
    found = context.uniqueness
    known = (
        f"{sentence(found.summary())}. A component that can be moved is 5° or more away in other "
        "nonnegative factors that are as good. Only of those that are unique is anything proved."
    )
    if found.was_searched:
        return known
    return f"{known} Only factors with the same reconstruction were sought."


def _describe_bands(context: ReportContext) -> Html | None:
    if context.bands is None:
        return None
    what = {"images": "The second image", "curves": "The band", "terms": "The thin line"}
    shows = "how much values vary" if context.view == "images" else "where values are"
    text = f"{what[context.view]} of a component shows {shows} {context.bands[2]}."
    return element("p", text, class_="hint")


def _component(context: ReportContext, k: int) -> Html:
    facts = (
        element("div", element("dt", name), element("dd", value, " ", element("small", more)))
        for name, value, more in _component_facts(context, k)
    )
    return element(
        "article",
        element("h3", charts.glyph(k), f" {sentence(context.component_name(k))}"),
        element("div", _component_picture(context, k), class_="picture"),
        element(
            "div",
            element("dl", *facts),
            _specific_terms(context, k) if context.view == "terms" and context.K > 1 else None,
            element("h4", "Samples with the largest share of it"),
            _typical_samples(context, k),
            class_="about",
        ),
        class_="component",
        id=f"component-{k}",
        data_k=k,
        style=charts.colour(k),
    )


def _typical_samples(context: ReportContext, k: int) -> Html:
    """Return the samples with the largest share of a component: thumbnails if they are images."""
    places = context.diagnosis.inspected.typical[k]
    shown = [(place, int(n)) for place, n in enumerate(places) if n >= 0]
    if not shown:
        return element("p", "No inspected sample has a share of it.")
    shares = {n: float(context.shares[n, k]) for _, n in shown}
    if len(context.thumbnails):
        images = context.thumbnails[k]
        return element(
            "ol",
            *(
                _thumbnail(images[place], context.sample_name(n), percent(shares[n]))
                for place, n in shown
            ),
            class_="thumbs",
        )
    bars = (
        bar(
            context.sample_name(n),
            percent(shares[n]),
            share=shares[n],
            below=context.beginning(n),
        )
        for _, n in shown
    )
    return element("ol", *bars, class_="bars")


def _thumbnail(image: Array, name: str, share: str) -> Html:
    rows, columns = image.shape
    picture = element(
        "img", src=png(image, 255.0), alt=name, width=columns, height=rows, class_="small"
    )
    return element(
        "li", picture, element("span", name, class_="of"), element("small", share), title=name
    )


def _specific_terms(context: ReportContext, k: int) -> Html | None:
    """Return the features that are larger here than in other components."""
    specific = context.specificity[:, k]
    features = [f for f in np.argsort(-specific, kind="stable")[:_MAX_TERMS] if specific[f] > 0]
    if not features:
        return None
    names = ", ".join(context.names.feature(int(f)) for f in features)
    return join((element("h4", "Most specific: large here, small in others"), element("p", names)))


def _component_facts(context: ReportContext, k: int) -> list[tuple[str, str, str]]:
    size = int(context.diagnosis.sizes[k])
    mean_share = percent(float(context.shares[:, k].mean()))
    facts = [
        ("Share", percent(float(context.component_shares[k])), "of the reconstruction"),
        ("Samples", f"{size:,} of {context.N:,}", "to which it contributes most"),
        ("Mean share", mean_share, "of a sample"),
    ]
    if context.classes is not None and (largest := context.classes.largest_in(k)) is not None:
        facts.append(("Largest class", largest[0], f"{percent(largest[1])} of its samples"))
    cones = context.diagnosis.cones
    if cones is not None:
        angle = degrees(float(cones.geometry.angles[k]))
        size_of_cone = counted(int(cones.sizes[k]), "sample")
        facts.append(("Cone", size_of_cone, f"within {angle} of its axis"))
    verdict = context.uniqueness.verdicts[k]
    line = context.uniqueness.in_words(k, context.result.component_names)
    more = visible(line.removeprefix(verdict).lstrip(":, "), None)
    facts.append(("Unique?", sentence(verdict), more))
    if context.found_again is not None:
        facts.append(("Found again", *context.found_again.in_words(k)))
    return facts


def _component_picture(context: ReportContext, k: int) -> Html:
    draw = {"images": _as_image, "curves": _as_curve, "terms": _as_terms}[context.view]
    return draw(context, k)


def _as_image(context: ReportContext, k: int) -> Html:
    """The component, and beside it by how much its pixels differ within the limits."""
    w, limits = context.W[:, k], context.limits(k)
    image = context.image(w, float(w.max()), f"component {k} as an image")
    if limits is None:
        return image
    width = np.minimum(limits[1] - limits[0], w.max())
    label = f"how much each pixel of component {k} varies"
    caption = element("small", "how much each pixel varies")
    varied = element("div", context.image(width, float(w.max()), label), caption)
    return element("div", image, varied, class_="with-band")


def _as_curve(context: ReportContext, k: int) -> Html:
    x, limits = context.feature_axis, context.limits(k)
    y = Axis("value", 0.0, context.top(k) * _HEADROOM_RATIO)
    band = None if limits is None else context.curve.band(*limits, x, y)
    path = context.curve.path(context.W[:, k], x, y, "own")
    label = f"component {k} as a curve{', with a band' * (limits is not None)}"
    return charts.chart(join((band, path)), x, y, label=label, id_=f"curve-{k}")


def _as_terms(context: ReportContext, k: int) -> Html:
    w, limits, top = context.W[:, k], context.limits(k), context.top(k)
    features = [f for f in np.argsort(-w, kind="stable")[:_MAX_TERMS] if w[f] > 0]
    bars = []
    for f in features:
        value, shares = f"{w[f]:.3g}", {"share": float(w[f]) / top}
        if limits is not None:
            low, high = float(limits[0][f]), float(limits[1][f])
            value += f" [{low:.3g}, {high:.3g}]"
            shares |= {"low": min(low / top, 1.0), "high": min(high / top, 1.0)}
        bars.append(bar(context.names.feature(int(f)), value, below=None, **shares))
    return element("ol", *bars, class_="bars terms")


def _curve_data(context: ReportContext) -> dict[str, Any]:
    curve = context.curve
    names = [context.names.feature(int(f)) for f in curve.order[curve.starts]]
    if curve.thinned:
        ends = np.append(curve.starts[1:], curve.order.size) - 1
        last = [context.names.feature(int(f)) for f in curve.order[ends]]
        names = [f"{a} to {b}" for a, b in zip(names, last, strict=True)]
    highs = [curve.highs(w) for w in context.W.T]
    tops = [context.top(k) * _HEADROOM_RATIO for k in range(context.K)]
    return {
        "x": rounded(context.feature_axis.place(curve.x)),
        "names": names,
        "tops": [float(f"{top:.4g}") for top in tops],
        "values": [[float(f"{v:.3g}") for v in w] for w in highs],
    }


# --- reconstructions ----------------------------------------------------------------------------


def reconstructions(context: ReportContext) -> Section:
    """Return the section with some samples beside their reconstructions."""
    inspected, unit = context.diagnosis.inspected, unit_columns(context.W)
    originals = inspected.originals
    if inspected.missing is not None:
        originals = np.where(inspected.missing, np.nan, originals)
    pairs = [
        (int(n), originals[:, e], unit @ inspected.coefficients[n])
        for e, n in enumerate(inspected.examples)
    ]
    keys = {
        "images": (),
        "curves": (("line original", "sample"), ("line main", "reconstruction")),
        "terms": (("bar original", "sample"), ("bar main", "reconstruction")),
    }[context.view]
    text = f"{len(pairs)} of the samples, from the smallest relative error to the largest."
    if np.isnan(originals).any():
        text += " Where an entry is missing, only the reconstruction is drawn: it is imputed."
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
    top = float(np.nanmax([*original, *reconstruction]))
    if context.view == "images":
        images = (("sample", np.nan_to_num(original)), ("reconstruction", reconstruction))
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
    larger = np.fmax(original, reconstruction)
    features = [
        f for f in np.argsort(-larger, kind="stable")[:_MAX_COMPARED_TERMS] if larger[f] > 0
    ]
    bars = (
        bar(
            context.names.feature(int(f)),
            f"{'missing' if np.isnan(original[f]) else f'{original[f]:.3g}'} / "
            f"{reconstruction[f]:.3g}",
            share=float(np.nan_to_num(original[f])) / top,
            again=float(reconstruction[f]) / top,
        )
        for f in features
    )
    return element("ol", *bars, class_="bars two")
