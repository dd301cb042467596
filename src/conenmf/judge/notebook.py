"""What notebooks show of a result: its components, and its error by iteration."""

from __future__ import annotations

import numpy as np

from ..data.blocks import Array, exact
from ..markup import Html
from ..names import Names
from ..pictures import images, lines, words
from ..text import counted
from .named import largest_features

__all__ = ["component_picture", "error_picture"]

_MAX_COMPONENTS = 12
_MAX_WORDS = 6
_CURVE_POINTS = 120


def component_picture(W: Array, names: Names) -> Html:
    """Return the first components (F, K) as images, as their largest features, or as curves."""
    K = W.shape[1]
    shown = exact(W[:, :_MAX_COMPONENTS]).T
    caption = counted(K, "component") if K <= _MAX_COMPONENTS else f"{len(shown)} of {K} components"
    if names.image_shape is not None:
        return images([w.reshape(names.image_shape) for w in shown], caption)
    positions = names.feature_positions
    if names.feature_names is not None and positions is None:
        return words(largest_features(shown.T, names, _MAX_WORDS), caption)
    x = np.arange(W.shape[0]) if positions is None else positions
    order = np.argsort(x, kind="stable")
    starts = np.unique(np.linspace(0, x.size, _CURVE_POINTS + 1).astype(np.intp)[:-1])
    curves = [(x[order][starts], np.maximum.reduceat(w[order], starts)) for w in shown]
    return lines(curves, f"{caption}, over the features", colours=range(len(curves)))


def error_picture(errors: Array, below: float | None) -> Html:
    """Return the relative error by iteration, and its lower bound if that is known."""
    caption = "relative error by iteration" + ", dashed: its lower bound" * (below is not None)
    steps = np.arange(1, errors.size + 1)
    return lines([(steps, errors)], caption, levels=[] if below is None else [below])
