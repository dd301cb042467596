"""Groups of samples, such as donors, batches, days or sources, and what a fit finds about them.

A sample x_n of group d is modelled as diag(b_d) W T_d h_n. The scales b_d have one positive number
for each feature, and T_d is diagonal with 0 or 1: which components the group uses. With scales of
one and a full table the model is that of a fit without groups. `solve.groups` estimates both.

Least squares compares V / b with W T h, so it reads the view `Groups.divided`. Counts cannot be
divided; their loss multiplies the rates by b instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import connected_components

from ..errors import DataError, InputWarning, Option
from ..names import in_order
from ..text import decoded, excerpt
from ..types import Array, Facts, Texts
from .blocks import Block, dense, exact, is_sparse, owners, with_data
from .entries import EntryWeights, known_entries
from .known import Observed
from .matrix import Aligned, DataMatrix, PerSample
from .views import MappedMatrix

# A group with fewer samples has hardly any scales of its own.
SMALL_GROUP = 20


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of each sample, and the scales and the table of a fit.

    Attributes
    ----------
    codes : array (N,), integers
        The group of each sample, from 0; of the original samples, if samples have weights.
    names : tuple of str
        The names of the groups.
    scales : array (G, F), or None
        How much larger each feature is in each group; None before a fit.
    table : array (G, K), or None
        Which components each group uses; None if it may use all.
    weights : array (F,), or None
        The weights of features in the geometric mean of the scales of a group, which is one.
    matter : float
        The evidence that scales differ, from samples that were left out, in standard errors.
    repeated : array, or None
        The group of each sample if weights repeat samples.
    """

    codes: Array
    names: Texts
    scales: Array | None = None
    table: Array | None = None
    weights: Array | None = None
    matter: float = 0.0
    repeated: Array | None = None

    @classmethod
    def of(
        cls, labels: ArrayLike | Groups, V: DataMatrix, *, is_new: bool = False
    ) -> Groups | None:
        """Return the groups of the samples of V by their labels; None if all have the same.

        Labels that name their samples, such as a pandas Series, are matched by name.

        Parameters
        ----------
        labels : array (N,)
            Texts, numbers or categories.
        V : DataMatrix (F, N)
        is_new : bool
            Whether the samples are new, so that there may be one group, or small ones.
        """
        N = (V if V.unweighed is None else V.unweighed.V).n_samples
        if isinstance(labels, Groups):
            if len(labels.codes) != N:
                raise DataError(f"there are {N} samples, and groups of {len(labels.codes)}")
            return labels
        names = read_labels(labels, V)
        found, codes = np.unique(names, return_inverse=True)
        order = _order(found)
        codes = np.argsort(order)[codes]
        repeated = getattr(V.unweighed, "repeated", None)
        again = None if repeated is None else codes[repeated]
        groups = cls(codes, tuple(found[order].tolist()), repeated=again)
        if is_new:
            return groups
        groups._check(labels)
        return groups if len(found) > 1 else None

    @property
    def sizes(self) -> Array:
        """The number of samples of each group."""
        return np.bincount(self.codes, minlength=len(self.names))

    @property
    def are_neutral(self) -> bool:
        """Whether all scales are one and all groups use all components, as in a plain fit."""
        return not self.has_scales and self.bars is None

    @property
    def has_scales(self) -> bool:
        """Whether some scale is not one."""
        return self.scales is not None and bool((self.scales != 1).any())

    @property
    def bars(self) -> Array | None:
        """The table if a group does not use some component; otherwise None."""
        return None if self.table is None or self.table.all() else self.table

    @property
    def blocks(self) -> Array:
        """The number of the block (G,) of each group; groups of two share no component."""
        table = np.ones((len(self.names), 1)) if self.table is None else self.table.astype(float)
        return np.asarray(connected_components(sp.csr_array(table @ table.T))[1])

    @property
    def sentence(self) -> str:
        """Whether the groups matter, after a fit."""
        if self.scales is None:
            return "the fit ended before the scales of groups were estimated: let it run longer"
        if self.are_neutral:
            return "groups have no effect: the scales of features are the same in all of them"
        said = []
        if self.has_scales:
            spread = float(np.std(np.log(np.asarray(self.scales))))
            said.append(
                f"scales differ by {np.expm1(spread):.0%}, and those from some samples of a group "
                f"hold in its others ({self.matter:.0f} standard errors)"
            )
        if self.bars is not None:
            users = self.bars.sum(axis=0)
            private = int((users == 1).sum())
            said.append(
                f"{int((users == len(self.names)).sum())} of {users.size} components are used by "
                f"all groups, {private} by one alone"
            )
        n_blocks = int(self.blocks.max()) + 1
        if n_blocks > 1:
            said.append(
                f"{n_blocks} sets of groups have no component in common, so their scales cannot "
                "be compared"
            )
        return "groups matter: " + "; ".join(said)

    def codes_of(self, V: DataMatrix) -> Any:
        """Return the group of each sample of V, whose samples may be repeated by weights.

        Parameters
        ----------
        V : DataMatrix (F, N)
        """
        is_own = self.repeated is None or len(self.codes) == V.n_samples
        return self.codes if is_own else self.repeated

    def among(self, V: DataMatrix, fitted: Groups) -> Groups:
        """Return these groups with those of a fit: first all groups of the fit, then new ones.

        New groups have scales of one, and may use all components.

        Parameters
        ----------
        V : DataMatrix (F, N)
        fitted : Groups
        """
        names = [*fitted.names, *(name for name in self.names if name not in fitted.names)]
        n_new = len(names) - len(fitted.names)
        places = np.array([names.index(name) for name in self.names])
        scales, table = fitted.scales, fitted.table
        if scales is not None:
            scales = np.vstack([scales, np.ones((n_new, scales.shape[1]))])
        if table is not None:
            table = np.vstack([table, np.ones((n_new, table.shape[1]), bool)])
        again = None if self.repeated is None else places[self.repeated]
        codes = places[self.codes]
        return replace(
            fitted, codes=codes, names=tuple(names), scales=scales, table=table, repeated=again
        )

    def sorted(self, order: Array) -> Groups:
        """Return the groups with components in this order.

        Parameters
        ----------
        order : array (K,), integers
        """
        table = self.table
        if table is None:
            table = np.ones((len(self.names), len(order)), bool)
        return replace(self, table=table[:, order])

    def fitted(self, scales: Array | None, table: Array | None) -> Groups:
        """Return the groups with scales (G, F) and a table (G, K).

        Parameters
        ----------
        scales : array (G, F)
        table : array (G, K) or None
        """
        return replace(self, scales=scales, table=table)

    def of_features(self, places: Array) -> Groups:
        """Return the groups with scales of these features.

        Parameters
        ----------
        places : array of integers
        """
        if self.scales is None:
            return self
        assert self.weights is not None
        return replace(self, scales=self.scales[:, places], weights=self.weights[places])

    def divided(self, V: DataMatrix) -> DataMatrix:
        """Return a view of V with each sample divided by the scales of its group.

        Parameters
        ----------
        V : DataMatrix (F, N)
        """
        if not self.has_scales:
            return V
        inverse = (1.0 / np.asarray(self.scales)).astype(V.dtype)
        change = partial(_times_rows, rows=inverse)
        view = MappedMatrix(V, change, self.codes_of(V), dtype=V.dtype, holes=True)
        if V.observed is not None:
            of = V.observed
            weights = of.weights
            if of.of_sigma:  # uncertainties are divided too
                squares = np.asarray(self.scales) ** 2
                weights = V.by_rows(partial(_times, rows=squares), weights, self.codes_of(V))
            now = Observed.of(view, weights)
            view.observed = None if now is None else replace(now, of_sigma=of.of_sigma)
        return view

    def _check(self, labels: object) -> None:
        """Reject labels that are no groups, and warn of those with little use."""
        G = len(self.names)
        if len(self.codes) == G > 1:
            raise DataError(
                Option("groups"),
                f" gives each of the {G} samples a group of its own: give labels that samples "
                "share, such as donors or batches",
            )
        said = []
        unused = len(getattr(getattr(labels, "cat", labels), "categories", ())) - G
        if unused > 0:
            said.append(
                f"{unused} of the categories of the groups have no samples, and are left out"
            )
        small = [
            name for name, size in zip(self.names, self.sizes, strict=True) if size < SMALL_GROUP
        ]
        if G == 1:
            name = excerpt(self.names[0])
            said.append(f"all samples are of the group {name!r}: fitted without groups")
        elif small:
            problem = f"{len(small)} of {G} groups have fewer than {SMALL_GROUP} samples, such as "
            said.append(f"{problem}{excerpt(small[0])!r}: little is learned about their scales")
        for text in said:
            warnings.warn(InputWarning(text), stacklevel=5)


