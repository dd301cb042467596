"""What the sections of a report have in common: the result, its names, and how to draw it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..arguments import choice
from ..data.blocks import Array, exact
from ..errors import Message, Option, OptionError
from ..judge.diagnosis import Diagnosis
from ..judge.metrics import cosines
from ..markup import Html, element
from ..names import Names
from ..pictures import png, shrink
from ..result import Factorization
from . import charts
from .charts import Axis
from .sample_map import SampleMap

__all__ = ["VIEWS", "ReportContext", "check_view"]

VIEWS = ("auto", "images", "curves", "terms")
_MAX_PIXELS = 1_500_000  # of all images of a page together
_MAX_ENLARGED_PIXELS = 64  # side up to which an image is drawn larger than it is


def check_view(view: str, names: Names) -> None:
    """Raise `OptionError` if components cannot be drawn like this."""
    choice("view", view, VIEWS)
    if view == "images" and names.image_shape is None:
        raise OptionError(Message(Option("view", "images"), " needs ", Option("image_shape")))


@dataclass(frozen=True)
class ReportContext:
    """A result, and what several sections of its report need.

    Attributes
    ----------
    result : Factorization
    diagnosis : Diagnosis
    names : Names
        Those of the result, with the image shape that was given.
    view : {"images", "curves", "terms"}
        How components and samples are drawn.
    """

    result: Factorization
    diagnosis: Diagnosis
    names: Names
    view: str

    @classmethod
    def of(
        cls, result: Factorization, view: str, image_shape: tuple[int, int] | None
    ) -> ReportContext:
        """Collect it, and choose the view if it is "auto"."""
        names = result.names
        if image_shape is not None:
            names = replace(names, image_shape=image_shape)
            names.checked(result.H.shape[1], result.W.shape[0])
        check_view(view, names)
        context = cls(result, result.diagnose(), names, view)
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
    def K_components(self) -> str:
        """The number of components in words: "3 components"."""
        return f"{self.K} component{'s' * (self.K > 1)}"

    @cached_property
    def W(self) -> Array:
        """The components in float64."""
        W: Array = exact(self.result.W)
        return W

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
        return Axis("feature", float(x[0]), last)

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
        return SampleMap.of(self.shares, cosines(self.W) + cosines(self.shares))

    def sample_name(self, position: int) -> str:
        """Return the name of an inspected sample."""
        return self.names.sample(int(self.diagnosis.inspected.indices[position]))

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
