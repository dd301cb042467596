"""How many components are found again: stability and error for several numbers of components."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import components, function, optional, several
from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..data.saving import reading, write_arrays
from ..data.validate import checked_components, require_complete, require_data_matrix
from ..errors import ComponentsError, FileFormatError, Message, Option
from ..solve.checkpoint import Checkpoint, held_folder
from . import plots
from .replicates import replicate_over
from .stability import checked_options, judged_replicates
from .stability_result import Stability, of_saved, plain

__all__ = ["StabilityRange", "stability_over"]

_FORMAT = "conenmf-stability-range-1"


@dataclass(frozen=True, eq=False)
class StabilityRange:
    """What is found again for several numbers of components.

    Attributes
    ----------
    K : int
        The recommended number.
    reason : str
        Why.
    found : dict
        From each number to its `Stability`.
    """

    K: int
    reason: str
    found: dict[int, Stability]

    @property
    def ks(self) -> Array:
        """The numbers of components."""
        return np.array(list(self.found))

    @property
    def silhouettes(self) -> Array:
        """The mean silhouette for each number; 0 where there is no consensus."""
        return np.array([np.nan_to_num(one.silhouettes).mean() for one in self.found.values()])

    @property
    def relative_errors(self) -> Array:
        """The relative error of the best run for each number."""
        return np.array([one.best_relative_error for one in self.found.values()])

    def __str__(self) -> str:
        rows = ["   K  stable  silhouette  error, consensus  error, best run"]
        for (k, one), silhouette in zip(self.found.items(), self.silhouettes, strict=True):
            rows.append(
                f"{k:>4}  {int(one.is_stable.sum()):>6}  {silhouette:>10.3f}"
                f"  {one.relative_error:>16.4g}  {one.best_relative_error:>15.4g}"
            )
        return "\n".join([*rows, f"recommended: {self.K}; {self.reason}"])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything but the data to one ``.npz`` file, as `Stability.save` does."""
        arrays: dict[str, Any] = {}
        each = []
        for k, one in self.found.items():
            parts, facts = plain(one, f"{k}_")
            arrays |= parts
            each.append({"K": k, **facts})
        facts = {"format": _FORMAT, "K": self.K, "reason": self.reason, "each": each}
        shapes = {name: each[0][name] for name in ("image_shape", "pixels_shape")}
        write_arrays(path, arrays, facts | shapes)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StabilityRange:
        """Read what `save` wrote; anything else, or a damaged file, raises `FileFormatError`."""
        with reading(path, _FORMAT, "what stability_over() found, as") as saved:
            each = {int(facts["K"]): facts for facts in saved.facts["each"]}
            found = {k: of_saved(saved, f"{k}_", facts) for k, facts in each.items()}
            if int(saved.facts["K"]) not in found or any(k != one.K for k, one in found.items()):
                raise FileFormatError("its numbers of components are not those of its parts")
            return cls(int(saved.facts["K"]), str(saved.facts["reason"]), found)

    def plot(self, ax: Any = None) -> Any:
        """Draw stability and error against K; return the two matplotlib axes."""
        return plots.stability_and_error(
            self.ks, self.silhouettes, self.relative_errors, self.K, ax
        )


def stability_over(
    V: DataMatrix,
    ks: Iterable[int],
    n_runs: int = 20,
    *,
    loss: str = "frobenius",
    resample: str = "samples",
    dispersion: float | None = None,
    density_threshold: float = 0.5,
    max_excess: float = 0.01,
    max_iter: int = 200,
    tol: float = 1e-5,
    rng: np.random.Generator | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    callback: Callable[[Stability], object] | None = None,
) -> StabilityRange:
    """Return what is found again for several numbers of components, and recommend one.

    It is the largest number of which all components are stable; without any, the one with the
    largest mean silhouette.

    Parameters
    ----------
    V : DataMatrix (F, N)
    ks : integers
    n_runs : int
    loss, resample, dispersion, density_threshold, max_excess, max_iter, tol, rng
        As in `stability`; the dispersion is estimated with the largest of the numbers.
    checkpoint : path or Checkpoint, optional
        A folder, with one for each number in it, in which runs are kept as `stability` does.
    callback : callable, optional
        Called with the `Stability` of each number as soon as it is known.

    Notes
    -----
    The runs of all numbers share their passes over V, as those of one do in `stability`.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> stability_over(from_columns(model.V), [2, 3], 4).ks.tolist()
    [2, 3]
    """
    require_data_matrix(V, nonzero=True)
    require_complete(V, "stability")
    optional(function, "callback", callback, takes=1)
    candidates = np.unique([components(k) for k in several("ks", ks, "a list of integers")])
    if candidates.size == 0:
        raise ComponentsError(Message(Option("ks", ks), ", expected integers of at least 1"))
    checked_components(int(candidates[-1]), V)
    checked = checked_options(
        n_runs=n_runs,
        loss=loss,
        resample=resample,
        density_threshold=density_threshold,
        max_excess=max_excess,
        max_iter=max_iter,
        tol=tol,
        rng=rng,
        checkpoint=checkpoint,
    )
    place = checked.checkpoint
    places: dict[int, Checkpoint | None] = dict.fromkeys(candidates.tolist())
    if place is not None:
        with held_folder(Path(place.folder)):  # it is made, and can be written to
            pass
        places = {k: replace(place, folder=Path(place.folder) / f"K-{k}") for k in places}
    found: dict[int, Stability] = {}
    with V.own_threads():
        for k, runs in replicate_over(V, places, **checked.of_runs):
            found[k] = judged_replicates(V, runs, **checked.of_consensus)
            if callback is not None:
                callback(found[k])
    found = {k: found[k] for k in sorted(found)}
    return StabilityRange(*_recommended(found), found)


def _recommended(found: dict[int, Stability]) -> tuple[int, str]:
    stable = [k for k, one in found.items() if one.is_stable.all()]
    if stable:
        return stable[-1], "the most that are all stable"
    means = {k: float(np.nan_to_num(one.silhouettes).mean()) for k, one in found.items()}
    return max(means, key=means.__getitem__), "none is stable; this has the largest silhouette"
