"""What each section of a report shows, as plain values for the template."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..cones.geometry import ConeGeometry
from ..data.blocks import Array
from ..data.prepare import Preparation
from ..export import no_formula
from ..judge.certificate import quality_in_words
from ..judge.diagnosis import cones_in_words, shown_bound
from ..judge.scores import abundance_maps, largest_features
from ..result import CHOSEN_BY
from ..solve.inits import INITS
from ..solve.losses import FROBENIUS, SOLVER_NAMES, get_loss
from ..text import counted, visible
from . import charts
from .charts import Axis, Chart, Curve, Mark
from .context import Context, Image, png

_MAX_TERMS = 12  # features listed for a component
_MAX_TABLE_TERMS = 8  # features listed in a row of the table, or for a sample
_MAX_NAMED_BARS = 200  # named features up to which a component is drawn with all of them
_MAX_FACTOR_BYTES = 1_000_000  # of a page, for each factor
_MAX_MAP_PIXELS = 600_000  # of all maps of a page together
_MAX_ENLARGED_PIXELS = 200  # side up to which the pixels of a map stay sharp
_MAX_POINTED = 4  # components whose values are shown where a chart is pointed at
_MAX_POINTS = 400  # of an error curve before it is thinned
_MAX_DOTS = 60  # iterations up to which each is marked on the curve
_N_LEVELS = 6  # of colour on either side of the required angle
_ROUNDING_RATIO = 1e-8  # singular values below this share of the largest are not drawn
_NEAR_BOUND_RATIO = 1.01  # error over lower bound, up to which nothing is left to win
_FAR_ABOVE_FLOOR = 0.1  # of the noise floor


# --- in words ---------------------------------------------------------------------------------


def sentence(text: str) -> str:
    """Return a text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def percent(share: float) -> str:
    """Return a share of 1 to two digits; only a whole is 100%."""
    if 0 < share < 0.001:
        return "< 0.1%"
    if 0.9945 <= share < 1:
        return f"{min(100 * share, 99.99):.2f}%"
    return f"{100 * share:.1f}%" if share < 0.0995 else f"{100 * share:.0f}%"


def degrees(radians: float) -> str:
    """Return an angle in degrees."""
    return f"{math.degrees(radians):.1f}°"


# --- verdict ------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """One line of the verdict: how good it is, what was found, and what to do about it."""

    level: str
    name: str
    text: str
    advice: str = ""


def verdict(context: Context) -> dict[str, Any]:
    """Return the lines that the page begins with, and what else the summary of a result says."""
    lines = [_error_verdict(context), _number_verdict(context)]
    floor = getattr(context.diagnosis.certificate, "floor_in_words", str)()
    if floor:
        far = context.diagnosis.certificate.above_floor > _FAR_ABOVE_FLOOR
        advice = "Try a larger K, or check whether the counts are overdispersed." * far
        level = "poor" if far else "good"
        lines.append(Verdict(level, "Noise", f"the fit is {floor}", advice))
    lines += [_stability_verdict(context), _uniqueness_verdict(context)]
    cones = cones_in_words(context.diagnosis.cones)
    if cones:
        lines.append(Verdict("good", "Cones", cones))
    said = " ".join(line.text for line in lines).lower()
    more = [line for line in context.result.summary() if line.lower() not in said]
    return {"lines": lines, "more": more}


def _error_verdict(context: Context) -> Verdict:
    result, certificate = context.result, context.diagnosis.certificate
    quality = quality_in_words(certificate, context.K)
    lines = [result.summary()[0], *(line for line in quality if "noise floor" not in line)]
    text = ". ".join(sentence(line) for line in lines)
    if result.problem:
        return Verdict("poor", "Error", text, f"{sentence(result.problem)}.")
    if not certificate.is_bound_telling:
        return Verdict("open", "Error", text, "No telling lower bound is known.")
    if certificate.relative_error <= _NEAR_BOUND_RATIO * certificate.lower_bound + 1e-9:
        return Verdict("good", "Error", text)
    return Verdict("fair", "Error", text, "A better init, or a tighter bound, may close the gap.")


