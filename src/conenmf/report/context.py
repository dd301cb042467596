"""What the sections of a report have in common: the result, its names, and how to draw it."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..arguments import array, choice, classes, optional, several, text
from ..data.blocks import Array, exact
from ..errors import DataError, Message, Option, OptionError
from ..judge.diagnosis import shrink, thumbnails
from ..judge.scores import cosines, match_components, unit_columns
from ..judge.stability import Stability
from ..judge.uniqueness import MAX_ERROR_RATIO, Uniqueness, exact_uniqueness
from ..names import Names
from ..result import Factorization
from ..text import visible
from .charts import Axis, Curve
from .sample_map import SampleMap

VIEWS = ("auto", "images", "curves", "terms")
_MAX_PIXELS = 1_500_000  # of all images of a page together
_MAX_TEXT_CHARS = 240  # of a text that is typical of a component
_MAX_BAND_RATIO = 1.6  # height of a band that is drawn, in units of the largest value
_MAX_ENLARGED_PIXELS = 64  # side up to which an image is drawn larger than it is
_MAX_CLASSES = 39  # with a colour and a shape of their own; smaller ones are "others"
_HEADROOM_RATIO = 1.05  # top of an axis, in units of the largest value


def check_view(view: str, names: Names) -> None:
    """Raise `OptionError` if components cannot be drawn like this."""
    choice("view", view, VIEWS)
    if view == "images" and names.image_shape is None:
        raise OptionError(Message(Option("view", "images"), " needs ", Option("image_shape")))


class Image(NamedTuple):
    """A picture for the template."""

    src: str
    alt: str
    width: int
    height: int
    is_small: bool


def png(pixels: Array, white: float, *, palette: Array | None = None) -> str:
    """Return pixels as the address of a PNG: 0 is black and `white` white, or as in the palette."""
    from PIL import Image as Picture

    scaled = np.clip(pixels * (255.0 / white if white > 0 else 0.0), 0, 255).round()
    picture, stream = Picture.fromarray(scaled.astype(np.uint8)), io.BytesIO()
    if palette is not None:
        picture.putpalette(palette.astype(np.uint8).tobytes())
    picture.save(stream, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"


class Bands(NamedTuple):
    """Limits (F, K) of the entries of components, and where they come from."""

    lower: Array
    upper: Array
    origin: str


class Classes(NamedTuple):
    """Known classes: their names, the largest first, and the number of each sample's class."""

    names: list[str]
    numbers: Array


