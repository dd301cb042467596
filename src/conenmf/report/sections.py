"""The contents of each section of a report, as plain values for the template."""

from __future__ import annotations

import base64
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import choice, optional, several, text
from ..arguments import classes as numbers_of_classes
from ..components import largest_features
from ..data.blocks import exact, unit_columns
from ..errors import DataError, Option, OptionError
from ..judge.association import followers
from ..judge.certificate import AnyCertificate
from ..judge.details import shrink, thumbnails
from ..judge.diagnosis import COMPONENT_GRADES, GRADES, Row
from ..judge.matching import cosines, match_components
from ..judge.stability import Stability
from ..judge.uniqueness import MAX_ERROR_RATIO
from ..names import MUTATION_COLOURS, MutationTypes, Names, check_count, mutation_types
from ..plots import abundance_maps
from ..result import Factorization
from ..text import counted, visible
from ..types import Array, Facts, Pair, Range, Shape, Titles
from . import charts
from .charts import Axis, Chart, Curve, Mark, SampleMap

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
    digits = 1 if share < 0.0995 else 0
    return f"{100 * share:.{digits}f}%"


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


def image(pixels: Array, white: float, description: str) -> Image:
    """Return pixels as a PNG, where 0 is black and `white` is white."""
    from PIL import Image as Picture

    factor = 255.0 / white if white > 0 else 0.0
    values = np.clip(pixels * factor, 0, 255).round()
    picture = Picture.fromarray(values.astype(np.uint8))
    stream = io.BytesIO()
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
    return (side, side) if _are_closer(W, side, side // 2) else None


def _are_closer(rows: Array, lag: int, other: int) -> bool:
    """Whether rows that are `lag` apart differ clearly less than rows that are `other` apart."""
    return _mean_step(rows, lag) < _MAX_STEP_RATIO * _mean_step(rows, other)


def _mean_step(rows: Array, lag: int) -> float:
    return np.abs(rows[lag:] - rows[:-lag]).mean()


# --- contents shared by sections ------------------------------------------------------------------


def check_view(view: str, names: Names) -> None:
    """Raise `OptionError` if components cannot be drawn in this view."""
    choice("view", view, VIEWS)
    if view == "images" and names.image_shape is None:
        raise OptionError(Option("view", "images"), " needs ", Option("image_shape"))


class Classes(NamedTuple):
    """Names of classes, the largest first, and the number of each sample's class."""

    names: list[str]
    numbers: Array


class Bar(NamedTuple):
    """A name and a value with a bar; lengths are shares of the width."""

    name: str
    value: str
    share: float
    again: float | None = None
    low: float | None = None
    high: float | None = None
    text: str = ""
    image: Image | None = None


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
    classes : Classes or None
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
        # Fields may call components by another word, numbered from 1, with terms and their scores.
        self.word = str(result.settings.get("word", "component"))
        self.first = int("word" in result.settings)
        self.markers = result.settings.get("markers")
        self.W = exact(result.W)
        self.names = result.names.updated(shapes or Names()).checked(N, F)
        check_view(view, self.names)
        self.view = self._choose_view() if view == "auto" else view
        self.classes = None if classes is None else _number_classes(classes, N)
        self.texts = optional(several, "texts", texts, "a list of texts")
        if self.texts is not None:
            check_count(len(self.texts), "texts", N)
        if stability is not None and stability.W.shape != result.W.shape:
            raise DataError(
                f"stability has components of shape {stability.W.shape}, and the result of "
                f"{result.W.shape}: give the stability of the same data with as many components"
            )

    def name(self, k: int) -> str:
        """Return the name of a component."""
        return visible(self.result.component_names[k])

    def _choose_view(self) -> str:
        has_names = self.names.feature_names is not None
        if self.names.image_shape is None and not has_names:
            self.names = self.names.updated(Names(image_shape=square_images(self.W)))
        if self.names.image_shape is not None:
            return "images"
        return "terms" if has_names and self.names.feature_positions is None else "curves"

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
        runs = self.stability
        if runs is not None and self.has_limits:
            own = self.partners[k]
            if runs.withheld[own]:
                return None
            total = self.W[:, k].sum()
            return runs.lower[:, own] * total, runs.upper[:, own] * total
        others = self.uniqueness
        if others.verdicts[k] != "can be moved":
            return None
        return others.lower[:, k], others.upper[:, k]

    @cached_property
    def types(self) -> MutationTypes | None:
        """The order and the classes of the features if they are types of mutations."""
        return mutation_types(self.names.feature_names)

    @cached_property
    def features(self) -> Curve:
        """The points of curves over the features."""
        F = len(self.W)
        names = self.names
        positions = names.feature_positions
        title = "feature"
        if names.pixels_shape is not None:
            title = "band" if positions is None else "wavelength"
        if positions is not None:
            return Curve(positions, names.feature, title)
        places = np.arange(float(F))
        if self.types is not None:
            axis = Axis("mutation type", -0.5, F - 0.5, groups=self.types.groups)
            return Curve(self.types.places.astype(float), names.feature, axis)
        axis = Axis(title, -0.5, F - 0.5, names.feature_names or ())
        return Curve(places, names.feature, axis)

    def value_axis(self, k: int) -> Axis:
        """Return the axis for the values of a component; its band may exceed it."""
        highest = self.W[:, k].max()
        limits = self.limits(k)
        if limits is not None:
            top_of_band = min(limits[1].max(), _MAX_BAND_RATIO * highest)
            highest = max(highest, top_of_band)
        return charts.value_axis(highest)

    @cached_property
    def shares(self) -> Array:
        """The share (S, K) of each component in the inspected samples."""
        return charts.rows_to_one(self.details.inspected.coefficients)

    @cached_property
    def samples(self) -> Curve:
        """The points of curves over the inspected samples: over time if their names are dates."""
        indices = self.details.inspected.indices
        times = self.names.sample_times
        if times is not None:
            seconds, axis = charts.date_axis(times)
            return Curve(seconds[indices], self.sample_name, axis)
        places = indices.astype(float)
        axis = Axis("sample", 0.0, float(places[-1]), self.names.sample_names or ())
        return Curve(places, self.sample_name, axis)

    def sample_name(self, position: int) -> str:
        """Return the name of an inspected sample; for an unnamed pixel, its row and column."""
        index = int(self.details.inspected.indices[position])
        names = self.names
        if names.sample_names is None and names.pixels_shape is not None:
            row, column = divmod(index, names.pixels_shape[1])
            return f"pixel ({row}, {column})"
        return names.sample(index)

    def image(self, vector: Array, white: float, description: str) -> Image:
        """Return a vector over the pixels as an image; values of `white` are drawn white."""
        assert self.names.image_shape is not None
        n_images = self.K + 2 * self.details.inspected.examples.size
        n_pixels = n_images * len(self.W)
        factor = max(1, math.ceil(math.sqrt(n_pixels / _MAX_PIXELS)))
        pixels = shrink(np.reshape(vector, self.names.image_shape), factor)
        return image(pixels, white, description)


def _number_classes(values: Any, N: int) -> Classes:
    """Number the classes, the largest first; of a table, those of the first column."""
    if isinstance(values, Mapping):
        values = next(iter(values.values()))
    check_count(numbers_of_classes("classes", values).size, "classes", N)
    own = [visible(one) for one in np.asarray(values)]
    names = [name for name, _ in Counter(own).most_common()]
    place = {name: number for number, name in enumerate(names)}
    return Classes(names, np.array([place[name] for name in own]))


def _descending(values: Array) -> list[int]:
    """Return indices from the largest value to the smallest."""
    return np.argsort(-values, kind="stable").tolist()


# --- verdict ------------------------------------------------------------------------------------


def verdict(context: Context) -> list[Row]:
    """Return the rows of the diagnosis, and a row of the stability if known."""
    rows = list(context.diagnosis.rows)
    if context.stability is not None:
        place = [row.name for row in rows].index("Components") + 1
        rows[place:place] = _rows_of_stability(context.stability)
    return rows


def _rows_of_stability(found: Stability) -> Iterator[Row]:
    finding = found.in_sentences()[0]
    advice = "interpret only the stable components, or try a smaller K"
    if found.is_stable.all():
        yield Row("Stability", "good", finding)
    else:
        yield Row("Stability", "fair" if found.is_stable.any() else "poor", finding, advice)
    following = followers(found.class_shares)
    if following:
        yield Row("Classes", "fair", "; ".join(following), "compare them within single classes")


# --- components ---------------------------------------------------------------------------------


class Recurrence:
    """How many runs contain a component, and how similar it is there."""

    def __init__(self, runs: Stability, k: int) -> None:
        self._runs = runs
        self._k = k
        self.is_stable = bool(runs.is_stable[k])
        self.move = runs.move_in_words(k)
        self.withheld = runs.withheld[k]

    @property
    def share(self) -> str:
        """The share of runs that contain the component."""
        return f"{self._runs.found_in[self._k]:.0%}"

    @property
    def cosine(self) -> str:
        """The median cosine in the runs, and its limits."""
        low, high = self._runs.cosine_limits[:, self._k]
        middle = np.median(self._runs.cosines[:, self._k])
        return f"{middle:.3f} [{low:.3f}, {high:.3f}]"

    @property
    def silhouette(self) -> str:
        """The silhouette of the component's cluster."""
        value = float(self._runs.silhouettes[self._k])
        return f"{value:.2f}" if np.isfinite(value) else "none"


class Picture(NamedTuple):
    """A vector over the features as an image, a chart or bars."""

    image: Image | None = None
    varies: Image | None = None
    chart: Chart | None = None
    bars: Sequence[Bar] = ()


class Card:
    """The contents of the page for one component."""

    def __init__(self, context: Context, k: int) -> None:
        self.k = k
        self._context = context
        self._w = context.W[:, k]
        self.picture = _picture(context, k)
        self.typical = _typical_samples(context, k)

    @property
    def name(self) -> str:
        """The name of the component."""
        return self._context.name(self.k)

    @property
    def number(self) -> int:
        """The number of the component on the page."""
        return self.k + self._context.first

    @property
    def known_as(self) -> str:
        """The reference that the component is like; "" if there is none."""
        references = self._context.result.settings.get("known_as")
        return references[self.k] if references else ""

    @property
    def grade(self) -> str:
        """Whether to interpret the component."""
        return self._context.diagnosis.components[self.k]

    @property
    def level(self) -> str:
        """The grade as that of a row, which has the colour."""
        return _LEVELS[self.grade]

    @cached_property
    def _other_factors(self) -> str:
        return self._context.uniqueness.in_words(self.k, self._context.result.component_names)

    @property
    def reason(self) -> str:
        """The reason of the grade, without what is said of other factors."""
        reason = self._context.diagnosis.reasons[self.k].removesuffix(self._other_factors)
        return visible(reason.rstrip("; "), None)

    @property
    def other_factors(self) -> str:
        """Whether other factors have the same error."""
        return visible(self._other_factors.removeprefix("other factors: "), None)

    @property
    def peak(self) -> str:
        """The largest feature; several if features are terms."""
        if self._context.view == "terms":
            if self._context.markers is not None:
                return ", ".join(self._context.markers[self.k][0][:_MAX_TABLE_TERMS])
            return _largest_terms(self._context, self._w, _MAX_TABLE_TERMS)
        return self._context.names.feature(int(self._w.argmax())) if self._w.any() else ""

    @property
    def specific(self) -> str:
        """The terms that are larger here than in other components.

        They are ranked by their value times their share of the values in all components, which are
        scaled to norm 1.
        """
        units = self._context.units
        if self._context.view != "terms" or self._context.markers is not None:
            return ""
        specific = units[:, self.k] * charts.rows_to_one(units)[:, self.k]
        return _largest_terms(self._context, specific, _MAX_TERMS)

    @cached_property
    def stability(self) -> Recurrence | None:
        """How many runs contain the component, if there are several."""
        runs = self._context.stability
        if runs is None:
            return None
        return Recurrence(runs, int(self._context.partners[self.k]))


class Components(NamedTuple):
    """The cards of all components, their order by share, and what the pictures show."""

    description: str
    cards: list[Card]
    order: list[int]
    endmembers: Chart | None
    bands: str


def components(context: Context) -> Components:
    """Return each component as an image, a curve or a list of terms, and a table of all."""
    count = counted(context.K, "component")
    description = f"{count}, {_way_of_drawing(context)}, numbered from {context.first}."
    cards = [Card(context, k) for k in range(context.K)]
    order = _descending(context.result.shares)
    return Components(description, cards, order, _endmembers(context), _bands_in_words(context))


def _way_of_drawing(context: Context) -> str:
    F = len(context.W)
    if context.types is not None:
        return f"as spectra of {F} types of mutations"
    if context.view == "images":
        return "as images, from black (0) to white (the largest value)"
    if context.view == "curves":
        return "as curves over the features"
    return f"by the {min(_MAX_TERMS, F)} features with the largest values"


def _bands_in_words(context: Context) -> str:
    """Describe what the bands of components show; "" if there are none."""
    runs = context.stability
    if runs is not None and context.has_limits:
        origin = f"within the 90% limits over {runs.n_runs} runs ({runs.difference})"
    elif "can be moved" in context.uniqueness.verdicts:
        origin = f"in other factors with an error of at most {MAX_ERROR_RATIO} times this one"
    else:
        return ""
    if context.view == "images":
        return f"The second image of a component shows how much values vary {origin}."
    what = "band" if context.view == "curves" else "thin line"
    return f"The {what} of a component shows where values are {origin}."


def _typical_samples(context: Context, k: int) -> list[Bar]:
    """Return the samples with the largest share of a component, with thumbnails of images."""
    inspected = context.details.inspected
    typical = inspected.typical[k]
    pixels = inspected.thumbnails[k * typical.size :]
    if context.view == "images" and not len(pixels) and context.result.data is not None:
        # The shape was unknown when the diagnosis was made.
        V = context.result.data
        pixels = thumbnails(V, inspected.indices, typical, context.names.image_shape)
    bars = []
    for place, n in enumerate(typical.tolist()):
        if n < 0:
            continue
        share = float(context.shares[n, k])
        bar = Bar(context.sample_name(n), percent(share), share)
        if context.texts is not None:
            bar = bar._replace(text=_beginning(context.texts[int(inspected.indices[n])]))
        if context.view == "images" and len(pixels):
            bar = bar._replace(image=image(pixels[place], 255.0, bar.name))
        bars.append(bar)
    return bars


def _beginning(sample: object) -> str:
    """Return the beginning of a sample that is a text, on one line."""
    content = text("texts", sample)[: 4 * _MAX_TEXT_CHARS]
    return visible(" ".join(content.split()), _MAX_TEXT_CHARS)


def _largest_terms(context: Context, values: Array, count: int) -> str:
    return ", ".join(largest_features(values[:, None], context.names, count)[0])


def _picture(context: Context, k: int) -> Picture:
    w = context.W[:, k]
    limits = context.limits(k)
    if context.view == "images":
        white = w.max()
        drawn = context.image(w, white, f"{context.name(k)} as an image")
        if limits is None:
            return Picture(drawn)
        lower, upper = limits
        label = f"how much each pixel of {context.name(k)} varies"
        return Picture(drawn, varies=context.image(upper - lower, white, label))
    if context.view == "curves" or context.types is not None:
        return Picture(chart=_component_chart(context, k))
    if context.markers is not None:
        names, scores = context.markers[k]
        largest = max(1e-300, *scores)
        shown = zip(names, scores, strict=True)
        return Picture(bars=[Bar(name, f"{one:.3g}", one / largest) for name, one in shown])
    top = context.value_axis(k).high
    bars = []
    for f in _descending(w)[:_MAX_TERMS]:
        value = w[f]
        if value <= 0:
            break
        bar = Bar(context.names.feature(f), f"{value:.3g}", value / top)
        if limits is not None:
            bar = _with_limits(bar, limits[0][f], limits[1][f], top)
        bars.append(bar)
    all_fit = _MAX_TERMS < len(w) <= _MAX_NAMED_BARS
    return Picture(bars=bars, chart=_component_chart(context, k) if all_fit else None)


def _with_limits(bar: Bar, low: float, high: float, top: float) -> Bar:
    value = f"{bar.value} [{low:.3g}, {high:.3g}]"
    start, end = np.minimum((low / top, high / top), 1.0)
    return bar._replace(value=value, low=start, high=end)


def _component_chart(context: Context, k: int) -> Chart:
    """Draw a component over the features: as bars if features have names, otherwise as a curve."""
    w = context.W[:, k]
    limits = context.limits(k)
    curve = context.features
    y = context.value_axis(k)
    label = f"{context.name(k)} over the features"
    if limits is not None:
        label += ", with a band"
    if context.view != "curves":
        marks = _bars(context.types, w, limits, curve.axis, y)
    else:
        marks = [Mark(curve.path(w, y), "line own")]
        if limits is not None:
            marks.insert(0, Mark(curve.band(*limits, y), "band"))
    return curve.chart(label, y, marks, f"curve-{k}", curve.highs(w))


def _bars(
    types: MutationTypes | None, w: Array, limits: Pair | None, x: Axis, y: Axis
) -> list[Mark]:
    """Draw a bar per feature with its limits; mutation types have the colours of their classes."""
    order = np.arange(len(w)) if types is None else types.places
    places = x.place(order)
    heights = y.place(w)
    width = 0.8 / len(w)
    marks = []
    if types is None:
        marks.append(Mark(charts.bars(places, heights, width), "bar own"))
    else:
        classes = np.array(types.classes)
        for one in np.unique(classes).tolist():
            own = classes == one
            path = charts.bars(places[own], heights[own], width)
            marks.append(Mark(path, "bar own", style=f"--colour:{MUTATION_COLOURS[one]}"))
    if limits is not None:
        lower, upper = (np.clip(y.place(one), 0, 1) for one in limits)
        marks.append(Mark(charts.whiskers(places, lower, upper), "whisker"))
    return marks


def _endmembers(context: Context) -> Chart | None:
    """Draw all components as curves in one frame, each scaled to norm 1."""
    if context.view != "curves" or context.K == 1:
        return None
    label = f"All {context.K} components as curves, each scaled to norm 1"
    return _together(context, context.units, context.features, label, "endmembers")


def _together(context: Context, values: Array, curve: Curve, label: str, id_: str) -> Chart:
    """Draw one curve for each component, (F, K) or (S, K), in one frame."""
    y = charts.value_axis(values.max())
    marks = [Mark(curve.path(one, y), "line own", k) for k, one in enumerate(values.T)]
    highs = np.array([curve.highs(one) for one in values.T])
    texts = []
    for name, at_point in zip(curve.names, highs.T, strict=True):
        largest = _descending(at_point)[:_MAX_POINTED]
        shown = [f"{k + context.first}: {at_point[k]:.3g}" for k in largest if at_point[k] > 0]
        second = f"{context.word}s {', '.join(shown)}" if shown else "all are zero"
        texts.append(f"{name}\n{second}")
    return curve.chart(label, y, marks, id_, highs.max(axis=0), texts)


# --- maps and samples ---------------------------------------------------------------------------


class Map(NamedTuple):
    """The map of a component, and its largest share."""

    k: int
    image: Image
    top: float


class Maps(NamedTuple):
    """The maps of all components, and whether they are thinned."""

    figures: list[Map]
    thinned: str


def maps(context: Context) -> Maps | None:
    """Return maps of the components in a scene, if samples are pixels."""
    shape = context.names.pixels_shape
    if shape is None:
        return None
    shares = abundance_maps(context.W, context.result.H, shape, max_pixels=_MAX_MAP_PIXELS)
    figures = []
    for k, share in enumerate(shares):
        top = share.max()
        figures.append(Map(k, image(share, top, f"map of {context.name(k)}"), top))
    rows, columns = shares.shape[1:]
    thinned = ""
    if (rows, columns) != shape:
        thinned = f"Of {shape[0]} x {shape[1]} pixels, {rows} x {columns} are drawn."
    return Maps(figures, thinned)


class Group(NamedTuple):
    """A way to colour the samples: the path of each colour, and the names and sizes of groups."""

    by: str
    marks: list[tuple[int, str]]
    buttons: list[tuple[str, int]]


class Samples(NamedTuple):
    """The map of the inspected samples, with data for the script."""

    layout: SampleMap
    groups: list[Group]
    data: Facts
    size: int
    contributions: Chart | None


def samples(context: Context) -> Samples:
    """Return the map of the inspected samples, and the contributions of components to them."""
    inspected = context.details.inspected
    size = inspected.indices.size
    similarity = cosines(context.W) + cosines(context.shares)
    layout = charts.map_of(context.shares, similarity)
    sizes = context.details.sizes.tolist()
    buttons = [(str(k), count) for k, count in enumerate(sizes, context.first)]
    groups = [Group("component", layout.marks(inspected.labels), buttons)]
    data: Facts = {"places": layout.places.round(4).tolist(), "labels": inspected.labels.tolist()}
    data["names"] = [context.sample_name(n) for n in range(size)]
    data["errors"] = [float(f"{error:.4g}") for error in inspected.errors]
    data["shares"] = [_largest_shares(row) for row in context.shares]
    data |= {"word": context.word, "first": context.first}
    if context.classes is not None:
        names, numbers = context.classes
        own = numbers[inspected.indices]
        data["classes"] = [names[number] for number in own]
        buttons = list(zip(names, np.bincount(numbers).tolist(), strict=True))
        groups.insert(0, Group("class", layout.marks(own), buttons))
    return Samples(layout, groups, data, size, _contributions(context))


def _largest_shares(row: Array) -> list[tuple[int, int]]:
    """Return the components that contribute most to a sample, with their shares in percent."""
    largest = _descending(row)[:_MAX_POINTED]
    return [(k, round(100 * row[k])) for k in largest if row[k] > 0.005]


def _contributions(context: Context) -> Chart | None:
    """Draw the contributions of components to samples; None for many samples without an order."""
    coefficients = context.details.inspected.coefficients
    S = len(coefficients)
    curve = context.samples
    is_ordered = S <= _MAX_UNORDERED or _are_closer(context.shares, 1, S // 2)
    if S < 3 or not (is_ordered or curve.axis.name == "date"):
        return None
    label = f"What each component contributes to the samples, by {curve.axis.name}"
    return _together(context, coefficients, curve, label, "contributions")


# --- residuals ----------------------------------------------------------------------------------


class Residuals(NamedTuple):
    """Q over what is expected, features by their share of Q, and samples."""

    Q: float
    expected: float
    ratio: str
    bars: list[Bar]
    chart: Chart


def residuals(context: Context) -> Residuals | None:
    """Return Q of features and samples, and residuals in units of sigma, if sigma is known."""
    summary = context.details.residuals
    if summary is None:
        return None
    Q = context.result.settings["Q"]
    expected = context.result.settings["Q_expected"]
    ratios = summary.by_feature
    top = np.nanmax(ratios, initial=0.0) or 1.0
    bars = []
    for f in _descending(np.nan_to_num(ratios))[:_MAX_TERMS]:
        value = f"{ratios[f]:.3g}, {percent(summary.far[f])} beyond 3 sigma"
        bars.append(Bar(context.names.feature(f), value, ratios[f] / top))
    ratio = f"{Q / expected:.3g}" if expected > 0 else "none"
    return Residuals(Q, expected, ratio, bars, _sample_ratios(context, summary.by_sample))


def _sample_ratios(context: Context, by_sample: Array) -> Chart:
    """Draw Q over its expectation for each inspected sample."""
    curve = context.samples
    values = by_sample[context.details.inspected.indices]
    y = charts.value_axis(np.nanmax(values, initial=0.0))
    marks = [Mark(curve.path(values, y), "line main")]
    highs = np.nan_to_num(curve.highs(values))
    return curve.chart("Q / expected Q of each sample", y, marks, "by-sample", highs)


# --- reconstructions ----------------------------------------------------------------------------


class Reconstruction(NamedTuple):
    """A sample beside its reconstruction."""

    name: str
    error: float
    images: Sequence[Image] = ()
    chart: Chart | None = None
    bars: Sequence[Bar] = ()


class Reconstructions(NamedTuple):
    """Samples beside their reconstructions, and whether entries are missing."""

    pairs: list[Reconstruction]
    has_missing: bool


def reconstructions(context: Context) -> Reconstructions:
    """Return some samples beside their reconstructions, from the best to the worst."""
    inspected = context.details.inspected
    pairs = []
    for original, n in zip(inspected.originals.T, inspected.examples.tolist(), strict=True):
        pair = Reconstruction(context.sample_name(n), inspected.errors[n])
        again = context.units @ inspected.coefficients[n]
        pairs.append(_compare(context, pair, original, again))
    return Reconstructions(pairs, bool(np.isnan(inspected.originals).any()))


def _compare(
    context: Context, pair: Reconstruction, original: Array, again: Array
) -> Reconstruction:
    larger = np.fmax(original, again)
    top = larger.max()
    shown = np.nan_to_num(original)
    if context.view == "images":
        before = context.image(shown, top, "sample")
        return pair._replace(images=[before, context.image(again, top, "reconstruction")])
    if context.view == "curves":
        curve = context.features
        y = charts.value_axis(top)
        marks = [
            Mark(curve.path(original, y), "line original"),
            Mark(curve.path(again, y), "line main"),
        ]
        label = "a sample and its reconstruction"
        return pair._replace(chart=Chart(label, curve.axis, y, marks))
    bars = []
    for f in _descending(larger)[:_MAX_TABLE_TERMS]:
        if larger[f] > 0:
            value = "missing" if np.isnan(original[f]) else f"{original[f]:.3g}"
            bar = Bar(context.names.feature(f), f"{value} / {again[f]:.3g}", shown[f] / top)
            bars.append(bar._replace(again=again[f] / top))
    return pair._replace(bars=bars)


# --- the number of components -------------------------------------------------------------------


class Number(NamedTuple):
    """What the ratios of singular values and other evidence say about the number."""

    text: str
    chart: Chart
    evidence: list[Chart]


def number(context: Context) -> Number:
    """Return the ratios of singular values, the number that they suggest, and other evidence."""
    rank = context.details.rank
    K = context.K
    first = " after the first" if rank.K > 1 else ""
    text = f"The largest ratio{first} is at K = {rank.K}; this result has K = {K}."
    ks = np.arange(1, rank.ratios.size + 1)
    label = "Ratio of each singular value to the next"
    y = Axis("ratio", 1.0, rank.highest_shown)
    evidence = []
    if (selection := context.result.selection) is not None:
        for one in selection.evidence:
            own = np.isfinite(one.scores)
            scores = one.scores[own]
            if scores.size > 1:
                height = Axis("score", scores.min(), scores.max())
                said = f"{one.name} says {one.K}; {one.meaning}"
                name = f"evidence-{one.name.replace(' ', '-')}"
                ks_of_one = one.ks[own]
                chart = _scores(said, ks_of_one, scores, height, selection.interval, name)
                evidence.append(chart)
    return Number(text, _scores(label, ks, rank.ratios, y, (K, K), "ratios"), evidence)


def _scores(label: str, ks: Array, scores: Array, y: Axis, chosen: Range, id_: str) -> Chart:
    """Draw a score for each number of components; those that are chosen stand out."""
    x = Axis("number of components", 0.5, ks[-1] + 0.5)
    heights = y.place(scores).clip(0.01, 1)
    marks = []
    is_chosen = (ks >= chosen[0]) & (ks <= chosen[1])
    for class_, own in (("bar", ~is_chosen), ("bar main", is_chosen)):
        path = charts.bars(x.place(ks[own]), heights[own], 0.6 / ks[-1])
        marks.append(Mark(path, class_))
    texts = []
    for k, score in zip(ks.tolist(), scores, strict=True):
        texts.append(f"K = {k}: {score:.4g}")
    return Chart(label, x, y, marks, id_, (ks, scores), texts)