def _number_verdict(context: Context) -> Verdict:
    result, rank = context.result, context.diagnosis.rank
    K = counted(context.K, "component")
    text = f"{K}, {visible(CHOSEN_BY.get(result.K_decided_by, result.K_decided_by))}"
    if rank.K == context.K and result.K_decided_by != "ratio":
        return Verdict("fair", "Number", f"{text}; the singular values suggest the same")
    if rank.K != context.K:
        text += f"; the largest ratio of singular values is at {rank.K}"
    return Verdict("open", "Number", text, "Compare estimates: select_k(V), or conenmf rank.")


def _stability_verdict(context: Context) -> Verdict:
    found = context.stability
    if found is None:
        advice = "Run stability(V, K), or conenmf stability, to see which components return."
        return Verdict("open", "Stability", "not checked", advice)
    n_stable = int(found.is_stable.sum())
    level = "good" if n_stable == found.K else "fair" if n_stable else "poor"
    advice = "Interpret only the stable components, or try a smaller K." * (n_stable < found.K)
    return Verdict(level, "Stability", found.in_sentences()[0], advice)


def _uniqueness_verdict(context: Context) -> Verdict:
    found = context.uniqueness
    text = found.summary()
    if not found.was_searched:
        text += "; only factors with the same reconstruction were sought"
    if all(one in ("unique", "given") for one in found.verdicts):
        return Verdict("good", "Uniqueness", text)
    if "can be moved" in found.verdicts:
        advice = "Other factors are as good: look at their bands before you interpret them."
        return Verdict("poor", "Uniqueness", text, advice)
    advice = "result.uniqueness() searches for other factors." * (not found.was_searched)
    return Verdict("open", "Uniqueness", text, advice)


# --- components ---------------------------------------------------------------------------------


def components(context: Context) -> dict[str, Any]:
    """Return each component as an image, a curve or a list of terms, and a table of all."""
    description = {
        "images": "as images, from black (0) to white (the largest value)",
        "curves": "as curves over the features",
        "terms": f"by the {min(_MAX_TERMS, len(context.W))} features with the largest values",
    }[context.view]
    bands = ""
    if context.bands is not None:
        what = {"images": "The second image", "curves": "The band", "terms": "The thin line"}
        shows = "how much values vary" if context.view == "images" else "where values are"
        bands = f"{what[context.view]} of a component shows {shows} {context.bands.origin}."
    return {
        "description": f"{counted(context.K, 'component')}, {description}, numbered from 0.",
        "cards": [_component(context, k) for k in range(context.K)],
        "order": np.argsort(-context.component_shares, kind="stable").tolist(),
        "endmembers": _endmembers(context),
        "bands": bands,
    }


def _component(context: Context, k: int) -> dict[str, Any]:
    """What a page shows of one component, beside its picture."""
    share, found, w = float(context.component_shares[k]), context.uniqueness, context.W[:, k]
    line = found.in_words(k, context.result.component_names)
    card: dict[str, Any] = {
        "k": k,
        "name": context.component_names[k],
        "share": percent(share),
        "part": share / (float(context.component_shares.max()) or 1.0),
        "size": int(context.diagnosis.sizes[k]),
        "mean_share": percent(float(context.shares[:, k].mean())),
        "largest_class": context.largest_class(k),
        "unique": found.verdicts[k],
        "unique_because": visible(line.removeprefix(found.verdicts[k]).lstrip(":, "), None),
        "typical": _typical_samples(context, k),
        "peak": context.names.feature(int(w.argmax())) if w.any() else "",
        **_picture(context, k),
    }
    if context.stability is not None:
        card["stability"] = _stability(context, k)
    if context.view == "terms":
        features = largest_features(w[:, None], context.names, _MAX_TABLE_TERMS)[0]
        card["peak"] = ", ".join(features)
        card["specific"] = _specific_terms(context, k)
    return card


