"""Figures of a result with matplotlib, for notebooks and papers: axes in, axes out.

There are two drawing systems on purpose. These figures are matplotlib's, so that people can
restyle, combine and save them. The report (`conenmf.report`) draws the same facts as SVG of its
own, because its page must be small, interactive, and written where matplotlib is not installed.
matplotlib is imported when the first figure is drawn, and only here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..cones.geometry import ConeGeometry
from ..cones.rank import RankEstimate
from ..data.blocks import Array
from ..errors import OptionError
from ..names import Names
from ..solve.stopping import History

__all__ = ["components", "cones", "curves", "history", "scores", "spectrum"]

_MAX_COMPONENTS = 12  # drawn by default
_X_LABELS = {"iteration": "iteration", "seconds": "seconds", "passes": "passes over the data"}
_COLOURS_PER_STYLE = 10  # curves that matplotlib colours differently


def history(
    errors: History, ax: Any = None, *, against: str = "iteration", below: float | None = None
) -> Any:
    """Draw relative errors, and the lower bound `below` if it is given."""
    if against not in _X_LABELS:
        raise OptionError.unknown("against", against, _X_LABELS)
    ax = _axes(ax)
    x = {
        "iteration": np.arange(1, errors.relative_error.size + 1),
        "seconds": errors.elapsed,
        "passes": errors.passes,
    }
    ax.plot(x[against], errors.relative_error, marker=".", label="relative error")
    if below is not None:
        ax.axhline(below, color="0.4", linestyle="--", label="lower bound")
    ax.set(xlabel=_X_LABELS[against], ylabel="relative error", title="Error while solving")
    ax.legend()
    return ax


def curves(histories: Mapping[str, History], ax: Any = None) -> Any:
    """Draw the errors of several runs against time."""
    ax = _axes(ax)
    styles = ("-", "--", ":", "-.")
    for number, (name, errors) in enumerate(histories.items()):
        style = styles[number // _COLOURS_PER_STYLE % len(styles)]
        ax.plot(errors.elapsed, errors.relative_error, linestyle=style, label=name)
    ax.set(xlabel="seconds", ylabel="relative error", title="Error against time", xscale="log")
    ax.legend(fontsize="small", ncols=1 + (len(histories) > _COLOURS_PER_STYLE))
    return ax


def scores(ks: Array, votes: Mapping[str, tuple[Array, int]], axes: Any = None) -> Array:
    """Draw the scores of several estimators of K, each with its choice; return the axes."""
    if axes is None:
        axes = _subplots(1, len(votes), width=3.2, height=2.8)
    flat = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    for ax, (name, (values, K)) in zip(flat, votes.items(), strict=True):
        ax.plot(ks, values, marker=".")
        ax.axvline(K, color="0.4", linestyle="--")
        ax.set(xlabel="K", title=f"{name}: {K}")
    return flat


def spectrum(rank: RankEstimate, K: int, ax: Any = None) -> Any:
    """Draw singular values (line, left) and the ratio of each to the next (bars, right)."""
    ax = _axes(ax)
    numbers = np.arange(1, rank.singular_values.size + 1)
    positive = rank.singular_values > 0
    ax.semilogy(numbers[positive], rank.singular_values[positive], marker=".", color="C0")
    ax.set(xlabel="k", ylabel="singular value", title="Spectrum")
    ax.axvline(K, color="0.4", linestyle="--")
    ax.annotate(f"K = {K}", (K, 1.0), xycoords=("data", "axes fraction"), va="top", ha="left")
    other = ax.twinx()
    other.bar(numbers[: rank.ratios.size], rank.ratios, color="C1", alpha=0.35)
    other.set_ylabel("ratio to the next", color="C1")
    ax.set_zorder(other.get_zorder() + 1)
    ax.patch.set_visible(False)
    return ax


def components(
    W: Array, names: Names, axes: Any = None, *, which: Iterable[int] | None = None, top: int = 10
) -> Array:
    """Draw components as images, as their `top` features with the largest values, or as curves."""
    K = W.shape[1]
    indices = list(range(min(K, _MAX_COMPONENTS))) if which is None else [int(k) for k in which]
    if not indices or not all(0 <= k < K for k in indices):
        raise OptionError(f"components={indices}, expected some of 0 to {K - 1}")
    if axes is None:
        axes = _grid(len(indices), names)
    flat = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if flat.size < len(indices):
        raise OptionError(
            f"{flat.size} axes were given for {len(indices)} components: give one for each"
        )
    for k, ax in zip(indices, flat, strict=False):
        _component(W[:, k], names, ax, top)
        ax.set_title(f"component {k}", fontsize="medium")
    for ax in flat[len(indices) :]:
        ax.set_visible(False)
    return flat[: len(indices)]


def _component(w: Array, names: Names, ax: Any, top: int) -> None:
    if names.image_shape is not None:
        ax.imshow(w.reshape(names.image_shape), cmap="gray", vmin=0)
        ax.set(xticks=[], yticks=[])
    elif names.feature_names is not None:
        features = np.argsort(-w, kind="stable")[: min(top, w.size)]
        ax.barh(np.arange(features.size), w[features])
        labels = [_without_formulas(names.feature(int(f))) for f in features]
        ax.set_yticks(np.arange(features.size), labels)
        ax.invert_yaxis()
        ax.set_xticks([])
    else:
        ax.plot(w)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("feature")


def cones(geometry: ConeGeometry, ax: Any = None) -> Any:
    """Draw the angles between cones; a cross marks pairs too close for the assumption."""
    ax = _axes(ax)
    K = geometry.angles.size
    degrees = np.degrees(geometry.between)
    image = ax.imshow(degrees, vmin=0, vmax=90, cmap="viridis")
    ax.figure.colorbar(image, ax=ax, label="angle between axes, degrees")
    if K > 1:
        close = (geometry.between <= geometry.required_angle) & ~np.eye(K, dtype=bool)
        rows, columns = np.nonzero(close)
        ax.plot(columns, rows, "x", color="C3", markersize=5)
    title = f"The geometric assumption {geometry.verdict}"
    ax.set(xlabel="cone", ylabel="cone", title=title)
    return ax


def _without_formulas(name: str) -> str:
    """Return a name that matplotlib does not read as a formula."""
    return name.replace("$", r"\$")


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    return _pyplot().subplots(layout="constrained")[1]


def _grid(count: int, names: Names) -> Array:
    columns = min(count, 4 if names.feature_names is None or names.image_shape else 3)
    rows = -(-count // columns)
    return _subplots(rows, columns, width=2.2 if names.image_shape else 3.6, height=2.4)


def _subplots(rows: int, columns: int, *, width: float, height: float) -> Array:
    """Return axes (rows, columns), each of a width and height in inches."""
    axes: Array = _pyplot().subplots(
        rows,
        columns,
        figsize=(width * columns, height * rows),
        squeeze=False,
        layout="constrained",
    )[1]
    return axes


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as problem:
        raise ImportError(
            "figures need the package matplotlib: pip install 'conenmf[plot]'"
        ) from problem
    return plt
