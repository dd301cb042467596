"""Figures of a result with matplotlib, for notebooks and papers.

These functions draw on given axes and return axes, so that users can restyle, combine and save
figures. The report (`conenmf.report`) draws the same facts as SVG with its own code, because its
page must be small and interactive, and must not need matplotlib. matplotlib is imported when the
first figure is drawn, and only here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.linalg import norm

from .arguments import choice, rows_and_columns
from .cones.counting import RankEstimate
from .cones.geometry import ConeGeometry
from .data.blocks import over, unit_columns
from .data.matrix import Aligned
from .errors import DataError, Option, OptionError
from .names import Names
from .solve.run import History
from .types import Array, Pair, Range, Shape, Texts, Titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes

# The components to draw; None for all.
Which: TypeAlias = Iterable[int] | None

_X_LABELS = {"iteration": "iteration", "seconds": "seconds", "passes": "passes over the data"}
_N_COLOURS = 10  # number of matplotlib's default colours
_STYLES = ("-", "--", ":", "-.")
_LABEL_CHARS = 32  # largest length of a name beside a small frame


def history(
    errors: History,
    ax: object = None,
    *,
    against: str = "iteration",
    below: float | None = None,
) -> Axes:
    """Draw relative errors, and the lower bound `below` if it is given.

    >>> from conenmf import factorize, from_columns
    >>> result = factorize(from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]]), 1)
    >>> history(result.history).get_xlabel()
    'iteration'
    """
    choice("against", against, _X_LABELS)
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


def curves(
    histories: Mapping[Any, History], ax: object = None, *, against: str = "seconds"
) -> Axes:
    """Draw the errors of several runs against seconds or passes; a single error is a point.

    If a name is a pair, such as an init and a solver, the first part decides the colour of the
    line, and the second the style.
    """
    ax = _axes(ax)
    pairs = [name if isinstance(name, tuple) else (name, "") for name in histories]
    firsts, seconds = (list(dict.fromkeys(part)) for part in zip(*pairs, strict=True))
    for (first, second), errors in zip(pairs, histories.values(), strict=True):
        colour = f"C{firsts.index(first) % _N_COLOURS}"
        style = _STYLES[seconds.index(second) % len(_STYLES)]
        label = _without_formulas(f"{first} {second}".rstrip())
        x = errors.elapsed if against == "seconds" else errors.passes
        marker = "o" if x.size == 1 else None
        ax.plot(x, errors.relative_error, color=colour, ls=style, marker=marker, label=label)
    ax.set(xlabel=against, ylabel="relative error", title=f"Error against {against}", xscale="log")
    ax.legend(fontsize="small", ncols=1 + (len(pairs) > _N_COLOURS))
    return ax


def evidence(pieces: Sequence[Any], interval: Range, axes: object) -> Array:
    """Draw the scores of each piece of evidence about K, and the interval; return the axes."""
    count = len(pieces)
    drawn = _grid(axes, count, "pieces", width=3.4, height=3.0, columns=count)
    for ax, one in zip(drawn, pieces, strict=True):
        ax.axvspan(interval[0] - 0.5, interval[1] + 0.5, color="0.9")
        ax.plot(one.ks, one.scores, marker=".")
        ax.axvline(one.K, color="0.4", linestyle="--")
        label = "\n".join(fill(part, _LABEL_CHARS) for part in one.meaning.split("; "))
        ax.set(xlabel="number of components K", ylabel=label, title=f"{one.name}: {one.K}")
    return drawn


def spectrum(rank: RankEstimate, K: int, ax: object) -> Axes:
    """Draw singular values (line, left axis) and the ratio of each to the next (bars, right axis).

    Bars start at 1, the smallest possible ratio. The first ratio of nonnegative data is always
    large; its bar may leave the frame, so that the others can be compared.
    """
    ax = _axes(ax)
    numbers = np.arange(1, rank.singular_values.size + 1)
    positive = rank.singular_values > 0
    ax.semilogy(numbers[positive], rank.singular_values[positive], marker=".", color="C0")
    ax.set(xlabel="k", ylabel="singular value", title="Spectrum")
    ax.axvline(K, color="0.4", linestyle="--", label=f"K = {K}")
    ax.legend()
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
    axes: object = None,
    *,
    which: Which = None,
    top: int = 10,
    limits: Pair | None = None,
    titles: Titles = None,
) -> Array:
    """Draw components as images, as their `top` features with the largest values, or as curves.

    If lower and upper `limits` of the entries are given, (F, K) each, features and curves have
    bands. The title of a component is its number, or its entry in `titles`.

    >>> components(np.eye(4)[:, :2], Names(image_shape=(2, 2))).size
    2
    """
    names.checked(None, len(W))
    indices = _chosen(which, W.shape[1])
    heads = [f"component {k}" for k in range(W.shape[1])] if titles is None else titles
    columns = 3 if names.feature_names is not None and not names.image_shape else 4
    width = 2.2 if names.image_shape else 3.6
    drawn = _grid(axes, len(indices), "components", width=width, height=2.4, columns=columns)
    for k, ax in zip(indices, drawn, strict=True):
        _component(W[:, k], names, ax, top, [limit[:, k] for limit in limits or ()])
        ax.set_title(heads[k], fontsize="medium")
    return drawn


def _component(w: Array, names: Names, ax: Axes, top: int, band: list[Array]) -> None:
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
            ax.fill_between(np.arange(w.size), band[0], band[1], color="C0", alpha=0.35)
        ax.plot(w, color="C0")
        ax.set_ylim(bottom=0)
        ax.set_xlabel("feature")


def stability_and_error(
    ks: Array, values: Array, errors: Array, K: int, ax: object
) -> tuple[Axes, Axes]:
    """Draw the stability of components, and the error, against their number; return both axes."""
    ax = _axes(ax)
    ax.plot(ks, values, marker="o", color="C0")
    ax.axvline(K, color="0.4", linestyle="--")
    ax.set(xlabel="number of components K", title=f"Stability and error: {K}")
    ax.locator_params(axis="x", integer=True)
    ax.set_ylabel("mean silhouette", color="C0")
    right = ax.twinx()
    right.plot(ks, errors, marker="s", color="C1")
    right.set_ylabel("relative error", color="C1")
    return ax, right


def donors(names: Texts, usages: Array, table: Array, scales: Array, axes: object = None) -> Array:
    """Draw the mean usage (G, K) of each program by each donor, and the scales (G, F).

    Programs that a donor does not use are blank.
    """
    drawn = _grid(axes, 2, "parts", width=5.0, height=4.2)
    image = drawn[0].imshow(np.where(table, usages, np.nan), cmap="viridis", vmin=0, aspect="auto")
    labels = [str(k + 1) for k in range(table.shape[1])]
    drawn[0].set_xticks(np.arange(len(labels)), labels)
    drawn[0].set_yticks(np.arange(len(names)), names)
    drawn[0].set(xlabel="program", title="mean usage by donor")
    drawn[0].figure.colorbar(image, ax=drawn[0], shrink=0.8)
    drawn[1].boxplot(np.log2(scales.T), sym=".")
    drawn[1].set_xticks(np.arange(len(names)) + 1, names, rotation=90)
    drawn[1].set(ylabel="log2 of the scales of genes", title="what moves with the donor")
    return drawn


def clustergram(
    distances: Array, clusters: Array, means: Array, threshold: float, axes: object = None
) -> Array:
    """Draw distances (n, n) between components, sorted by clusters, and their means (n,).

    Lines separate clusters; components with label -1 are left out of the consensus.
    """
    drawn = _grid(axes, 2, "parts", width=5.0, height=4.2)
    image = drawn[0].imshow(distances, cmap="viridis_r", vmin=0, vmax=math.sqrt(2))
    for end in np.flatnonzero(np.diff(clusters)):
        for line in (drawn[0].axhline, drawn[0].axvline):
            line(end + 0.5, color="white", linewidth=0.8)
    title = f"distances between {len(clusters)} components of runs, by cluster"
    drawn[0].set(
        xticks=[], yticks=[], xlabel=f"{(clusters < 0).sum()} are left out, and drawn last"
    )
    drawn[0].set_title(title, fontsize="medium")
    drawn[0].figure.colorbar(image, ax=drawn[0], shrink=0.8)
    drawn[1].hist(means[np.isfinite(means)], bins=40)
    drawn[1].axvline(threshold, color="0.4", linestyle="--", label="threshold")
    drawn[1].set(xlabel="mean distance to nearest neighbours", ylabel="components")
    drawn[1].legend()
    return drawn


def maps(
    W: Array,
    H: Aligned,
    pixels_shape: Shape,
    axes: object = None,
    *,
    which: Which = None,
) -> Array:
    """Draw abundance maps: the share of components in each pixel, from 0 to 1.

    >>> maps(np.eye(2), np.ones((2, 6)), (2, 3)).size
    2
    """
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


def endmembers(W: Array, names: Names, ax: object = None, *, which: Which = None) -> Axes:
    """Draw components as curves in one frame, each scaled to norm 1.

    The x axis shows the names of the features if these are numbers, such as wavelengths.

    >>> len(endmembers(np.eye(4)[:, :2], Names()).lines)
    2
    """
    positions = names.feature_positions
    label = "feature" if positions is None else "wavelength, or the name of the feature"
    words = {"xlabel": label, "ylabel": "value, at norm 1", "title": "Components"}
    ax = _lines(unit_columns(W).T, positions, ax, which, words)
    ax.set_ylim(bottom=0)
    return ax


def contributions(
    W: Array, H: Array, names: Names, ax: object = None, *, which: Which = None
) -> Axes:
    """Draw what each component adds to the sum of a sample; over dates if samples have them.

    >>> len(contributions(np.eye(2), np.ones((2, 5)), Names()).lines)
    2
    """
    times = names.sample_times
    label = "sample" if times is None else "date"
    words = {"xlabel": label, "ylabel": "sum over features", "title": "Contributions"}
    return _lines(W.sum(axis=0)[:, None] * H, times, ax, which, words)


def _lines(rows: Array, x: Array | None, ax: object, which: Which, words: dict[str, str]) -> Axes:
    """Draw a row (K, n) for each chosen component, over x or over indices."""
    indices = _chosen(which, len(rows))
    ax = _axes(ax)
    places = np.arange(rows.shape[1]) if x is None else x
    order = np.argsort(places, kind="stable")
    for place, k in enumerate(indices):
        style = _STYLES[place // _N_COLOURS % len(_STYLES)]
        ax.plot(places[order], rows[k, order], linestyle=style, label=f"component {k}")
    ax.set(**words)
    ax.legend(fontsize="small", ncols=1 + (len(indices) > _N_COLOURS))
    return ax


def _chosen(which: Which, K: int) -> list[int]:
    """Return the components to draw, by default all."""
    chosen = np.arange(K) if which is None else np.asarray([*which])
    if chosen.size == 0 or not np.isin(chosen, range(K)).all():
        raise OptionError(Option("components", which), f", expected some of 0 to {K - 1}")
    return list(chosen)


def cones(geometry: ConeGeometry, ax: object = None) -> Axes:
    """Draw the angles between cones; a cross marks pairs too close for the paper's guarantee."""
    ax = _axes(ax)
    K = geometry.angles.size
    image = ax.imshow(np.degrees(geometry.between), vmin=0, vmax=90, cmap="viridis")
    ax.figure.colorbar(image, ax=ax, label="angle between axes, degrees")
    if K > 1:
        close = (geometry.between <= geometry.required_angle) & ~np.eye(K, dtype=bool)
        rows, columns = np.nonzero(close)
        ax.plot(columns, rows, "x", color="C3", markersize=5)
    known = "the paper's guarantee applies"
    if not geometry.holds:
        known = "crosses are too close for the guarantee"
    ax.set(xlabel="cone", ylabel="cone", title=f"Angles between cones;\n{known}")
    return ax