def _stability(context: Context, k: int) -> dict[str, Any]:
    """In how many runs a component is, and how closely."""
    own, found = int(context.partners[k]), context.stability
    assert found is not None
    low, high = found.cosine_limits[:, own]
    silhouette = float(found.silhouettes[own])
    return {
        "share": f"{found.found_in[own]:.0%}",
        "cosine": f"{np.median(found.cosines[:, own]):.3f} [{low:.3f}, {high:.3f}]",
        "silhouette": f"{silhouette:.2f}" if np.isfinite(silhouette) else "none",
        "is_stable": bool(found.is_stable[own]),
        "move": found.move_in_words(own),
        "withheld": found.withheld[own],
    }


def _typical_samples(context: Context, k: int) -> list[dict[str, Any]]:
    """The samples with the largest share of a component, with thumbnails if they are images."""
    shown = []
    for place, n in enumerate(context.diagnosis.inspected.typical[k].tolist()):
        if n < 0:
            continue
        share = float(context.shares[n, k])
        one: dict[str, Any] = {"name": context.sample_name(n), "value": percent(share)}
        one |= {"share": share, "text": context.beginning(n)}
        if len(context.thumbnails):
            pixels = context.thumbnails[k][place]
            rows, columns = pixels.shape
            one["image"] = Image(png(pixels, 255.0), one["name"], columns, rows, True)
        shown.append(one)
    return shown


def _specific_terms(context: Context, k: int) -> str:
    """The features that are larger here than in other components.

    A feature counts by its value times its share of the values in all components, at norm 1.
    """
    units = context.units
    total = units.sum(axis=1)
    specific = np.divide(units[:, k] ** 2, total, out=np.zeros(len(units)), where=total > 0)
    largest = np.argsort(-specific, kind="stable")[:_MAX_TERMS]
    return ", ".join(context.names.feature(int(f)) for f in largest if specific[f] > 0)


def _picture(context: Context, k: int) -> dict[str, Any]:
    w, limits = context.W[:, k], context.limits(k)
    if context.view == "images":
        white = float(w.max())
        picture = {"image": context.image(w, white, f"component {k} as an image")}
        if limits is not None:
            width = np.minimum(limits[1] - limits[0], white)
            label = f"how much each pixel of component {k} varies"
            picture["varies"] = context.image(width, white, label)
        return picture
    if context.view == "curves":
        return {"chart": _component_chart(context, k)}
    top = context.value_axis(k).high
    bars = []
    for f in np.argsort(-w, kind="stable")[:_MAX_TERMS]:
        if w[f] > 0:
            bar: dict[str, Any] = {"name": context.names.feature(int(f)), "value": f"{w[f]:.3g}"}
            bar["share"] = float(w[f]) / top
            if limits is not None:
                low, high = float(limits[0][f]), float(limits[1][f])
                bar["value"] += f" [{low:.3g}, {high:.3g}]"
                bar |= {"low": min(low / top, 1.0), "high": min(high / top, 1.0)}
            bars.append(bar)
    all_fit = _MAX_TERMS < len(w) <= _MAX_NAMED_BARS
    return {"bars": bars, "chart": _component_chart(context, k) if all_fit else None}


def _component_chart(context: Context, k: int) -> Chart:
    """A component over the features: a curve, or bars where features have names."""
    w, limits = context.W[:, k], context.limits(k)
    x, y, curve = context.feature_axis, context.value_axis(k), context.curve
    if context.view == "terms":
        x = Axis(x.name, -0.5, len(w) - 0.5, labels=x.labels)
        places = x.place(np.arange(len(w)))
        marks = [Mark(charts.bars(places, y.place(w), 0.8 / len(w)), "bar own")]
    else:
        marks = [Mark(curve.path(w, x, y), "line own")]
    if limits is not None:
        marks.insert(0, Mark(curve.band(*limits, x, y), "band"))
    highs = curve.highs(w)
    texts = [
        f"{name}: {value:.3g}"
        for name, value in zip(curve.named(context.names.feature), highs, strict=True)
    ]
    label = f"component {k} over the features{', with a band' * (limits is not None)}"
    return Chart(label, x, y, marks, f"curve-{k}", (curve.x, highs, texts))


