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

from ..arguments import array, choice, instance, integer, number, optional, several
from ..arguments import indices as checked_indices
from ..cones.geometry import ConeGeometry
from ..cones.rank import RankEstimate
from ..data.blocks import Array
from ..errors import Message, Option, OptionError
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
    instance("errors", errors, History)
    against, below = choice("against", against, _X_LABELS), optional(number, "below", below)
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
    for _, errors in _items("histories", histories):
        instance("histories", errors, History)
    ax = _axes(ax)
    styles = ("-", "--", ":", "-.")
    for place, (name, errors) in enumerate(histories.items()):
        style = styles[place // _COLOURS_PER_STYLE % len(styles)]
        ax.plot(errors.elapsed, errors.relative_error, linestyle=style, label=name)
    ax.set(xlabel="seconds", ylabel="relative error", title="Error against time", xscale="log")
    ax.legend(fontsize="small", ncols=1 + (len(histories) > _COLOURS_PER_STYLE))
    return ax


def scores(ks: Array, votes: Mapping[str, tuple[Array, int]], axes: Any = None) -> Array:
    """Draw the scores of several estimators of K, each with its choice; return the axes."""
    ks = array("ks", ks, ("n",))
    drawn = [(name, *_vote(vote, ks.size)) for name, vote in _items("votes", votes)]
    if axes is None:
        axes = _subplots(1, len(drawn), width=3.2, height=2.8)
    flat = _flat(axes, len(drawn), "estimators")
    for ax, (name, values, K) in zip(flat, drawn, strict=False):
        ax.plot(ks, values, marker=".")
        ax.axvline(K, color="0.4", linestyle="--")
        ax.set(xlabel="K", title=f"{name}: {K}")
    return flat[: len(drawn)]


def _vote(vote: Any, count: int) -> tuple[Array, int]:
    """The scores of an estimator, of which some may be infinite or missing, and its choice."""
    pair = several("votes", vote, what := "pairs of scores and a choice")
    if len(pair) != 2 or np.shape(pair[0]) != (count,):
        raise OptionError(Message(Option("votes", vote), f", expected {what}"))
    return np.asarray(pair[0]), integer("votes", pair[1])


def _items(name: str, mapping: Any) -> list[tuple[str, Any]]:
    items = list(instance(name, mapping, Mapping).items())  # type: ignore[type-abstract]
    if not items:
        raise OptionError(Message(Option(name), " is empty: there is nothing to draw"))
    return items


def spectrum(rank: RankEstimate, K: int, ax: Any = None) -> Any:
    """Draw singular values (line, left) and the ratio of each to the next (bars, right)."""
    instance("rank", rank, RankEstimate, "estimate_rank(V)")
    K, ax = integer("K", K, at_least=1), _axes(ax)
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
    W, top = array("W", W, ("F", "K")), integer("top", top, at_least=1)
    K = W.shape[1]
    instance("names", names, Names).checked(None, len(W))
    first = np.arange(min(K, _MAX_COMPONENTS))
    chosen = first if which is None else several("components", which, "a list of indices")
    indices = checked_indices("components", chosen, K).tolist()
    if not indices:
        problem = f" is empty, expected some of 0 to {K - 1}"
        raise OptionError(Message(Option("components"), problem))
    if axes is None:
        axes = _grid(len(indices), names)
    flat = _flat(axes, len(indices), "components")
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
    instance("geometry", geometry, ConeGeometry, "cone_geometry(V, labels)")
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
    if ax is None:
        return _pyplot().subplots(layout="constrained")[1]
    return _flat(ax, 1, "figure", name="ax")[0]


def _flat(axes: Any, count: int, drawn: str, name: str = "axes") -> Array:
    """Axes as a list, at least as many as are drawn on."""
    try:
        flat: Array = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
        is_drawable = all(hasattr(ax, "plot") and hasattr(ax, "figure") for ax in flat)
    except Exception:  # an object of the caller's own
        is_drawable = False
    if not is_drawable:
        raise OptionError(Message(Option(name, axes), ", expected axes of matplotlib, or None"))
    if flat.size < count:
        raise OptionError(f"{flat.size} axes were given for {count} {drawn}: give one for each")
    return flat


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
