"""The contents of each section of a report, as plain values for the template."""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import Pair, Shape, array, choice, optional, several, text
from ..arguments import classes as numbered
from ..data.blocks import Array, exact
from ..errors import DataError, Option, OptionError
from ..judge.certificate import AnyCertificate
from ..judge.details import shrink, thumbnails
from ..judge.diagnosis import COMPONENT_GRADES, GRADES, Row
from ..judge.scores import (
    abundance_maps,
    cosines,
    largest_features,
    match_components,
    unit_columns,
)
from ..judge.stability import Stability
from ..judge.uniqueness import MAX_ERROR_RATIO
from ..names import MUTATION_COLOURS, MutationTypes, Names, mutation_types
from ..result import Factorization
from ..text import Facts, Titles, counted, visible
from . import charts
from .charts import Axis, Chart, Curve, Mark

VIEWS = ("auto", "images", "curves", "terms")
_MAX_TERMS = 12  # features listed for a component
_MAX_TABLE_TERMS = 8  # features listed in a row of the table, or for a sample
_MAX_NAMED_BARS = 200  # components with at most this many named features are drawn as bars
_MAX_MAP_PIXELS = 600_000  # of all maps of a page together
_MAX_PIXELS = 1_500_000  # of all images of a page together
_MAX_ENLARGED_PIXELS = 200  # up to this side, pixels stay sharp
_MAX_TEXT_CHARS = 240  # of a text that is typical of a component
_MAX_BAND_RATIO = 1.6  # height of a band over the largest value
_MAX_POINTED = 4  # components whose values are shown at the pointer
_MIN_SIDE = 8  # of features that may be recognised as the pixels of square images
_MAX_STEP_RATIO = 0.8  # of steps to neighbours over other steps, if neighbours are alike
_USUAL_RANGE = 2.0  # in units of sigma, on both sides of zero in a chart of residuals
_LEVELS = dict(zip(COMPONENT_GRADES, GRADES, strict=True))  # with the colours of rows
_MAX_UNORDERED = 200  # samples that are drawn in order even if neighbours are not alike


# --- in words ---------------------------------------------------------------------------------


def sentence(text: str) -> str:
    """Return a text that starts with a capital letter."""
    return text[:1].upper() + text[1:]


def percent(share: float) -> str:
    """Return a share in percent with two digits; only 1 gives 100%."""
    if 0 < share < 0.001:
        return "< 0.1%"
    if 0.9945 <= share < 1:
        return f"{min(100 * share, 99.99):.2f}%"
    return f"{100 * share:.1f}%" if share < 0.0995 else f"{100 * share:.0f}%"


def degrees(radians: float) -> str:
    """Return an angle in degrees."""
    return f"{math.degrees(radians):.1f}°"


# --- images -------------------------------------------------------------------------------------


class Image(NamedTuple):
    """A picture for the template."""

    src: str
    alt: str
    width: int
    height: int

    @property
    def is_small(self) -> bool:
        """Whether the image is drawn enlarged."""
        return max(self.width, self.height) <= _MAX_ENLARGED_PIXELS


def image(pixels: Array, white: float, description: str, palette: Array | None = None) -> Image:
    """Return pixels as a PNG, where 0 is black and `white` is white, or with a palette."""
    from PIL import Image as Picture

    scaled = np.clip(pixels * (255.0 / white if white > 0 else 0.0), 0, 255).round()
    picture = Picture.fromarray(scaled.astype(np.uint8))
    stream = io.BytesIO()
    if palette is not None:
        picture.putpalette(palette.astype(np.uint8).tobytes())
    picture.save(stream, "png", optimize=True)
    content = base64.b64encode(stream.getvalue()).decode("ascii")
    rows, columns = pixels.shape
    return Image(f"data:image/png;base64,{content}", description, columns, rows)