def _endmembers(context: Context) -> Chart | None:
    """All components as curves in one frame, each scaled to norm 1."""
    if context.view != "curves" or context.K == 1:
        return None
    label = f"All {context.K} components as curves, each scaled to norm 1"
    names = context.curve.named(context.names.feature)
    return _together(context.units, context.curve, context.feature_axis, names, label, "endmembers")


def _together(
    values: Array, curve: Curve, x: Axis, names: list[str], label: str, id_: str
) -> Chart:
    """One curve for each component, (F, K) or (S, K), in one frame."""
    y = Axis("value", 0.0, float(values.max()) * 1.05 or 1.0)
    marks = [Mark(curve.path(one, x, y), "line own", k) for k, one in enumerate(values.T)]
    highs = np.array([curve.highs(one) for one in values.T])
    texts = []
    for name, pointed in zip(names, highs.T, strict=True):
        largest = np.argsort(-pointed, kind="stable")[:_MAX_POINTED]
        parts = ", ".join(f"{k}: {pointed[k]:.3g}" for k in largest if pointed[k] > 0)
        texts.append(f"{name}\ncomponents {parts}" if parts else f"{name}\nall are zero")
    return Chart(label, x, y, marks, id_, (curve.x, highs.max(axis=0), texts))


def downloads(context: Context) -> list[dict[str, str]]:
    """Return the factors that are small enough for the page, as tables to download."""
    names, result = context.names, context.result
    tables = []
    for name, title, labels, factor in (
        ("components", "feature", names.feature_names, context.W),
        ("coefficients", "sample", names.sample_names, result.H.T),
    ):
        F, K = factor.shape
        if F * K * 16 + sum(map(len, labels or ())) > _MAX_FACTOR_BYTES:
            tables.append({"name": name, "href": ""})
            continue
        lines = [",".join([title, *(f"component {k}" for k in range(K))])]
        for row, values in enumerate(np.asarray(factor)):
            label = str(row) if labels is None else no_formula(labels[row])
            quoted = '"' + label.replace('"', '""') + '"'
            lines.append(",".join([quoted, *(f"{value:.8g}" for value in values)]))
        content = base64.b64encode("\n".join([*lines, ""]).encode()).decode("ascii")
        tables.append({"name": name, "href": f"data:text/csv;base64,{content}"})
    return tables


# --- maps and samples ---------------------------------------------------------------------------


def maps(context: Context) -> dict[str, Any] | None:
    """Return where in a scene the components are, if samples are pixels."""
    shape = context.names.pixels_shape
    if shape is None:
        return None
    shares = abundance_maps(context.W, context.result.H, shape, max_pixels=_MAX_MAP_PIXELS)
    rows, columns = shares.shape[1:]
    thinned = f"Of {shape[0]} x {shape[1]} pixels, {rows} x {columns} are drawn."
    is_small = max(rows, columns) <= _MAX_ENLARGED_PIXELS
    figures = []
    for k, share in enumerate(shares):
        top = float(share.max())
        picture = png(share, top, palette=_palette())
        image = Image(picture, f"map of component {k}", columns, rows, is_small)
        figures.append({"k": k, "image": image, "top": percent(top)})
    return {"figures": figures, "thinned": "" if (rows, columns) == shape else thinned}


def _palette() -> Array:
    """Colours (256, 3) from dark blue over green to yellow, each lighter than the one before."""
    marks = np.array([[20, 12, 60], [46, 62, 128], [30, 120, 140], [70, 180, 110], [250, 230, 60]])
    at = np.linspace(0, 255, len(marks))
    ramps = [np.interp(np.arange(256), at, channel) for channel in marks.T]
    return np.stack(ramps, axis=1).round()