@dataclass(frozen=True)
class Context:
    """A result, and what several sections of its report need.

    Attributes
    ----------
    result : Factorization
    names : Names
        The names of the result, with the shapes that were given.
    view : {"images", "curves", "terms"}
        How components and samples are drawn.
    classes : Classes or None
    coordinates : array (N, 2) or None
        Known places of the samples.
    texts : list of N str, or None
        The samples themselves, if they are texts.
    stability : Stability or None
    """

    result: Factorization
    names: Names
    view: str
    classes: Classes | None = None
    coordinates: Array | None = None
    texts: Sequence[str] | None = None
    stability: Stability | None = None

    @classmethod
    def of(
        cls,
        result: Factorization,
        view: str,
        shapes: Names,
        classes: Any,
        coordinates: Any,
        texts: Any,
        stability: Stability | None,
    ) -> Context:
        """Check what was given, and choose the view if it is "auto"."""
        names = result.names.updated(shapes)
        (F, _), N = result.W.shape, result.H.shape[1]
        names.checked(N, F)
        check_view(view, names)
        if view == "auto" and names.image_shape is not None:
            view = "images"
        elif view == "auto":
            is_curve = names.feature_names is None or names.feature_positions is not None
            view = "curves" if is_curve else "terms"
        places = optional(array, "coordinates", coordinates, (N, 2))
        if stability is not None and stability.W.shape != result.W.shape:
            raise DataError(
                f"stability has components of shape {stability.W.shape}, and the result of "
                f"{result.W.shape}: give the stability of the same data with as many components"
            )
        return cls(
            result,
            names,
            view,
            None if classes is None else _checked_classes(classes, N),
            None if places is None else exact(places),
            None if texts is None else _checked_texts(texts, N),
            stability,
        )

    def __post_init__(self) -> None:
        self.result.diagnose()

    @property
    def diagnosis(self) -> Any:
        """The diagnosis of the result."""
        return self.result.diagnosis

    @property
    def K(self) -> int:
        """The number of components."""
        return self.result.K

    @cached_property
    def W(self) -> Array:
        """The components in float64."""
        return exact(self.result.W)

    @cached_property
    def units(self) -> Array:
        """The components with norm 1."""
        return unit_columns(self.W)

    @property
    def component_names(self) -> list[str]:
        """What components are called."""
        return [visible(name) for name in self.result.component_names]

    # --- uniqueness and stability ---------------------------------------------------------------

    @cached_property
    def uniqueness(self) -> Uniqueness:
        """Which components are unique or can be moved, as far as the result knows."""
        if (known := self.result.known_uniqueness) is not None:
            return known
        settings = self.result.settings
        n_given = (settings.get("fixed") or {}).get("count", 0)
        sums = bool((settings.get("penalties") or {}).get("sum_to_one", False))
        return exact_uniqueness(self.W, self.diagnosis.freedom, n_given=n_given, sum_to_one=sums)

    @cached_property
    def partners(self) -> Array:
        """The component of `stability` that belongs to each component of the result."""
        assert self.stability is not None
        return match_components(self.W, self.stability.W)[0]

    @cached_property
    def bands(self) -> Bands | None:
        """Limits of entries over several runs, else the range in other factors that were found."""
        found, known = self.stability, self.uniqueness
        if found is not None and not all(found.withheld):
            sums = self.W.sum(axis=0)
            lower, upper = (
                found.lower[:, self.partners] * sums,
                found.upper[:, self.partners] * sums,
            )
            origin = f"within limits of 90% over {found.n_runs} runs ({found.difference})"
            return Bands(lower, upper, origin)
        if "can be moved" not in known.verdicts:
            return None
        error = f"an error of up to {MAX_ERROR_RATIO} times" if known.was_searched else "this error"
        return Bands(known.lower, known.upper, f"in other factors with {error}")

    def limits(self, k: int) -> tuple[Array, Array] | None:
        """Return the limits (F,) of a component, if it has any."""
        if self.bands is None:
            return None
        if self.stability is not None and not all(self.stability.withheld):
            is_known = not self.stability.withheld[self.partners[k]]
        else:
            is_known = self.uniqueness.verdicts[k] == "can be moved"
        lower, upper = self.bands.lower[:, k], self.bands.upper[:, k]
        return (lower, upper) if is_known and not np.isnan(lower).any() else None

    # --- features -------------------------------------------------------------------------------

    @cached_property
    def curve(self) -> Curve:
        """The places of curves over the features."""
        positions = self.names.feature_positions
        return Curve.over(np.arange(len(self.W)) if positions is None else positions)

    @cached_property
    def feature_axis(self) -> Axis:
        """The features from left to right."""
        x, positions = self.curve.x, self.names.feature_positions
        last = float(len(self.W) - 1) if positions is None else float(x[-1])
        name = "feature"
        if self.names.pixels_shape is not None:
            name = "band" if positions is None else "wavelength"
        labels = self.names.feature_names or ()
        return Axis(name, float(x[0]), last, labels=labels if positions is None else ())

    def value_axis(self, k: int) -> Axis:
        """The values of a component; its band may go beyond them."""
        highest, limits = float(self.W[:, k].max()), self.limits(k)
        if limits is not None:
            highest = max(highest, min(float(limits[1].max()), _MAX_BAND_RATIO * highest))
        return Axis("value", 0.0, highest * _HEADROOM_RATIO or 1.0)

    # --- samples --------------------------------------------------------------------------------

    @cached_property
    def shares(self) -> Array:
        """The share (S, K) of each component in the contributions to an inspected sample."""
        coefficients = self.diagnosis.inspected.coefficients
        total = coefficients.sum(axis=1, keepdims=True)
        return np.divide(coefficients, total, out=np.zeros_like(coefficients), where=total > 0)

    @cached_property
    def component_shares(self) -> Array:
        """The share of the reconstruction that each component has, (K,); of counts, of the mass."""
        known = self.result.shares
        return self.diagnosis.shares if known is None else known

    @cached_property
    def sample_map(self) -> SampleMap:
        """The inspected samples on a plane."""
        if self.coordinates is not None:
            return SampleMap.at(self.coordinates[self.diagnosis.inspected.indices])
        return SampleMap.of(self.shares, cosines(self.W) + cosines(self.shares))

    def sample_name(self, position: int) -> str:
        """Return the name of an inspected sample; of a pixel without one, its row and column."""
        index = int(self.diagnosis.inspected.indices[position])
        if self.names.sample_names is None and self.names.pixels_shape is not None:
            row, column = divmod(index, self.names.pixels_shape[1])
            return f"pixel ({row}, {column})"
        return self.names.sample(index)

    def beginning(self, position: int) -> str:
        """Return the beginning of an inspected sample that is a text; empty if there are none."""
        if self.texts is None:
            return ""
        line = self.texts[int(self.diagnosis.inspected.indices[position])]
        return visible(" ".join(line[: 4 * _MAX_TEXT_CHARS].split()), _MAX_TEXT_CHARS)

    def largest_class(self, k: int) -> tuple[str, float] | None:
        """The largest class among the samples of a component, and its share; None without any."""
        if self.classes is None:
            return None
        counts = np.bincount(self.classes.numbers[np.asarray(self.result.labels) == k])
        if not counts.size:
            return None
        return self.classes.names[int(counts.argmax())], float(counts.max() / counts.sum())

    # --- images ---------------------------------------------------------------------------------

    @cached_property
    def thumbnails(self) -> Array:
        """The typical samples of components as small images, (K, T, rows, columns); or none."""
        inspected, shape = self.diagnosis.inspected, self.names.image_shape
        images: Array = inspected.thumbnails
        if self.view != "images":
            return images[:0]
        if not len(images) and self.result.data is not None:  # the shape was not known then
            images = thumbnails(self.result.data, inspected.indices, inspected.typical, shape)
        return images.reshape(self.K, -1, *images.shape[1:]) if len(images) else images

    def image(self, vector: Array, white: float, description: str) -> Image:
        """Return a vector over the pixels as an image; the value `white` is drawn white."""
        assert self.names.image_shape is not None
        count = self.K + 2 * self.diagnosis.inspected.examples.size
        factor = max(1, math.ceil(math.sqrt(count * len(self.W) / _MAX_PIXELS)))
        pixels = shrink(np.reshape(vector, self.names.image_shape), factor)
        rows, columns = pixels.shape
        is_small = max(rows, columns) <= _MAX_ENLARGED_PIXELS
        return Image(png(pixels, white), description, columns, rows, is_small)


def _checked_classes(values: Any, N: int) -> Classes:
    """Number the classes, the largest first; if there are too many, the last are joined."""
    numbers = classes("classes", values)
    if numbers.size != N:
        raise DataError(f"there are {numbers.size} classes for {N} samples: give one for each")
    _, first = np.unique(numbers, return_index=True)
    order = np.argsort(-np.bincount(numbers), kind="stable")
    names = [visible(np.asarray(values)[first[c]]) for c in order]
    numbers = np.argsort(order)[numbers]
    if len(names) > _MAX_CLASSES + 1:
        names = [*names[:_MAX_CLASSES], f"{len(names) - _MAX_CLASSES} others"]
        numbers = np.minimum(numbers, _MAX_CLASSES)
    return Classes(names, numbers)


def _checked_texts(texts: Any, N: int) -> Sequence[str]:
    lines = several("texts", texts, "a list of texts")
    if len(lines) != N:
        raise DataError(f"there are {len(lines)} texts for {N} samples: give one for each")
    return [text("texts", line) for line in lines]