def read_labels(labels: Any, V: DataMatrix) -> Array:
    """Return the label of each sample of V as a text, after checks."""
    own = V if V.unweighed is None else V.unweighed.V
    labels = in_order(own.names, "groups", labels, "sample")
    N = own.n_samples
    expected = f", expected one label for each of the {N} samples"
    try:
        values = np.asanyarray(labels)  # masked labels become None
    except ValueError as problem:
        raise DataError(Option("groups"), " has rows of several lengths", expected) from problem
    if values.shape != (N,):
        raise DataError(Option("groups"), f" has the shape {values.shape}", expected)
    texts = [_name(one) for one in values.tolist()]
    if None in texts:
        first = texts.index(None)
        raise DataError(
            Option("groups"),
            f" has no label for {texts.count(None)} samples, the first is sample {first}: "
            "give every sample a label, or leave these samples out",
        )
    return np.array(texts)


def _name(label: object) -> str | None:
    """Return a label as a text, the same for 1, 1.0 and "1"; None if it is missing."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    text = decoded(label)
    return None if text in _MISSING or not text.strip() else text


_MISSING = {"None", "nan", "NaN", "<NA>", "NaT"}


def _order(names: Array) -> Array:
    """Return the order of names by number if all are numbers, or else by name."""
    try:
        return np.argsort(names.astype(float), kind="stable")
    except ValueError:
        return np.argsort(names)


def sums_by(codes: Array, rows: Any, count: int) -> Array:
    """Return the sums (count, ...) of rows, or of the samples of a block's transpose, by code."""
    n = len(codes)
    members = sp.csr_array((np.ones(n), (codes, np.arange(n))), shape=(count, n))
    sums = members @ rows
    return sums.toarray() if sp.issparse(sums) else np.asarray(sums)


