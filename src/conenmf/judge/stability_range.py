"""How many components are found again: stability and error for several numbers of components."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..arguments import components, function, optional, several
from ..cones.edge import count_above_edge
from ..data.blocks import Array
from ..data.matrix import DataMatrix
from ..data.resampled import holds_counts
from ..data.saving import reading, write_arrays
from ..data.validate import checked_components, require_data_matrix
from ..errors import ComponentsError, FileFormatError, Message, Option
from ..solve.checkpoint import Checkpoint, held_folder
from ..solve.goals import best_coefficients
from . import plots
from .dispersion import Noise, continued, edge_of, quasi_divergence, scan
from .replicates import replicate_over
from .stability import Options, checked_noise, checked_options, judged_replicates
from .stability_result import Stability, of_saved, plain

__all__ = ["StabilityRange", "stability_over"]

_MAX_DEFAULT = 50  # components that are tried by default
_PATIENCE = 2  # numbers of components beyond the best one that are tried

_FORMAT = "conenmf-stability-range-2"


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
    ks: Iterable[int] | None = None,
    n_runs: int = 20,
    *,
    loss: str = "frobenius",
    resample: str = "samples",
    dispersion: float | Noise | None = None,
    density_threshold: float = 0.5,
    max_excess: float = 0.01,
    max_iter: int = 200,
    tol: float = 1e-5,
    rng: np.random.Generator | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    callback: Callable[[Stability], object] | None = None,
) -> StabilityRange:
    """Return what is found again for several numbers of components, and recommend one.

    For the Poisson loss of counts it is the number with the lowest divergence if every component
    costs what it would explain of noise, (sqrt F + sqrt N)^2 / 2: that is half of the square of the
    largest singular value of F x N numbers of variance one. Otherwise it is the largest number of
    which all components are stable; without any, the one with the largest mean silhouette.

    Parameters
    ----------
    V : DataMatrix (F, N)
    ks : integers, optional
        By default numbers around one that is estimated; for the Poisson loss of counts one after
        the other, until two more and two fewer than the best one have been tried.
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
    optional(function, "callback", callback, takes=1)
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
    if checked.checkpoint is not None:
        with held_folder(Path(checked.checkpoint.folder)):  # it is made, and can be written to
            pass
    with V.own_threads():
        numbers = _Numbers.of(V, ks, **checked.of_noise)
        noise = checked_noise(V, numbers.most, dispersion, **checked.of_noise)
        trial = _Trial(V, checked, noise, callback)
        if not numbers.are_counts:
            found = trial.of(numbers.candidates)
            return StabilityRange(*_recommended(found), found)
        costs = trial.costs(numbers) if ks is not None else trial.search(numbers)
    K = min(costs, key=costs.__getitem__)
    reason = "more would explain no more than noise allows"
    return StabilityRange(K, reason, dict(sorted(trial.found.items())))


class _Numbers(NamedTuple):
    """The numbers of components to be tried."""

    candidates: list[int]
    are_counts: bool

    @property
    def most(self) -> int:
        return self.candidates[-1]

    @classmethod
    def of(cls, V: DataMatrix, ks: Iterable[int] | None, loss: str, resample: str) -> _Numbers:
        """Check the numbers, or find those from a good one on to the most that are likely."""
        are_counts = loss == "poisson" and V.observed is None and holds_counts(V)
        if ks is None:
            most = min(*V.shape, _MAX_DEFAULT)
            if are_counts:
                first, most = scan(V, np.random.default_rng(0))
            else:
                first, most = min(2, most), min(count_above_edge(V, most).K + 2, most)
            return cls(list(range(first, most + 1)), are_counts)
        candidates = np.unique([components(k) for k in several("ks", ks, "a list of integers")])
        if candidates.size == 0:
            raise ComponentsError(Message(Option("ks", ks), ", expected integers of at least 1"))
        checked_components(int(candidates[-1]), V)
        return cls(candidates.tolist(), are_counts)


class _Trial:
    """Runs of several numbers of components, and what each number costs."""

    def __init__(
        self,
        V: DataMatrix,
        options: Options,
        noise: Noise,
        callback: Callable[[Stability], object] | None,
    ) -> None:
        self.V, self.options, self.noise, self.callback = V, options, noise, callback
        self.found: dict[int, Stability] = {}

    def of(self, ks: list[int]) -> dict[int, Stability]:
        """Return what is found for these numbers, whose runs share their passes."""
        place = self.options.checkpoint
        places: dict[int, Checkpoint | None] = dict.fromkeys(ks)
        if place is not None:
            places = {k: replace(place, folder=Path(place.folder) / f"K-{k}") for k in places}
        runs_of = replicate_over(self.V, places, **self.options.of_runs, noise=self.noise)
        for k, runs in runs_of:
            self.found[k] = judged_replicates(self.V, runs, **self.options.of_consensus)
            if self.callback is not None:
                self.callback(self.found[k])
        return {k: self.found[k] for k in sorted(ks)}

    def costs(self, numbers: _Numbers) -> dict[int, float]:
        """Return what each number costs."""
        return {k: self._cost(one) for k, one in self.of(numbers.candidates).items()}

    def search(self, numbers: _Numbers) -> dict[int, float]:
        """Return the costs of numbers around the first, until two beyond the best one."""
        first = numbers.candidates[0]
        costs = {first: self._cost(self.of([first])[first])}
        for step in (-1, 1):
            k = first + step
            while 1 <= k <= min(self.V.shape) and _distance(costs, k) * step <= _PATIENCE:
                costs[k] = self._cost(self.of([k])[k])
                k += step
        return costs

    def _cost(self, one: Stability) -> float:
        """The divergence of the best fit to V, and what every component explains of noise."""
        V, W = self.V, one.best_run
        if one.resample != "start":  # then it was fitted to other data
            W = continued(V, W, self.noise, self.options.of_runs["stopping"])
        H = best_coefficients(V, W, "poisson")[0]
        return quasi_divergence(V, W, H, self.noise.dispersion) + one.K * edge_of(V.shape)


def _distance(costs: dict[int, float], k: int) -> int:
    """How far a number is from the best one."""
    return k - min(costs, key=costs.__getitem__)


def _recommended(found: dict[int, Stability]) -> tuple[int, str]:
    stable = [k for k, one in found.items() if one.is_stable.all()]
    if stable:
        return stable[-1], "the most that are all stable"
    means = {k: float(np.nan_to_num(one.silhouettes).mean()) for k, one in found.items()}
    return max(means, key=means.__getitem__), "none is stable; this has the largest silhouette"