def samples(context: Context) -> dict[str, Any]:
    """Return the map of the inspected samples, and what components contribute to them in order."""
    inspected, layout = context.diagnosis.inspected, context.sample_map
    groups = [
        {
            "by": "component",
            "marks": layout.marks(inspected.labels),
            "buttons": [(str(k), int(n)) for k, n in enumerate(context.diagnosis.sizes)],
        }
    ]
    known = context.classes
    data = _sample_data(context)
    if known is not None:
        numbers = known.numbers[inspected.indices]
        data["classes"] = [known.names[number] for number in numbers]
        sizes = np.bincount(known.numbers, minlength=len(known.names)).tolist()
        buttons = list(zip(known.names, sizes, strict=True))
        groups.insert(0, {"by": "class", "marks": layout.marks(numbers), "buttons": buttons})
    return {
        "layout": layout,
        "groups": groups,
        "data": data,
        "count": inspected.indices.size,
        "contributions": _contributions(context),
    }


def _sample_data(context: Context) -> dict[str, Any]:
    inspected, layout = context.diagnosis.inspected, context.sample_map
    shares = []
    for row in context.shares:
        largest = np.argsort(-row, kind="stable")[:_MAX_POINTED]
        shares.append([[int(k), round(100 * float(row[k]))] for k in largest if row[k] > 0.005])
    return {
        "places": np.round(layout.places, 4).tolist(),
        "labels": inspected.labels.tolist(),
        "names": [context.sample_name(n) for n in range(inspected.indices.size)],
        "errors": [float(f"{error:.4g}") for error in inspected.errors],
        "shares": shares,
    }


def _contributions(context: Context) -> Chart | None:
    """What each component contributes to the samples, in their order."""
    inspected = context.diagnosis.inspected
    if inspected.indices.size < 3:
        return None
    curve = Curve.over(inspected.indices.astype(float))
    x = Axis("sample", float(curve.x[0]), float(inspected.indices[-1]))
    names = curve.named(context.sample_name)
    label = "What each component contributes to the samples, in their order"
    return _together(inspected.coefficients, curve, x, names, label, "contributions")


def reconstructions(context: Context) -> dict[str, Any]:
    """Return some samples beside their reconstructions, from the best to the worst."""
    inspected = context.diagnosis.inspected
    originals = inspected.originals
    if inspected.missing is not None:
        originals = np.where(inspected.missing, np.nan, originals)
    pairs = []
    for e, n in enumerate(inspected.examples.tolist()):
        pair = _compared(context, originals[:, e], context.units @ inspected.coefficients[n])
        error = f"{float(inspected.errors[n]):.4g}"
        pairs.append({**pair, "name": context.sample_name(n), "error": error})
    return {"pairs": pairs, "has_missing": bool(np.isnan(originals).any())}


def _compared(context: Context, original: Array, again: Array) -> dict[str, Any]:
    top = float(np.nanmax([*original, *again]))
    if context.view == "images":
        both = (("sample", np.nan_to_num(original)), ("reconstruction", again))
        return {"images": [context.image(pixels, top, name) for name, pixels in both]}
    if context.view == "curves":
        x, y = context.feature_axis, Axis("value", 0.0, top * 1.05 or 1.0)
        marks = [
            Mark(context.curve.path(original, x, y), "line original"),
            Mark(context.curve.path(again, x, y), "line main"),
        ]
        return {"chart": Chart("a sample and its reconstruction", x, y, marks)}
    larger = np.fmax(original, again)
    bars = []
    for f in np.argsort(-larger, kind="stable")[:_MAX_TABLE_TERMS].tolist():
        if larger[f] > 0:
            value = "missing" if np.isnan(original[f]) else f"{original[f]:.3g}"
            shares = {"share": float(np.nan_to_num(original[f])) / top, "again": again[f] / top}
            value = f"{value} / {again[f]:.3g}"
            bars.append({"name": context.names.feature(f), "value": value, **shares})
    return {"bars": bars}