def square_images(W: Array) -> Shape | None:
    """Return the shape of square images if features look like their pixels.

    In images, a pixel is closer in value to the pixel below it than to the pixel half a row
    further. In curves and unordered features it is not.
    """
    side = math.isqrt(len(W))
    if side < _MIN_SIDE or side**2 != len(W):
        return None
    return (side, side) if _closer(W, side, side // 2) else None


def _closer(rows: Array, lag: int, other: int) -> bool:
    """Whether rows that are `lag` apart differ clearly less than rows that are `other` apart."""
    step, usual = (np.abs(rows[one:] - rows[:-one]).mean() for one in (lag, other))
    return step < _MAX_STEP_RATIO * usual


# --- contents shared by sections ------------------------------------------------------------------


def check_view(view: str, names: Names) -> None:
    """Raise `OptionError` if components cannot be drawn in this view."""
    choice("view", view, VIEWS)
    if view == "images" and names.image_shape is None:
        raise OptionError(Option("view", "images"), " needs ", Option("image_shape"))


class Context:
    """A result, and what several sections of its report use.

    Attributes
    ----------
    result : Factorization
    diagnosis, details : Diagnosis, Details
    certificate : Certificate, CountCertificate or None
    W : array (F, K)
        The components in float64.
    names : Names
        The names of the result, with the shapes that were given or recognised.
    view : {"images", "curves", "terms"}
        How components and samples are drawn.
    classes : (list of str, array (N,)) or None
        Known classes, the largest first, and the number of each sample's class.
    coordinates : array (N, 2) or None
        Known coordinates of the samples.
    texts : list of N str, or None
        The samples, if they are texts.
    stability : Stability or None
    """

    def __init__(
        self,
        result: Factorization,
        view: str = "auto",
        shapes: Names | None = None,
        *,
        classes: ArrayLike | None = None,
        coordinates: ArrayLike | None = None,
        texts: Titles = None,
        stability: Stability | None = None,
    ) -> None:
        F, self.K = result.W.shape
        N = result.n_samples
        self.result = result
        self.stability = stability
        self.diagnosis = result.diagnose()
        self.details = self.diagnosis.details
        # The diagnosis chose its effort; for large data it has no certificate.
        self.certificate: AnyCertificate | None = result.certificate or result.first_certificate
        self.uniqueness = result.uniqueness(max_iter=0)  # already computed by the diagnosis
        self.W = exact(result.W)
        self.names = result.names.updated(shapes or Names()).checked(N, F)
        check_view(view, self.names)
        self.view = self._chosen_view() if view == "auto" else view
        self.coordinates = optional(array, "coordinates", coordinates, (N, 2))
        self.classes = None if classes is None else _numbered_classes(classes, N)
        self.texts = optional(several, "texts", texts, "a list of texts")
        if self.texts is not None and len(self.texts) != N:
            raise DataError(f"there are {len(self.texts)} texts for {N} samples: give one for each")
        if stability is not None and stability.W.shape != result.W.shape:
            raise DataError(
                f"stability has components of shape {stability.W.shape}, and the result of "
                f"{result.W.shape}: give the stability of the same data with as many components"
            )

    def _chosen_view(self) -> str:
        if self.names.image_shape is None and self.names.feature_names is None:
            self.names = self.names.updated(Names(image_shape=square_images(self.W)))
        if self.names.image_shape is not None:
            return "images"
        positions = self.names.feature_positions
        return "curves" if self.names.feature_names is None or positions is not None else "terms"

    @cached_property
    def units(self) -> Array:
        """The components scaled to norm 1."""
        return unit_columns(self.W)

    @cached_property
    def partners(self) -> Array:
        """The component of `stability` that corresponds to each component of the result."""
        assert self.stability is not None
        return match_components(self.W, self.stability.W)[0]

    @property
    def has_limits(self) -> bool:
        """Whether several runs gave limits for the entries of components."""
        return self.stability is not None and not all(self.stability.withheld)

    def limits(self, k: int) -> Pair | None:
        """Return limits (F,) of a component over runs, or its range in other factors, or None."""
        known: Any = self.uniqueness
        if self.has_limits:
            known = self.stability
            own = self.partners[k]
            total = self.W[:, k].sum()
            lower = known.lower[:, own] * total
            upper = known.upper[:, own] * total
            return None if known.withheld[own] else (lower, upper)
        can_move = known.verdicts[k] == "can be moved"
        return (known.lower[:, k], known.upper[:, k]) if can_move else None

    @cached_property
    def types(self) -> MutationTypes | None:
        """The order and the classes of the features if they are types of mutations."""
        return mutation_types(self.names.feature_names)

    @cached_property
    def curve(self) -> Curve:
        """The points of curves over the features."""
        positions = self.names.feature_positions
        if self.types is not None:
            positions = self.types.places.astype(float)
        return Curve(np.arange(float(len(self.W))) if positions is None else positions)

    @cached_property
    def feature_axis(self) -> Axis:
        """The axis of the features."""
        x = self.curve.x
        positions = self.names.feature_positions
        name = "feature"
        if self.names.pixels_shape is not None:
            name = "band" if positions is None else "wavelength"
        if positions is not None:
            return Axis(name, x[0], x[-1])
        if self.types is not None:
            return Axis("mutation type", -0.5, x[-1] + 0.5, groups=self.types.groups)
        return Axis(name, -0.5, len(self.W) - 0.5, self.names.feature_names or ())

    def value_axis(self, k: int) -> Axis:
        """Return the axis for the values of a component; its band may exceed it."""
        highest = self.W[:, k].max()
        limits = self.limits(k)
        if limits is not None:
            highest = max(highest, min(limits[1].max(), _MAX_BAND_RATIO * highest))
        return charts.value_axis(highest)

    @cached_property
    def shares(self) -> Array:
        """The share (S, K) of each component in the inspected samples."""
        return charts.rows_to_one(self.details.inspected.coefficients)

    @cached_property
    def sample_axis(self) -> tuple[Curve, Axis]:
        """The axis of the inspected samples: over time if their names are dates."""
        indices = self.details.inspected.indices
        times = self.names.sample_times
        if times is not None:
            seconds, axis = charts.date_axis(times)
            return Curve(seconds[indices]), axis
        labels = self.names.sample_names or ()
        return Curve(indices.astype(float)), Axis("sample", 0.0, float(indices[-1]), labels)

    def sample_name(self, position: int) -> str:
        """Return the name of an inspected sample; for an unnamed pixel, its row and column."""
        index = int(self.details.inspected.indices[position])
        if self.names.sample_names is None and self.names.pixels_shape is not None:
            row, column = divmod(index, self.names.pixels_shape[1])
            return f"pixel ({row}, {column})"
        return self.names.sample(index)

    def image(self, vector: Array, white: float, description: str) -> Image:
        """Return a vector over the pixels as an image; values of `white` are drawn white."""
        assert self.names.image_shape is not None
        count = self.K + 2 * self.details.inspected.examples.size
        factor = max(1, math.ceil(math.sqrt(count * len(self.W) / _MAX_PIXELS)))
        pixels = shrink(np.reshape(vector, self.names.image_shape), factor)
        return image(pixels, white, description)


def _numbered_classes(values: ArrayLike, N: int) -> tuple[list[str], Array]:
    """Number the classes, the largest first."""
    count = numbered("classes", values).size
    if count != N:
        raise DataError(f"there are {count} classes for {N} samples: give one for each")
    own = [visible(one) for one in np.asarray(values)]
    names = [name for name, _ in Counter(own).most_common()]
    place = {name: number for number, name in enumerate(names)}
    return names, np.array([place[name] for name in own])


# --- verdict ------------------------------------------------------------------------------------


def verdict(context: Context) -> Facts:
    """Return the headline and the rows of the diagnosis, and a row of the stability if known."""
    rows = list(context.diagnosis.rows)
    if context.stability is not None:
        names = [row.name for row in rows]
        rows.insert(names.index("Components") + 1, _stability_row(context.stability))
    return {"headline": context.diagnosis.headline, "rows": rows}


def _stability_row(found: Stability) -> Row:
    n_stable = int(found.is_stable.sum())
    grade = "good" if n_stable == found.K else "fair" if n_stable else "poor"
    advice = "interpret only the stable components, or try a smaller K"
    return Row("Stability", grade, found.in_sentences()[0], advice * (n_stable < found.K))


# --- components ---------------------------------------------------------------------------------


def components(context: Context) -> Facts:
    """Return each component as an image, a curve or a list of terms, and a table of all."""
    description = {
        "images": "as images, from black (0) to white (the largest value)",
        "curves": "as curves over the features",
        "terms": f"by the {min(_MAX_TERMS, len(context.W))} features with the largest values",
    }[context.view]
    if context.types is not None:
        description = f"as spectra of {len(context.W)} types of mutations"
    return {
        "description": f"{counted(context.K, 'component')}, {description}, numbered from 0.",
        "cards": [_component(context, k) for k in range(context.K)],
        "order": np.argsort(-context.result.shares, kind="stable").tolist(),
        "endmembers": _endmembers(context),
        "bands": _bands_in_words(context),
    }


def _bands_in_words(context: Context) -> str:
    """Describe what the bands of components show; "" if there are none."""
    found = context.stability
    known = context.uniqueness
    if found is not None and context.has_limits:
        origin = f"within the 90% limits over {found.n_runs} runs ({found.difference})"
    elif "can be moved" in known.verdicts:
        error = f"an error of up to {MAX_ERROR_RATIO} times" if known.was_searched else "this error"
        origin = f"in other factors with {error}"
    else:
        return ""
    if context.view == "images":
        return f"The second image of a component shows how much values vary {origin}."
    what = "band" if context.view == "curves" else "thin line"
    return f"The {what} of a component shows where values are {origin}."


def _component(context: Context, k: int) -> Facts:
    """Return the contents of the page for one component."""
    share = float(context.result.shares[k])
    w = context.W[:, k]
    names = context.result.component_names
    grade = context.diagnosis.components[k]
    other_factors = context.uniqueness.in_words(k, names)
    reason = context.diagnosis.reasons[k].removesuffix(other_factors).rstrip("; ")
    card = {
        "k": k,
        "name": visible(names[k]),
        "share": percent(share),
        "part": share / (context.result.shares.max() or 1.0),
        "size": int(context.details.sizes[k]),
        "mean_share": percent(context.shares[:, k].mean()),
        "grade": grade,
        "level": _LEVELS[grade],
        "reason": visible(reason, None),
        "other_factors": visible(other_factors.removeprefix("other factors: "), None),
        "typical": _typical_samples(context, k),
        "peak": context.names.feature(int(w.argmax())) if w.any() else "",
        "known_as": [*context.result.settings.get("known_as", ()), *[""] * context.K][k],
        **_picture(context, k),
    }
    if context.classes is not None:
        counts = np.bincount(context.classes[1][np.asarray(context.result.labels) == k])
        if counts.size:
            largest = context.classes[0][int(counts.argmax())], counts.max() / counts.sum()
            card["largest_class"] = largest
    if context.stability is not None:
        card["stability"] = _stability(context.stability, int(context.partners[k]))
    if context.view == "terms":
        features = largest_features(w[:, None], context.names, _MAX_TABLE_TERMS)[0]
        card["peak"] = ", ".join(features)
        card["specific"] = _specific_terms(context, k)
    return card


def _stability(found: Stability, k: int) -> Facts:
    """Describe how many runs contain a component, and how similar it is there."""
    low, high = found.cosine_limits[:, k]
    silhouette = float(found.silhouettes[k])
    return {
        "share": f"{found.found_in[k]:.0%}",
        "cosine": f"{np.median(found.cosines[:, k]):.3f} [{low:.3f}, {high:.3f}]",
        "silhouette": f"{silhouette:.2f}" if np.isfinite(silhouette) else "none",
        "is_stable": bool(found.is_stable[k]),
        "move": found.move_in_words(k),
        "withheld": found.withheld[k],
    }


def _typical_samples(context: Context, k: int) -> list[Facts]:
    """Return the samples with the largest share of a component, with thumbnails of images."""
    inspected = context.details.inspected
    typical = inspected.typical[k]
    pixels = inspected.thumbnails[k * typical.size :]
    if context.view == "images" and not len(pixels) and context.result.data is not None:
        shape = context.names.image_shape  # the shape was unknown when the diagnosis was made
        pixels = thumbnails(context.result.data, inspected.indices, typical, shape)
    shown = []
    for place, n in enumerate(typical.tolist()):
        if n >= 0:
            share = float(context.shares[n, k])
            name = context.sample_name(n)
            one = {"name": name, "value": percent(share), "share": share}
            if context.texts is not None:
                line = text("texts", context.texts[int(inspected.indices[n])])
                line = " ".join(line[: 4 * _MAX_TEXT_CHARS].split())
                one["text"] = visible(line, _MAX_TEXT_CHARS)
            if context.view == "images" and len(pixels):
                one["image"] = image(pixels[place], 255.0, name)
            shown.append(one)
    return shown


def _specific_terms(context: Context, k: int) -> str:
    """Return the features that are larger here than in other components.

    Features are ranked by their value times their share of the values in all components, which are
    scaled to norm 1.
    """
    specific = context.units[:, k] * charts.rows_to_one(context.units)[:, k]
    return ", ".join(largest_features(specific[:, None], context.names, _MAX_TERMS)[0])


def _picture(context: Context, k: int) -> Facts:
    w = context.W[:, k]
    limits = context.limits(k)
    if context.view == "images":
        white = w.max()
        picture = {"image": context.image(w, white, f"component {k} as an image")}
        if limits is not None:
            label = f"how much each pixel of component {k} varies"
            picture["varies"] = context.image(limits[1] - limits[0], white, label)
        return picture
    if context.view == "curves" or context.types is not None:
        return {"chart": _component_chart(context, k)}
    top = context.value_axis(k).high
    bars = []
    for f in np.argsort(-w, kind="stable")[:_MAX_TERMS].tolist():
        if w[f] > 0:
            bar: Facts = {"name": context.names.feature(f), "value": f"{w[f]:.3g}"}
            bar["share"] = w[f] / top
            if limits is not None:
                low = limits[0][f]
                high = limits[1][f]
                bar["value"] += f" [{low:.3g}, {high:.3g}]"
                bar |= {"low": min(low / top, 1.0), "high": min(high / top, 1.0)}
            bars.append(bar)
    all_fit = _MAX_TERMS < len(w) <= _MAX_NAMED_BARS
    return {"bars": bars, "chart": _component_chart(context, k) if all_fit else None}


def _component_chart(context: Context, k: int) -> Chart:
    """Draw a component over the features: as bars if features have names, otherwise as a curve."""
    w = context.W[:, k]
    limits = context.limits(k)
    x = context.feature_axis
    y = context.value_axis(k)
    curve = context.curve
    if context.view == "curves":
        marks = [] if limits is None else [Mark(curve.band(*limits, x, y), "band")]
        marks.append(Mark(curve.path(w, x, y), "line own"))
    else:
        marks = _bars(context.types, w, limits, x, y)
    highs = curve.highs(w)
    names = curve.named(context.names.feature)
    texts = [f"{name}: {value:.3g}" for name, value in zip(names, highs, strict=True)]
    label = f"component {k} over the features{', with a band' * (limits is not None)}"
    return Chart(label, x, y, marks, f"curve-{k}", (curve.x, highs), texts)


def _bars(
    types: MutationTypes | None, w: Array, limits: Pair | None, x: Axis, y: Axis
) -> list[Mark]:
    """Draw a bar per feature with its limits; mutation types have the colours of their classes."""
    order, names = (np.arange(len(w)), [""] * len(w)) if types is None else types
    places = x.place(order)
    classes = np.array(names)
    marks = []
    for one in np.unique(classes).tolist():
        own = classes == one
        path = charts.bars(places[own], y.place(w[own]), 0.8 / len(w))
        marks.append(
            Mark(path, "bar own", style=f"--colour:{MUTATION_COLOURS[one]}" if one else "")
        )
    if limits is not None:
        lower, upper = (np.clip(y.place(one), 0, 1) for one in limits)
        marks.append(Mark(charts.whiskers(places, lower, upper), "whisker"))
    return marks


def _endmembers(context: Context) -> Chart | None:
    """Draw all components as curves in one frame, each scaled to norm 1."""
    if context.view != "curves" or context.K == 1:
        return None
    label = f"All {context.K} components as curves, each scaled to norm 1"
    names = context.curve.named(context.names.feature)
    return _together(context.units, context.curve, context.feature_axis, names, label, "endmembers")


def _together(
    values: Array, curve: Curve, x: Axis, names: list[str], label: str, id_: str
) -> Chart:
    """Draw one curve for each component, (F, K) or (S, K), in one frame."""
    y = charts.value_axis(values.max())
    marks = [Mark(curve.path(one, x, y), "line own", k) for k, one in enumerate(values.T)]
    highs = np.array([curve.highs(one) for one in values.T])
    texts = []
    for name, pointed in zip(names, highs.T, strict=True):
        largest = np.argsort(-pointed, kind="stable")[:_MAX_POINTED]
        parts = ", ".join(f"{k}: {pointed[k]:.3g}" for k in largest if pointed[k] > 0)
        texts.append(f"{name}\ncomponents {parts}" if parts else f"{name}\nall are zero")
    return Chart(label, x, y, marks, id_, (curve.x, highs.max(axis=0)), texts)


# --- maps and samples ---------------------------------------------------------------------------


def maps(context: Context) -> Facts | None:
    """Return maps of the components in a scene, if samples are pixels."""
    shape = context.names.pixels_shape
    if shape is None:
        return None
    shares = abundance_maps(context.W, context.result.H, shape, max_pixels=_MAX_MAP_PIXELS)
    rows, columns = shares.shape[1:]
    thinned = f"Of {shape[0]} x {shape[1]} pixels, {rows} x {columns} are drawn."
    tops = shares.max(axis=(1, 2))
    palette = _palette()
    figures = [
        {"k": k, "image": image(share, top, f"map of component {k}", palette), "top": percent(top)}
        for k, (share, top) in enumerate(zip(shares, tops, strict=True))
    ]
    return {"figures": figures, "thinned": "" if (rows, columns) == shape else thinned}


def _palette() -> Array:
    """Return colours (256, 3) from dark blue through green to yellow, each lighter than before."""
    marks = np.array([[20, 12, 60], [46, 62, 128], [30, 120, 140], [70, 180, 110], [250, 230, 60]])
    at = np.linspace(0, 255, len(marks))
    return np.stack([np.interp(np.arange(256), at, channel) for channel in marks.T], axis=1)


def samples(context: Context) -> Facts:
    """Return the map of the inspected samples, and the contributions of components to them."""
    inspected = context.details.inspected
    if context.coordinates is not None:
        layout = charts.map_at(exact(context.coordinates)[inspected.indices])
    else:
        layout = charts.map_of(context.shares, cosines(context.W) + cosines(context.shares))
    sizes = enumerate(context.details.sizes.tolist())
    by_component = {"by": "component", "marks": layout.marks(inspected.labels)}
    groups = [{**by_component, "buttons": [(str(k), size) for k, size in sizes]}]
    data = {
        "places": np.round(layout.places, 4).tolist(),
        "labels": inspected.labels.tolist(),
        "names": [context.sample_name(n) for n in range(inspected.indices.size)],
        "errors": [float(f"{error:.4g}") for error in inspected.errors],
        "shares": [_largest_shares(row) for row in context.shares],
    }
    if context.classes is not None:
        names, numbers = context.classes
        own = numbers[inspected.indices]
        data["classes"] = [names[number] for number in own]
        buttons = list(zip(names, np.bincount(numbers).tolist(), strict=True))
        groups.insert(0, {"by": "class", "marks": layout.marks(own), "buttons": buttons})
    shown = {"layout": layout, "groups": groups, "data": data, "count": inspected.indices.size}
    return {**shown, "contributions": _contributions(context)}


def _largest_shares(row: Array) -> list[tuple[int, int]]:
    """Return the components that contribute most to a sample, with their shares in percent."""
    largest = np.argsort(-row, kind="stable")[:_MAX_POINTED].tolist()
    return [(k, round(100 * row[k])) for k in largest if row[k] > 0.005]


def _contributions(context: Context) -> Chart | None:
    """Draw the contributions of components to samples; None for many samples without an order."""
    inspected = context.details.inspected
    S = inspected.indices.size
    curve, x = context.sample_axis
    is_ordered = x.name == "date" or S <= _MAX_UNORDERED
    if S < 3 or not (is_ordered or _closer(context.shares, 1, S // 2)):
        return None
    names = curve.named(context.sample_name)
    order = "over time" if x.name == "date" else "in their order"
    label = f"What each component contributes to the samples, {order}"
    return _together(inspected.coefficients, curve, x, names, label, "contributions")


# --- residuals ----------------------------------------------------------------------------------


def residuals(context: Context) -> Facts | None:
    """Return Q of features and samples, and residuals in units of sigma, if sigma is known."""
    found = context.details.residuals
    if found is None:
        return None
    Q, expected = (context.result.settings[name] for name in ("Q", "Q_expected"))
    top = np.nanmax(found.by_feature, initial=0.0) or 1.0
    bars = [
        {
            "name": context.names.feature(f),
            "value": f"{found.by_feature[f]:.3g}, {percent(found.far[f])} beyond 3 sigma",
            "share": found.by_feature[f] / top,
        }
        for f in np.argsort(-np.nan_to_num(found.by_feature), kind="stable")[:_MAX_TERMS].tolist()
    ]
    drawn = [_sample_ratios(context, found.by_sample), _residual_ranges(context, found.quantiles)]
    ratio = f"{Q / expected:.3g}" if expected > 0 else "none"
    return {"Q": Q, "expected": expected, "ratio": ratio, "bars": bars, "charts": drawn}


def _sample_ratios(context: Context, by_sample: Array) -> Chart:
    """Draw Q over its expectation for each inspected sample."""
    curve, x = context.sample_axis
    values = by_sample[context.details.inspected.indices]
    y = charts.value_axis(np.nanmax(values, initial=0.0))
    highs = np.nan_to_num(curve.highs(values))
    names = curve.named(context.sample_name)
    texts = [f"{name}: {value:.3g}" for name, value in zip(names, highs, strict=True)]
    marks = [Mark(curve.path(values, x, y), "line main")]
    return Chart("Q / expected Q of each sample", x, y, marks, "by-sample", (curve.x, highs), texts)


def _residual_ranges(context: Context, quantiles: Array) -> Chart:
    """Draw the median and the central 90% of each feature's residuals, in units of sigma."""
    low, middle, high = np.nan_to_num(quantiles)
    x = Axis("feature", -0.5, low.size - 0.5, context.names.feature_names or ())
    y = Axis("sigma", min(low.min(), -_USUAL_RANGE), max(high.max(), _USUAL_RANGE))
    places = np.arange(low.size)
    at = x.place(places)
    marks = [
        Mark(charts.whiskers(at, y.place(low), y.place(high)), "line main"),
        Mark(charts.whiskers(at, y.place(middle) - 0.01, y.place(middle) + 0.01), "line original"),
    ]
    texts = [
        f"{context.names.feature(f)}: {low[f]:.2g} to {high[f]:.2g}, median {middle[f]:.2g}"
        for f in places.tolist()
    ]
    label = "Residuals of each feature in units of sigma: 5% to 95%, and the median"
    return Chart(label, x, y, marks, "residual-ranges", (places, high), texts)


def reconstructions(context: Context) -> Facts:
    """Return some samples beside their reconstructions, from the best to the worst."""
    inspected = context.details.inspected
    pairs = []
    for original, n in zip(inspected.originals.T, inspected.examples.tolist(), strict=True):
        pair = _compared(context, original, context.units @ inspected.coefficients[n])
        error = f"{inspected.errors[n]:.4g}"
        pairs.append({**pair, "name": context.sample_name(n), "error": error})
    return {"pairs": pairs, "has_missing": bool(np.isnan(inspected.originals).any())}


def _compared(context: Context, original: Array, again: Array) -> Facts:
    larger = np.fmax(original, again)
    top = larger.max()
    if context.view == "images":
        both = (("sample", np.nan_to_num(original)), ("reconstruction", again))
        return {"images": [context.image(pixels, top, name) for name, pixels in both]}
    if context.view == "curves":
        x = context.feature_axis
        y = charts.value_axis(top)
        both = (("line original", original), ("line main", again))
        marks = [Mark(context.curve.path(values, x, y), style) for style, values in both]
        return {"chart": Chart("a sample and its reconstruction", x, y, marks)}
    bars = []
    for f in np.argsort(-larger, kind="stable")[:_MAX_TABLE_TERMS].tolist():
        if larger[f] > 0:
            value = "missing" if np.isnan(original[f]) else f"{original[f]:.3g}"
            shares = {"share": np.nan_to_num(original[f]) / top, "again": again[f] / top}
            value = f"{value} / {again[f]:.3g}"
            bars.append({"name": context.names.feature(f), "value": value, **shares})
    return {"bars": bars}


# --- the number of components -------------------------------------------------------------------


def number(context: Context) -> Facts:
    """Return the ratios of singular values and the number of components that they suggest."""
    rank = context.details.rank
    K = context.K
    ratios = rank.ratios
    first = " after the first" * (rank.K > 1)
    text = f"The largest ratio{first} is at K = {rank.K}; this result has K = {K}."
    numbers = np.arange(1, ratios.size + 1)
    x = Axis("number of components", 0.5, ratios.size + 0.5)
    y = Axis("ratio", 1.0, rank.highest_shown)
    places = x.place(numbers)
    heights = np.minimum(y.place(ratios), 1.0)
    marks = [
        Mark(charts.bars(places[chosen], heights[chosen], 0.6 / ratios.size), class_)
        for class_, chosen in (("bar", numbers != K), ("bar main", numbers == K))
    ]
    texts = [f"singular value {n} is {r:.4g} times the next" for n, r in enumerate(ratios, 1)]
    label = "Ratio of each singular value to the next"
    chart = Chart(label, x, y, marks, "ratios", (numbers, ratios), texts)
    return {"text": text, "chart": chart, "evidence": _evidence(context)}


def _evidence(context: Context) -> list[Chart]:
    """Draw the scores of each piece of evidence for the number, with the interval."""
    chosen = context.result.selection
    if chosen is None:
        return []
    drawn = []
    for one in chosen.evidence:
        finite = np.isfinite(one.scores)
        ks = one.ks[finite]
        scores = one.scores[finite]
        if ks.size < 2:
            continue
        x = Axis("number of components", 0.5, ks[-1] + 0.5)
        y = Axis("score", scores.min(), scores.max())
        ends = np.clip(np.add(chosen.interval, (-0.5, 0.5)), x.low, x.high)
        band = charts.bars(x.place(ends.mean(keepdims=True)), np.ones(1), np.ptp(x.place(ends)))
        line = charts.Curve(ks.astype(float)).path(scores, x, y)
        texts = [
            f"{score:.4g} for {counted(k, 'component')}"
            for k, score in zip(ks.tolist(), scores, strict=True)
        ]
        marks = [Mark(band, "band"), Mark(line, "line main")]
        label = f"{one.name} says {one.K}; {one.meaning}"
        id_ = "evidence-" + one.name.replace(" ", "-")
        drawn.append(Chart(label, x, y, marks, id_, (ks, scores), texts))
    return drawn
