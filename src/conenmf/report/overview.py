"""All components at once: a table, curves in one frame, and the factors as files to download.

Files are made by the script of the page from what is embedded in it, so that they need no network.
A budget keeps pages small: of larger factors the page says where they are.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from ..data.blocks import Array
from ..export import no_formula
from ..judge.scores import largest_features, unit_columns
from ..markup import Html, element, join, style
from . import charts
from .charts import Axis
from .context import ReportContext
from .page import percent

__all__ = ["curve_texts", "downloads", "endmembers", "factor_data", "table"]

_MAX_TABLE_TERMS = 8  # features of a component in the table
_MAX_FACTOR_BYTES = 1_000_000  # of a page, for each factor
_HEADROOM_RATIO = 1.05  # top of an axis, in units of the largest value
_MAX_POINTED = 4  # components whose values are shown where a curve is pointed at


# --- the table --------------------------------------------------------------------------------


def table(context: ReportContext) -> Html:
    """Return a table of the components, the largest share of the reconstruction first."""
    titles = ["component", "share of the reconstruction", "samples", "unique?"]
    if context.found_again is not None:
        titles.append("found again")
    if context.classes is not None:
        titles.append("largest class")
    if context.view != "images":
        titles.append("largest features" if context.view == "terms" else "peaks at")
    shares = context.component_shares
    rows = (_row(context, int(k)) for k in np.argsort(-shares, kind="stable"))
    head = element("tr", *(element("th", title, scope="col") for title in titles))
    return element(
        "div",
        element("h3", "All components"),
        element(
            "table", element("thead", head), element("tbody", *rows), class_="all", id="overview"
        ),
        class_=f"overview {context.view}",
    )


def _row(context: ReportContext, k: int) -> Html:
    share = float(context.component_shares[k])
    widest, size = float(context.component_shares.max()) or 1.0, int(context.diagnosis.sizes[k])
    cells = [
        element(
            "td",
            element("i", class_="share", style=style(part=f"{share / widest:.3f}")),
            percent(share),
            class_="shares",
        ),
        element("td", f"{size:,}", class_="count one" if size == 1 else "count"),
        element("td", context.uniqueness.verdicts[k], class_="verdict"),
    ]
    if context.found_again is not None:
        cells.append(element("td", context.found_again.share(k), class_="again"))
    if context.classes is not None:
        largest = context.classes.largest_in(k)
        text = "none" if largest is None else f"{largest[0]} ({percent(largest[1])})"
        cells.append(element("td", text, class_="class"))
    if context.view != "images":
        cells.append(element("td", _in_words(context, k), class_="features"))
    link = element("a", charts.glyph(k), f" {k}", href=f"#component-{k}", data_k=k)
    return element(
        "tr", element("th", link, scope="row"), *cells, style=charts.colour(k), class_="of-one"
    )


def _in_words(context: ReportContext, k: int) -> str:
    w = context.W[:, k]
    if context.view == "terms":
        features = largest_features(w[:, None], context.names, _MAX_TABLE_TERMS)[0]
        return ", ".join(features) or "all are zero"
    return context.names.feature(int(w.argmax())) if w.max() > 0 else "all are zero"


# --- all curves in one frame --------------------------------------------------------------------


def endmembers(context: ReportContext) -> Html | None:
    """Return all components as curves in one frame, each scaled to norm 1."""
    if context.view != "curves" or context.K == 1:
        return None
    units = unit_columns(context.W)
    x, y = context.feature_axis, _unit_axis(units)
    lines = (
        element("g", context.curve.path(units[:, k], x, y, "own"), style=charts.colour(k), data_k=k)
        for k in range(context.K)
    )
    keys = (element("li", charts.glyph(k), f" {k}") for k in range(context.K))
    label = f"All {context.K} components as curves, each scaled to norm 1"
    return element(
        "figure",
        element("h3", "All components in one frame, each scaled to norm 1"),
        charts.chart(join(lines), x, y, label=label, id_="endmembers"),
        element("ul", *keys, class_="legend tight"),
        element("output", "\N{NO-BREAK SPACE}", class_="readout controls", aria_live="polite"),
        class_=f"endmembers{' many' * (context.K > charts.N_COLOURS)}",
    )


def _unit_axis(units: Array) -> Axis:
    return Axis("value", 0.0, float(units.max()) * _HEADROOM_RATIO or 1.0)


def curve_texts(context: ReportContext, names: list[str]) -> dict[str, Any]:
    """Return what to show where the frame of all curves is pointed at."""
    highs = np.array([context.curve.highs(w) for w in unit_columns(context.W).T])
    y = _unit_axis(highs)
    texts = []
    for name, values in zip(names, highs.T, strict=True):
        largest = np.argsort(-values, kind="stable")[:_MAX_POINTED]
        parts = ", ".join(f"{k}: {values[k]:.3g}" for k in largest if values[k] > 0)
        texts.append(f"{name}\ncomponents {parts}" if parts else f"{name}\nall are zero")
    return {
        "x": np.round(context.feature_axis.place(context.curve.x), 4).tolist(),
        "y": np.round(y.place(highs.max(axis=0)), 4).tolist(),
        "text": texts,
    }


# --- downloads ----------------------------------------------------------------------------------


def factor_data(context: ReportContext) -> dict[str, Any]:
    """Return the factors that are small enough to be kept in the page, for its script."""
    data, names = {}, context.names
    if _fits(context.F * context.K, names.feature_names):
        data["components"] = _embedded("feature", names.feature_names, context.result.W)
    if _fits(context.N * context.K, names.sample_names):
        H = np.asarray(context.result.H)
        data["coefficients"] = _embedded("sample", names.sample_names, H.T)
    return data


def _fits(count: int, names: tuple[str, ...] | None) -> bool:
    n_bytes = count * 16 // 3  # float32 in base64
    return n_bytes + sum(map(len, names or ())) <= _MAX_FACTOR_BYTES


def _embedded(title: str, names: tuple[str, ...] | None, factor: Array) -> dict[str, Any]:
    numbers = np.ascontiguousarray(factor, dtype=np.float64)
    scale = float(numbers.max(initial=0.0)) or 1.0  # float32 must hold tiny and huge data too
    content = (numbers / scale).astype("<f4").tobytes()
    return {
        "title": title,
        "names": None if names is None else [no_formula(name) for name in names],
        "columns": numbers.shape[1],
        "scale": scale,
        "numbers": base64.b64encode(content).decode("ascii"),
    }


def downloads(context: ReportContext) -> Html:
    """Return the buttons for the factors in the page, and where the others are."""
    data = factor_data(context)
    buttons = (
        element("button", f"Download {name} (CSV)", type="button", data_download=name)
        for name in data
    )
    missing = [name for name in ("components", "coefficients") if name not in data]
    where = {"components": "components.csv", "coefficients": "coefficients.csv"}
    text = (
        f"The {' and '.join(missing)} are too large for this page: they are in "
        f"{' and '.join(where[name] for name in missing)} of the result folder, and in result.npz."
    )
    return element(
        "div",
        element("div", *buttons, class_="row start controls") if data else None,
        element("p", text, class_="hint") if missing else None,
        class_="downloads",
    )