# --- errors and singular values -----------------------------------------------------------------


def errors(context: Context) -> dict[str, Any]:
    """Return the error after each iteration, beside its lower bound, and the race of inits."""
    result = context.result
    ending = sentence(result.ending)
    if not result.is_on_plateau:
        ending = f"Stopped because {result.ending}"
    found: dict[str, Any] = {"ending": ending, "bound": shown_bound(context.diagnosis.certificate)}
    if not result.n_iter:
        return found
    name = get_loss(result.loss).words.share
    history, index = result.history, np.arange(result.n_iter)
    if result.n_iter > _MAX_POINTS:  # all first ones, then fewer and fewer
        spread = np.geomspace(1, result.n_iter, 2 * _MAX_POINTS)
        index = np.unique(spread.astype(np.intp)) - 1
    values, seconds = history.relative_error[index], history.elapsed[index]
    levels = np.append(values, [] if found["bound"] is None else [found["bound"]])
    rim = 0.08 * float(np.ptp(levels)) or 0.1 * float(levels.max()) or 1.0
    y = Axis(name, max(float(levels.min()) - rim, 0.0), float(levels.max()) + rim)
    x = Axis("iteration", 1.0, max(float(result.n_iter), 1.0))
    places = x.place(index + 1), y.place(values)
    marks = [Mark(charts.line(*places), "line main")]
    if index.size <= _MAX_DOTS:
        marks.append(Mark(charts.dots(*places), "dots main"))
    if found["bound"] is not None:
        marks.append(Mark(charts.level(float(y.place(found["bound"]))), "line bound"))
    texts = [
        f"iteration {n + 1}, {s:.3g} s: {name} {e:.5g}"
        for n, s, e in zip(index, seconds, values, strict=True)
    ]
    label = f"{name} by iteration, from {values[0]:.4g} to {values[-1]:.4g}"
    found["chart"] = Chart(label, x, y, marks, "error-iteration", (index + 1, values, texts))
    return found | {"name": name}


def spectrum(context: Context) -> dict[str, Any]:
    """Return the singular values and the number of components that they suggest."""
    rank, K = context.diagnosis.rank, context.K
    values, ratios = rank.singular_values, rank.ratios
    largest = "The largest ratio after the first" if rank.K > 1 else "The largest ratio"
    text = f"{largest} is at K = {rank.K} ({ratios[rank.K - 1]:.3g})"
    if rank.K == K:
        text += ", the number of components here."
    else:
        ratio = f", whose ratio is {ratios[K - 1]:.3g}" if K <= ratios.size else ""
        text += f"; this result has K = {K}{ratio}."
    drawn = np.flatnonzero(values > _ROUNDING_RATIO * values[0])
    x = Axis("number of components", 0.0, values.size + 0.5)
    low, high = float(values[drawn].min()) / 1.3, float(values[drawn].max()) * 1.3
    y = Axis("singular value", low, high, log=True)
    places = x.place(drawn + 1), y.place(values[drawn])
    marks = [
        Mark(charts.upright(float(x.place(K))), "line chosen"),
        Mark(charts.line(*places), "line thin"),
        Mark(charts.dots(*places), "dots main"),
    ]
    texts = [f"singular value {n + 1}: {values[n]:.5g}" for n in drawn]
    label = f"The {values.size} largest singular values, from {values[0]:.4g} down"
    points = (drawn + 1, values[drawn], texts)
    drawings = [Chart(label, x, y, marks, "values", points)]
    if ratios.size:
        numbers, y = np.arange(1, ratios.size + 1), Axis("ratio", 1.0, rank.highest_shown)
        heights, width = np.minimum(y.place(ratios), 1.0), 0.6 / (ratios.size + 1.5)
        marks = []
        for class_, chosen in (("bar", numbers != K), ("bar main", numbers == K)):
            path = charts.bars(x.place(numbers[chosen]), heights[chosen], width)
            marks.append(Mark(path, class_))
        texts = [f"singular value {n} is {r:.4g} times the next" for n, r in enumerate(ratios, 1)]
        label = "Ratio of each singular value to the next"
        drawings.append(Chart(label, x, y, marks, "ratios", (numbers, ratios, texts)))
    return {"text": text, "charts": drawings}


