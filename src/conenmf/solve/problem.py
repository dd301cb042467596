"""A problem: everything except V that the objective of a fit depends on.

It contains the loss, penalties, known components and known entries, created and checked once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import default_rng

from ..data.blocks import Array
from ..data.known import Observed, filled, without_unit
from ..data.matrix import Aligned, DataMatrix
from ..data.views import times_features
from ..errors import Option, OptionError
from ..linalg.svd import KnownSpectrum
from ..text import Facts
from .coefficients import Finish, require_finite
from .constraints import NO_PENALTIES, Fixed, Penalties
from .inits import Generator, Init, Start
from .losses import Loss, Objective
from .run import Callback
from .simplex import simplex, volume_weight
from .solvers import ChosenSolver


@dataclass(frozen=True)
class Problem:
    """What a fit minimises.

    Attributes
    ----------
    loss : Loss
    penalties : Penalties
    fixed : Fixed or None
        Known components.
    observed : Observed or None
        Which entries are known, and their weights, if weights differ.
    is_signed : bool
        Whether V has negative entries, which are then noise.
    """

    loss: Loss
    penalties: Penalties = NO_PENALTIES
    fixed: Fixed | None = None
    observed: Observed | None = None
    is_signed: bool = False

    @classmethod
    def of(
        cls, V: DataMatrix, loss: Loss, solver: ChosenSolver, fixed: object, penalties: Penalties
    ) -> Problem:
        """Return the problem for a call, after checks against V, the solver and the loss."""
        loss.check(V, solver, penalties, fixed)
        return cls(loss, penalties, Fixed.of(fixed, V), V.observed, V.measures.lowest < 0)

    @property
    def n_fixed(self) -> int:
        """The number of known components."""
        return 0 if self.fixed is None else self.fixed.count

    @property
    def is_plain(self) -> bool:
        """Whether all entries of V have equal weight, without known components or penalties."""
        is_free = self.fixed is None and self.penalties.are_none
        return is_free and self.observed is None and not self.is_signed

    def iterated(self, V: DataMatrix) -> tuple[DataMatrix, Problem]:
        """Return the data and the problem of a run; equal weights matter only with penalties."""
        problem = self
        if self.observed is not None and self.penalties.are_none:
            V = without_unit(V)
            problem = replace(self, observed=V.observed)
        return self.loss.data(V), problem

    def objective(self, V: DataMatrix, *, rescale: bool = True) -> Objective:
        """Return the objective for factors of V."""
        return self.loss.on(V, self.penalties, self.n_fixed, rescale=rescale)

    def finish(
        self, V: DataMatrix, W: Array, *, sort: bool, near: Aligned | None = None
    ) -> tuple[Finish, float]:
        """Return the exact end of a fit with W, and its relative error.

        `near` is the H' of the run, which matters only if the loss is not convex in H.
        If V is a view of weighted samples, the coefficients are those of the original samples,
        which do not depend on weights; one more pass.
        """
        objective = self.objective(V, rescale=False)
        end = objective.finish(W, sort=sort, near=near)
        error = objective.relative_error(end.squared_error)
        if V.unweighed is not None:
            V = V.unweighed.V
            own = self.objective(V, rescale=False)
            again = own.finish(W[:, end.order], sort=False)
            end = end._replace(H=again.H, labels=again.labels)
        require_finite(V, W, end.H, end.objective)
        return end, error

    def restored(self, W: Array) -> Array:
        """Return W of a run with the known components exactly as given."""
        W = self.loss.restored(W, self.penalties)
        return W if self.fixed is None else self.fixed.put_into(W)

    def inits(self, V: DataMatrix, K: int, solver: ChosenSolver) -> tuple[Init, ...]:
        """Return the inits of "auto" for the components that are not known.

        Coefficients that sum to one need components in the units of V, such as samples, or the
        vertices of a small simplex if there is a volume penalty.
        """
        if self.penalties.sum_to_one:
            is_simplex = self.penalties.min_volume and self.fixed is None and self.observed is None
            return ("simplex" if is_simplex and K <= min(V.shape) else "snpa",)
        inits = self.loss.inits(V, K - self.n_fixed, solver)
        return inits if self.fixed is None or isinstance(inits[0], str) else ("random",)

    def begin(
        self,
        V: DataMatrix,
        K: int,
        init: Init,
        solver: ChosenSolver,
        rng: Generator,
        spectrum: KnownSpectrum = None,
        callback: Callback | None = None,
    ) -> Start:
        """Return the start of the solver; during a race of inits the callback is called."""
        if self.is_plain:
            return self._begin(V, K, init, solver, rng, spectrum, callback)
        loss = self.loss
        is_named = isinstance(init, str)
        source = filled(V)
        count = K
        roots = None
        weights = None if self.observed is None else self.observed.of_features
        if weights is not None and loss.noise is None and (is_named or callable(init)):
            roots = np.sqrt(weights)  # scaling by them gives each feature its weight
            source = times_features(source, roots.astype(V.dtype))
        vertices = None  # known ones, if the init finds the others together with them
        if self.fixed is not None and is_named:
            given = self.fixed.W if roots is None else self.fixed.W * roots[:, None]
            if init == "simplex" and K > self.n_fixed:
                vertices = given
            else:
                source = loss.rest(source, given)
                count = K - self.n_fixed
        name = "fixed"
        own = None
        if count and source.nonzero:
            W, own, name = self._begin(source, count, init, solver, rng, vertices=vertices)
            if roots is not None:  # back to the units of the features
                W = (W / np.where(roots > 0, roots, np.inf)[:, None]).astype(W.dtype)
        else:  # all components are known, or the known ones explain all of V
            W = default_rng(rng).random((V.n_features, count)).astype(V.dtype)
        if self.fixed is not None:
            W = np.hstack([self.fixed.W.astype(V.dtype), W[:, count - (K - self.n_fixed) :]])
        own = own if isinstance(init, tuple) else None
        is_warm = is_named and solver is not None and solver.extrapolate
        more = (solver, self.penalties, self.n_fixed)
        return loss.begin(V, K, W, own, *more, warm=is_warm)._replace(name=name)

    def _begin(
        self,
        V: DataMatrix,
        K: int,
        init: Init,
        solver: ChosenSolver,
        rng: Generator,
        spectrum: KnownSpectrum = None,
        callback: Callback | None = None,
        vertices: Array | None = None,
    ) -> Start:
        """Return the start of an unrestricted fit."""
        if vertices is not None:
            return Start(simplex(V, K, known=vertices, spectrum=spectrum), None, "simplex")
        own = solver if self.is_plain else None
        if isinstance(init, str) and init == "auto":  # the loss chooses
            return self.loss.initialize(V, K, init, own, rng, callback=callback)
        start = self.loss.initialize(V, K, init, own, rng, spectrum=spectrum)
        if isinstance(init, str) and solver is not None and solver.extrapolate:
            (start,) = self.loss.warm_up(V, [V], [start])
        return start

    def weighed(self, start: Start, spectrum: KnownSpectrum) -> Problem:
        """Return the problem with "auto" replaced by a volume weight that depends on V.

        With uniform abundances and white noise of variance s^2, ||V - WH||^2 + N s^2 log det(W'W)
        is the negative log-likelihood, up to a factor and a constant. s^2 is estimated from the
        largest singular value of the residual of K components. In real data noise is larger along
        some directions, and the volume penalty must resist these.

        Abundances may not be uniform. If they sum to one, the weight is chosen so that the simplex
        of largest likelihood has the right size.
        """
        penalties = self.penalties
        if not isinstance(penalties.min_volume, str):
            return self
        if spectrum is None:
            raise OptionError(
                Option("min_volume", "auto"), " is for complete data: give a number, such as 1e-5"
            )
        V = spectrum.V
        K = start.W.shape[1]
        if penalties.sum_to_one and K > 1:
            W = start.W if start.name == "simplex" else simplex(V, K, spectrum=spectrum)
            weight = volume_weight(V, W)
        else:
            weight = spectrum.noise(K) * V.n_samples / V.total
        return replace(self, penalties=replace(penalties, min_volume=weight))

    def lower_bound(self, V: DataMatrix, K: int, spectrum: KnownSpectrum) -> float:
        """Estimate a lower bound of the relative error of K components; 0 if unknown."""
        bounds = self.loss.bounds(V, spectrum) if self.is_plain else None
        return 0.0 if bounds is None else bounds.estimate(K)

    def plain(self) -> Facts:
        """Return the plain values that a result stores; empty for an unrestricted fit."""
        plain: Facts = {}
        if self.fixed is not None:
            names = self.fixed.names
            plain["fixed"] = {"count": self.n_fixed, "names": None if names is None else [*names]}
        if not self.penalties.are_none:
            plain["penalties"] = self.penalties.plain()
        if self.observed is not None:
            plain["observed"] = {
                "missing": self.observed.missing,
                "weighted": not self.observed.is_mask,
            }
        return plain
