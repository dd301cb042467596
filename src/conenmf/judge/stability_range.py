"""How many components are found again: stability and error for several numbers of components."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import choice, components, function, generator, optional, path, several
from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..data.saving import reading, write_arrays
from ..data.validate import checked_components, require_data_matrix
from ..errors import ComponentsError, FileFormatError, Message, Option
from ..solve.checkpoint import held_folder
from ..solve.goals import checked_loss
from . import plots
from .replicates import RESAMPLINGS
from .stability import checked_dispersion, stability
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
    checkpoint: str | os.PathLike[str] | None = None,
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
    checkpoint : path, optional
        A folder, with one for each number in it, in which runs are kept as `stability` does.
    callback : callable, optional
        Called with the `Stability` of each number as soon as it is known.

    Examples
    --------
    >>> from conenmf import from_columns, make_cones
    >>> model = make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> stability_over(from_columns(model.V), [2, 3], 4).ks.tolist()
    [2, 3]
    """
    require_data_matrix(V, nonzero=True)
    optional(function, "callback", callback, takes=1)
    candidates = np.unique([components(k) for k in several("ks", ks, "a list of integers")])
    if candidates.size == 0:
        raise ComponentsError(Message(Option("ks", ks), ", expected integers of at least 1"))
    checked_components(int(candidates[-1]), V)
    rng = optional(generator, "rng", rng)
    rng = np.random.default_rng(0) if rng is None else rng
    loss, resample = checked_loss(loss), choice("resample", resample, RESAMPLINGS)
    phi = checked_dispersion(V, int(candidates[-1]), loss, resample, dispersion)
    place = None if checkpoint is None else Path(path("checkpoint", checkpoint))
    if place is not None:
        with held_folder(place):  # it is made, and can be written to
            pass
    found: dict[int, Stability] = {}
    for k in candidates.tolist():
        found[k] = stability(
            V,
            k,
            n_runs,
            loss=loss,
            resample=resample,
            dispersion=phi,
            density_threshold=density_threshold,
            max_excess=max_excess,
            max_iter=max_iter,
            tol=tol,
            rng=rng,
            checkpoint=None if place is None else place / f"K-{k}",
        )
        if callback is not None:
            callback(found[k])
    return StabilityRange(*_recommended(found), found)


def _recommended(found: dict[int, Stability]) -> tuple[int, str]:
    stable = [k for k, one in found.items() if one.is_stable.all()]
    if stable:
        return stable[-1], "the most that are all stable"
    means = {k: float(np.nan_to_num(one.silhouettes).mean()) for k, one in found.items()}
    return max(means, key=means.__getitem__), "none is stable; this has the largest silhouette"