def groups_in(
    codes: Array, block: Block, weights: EntryWeights
) -> Iterator[tuple[int, Array, Block, EntryWeights]]:
    """Yield each code in a block, and its samples with their entries and weights."""
    for code in np.unique(codes).tolist():
        own = np.flatnonzero(codes == code)
        yield code, own, block[:, own], None if weights is None else weights[own]


def of_residuals(V: DataMatrix, W: Array, H: Aligned, groups: Groups | None) -> tuple[Any, Facts]:
    """Return the aligned arrays and the shared values that `scaled_residuals` needs.

    V is divided by the scales of the groups, and its uncertainties too.
    """
    codes = np.zeros(V.n_samples, int)
    scales = np.ones((1, V.n_features))
    has_sigma = V.observed is not None and V.observed.of_sigma
    if groups is not None and groups.scales is not None and not has_sigma:
        codes = groups.codes_of(V)
        scales = groups.scales
    rows = (H.T, V.align(codes), *V.aligned_weights)
    return rows, {"W": exact(W), "scales": scales, "has_holes": V.observed is not None}


def scaled_residuals(
    block: Block,
    H: Array,
    codes: Array,
    weights: EntryWeights = None,
    *,
    W: Array,
    scales: Array,
    has_holes: bool,
) -> PerSample:
    """Step: return the residuals b (v / b - W h) times the roots of weights; NaN in holes."""
    rows = scales[codes] * (dense(exact(block)).T - exact(H) @ W.T)
    if weights is not None:
        rows *= np.sqrt(weights)
    if has_holes:
        rows[~known_entries(block, weights)] = np.nan
    return rows, None


def _times_rows(block: Block, codes: Array, *, rows: Array) -> Block:
    """Multiply each sample by the row (F,) of its group."""
    if is_sparse(block):
        return with_data(block, block.data * rows[codes[owners(block)], block.indices])
    return (np.asarray(block.T) * rows[codes]).T


def _times(index: range, weights: Array, codes: Array, *, rows: Array) -> Array:
    return weights * rows[codes]
