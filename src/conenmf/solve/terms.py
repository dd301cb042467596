"""Terms of a fit: what is given and what is added to the loss, in one object.

A plain fit has none. With some, the loop runs a `Method` instead of a solver: known components
(`fixed`) and penalties become slots of W and H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ..arguments import instance
from ..data.blocks import Array
from ..data.known import Observed
from ..data.matrix import Aligned, DataMatrix
from ..data.validate import require_nonnegative
from ..errors import Message, Option, OptionError
from .coefficients import Finish
from .constraints import Fixed, Penalties, sum_to_one
from .losses.objective import Frobenius, Loss
from .losses.poisson import check_penalties, poisson_method
from .losses.weighted import Weighted
from .methods import Method, Slot
from .solvers import Solver, solver_name

__all__ = ["Terms", "unweighed"]

_NEGLIGIBLE_SHARE = 1e-100  # of the largest entry of a column


@dataclass(frozen=True)
class Terms:
    """What a fit takes as given, and adds to its loss.

    Attributes
    ----------
    fixed : Fixed or None
    penalties : Penalties
    loss : str
    observed : Observed or None
        What is known of V, where some entries are missing, or count more than others.
    is_signed : bool
        Whether V has negative entries, which are noise.
    """

    fixed: Fixed | None = None
    penalties: Penalties = field(default_factory=Penalties)
    loss: str = "frobenius"
    observed: Observed | None = None
    is_signed: bool = False

    @classmethod
    def of(
        cls, V: DataMatrix, fixed: Any, penalties: Any, solver: Solver | None, loss: str
    ) -> Terms:
        """Return what a caller asks for, checked against V, the solver and the loss."""
        penalties = (
            Penalties() if penalties is None else instance("penalties", penalties, Penalties)
        )
        if loss == "poisson":
            check_penalties(penalties)
        else:
            penalties.check_solver(solver_name(solver) or "none", solver)
        if V.observed is not None and penalties.fixes_columns:
            raise OptionError(
                Message(
                    "with missing or weighted entries, a penalty needs one for the other factor "
                    "too, L1 or L2, or ",
                    Option("sum_to_one"),
                    ": columns of unit length are for complete data",
                )
            )
        is_signed = V.measures.lowest < 0
        if is_signed and solver is not None and solver.floored:
            require_nonnegative(V, f"the solver {solver_name(solver)!r}")
        if V.unweighed is not None:
            _check_weighed(V, penalties, loss)
        if is_signed and loss != "frobenius":
            require_nonnegative(V, f"loss={loss!r}")
        return cls(Fixed.of(fixed, V), penalties, loss, V.observed, is_signed)

    @property
    def are_none(self) -> bool:
        """Whether the fit is a plain one."""
        is_plain = self.fixed is None and self.penalties.are_none
        return is_plain and not self.has_holes and not self.is_signed

    @property
    def has_holes(self) -> bool:
        """Whether entries are missing, or count more than others."""
        return self.observed is not None

    @property
    def roots_of_features(self) -> Array | None:
        """The roots of weights of features: times these, features count as they do twice."""
        if self.observed is None or self.observed.of_features is None or self.loss == "poisson":
            return None
        roots: Array = np.sqrt(self.observed.of_features)
        return roots

    @property
    def n_fixed(self) -> int:
        """How many components are given."""
        return 0 if self.fixed is None else self.fixed.count

    def checked_K(self, K: int | str) -> int | str:
        """Return the number of components, if it is enough for those that are given."""
        return K if self.fixed is None else self.fixed.checked_K(K)

    def method(self, V: DataMatrix, solver: Solver) -> Solver | Method:
        """Return how the loop updates the factors of V."""
        if self.are_none:
            return solver
        penalties = self.penalties
        if self.loss == "poisson":
            return poisson_method(solver, penalties, self.n_fixed)
        for_H = Slot(solver, penalties.on_H)
        if penalties.sum_to_one:
            exact = Solver(sum_to_one, first="H")
            for_H = Slot(exact, penalties.on_H, keeps_scale=True)
        for_W = Slot(
            solver,
            penalties.on_W(V.total / V.shape[1]),
            n_fixed=self.n_fixed,
            unit_columns=penalties.fixes_columns,
        )
        if self.has_holes:
            return Method(for_H, for_W, Weighted)
        return Method(for_H, for_W, partial(Frobenius, whole=penalties.fixes_columns))

    def goal(self, V: DataMatrix, loss: Callable[..., Loss]) -> Loss:
        """Return the loss by which factors of V are judged."""
        is_weighted = V.observed is not None and self.loss == "frobenius"
        return Weighted(V) if is_weighted else loss(V, rescale=False)

    def scaled(self, W: Array, H: Aligned | None) -> tuple[Array, Aligned | None]:
        """Return factors of an init with the scale that the penalties ask for.

        Where the coefficients of a sample sum to one, those of the init are not used.
        """
        if self.penalties.sum_to_one:
            return W, None
        if not self.penalties.fixes_columns:
            return W, H
        size = np.linalg.norm(W, axis=0)
        size = np.where(size > 0, size, 1.0).astype(W.dtype)
        size[: self.n_fixed] = 1.0
        return W / size, None if H is None else (H.T * size).T

    def restored(self, W: Array) -> Array:
        """Return W of the loop with the given components as they were given.

        Other columns of counts add up to one, unless penalties fix their scale: they are
        compositions, and H counts. Their steps shrink entries towards zero without end; what is
        negligible becomes zero, since it would ask for enormous coefficients of a sample of which
        nothing else is known.
        """
        if self.loss == "poisson":
            W = np.where(W < _NEGLIGIBLE_SHARE * W.max(axis=0), 0, W)
        if self.loss == "poisson" and self.penalties.are_none:
            sums = W.sum(axis=0, dtype=np.float64)
            W = (W / np.where(sums > 0, sums, 1.0)).astype(W.dtype, copy=False)
        return W if self.fixed is None else self.fixed.put_into(W)

    def at_the_end(self, W: Array, *, sort: bool) -> dict[str, Any]:
        """Return what `Loss.finish` needs to know; without `sort`, components stay in order."""
        how: dict[str, Any] = {"n_first": self.n_fixed if sort else W.shape[1]}
        if self.fixed is not None:
            how["n_fixed"] = self.n_fixed
        return how if self.penalties.are_none else {**how, "penalties": self.penalties}

    def plain(self) -> dict[str, Any]:
        """Return what a result keeps of them, in plain values; nothing of a plain fit."""
        plain: dict[str, Any] = {}
        if self.fixed is not None:
            names = self.fixed.names
            plain["fixed"] = {"count": self.n_fixed, "names": None if names is None else [*names]}
        if not self.penalties.are_none:
            plain["penalties"] = self.penalties.plain()
        if self.observed is not None:
            facts = {"missing": self.observed.missing, "weighted": not self.observed.is_mask}
            plain["observed"] = facts
        return plain


def unweighed(V: DataMatrix, W: Array, end: Finish, terms: Terms, goal: Loss) -> Finish:
    """Return the end of a fit with the coefficients of the samples, if V is a view of weighed ones.

    They do not depend on weights; one more pass.
    """
    if V.unweighed is None:
        return end
    how = terms.at_the_end(W, sort=False)
    again = terms.goal(V.unweighed.V, type(goal)).finish(W[:, end.order], **how)
    return end._replace(H=again.H, labels=again.labels)


def _check_weighed(V: DataMatrix, penalties: Penalties, loss: str) -> None:
    """Refuse penalties of coefficients that do not count as often as their samples do."""
    if V.unweighed.repeated is not None:
        return
    weight = Option("sample_weight")
    if loss == "poisson" and penalties.l2_h:
        problem = " goes with L1 penalties of the coefficients of counts, not with L2: set "
        ratio = Option("l1_ratio", 1)
        raise OptionError(Message(weight, problem, ratio, ", or leave one of the two out"))
    if loss != "poisson" and (penalties.l1_h or penalties.sum_to_one):
        problem = " goes with L2 penalties of the coefficients, not with L1 or sums of one: "
        raise OptionError(Message(weight, problem, "leave one of the two out"))
