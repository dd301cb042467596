"""What the sections of a report have in common: the result, its names, and how to draw it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..arguments import array, choice, optional, several, text
from ..data.blocks import Array, exact
from ..errors import DataError, Message, Option, OptionError
from ..judge.diagnosis import Diagnosis, thumbnails
from ..judge.scores import cosines, unit_columns
from ..judge.uniqueness import MAX_ERROR_RATIO, Uniqueness, exact_uniqueness
from ..markup import Html, element
from ..names import Names
from ..pictures import png, shrink
from ..result import Factorization
from ..text import counted, visible
from . import charts
from .charts import Axis
from .classes import Classes
from .found_again import FoundAgain
from .sample_map import SampleMap

__all__ = ["VIEWS", "ReportContext", "check_view"]

VIEWS = ("auto", "images", "curves", "terms")
_MAX_PIXELS = 1_500_000  # of all images of a page together
_MAX_TEXT_CHARS = 240  # of a text that is typical of a component
_MAX_BAND_RATIO = 1.6  # height of a band that is drawn, in units of the largest value
_MAX_ENLARGED_PIXELS = 64  # side up to which an image is drawn larger than it is


def check_view(view: str, names: Names) -> None:
    """Raise `OptionError` if components cannot be drawn like this."""
    choice("view", view, VIEWS)
    if view == "images" and names.image_shape is None:
        raise OptionError(Message(Option("view", "images"), " needs ", Option("image_shape")))


def _checked_texts(texts: Any, N: int) -> Sequence[str]:
    lines = several("texts", texts, "a list of texts")
    if len(lines) != N:
        raise DataError(f"there are {len(lines)} texts for {N} samples: give one for each")
    return [text("texts", line) for line in lines]


@dataclass(frozen=True)
class ReportContext:
    """A result, and what several sections of its report need.

    Attributes
    ----------
    result : Factorization
    diagnosis : Diagnosis
    names : Names
        Those of the result, with the shapes that were given.
    view : {"images", "curves", "terms"}
        How components and samples are drawn.
    classes : Classes or None
        Known classes of the samples, if they were given.
    coordinates : array (N, 2) or None
        Known places of the samples, if they were given.
    texts : list of N str, or None
        The samples themselves, if they are texts and were given.
    found_again : FoundAgain or None
        How often components are found again, if that was given.
    """

    result: Factorization
    diagnosis: Diagnosis
    names: Names
    view: str
    classes: Classes | None
    coordinates: Array | None
    texts: Sequence[str] | None
    found_again: FoundAgain | None = None

    @classmethod
    def of(
        cls,
        result: Factorization,
        view: str,
        image_shape: tuple[int, int] | None,
        pixels_shape: tuple[int, int] | None,
        classes: Any,
        coordinates: Any,
        texts: Any,
        stability: Any = None,
    ) -> ReportContext:
        """Collect it, and choose the view if it is "auto"."""
        names = result.names.updated(Names(image_shape=image_shape, pixels_shape=pixels_shape))
        names.checked(result.H.shape[1], result.W.shape[0])
        check_view(view, names)
        known = (
            None if classes is None else Classes.of(classes, np.asarray(result.labels), result.K)
        )
        places = optional(array, "coordinates", coordinates, (result.H.shape[1], 2))
        places = None if places is None else exact(places)
        lines = None if texts is None else _checked_texts(texts, result.H.shape[1])
        again = None if stability is None else FoundAgain.of(stability, exact(result.W))
        context = cls(result, result.diagnose(), names, view, known, places, lines, again)
        if view != "auto":
            return context
        if names.image_shape is not None:
            return replace(context, view="images")
        is_curve = names.feature_names is None or context.feature_positions is not None
        return replace(context, view="curves" if is_curve else "terms")

    @property
    def K(self) -> int:
        """The number of components."""
        return self.result.K

    @property
    def N(self) -> int:
        """The number of samples."""
        return int(self.result.H.shape[1])

    @property
    def F(self) -> int:
        """The number of features."""
        return int(self.result.W.shape[0])

    @property
    def is_completed(self) -> bool:
        """Whether entries of the data are missing, which the reconstruction replaces."""
        return bool((self.result.settings.get("observed") or {}).get("missing"))

    @property
    def K_components(self) -> str:
        """The number of components in words: "3 components"."""
        return counted(self.K, "component")

    @cached_property
    def W(self) -> Array:
        """The components in float64."""
        W: Array = exact(self.result.W)
        return W

    def component_name(self, k: int) -> str:
        """Return what a component is called: by its name if it was given one, else its number."""
        return visible(self.result.component_names[k])

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
    def bands(self) -> tuple[Array, Array, str] | None:
        """Limits (F, K) for the entries of components, and what they are in words; or none."""
        again, known = self.found_again, self.uniqueness
        if again is not None and not all(again.stability.withheld):
            runs = f"{again.stability.n_runs} runs ({again.stability.difference})"
            return again.lower, again.upper, f"within limits of 90% over {runs}"
        if "can be moved" not in known.verdicts:
            return None
        error = f"an error of up to {MAX_ERROR_RATIO} times" if known.was_searched else "this error"
        return known.lower, known.upper, f"in other factors with {error}"

    def limits(self, k: int) -> tuple[Array, Array] | None:
        """Return the limits (F,) of a component, if it has any: those of runs, or of moves."""
        is_moved = self.uniqueness.verdicts[k] == "can be moved"
        of_runs = self.found_again is not None and self.found_again.has_limits(k)
        if self.bands is None or not (is_moved or of_runs):
            return None
        lower, upper = self.bands[0][:, k], self.bands[1][:, k]
        return None if np.isnan(lower).any() else (lower, upper)

    def top(self, k: int) -> float:
        """Return the largest value to draw of a component: its band may go beyond it."""
        highest, limits = float(self.W[:, k].max()), self.limits(k)
        if limits is not None:
            highest = max(highest, min(float(limits[1].max()), _MAX_BAND_RATIO * highest))
        return highest or 1.0

    @cached_property
    def feature_positions(self) -> Array | None:
        """The features' names as numbers, if all of them are."""
        return self.names.feature_positions

    @cached_property
    def curve(self) -> charts.Curve:
        """The places of curves over the features."""
        positions = self.feature_positions
        return charts.Curve.over(np.arange(self.F) if positions is None else positions)

    @cached_property
    def feature_axis(self) -> Axis:
        """The features from left to right."""
        x = self.curve.x
        last = float(self.F - 1) if self.feature_positions is None else float(x[-1])
        name = "feature"
        if self.names.pixels_shape is not None:
            name = "band" if self.feature_positions is None else "wavelength"
        return Axis(name, float(x[0]), last)

    @cached_property
    def specificity(self) -> Array:
        """How much of each feature is in one component alone, (F, K), at norm 1 of components.

        It is the value times its share of the values in all components.
        """
        units = unit_columns(self.W)
        total = units.sum(axis=1, keepdims=True)
        specific: Array = np.divide(units**2, total, out=np.zeros_like(units), where=total > 0)
        return specific

    @property
    def component_shares(self) -> Array:
        """The share of the reconstruction that each component has, (K,); of counts, of the mass."""
        known = self.result.shares
        return self.diagnosis.shares if known is None else known

    @cached_property
    def shares(self) -> Array:
        """The share (S, K) of each component in the contributions to an inspected sample."""
        coefficients = self.diagnosis.inspected.coefficients
        total = coefficients.sum(axis=1, keepdims=True)
        shares: Array = np.divide(
            coefficients, total, out=np.zeros_like(coefficients), where=total > 0
        )
        return shares

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

    def beginning(self, position: int) -> str | None:
        """Return the beginning of an inspected sample that is a text, if texts were given."""
        if self.texts is None:
            return None
        line = self.texts[int(self.diagnosis.inspected.indices[position])]
        return visible(" ".join(line[: 4 * _MAX_TEXT_CHARS].split()), _MAX_TEXT_CHARS)

    @cached_property
    def thumbnails(self) -> Array:
        """The typical samples of components as small images, (K, T, rows, columns); or none."""
        inspected, shape = self.diagnosis.inspected, self.names.image_shape
        images = inspected.thumbnails
        if self.view != "images":
            return images[:0]
        if not len(images) and self.result.data is not None:  # the shape was not known then
            images = thumbnails(self.result.data, inspected.indices, inspected.typical, shape)
        return images.reshape(self.K, -1, *images.shape[1:]) if len(images) else images

    @cached_property
    def _shrink_factor(self) -> int:
        images = self.K + 2 * self.diagnosis.inspected.examples.size
        return max(1, math.ceil(math.sqrt(images * self.F / _MAX_PIXELS)))

    def image(self, vector: Array, white: float, description: str) -> Html:
        """Return a vector over the pixels as an image; the value `white` is drawn white."""
        assert self.names.image_shape is not None
        pixels = shrink(np.reshape(vector, self.names.image_shape), self._shrink_factor)
        rows, columns = pixels.shape
        return element(
            "img",
            src=png(pixels, white),
            alt=description,
            width=columns,
            height=rows,
            class_="small" if max(rows, columns) <= _MAX_ENLARGED_PIXELS else None,
            decoding="async",
        )