# --- cones --------------------------------------------------------------------------------------


def angles(geometry: ConeGeometry, sizes: Array) -> list[list[dict[str, str]]]:
    """Return the table of angles between cones: texts, and the class of each cell.

    Below the required angle colours deepen towards 0, above it towards a right angle. If no angle
    can be as large as required, colours deepen from 0 to a right angle.
    """
    required, between = geometry.required_angle, geometry.between
    middle = required if required < np.pi / 2 else 0.0
    table = []
    for row, angles in enumerate(between):
        cells = []
        for column, angle in enumerate(angles.tolist()):
            if row == column:
                inside = degrees(float(geometry.angles[row]))
                title = (
                    f"cone {row}: {counted(int(sizes[row]), 'sample')} within {inside} of its axis"
                )
                cells.append({"class": "own", "text": inside, "title": title})
                continue
            is_close = angle <= middle
            span = middle if is_close else np.pi / 2 - middle
            level = math.ceil(_N_LEVELS * abs(angle - middle) / span) if span > 0 else 1
            class_ = f"{'close' if is_close else 'apart'} l{min(max(level, 1), _N_LEVELS)}"
            title = f"cones {row} and {column}: {degrees(angle)} apart"
            cells.append({"class": class_, "text": f"{math.degrees(angle):.0f}", "title": title})
        table.append(cells)
    return table


# --- how to run it again ------------------------------------------------------------------------


def program(
    settings: Mapping[str, Any], source: str | None, preparation: Preparation | None
) -> str:
    """Return a Python program that repeats the fit."""
    in_columns = settings.get("samples_in") == "columns"
    door = "from_columns" if in_columns else "from_rows"
    data = f"{door}(X)  # your samples, one in each {'column' if in_columns else 'row'}"
    if source is not None:
        reading = {name: settings.get(name) for name in ("samples_in", "dataset", "negative")}
        usual = (None, "rows", "raise")
        changed = [f"{name}={value!r}" for name, value in reading.items() if value not in usual]
        door = "open_data"
        data = f"open_data({', '.join(map(visible, [repr(source), *changed]))})"
    if preparation is not None:
        steps = {
            "normalize_total": preparation.total,
            "log1p": preparation.log1p,
            "tfidf": preparation.idf is not None,
            "normalize": preparation.normalize and preparation.idf is None,
        }
        asked = ", ".join(f"{name}={value!r}" for name, value in steps.items() if value)
        data, door = f"{data}\nV = prepare(V, {asked})", f"{door}, prepare"
    if settings.get("observed"):
        data += "  # and what said which entries are missing, or their weights"
    options, own = [], []
    named = {"init": {"auto", *INITS}, "solver": {*SOLVER_NAMES}}
    for name in ("loss", "init", "solver", "max_iter", "tol", "max_time", "sketch"):
        value = settings.get(name)
        if (name, value) == ("loss", FROBENIUS.name) or (value is None and name != "solver"):
            continue
        if name in named and value is not None and value not in named[name]:
            own.append(name)
        elif isinstance(value, str | int | float | None):
            options.append(f"{name}={value!r}")
    seed = settings.get("seed")
    if isinstance(seed, int):
        options.append(f"rng=np.random.default_rng({seed})")
    arguments = ["V", visible(repr(settings.get("K", "auto"))), *map(visible, options)]
    comment = f"  # {' and '.join(own)}: your own" if own else ""
    numpy = "import numpy as np\n" if seed is not None else ""
    return (
        f"{numpy}from conenmf import factorize, {door}, write_report\n\n"
        f"V = {data}\n"
        f"result = factorize({', '.join(arguments)}){comment}\n"
        'write_report(result, "report.html")\n'
    )
