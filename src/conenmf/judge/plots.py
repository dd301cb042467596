"""Figures of a result with matplotlib, for notebooks and papers: axes in, axes out.

There are two drawing systems on purpose. These figures are matplotlib's, so that people can
restyle, combine and save them. The report (`conenmf.report`) draws the same facts as SVG of its
own, because its page must be small, interactive, and written where matplotlib is not installed.
matplotlib is imported when the first figure is drawn, and only here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..arguments import array, choice, instance, integer, number, optional, several
from ..arguments import indices as checked_indices
from ..cones.counting import RankEstimate
from ..cones.geometry import ConeGeometry
from ..data.blocks import Array
from ..errors import Message, Option, OptionError
from ..names import Names
from ..solve.run import History
from .scores import abundance_maps

_X_LABELS = {"iteration": "iteration", "seconds": "seconds", "passes": "passes over the data"}
_N_COLOURS = 10  # that matplotlib has
_STYLES = ("-", "--", ":", "-.")


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


def curves(histories: Mapping[Any, History], ax: Any = None) -> Any:
    """Draw the errors of several runs against time.

    A name that is a pair, such as an init and a solver, gives a line the colour of its first part
    and the style of its second.
    """
    ax = _axes(ax)
    pairs = [name if isinstance(name, tuple) else (name, "") for name in histories]
    firsts, seconds = (list(dict.fromkeys(part)) for part in zip(*pairs, strict=True))
    colours = {first: f"C{place % _N_COLOURS}" for place, first in enumerate(firsts)}
    styles = {second: _STYLES[place % len(_STYLES)] for place, second in enumerate(seconds)}
    for (first, second), errors in zip(pairs, histories.values(), strict=True):
        ax.plot(errors.elapsed, errors.relative_error, color=colours[first], ls=styles[second])
    ax.set(xlabel="seconds", ylabel="relative error", title="Error against time", xscale="log")
    _legend(ax, colours, {} if seconds == [""] else styles)
    return ax


def _legend(ax: Any, colours: Mapping[str, str], styles: Mapping[str, str]) -> None:
    """A key for each colour and each style, instead of one for each line."""
    from matplotlib.lines import Line2D

    keys = [(name, Line2D([], [], color=colour)) for name, colour in colours.items()]
    keys += [(name, Line2D([], [], color="0.3", ls=style)) for name, style in styles.items()]
    names = [_without_formulas(name) for name, _ in keys]
    columns = 1 + (len(keys) > _N_COLOURS)
    ax.legend([line for _, line in keys], names, fontsize="small", ncols=columns)


def scores(
    ks: Array, votes: Mapping[str, tuple[Array, int]], meanings: Mapping[str, str], axes: Any = None
) -> Array:
    """Draw the scores of several estimators of K, each with its choice; return the axes.

    `meanings` says what the scores of an estimator are; it is the label of the vertical axis.
    """
    drawn = _grid(axes, len(votes), "estimators", width=3.4, height=3.0, columns=len(votes))
    for ax, (name, (values, K)) in zip(drawn, votes.items(), strict=True):
        ax.plot(ks, values, marker=".")
        ax.axvline(K, color="0.4", linestyle="--")
        label = meanings[name].replace("; ", "\n")
        ax.set(xlabel="number of components K", ylabel=label, title=f"{name}: {K}")
    return drawn


def spectrum(rank: RankEstimate, K: int, ax: Any = None) -> Any:
    """Draw singular values (line, left) and the ratio of each to the next (bars, right).

    Bars begin at 1, the smallest ratio there can be. The first ratio of nonnegative data is always
    large: its bar may leave the frame, so that the others can be compared.
    """
    ax = _axes(ax)
    numbers = np.arange(1, rank.singular_values.size + 1)
    positive = rank.singular_values > 0
    ax.semilogy(numbers[positive], rank.singular_values[positive], marker=".", color="C0")
    ax.set(xlabel="k", ylabel="singular value", title="Spectrum")
    ax.axvline(K, color="0.4", linestyle="--")
    is_right = 2 * K > numbers.size  # of the middle: then the label is left of the line
    ax.annotate(
        f"K = {K}",
        (K, 1.0),
        (-5 if is_right else 5, -5),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="top",
        ha="right" if is_right else "left",
    )
    other = ax.twinx()
    other.bar(numbers[: rank.ratios.size], rank.ratios - 1, bottom=1.0, color="C1", alpha=0.35)
    other.set_ylim(1.0, rank.highest_shown)
    other.set_ylabel("ratio to the next", color="C1")
    ax.set_zorder(other.get_zorder() + 1)
    ax.patch.set_visible(False)
    return ax


def components(
    W: Array,
    names: Names,
    axes: Any = None,
    *,
    which: Iterable[int] | None = None,
    top: int = 10,
    limits: tuple[Array, Array] | None = None,
) -> Array:
    """Draw components as images, as their `top` features with the largest values, or as curves.

    With lower and upper `limits` of their entries, (F, K) each, features and curves have bands.
    """
    W, top = array("W", W, ("F", "K")), integer("top", top, at_least=1)
    instance("names", names, Names).checked(None, len(W))
    indices, pair = _chosen(which, W.shape[1]), []
    if limits is not None:
        pair = [array("limits", one, W.shape) for one in several("limits", limits, "two arrays")]
    if limits is not None and len(pair) != 2:
        raise OptionError(f"{len(pair)} limits were given: give the lower and the upper ones")
    columns = 3 if names.feature_names is not None and not names.image_shape else 4
    width = 2.2 if names.image_shape else 3.6
    drawn = _grid(axes, len(indices), "components", width=width, height=2.4, columns=columns)
    for k, ax in zip(indices, drawn, strict=True):
        _component(W[:, k], names, ax, top, [limit[:, k] for limit in pair])
        ax.set_title(f"component {k}", fontsize="medium")
    return drawn


def _component(w: Array, names: Names, ax: Any, top: int, band: list[Array]) -> None:
    if names.image_shape is not None:
        ax.imshow(w.reshape(names.image_shape), cmap="gray", vmin=0)
        ax.set(xticks=[], yticks=[])
    elif names.feature_names is not None:
        features = np.argsort(-w, kind="stable")[: min(top, w.size)]
        places = np.arange(features.size)
        ax.barh(places, w[features])
        if band:
            ax.hlines(places, band[0][features], band[1][features], color="0.2")
        labels = [_without_formulas(names.feature(int(f))) for f in features]
        ax.set_yticks(places, labels)
        ax.invert_yaxis()
        ax.set_xticks([])
    else:
        if band:
            ax.fill_between(np.arange(w.size), *band, color="C0", alpha=0.35)
        ax.plot(w, color="C0")
        ax.set_ylim(bottom=0)
        ax.set_xlabel("feature")


def bands(W: Array, lower: Array, upper: Array, axes: Any = None, *, titles: list[str]) -> Array:
    """Draw components (F, K) over their features, each with limits for its entries."""
    F, K = W.shape
    drawn = _grid(axes, K, "components", width=3.4, height=2.2)
    for k, ax in enumerate(drawn):
        ax.fill_between(np.arange(F), lower[:, k], upper[:, k], step="mid", color="C0", alpha=0.35)
        ax.step(np.arange(F), W[:, k], where="mid", color="C0", linewidth=0.8)
        ax.set(title=titles[k])
    return drawn


def stability_and_error(ks: Array, values: Array, errors: Array, K: int, ax: Any = None) -> Any:
    """Draw the stability of components, and the error, against their number; return both axes."""
    ax = _axes(ax)
    ax.plot(ks, values, marker="o", color="C0")
    ax.axvline(K, color="0.4", linestyle="--")
    ax.set(xlabel="number of components K", title=f"Stability and error: {K}")
    ax.set_ylabel("mean silhouette", color="C0")
    right = ax.twinx()
    right.plot(ks, errors, marker="s", color="C1")
    right.set_ylabel("relative error", color="C1")
    return ax, right


def maps(
    W: Array,
    H: Any,
    pixels_shape: tuple[int, int],
    axes: Any = None,
    *,
    which: Iterable[int] | None = None,
) -> Array:
    """Draw abundance maps: the share of components in each pixel, from 0 to 1."""
    shares = abundance_maps(W, H, pixels_shape)
    indices = _chosen(which, len(shares))
    width = float(np.clip(2.4 * pixels_shape[1] / pixels_shape[0], 1.2, 4.8))
    drawn = _grid(axes, len(indices), "maps", width=width, height=2.6)
    for k, ax in zip(indices, drawn, strict=True):
        image = ax.imshow(shares[k], cmap="viridis", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"component {k}", fontsize="medium")
    drawn[0].figure.colorbar(image, ax=list(drawn), label="share", shrink=0.6)
    return drawn


def endmembers(
    W: Array, names: Names, ax: Any = None, *, which: Iterable[int] | None = None
) -> Any:
    """Draw components as curves in one frame, each scaled to norm 1.

    They are drawn over the names of the features if these are numbers, such as wavelengths.
    """
    W = array("W", W, ("F", "K"))
    instance("names", names, Names).checked(None, len(W))
    indices, ax = _chosen(which, W.shape[1]), _axes(ax)
    positions = names.feature_positions
    x = np.arange(len(W)) if positions is None else positions
    order = np.argsort(x, kind="stable")
    for place, k in enumerate(indices):
        norm = float(np.linalg.norm(W[:, k])) or 1.0
        style = _STYLES[place // _N_COLOURS % len(_STYLES)]
        ax.plot(x[order], W[order, k] / norm, linestyle=style, label=f"component {k}")
    label = "feature" if positions is None else "wavelength, or the name of the feature"
    ax.set(xlabel=label, ylabel="value, at norm 1", title="Components")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize="small", ncols=1 + (len(indices) > _N_COLOURS))
    return ax


def _chosen(which: Any, K: int) -> list[int]:
    """The components to draw, by default all."""
    chosen = range(K) if which is None else several("components", which, "a list of indices")
    indices: list[int] = checked_indices("components", chosen, K).tolist()
    if not indices:
        problem = f" is empty, expected some of 0 to {K - 1}"
        raise OptionError(Message(Option("components"), problem))
    return indices


def cones(geometry: ConeGeometry, ax: Any = None) -> Any:
    """Draw the angles between cones; a cross marks pairs too close for the paper's guarantee."""
    ax = _axes(ax)
    K = geometry.angles.size
    degrees = np.degrees(geometry.between)
    image = ax.imshow(degrees, vmin=0, vmax=90, cmap="viridis")
    ax.figure.colorbar(image, ax=ax, label="angle between axes, degrees")
    if K > 1:
        close = (geometry.between <= geometry.required_angle) & ~np.eye(K, dtype=bool)
        rows, columns = np.nonzero(close)
        ax.plot(columns, rows, "x", color="C3", markersize=5)
    known = "the paper's guarantee applies"
    if not geometry.holds:
        known = "crosses are too close for the guarantee"
    ax.set(xlabel="cone", ylabel="cone", title=f"Angles between cones; {known}")
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
    flat = np.empty(0, dtype=object)
    with contextlib.suppress(Exception):  # an object of the caller's own
        flat = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if not all(hasattr(ax, "plot") and hasattr(ax, "figure") for ax in flat) or not flat.size:
        raise OptionError(Message(Option(name, axes), ", expected axes of matplotlib, or None"))
    if flat.size < count:
        raise OptionError(f"{flat.size} axes were given for {count} {drawn}: give one for each")
    return flat


def _grid(
    axes: Any, count: int, drawn: str, *, width: float, height: float, columns: int = 4
) -> Array:
    """Return so many axes, of the given ones or of a new figure; those that are left are hidden.

    New ones have a width and height in inches, and more columns if there are many rows.
    """
    if axes is None:
        columns = min(count, max(columns, math.ceil(math.sqrt(count / 1.5))))
        rows = -(-count // columns)
        size = (width * columns, height * rows)
        axes = _pyplot().subplots(rows, columns, figsize=size, layout="constrained")[1]
    flat = _flat(axes, count, drawn)
    for ax in flat[count:]:
        ax.set_visible(False)
    return flat[:count]


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as problem:
        raise ImportError(
            "figures need the package matplotlib: pip install 'conenmf[plot]'"
        ) from problem
    return plt
