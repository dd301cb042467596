"""Pictures of a result, with matplotlib: axes in, axes out.

matplotlib is imported when the first picture is asked for, and only here.
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

_DRAWN = 12  # components that are drawn unless some are asked for
_AGAINST = {"iteration": "iteration", "seconds": "seconds", "passes": "passes over the data"}


def history(
    errors: History, ax: Any = None, *, against: str = "iteration", below: float | None = None
) -> Any:
    """Draw relative errors, and a line that no error can be below if it is known."""
    if against not in _AGAINST:
        raise OptionError.unknown("against", against, _AGAINST)
    ax = _axes(ax)
    places = {
        "iteration": np.arange(1, errors.relative_error.size + 1),
        "seconds": errors.elapsed,
        "passes": errors.passes,
    }
    ax.plot(places[against], errors.relative_error, marker=".", label="relative error")
    if below is not None:
        ax.axhline(below, color="0.4", linestyle="--", label="no error can be below")
    ax.set(xlabel=_AGAINST[against], ylabel="relative error", title="Error while solving")
    ax.legend()
    return ax


def curves(histories: Mapping[str, History], ax: Any = None) -> Any:
    """Draw the errors of several runs against time."""
    ax = _axes(ax)
    styles = ("-", "--", ":", "-.")
    for number, (name, errors) in enumerate(histories.items()):
        style = styles[number // 10 % len(styles)]
        ax.plot(errors.elapsed, errors.relative_error, linestyle=style, label=name)
    ax.set(xlabel="seconds", ylabel="relative error", title="Error against time", xscale="log")
    ax.legend(fontsize="small", ncols=1 + (len(histories) > 10))
    return ax


def scores(ks: Array, votes: Mapping[str, tuple[Array, int]], axes: Any = None) -> Array:
    """Draw the scores of several estimators of K, each with its choice; return the axes."""
    if axes is None:
        size = (3.2 * len(votes), 2.8)
        axes = _pyplot().subplots(1, len(votes), figsize=size, squeeze=False, layout="constrained")[
            1
        ]
    flat = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    for ax, (name, (values, K)) in zip(flat, votes.items(), strict=True):
        ax.plot(ks, values, marker=".")
        ax.axvline(K, color="0.4", linestyle="--")
        ax.set(xlabel="K", title=f"{name}: {K}")
    return flat


def spectrum(rank: RankEstimate, K: int, ax: Any = None) -> Any:
    """Draw singular values (line, left) and the ratios of neighbours (bars, right)."""
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
    W: Array, names: Names, axes: Any = None, *, chosen: Iterable[int] | None = None, top: int = 10
) -> Array:
    """Draw components as images, as their heaviest features, or as curves."""
    K = W.shape[1]
    wanted = list(range(min(K, _DRAWN))) if chosen is None else [int(k) for k in chosen]
    if not wanted or not all(0 <= k < K for k in wanted):
        raise OptionError(f"components={wanted}, expected some of 0 to {K - 1}")
    if axes is None:
        axes = _grid(len(wanted), names)
    flat = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if flat.size < len(wanted):
        raise OptionError(f"{flat.size} axes were given for {len(wanted)} components")
    for k, ax in zip(wanted, flat, strict=False):
        _component(W[:, k], names, ax, top)
        ax.set_title(f"component {k}", fontsize="medium")
    for ax in flat[len(wanted) :]:
        ax.set_visible(False)
    return flat[: len(wanted)]


def _component(w: Array, names: Names, ax: Any, top: int) -> None:
    if names.image_shape is not None:
        ax.imshow(w.reshape(names.image_shape), cmap="gray", vmin=0)
        ax.set(xticks=[], yticks=[])
    elif names.feature_names is not None:
        heaviest = np.argsort(-w, kind="stable")[: min(top, w.size)]
        ax.barh(np.arange(heaviest.size), w[heaviest])
        labels = [_plain(names.feature(int(f))) for f in heaviest]
        ax.set_yticks(np.arange(heaviest.size), labels)
        ax.invert_yaxis()
        ax.set_xticks([])
    else:
        ax.plot(w)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("feature")


def cones(geometry: ConeGeometry, ax: Any = None) -> Any:
    """Draw the angles between cones; a cross marks pairs that break the assumption."""
    ax = _axes(ax)
    K = geometry.angles.size
    degrees = np.degrees(geometry.between)
    image = ax.imshow(degrees, vmin=0, vmax=90, cmap="viridis")
    ax.figure.colorbar(image, ax=ax, label="angle between axes, degrees")
    if K > 1:
        close = (geometry.between <= geometry.required_angle) & ~np.eye(K, dtype=bool)
        rows, columns = np.nonzero(close)
        ax.plot(columns, rows, "x", color="C3", markersize=5)
    verdict = "holds" if geometry.holds else "does not hold"
    ax.set(xlabel="cone", ylabel="cone", title=f"The geometric assumption {verdict}")
    return ax


def _plain(name: str) -> str:
    """A name in which matplotlib sees no formulas."""
    return name.replace("$", r"\$")


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    return _pyplot().subplots(layout="constrained")[1]


def _grid(count: int, names: Names) -> Array:
    columns = min(count, 4 if names.feature_names is None or names.image_shape else 3)
    rows = -(-count // columns)
    size = (2.2 * columns, 2.4 * rows) if names.image_shape else (3.6 * columns, 2.4 * rows)
    axes: Array = _pyplot().subplots(
        rows, columns, figsize=size, squeeze=False, layout="constrained"
    )[1]
    return axes


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as problem:
        raise ImportError(
            "pictures need the package matplotlib: pip install 'conenmf[plot]'"
        ) from problem
    return plt