def _without_formulas(name: str) -> str:
    """Escape a name so that matplotlib does not read it as a formula."""
    return name.replace("$", r"\$")


def _axes(ax: object) -> Axes:
    if ax is None:
        return _pyplot().subplots(layout="constrained")[1]
    return _flat(ax, 1, "figure", name="ax")[0]


def _flat(axes: object, count: int, drawn: str, name: str = "axes") -> Array:
    """Return axes as a list, after checking that there are enough."""
    flat = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if not all(hasattr(ax, "plot") and hasattr(ax, "figure") for ax in flat) or not flat.size:
        raise OptionError(Option(name, axes), ", expected axes of matplotlib, or None")
    if flat.size < count:
        raise OptionError(f"{flat.size} axes were given for {count} {drawn}: give one for each")
    return flat


def _grid(
    axes: object, count: int, drawn: str, *, width: float, height: float, columns: int = 4
) -> Array:
    """Return `count` axes, from the given ones or a new figure, and hide the remaining ones.

    New axes have a width and height in inches, and more columns if there are many rows.
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


# --- maps of a scene ------------------------------------------------------------


def abundance_maps(
    W: Array, H: Aligned, pixels_shape: Shape, *, max_pixels: int | None = None
) -> Array:
    """Return the share of each component in every pixel, (K, rows, columns).

    The share of component k in pixel n is ||w_k|| H(k, n) / sum_j ||w_j|| H(j, n), or 0 if all H(j,
    n) are 0. Shares do not depend on how the scale is divided between W and H.

    Parameters
    ----------
    W : array (F, K)
    H : array (K, N)
    pixels_shape : (rows, columns)
        The samples are the pixels of an image of this shape, row by row.
    max_pixels : int, optional
        Largest number of pixels in all maps together. Larger maps keep every second pixel of every
        second row, or every third pixel of every third row, and so on.

    Examples
    --------
    >>> W, H = np.eye(2), np.array([[3.0, 1.0, 0.0, 0.0], [1.0, 1.0, 2.0, 0.0]])
    >>> abundance_maps(W, H, (2, 2))[0].tolist()
    [[0.75, 0.5], [0.0, 0.0]]
    """
    rows, columns = rows_and_columns("pixels_shape", pixels_shape)
    K = W.shape[1]
    if tuple(H.shape) != (K, rows * columns):
        raise DataError(f"H has shape {tuple(H.shape)}, expected ({K}, {rows * columns})")
    step = 1 if max_pixels is None else math.ceil(math.sqrt(K * rows * columns / max_pixels))
    pixels = np.arange(rows * columns).reshape(rows, columns)[::step, ::step]
    amounts = np.asarray(H[:, pixels.ravel()], dtype=float) * norm(W, axis=0)[:, None]
    return over(amounts, amounts.sum(axis=0)).reshape(K, *pixels.shape)
