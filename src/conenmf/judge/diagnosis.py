"""The verdict on a fit: may its components be interpreted, and what keeps them from it.

A diagnosis has a headline, rows in the order in which a reader needs them, and a grade for each
component. The rows are about the data first, then about structure and components, and about the
optimum last: a small error, even the smallest possible one, says nothing about the components.

The grade of a component follows from two experiments on halves of the samples (`halves`): whether
both halves contain the component, and whether components predict hidden features at all.
`grade_components` turns this evidence into grades. Its limits were chosen on half of the draws of
``benchmarks/certainty.py verdict``, which prints how often they are right.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import norm
from numpy.random import default_rng
from numpy.typing import ArrayLike

from ..arguments import classes as numbered
from ..arguments import integer
from ..data.blocks import Array, exact, over
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import evenly_spaced
from ..data.validate import check_factors
from ..data.views import take_samples
from ..errors import DataError
from ..io.open import as_data
from ..solve.constraints import NO_PENALTIES, Penalties
from ..solve.losses import Loss, get_loss
from ..text import Texts, counted, visible
from .certificate import AnyCertificate, certify
from .choose_k import GUESS, Selection
from .details import Details, cones_in_words, describe
from .halves import (
    MIN_FEATURES_PER_COMPONENT,
    N_SPLITS,
    HalfFit,
    Stop,
    Structure,
    Watch,
    cosines_in_halves,
    enough_features,
    enough_units,
    half_spectra,
    structure,
    units_of,
)
from .pitfalls import FeatureFit, Looked, Pitfall, named, pitfalls
from .residuals import advice_on_sigma
from .uniqueness import Uniqueness, uniqueness

GRADES = ("good", "fair", "poor", "open")
COMPONENT_GRADES = ("interpret", "with care", "do not", "open")

# Chosen by `benchmarks/certainty.py verdict`, on the draws that are marked there.
_SAME_COSINE = 0.95  # in all halves but one: the component returns
_ALIKE_COSINE = 0.8  # in most halves: something like it returns
_MIN_STRUCTURE = 0.45  # share of samples that components predict better than one does
_MIN_FAR_STRUCTURE = 0.3  # ... if neighbouring features are hidden too
_NEARLY_SAME_COSINE = 0.9  # without structure, in all halves but one
_MAX_CLASS_SHARE = 0.5  # of the variation of a component; above, it follows the class

_SINGLE_FEATURES = "single features tell the cones apart, so none predicts another"
_MAX_HELD_ENTRIES = 1 << 25  # of the samples that are fitted again
# Entries of V times components up to which a diagnosis asks for more than it needs: a better lower
# bound, and a search for other factors. They take a few fits.
MAX_BOUNDED = 1 << 21
MAX_SEARCHED = 1 << 20
_NEAR_BOUND_RATIO = 1.01  # error over lower bound, up to which no improvement is possible
_FAR_ABOVE_FLOOR = 0.1  # of the noise floor
_MAX_LISTED = 12  # components that are listed rather than counted
_WIDTH = 100  # characters of a printed line
_MAX_LINES = 12  # of a printed diagnosis
_NAME_WIDTH = 11
_COLOURS = {"good": "#0b846b", "fair": "#957000", "poor": "#cc5a0b", "open": "#868f99"}


class Row(NamedTuple):
    """One line of a diagnosis.

    Attributes
    ----------
    name : str
        What is judged: "Data", "Structure", "Components", "Number", "Optimum" and others.
    grade : {"good", "fair", "poor", "open"}
        "open" if it was not settled.
    finding : str
    advice : str
        What to do, or how to settle it; "" if there is nothing to do.
    """

    name: str
    grade: str
    finding: str
    advice: str = ""


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The verdict on a fit.

    Attributes
    ----------
    headline : str
        How many components may be interpreted, and which.
    rows : tuple of Row
        The findings, the most important first.
    components : tuple of K str
        The grade of each component: "interpret", "with care", "do not" or "open".
    reasons : tuple of K str
        The reason for each grade.
    cosines : array (n, K)
        The cosine between each component and its partner in each of n fits of halves.
    structure, far_structure : float
        The share of samples whose hidden features are predicted better by components than by one,
        with random features hidden, and with neighbouring ones; NaN if it was not computed.
    class_shares : array (K,)
        The share of the variation of each component that groups or classes explain; NaN without.
    details : Details
        The spectrum, the cones and some samples, as arrays.

    Examples
    --------
    >>> from conenmf import ConeNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.dirichlet(np.full(3, 0.3), 200) @ rng.gamma(0.5, 1.0, (3, 40))
    >>> found = ConeNMF(3).fit(X + 0.01 * rng.random(X.shape)).diagnose()
    >>> found.headline, found.components[0]
    ('all 3 components can be interpreted', 'interpret')
    """

    headline: str
    rows: tuple[Row, ...]
    components: tuple[str, ...]
    reasons: tuple[str, ...]
    cosines: Array
    structure: float
    far_structure: float
    class_shares: Array
    details: Details

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(Row(*row) for row in self.rows))

    @property
    def agreement(self) -> Array:
        """The second lowest cosine (K,) of each component: one fit in a poor optimum is allowed."""
        return agreement(self.cosines)

    def row(self, name: str) -> Row:
        """Return the row with a name.

        Parameters
        ----------
        name : str
            For example "Data".
        """
        return next(row for row in self.rows if row.name == name)

    def lines(self) -> list[str]:
        """Return the headline and the rows as at most 12 lines of at most 100 characters.

        If the advice does not fit, it is left out.
        """
        with_advice = [
            (row.name, row.grade, _sentences(row.finding, row.advice)) for row in self.rows
        ]
        without = [(row.name, row.grade, _sentences(row.finding)) for row in self.rows]
        shown = [_shortened(self.headline)]
        for rows in (with_advice, without):
            lines = [line for row in rows for line in _wrapped(*row)]
            if len(lines) < _MAX_LINES:
                return shown + lines
        return shown + [_wrapped(*row)[0] for row in without]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(_html_row(row) for row in self.rows)
        return f"<p><b>{escape(visible(self.headline, None))}</b></p><table>{rows}</table>"


def _html_row(row: Row) -> str:
    """Return a row of a table, with the colour of its grade."""
    cells = (row.name, row.grade, _sentences(row.finding), _sentences(row.advice))
    name, grade, finding, advice = (escape(visible(cell, None)) for cell in cells)
    colour = _COLOURS[row.grade]
    return (
        f'<tr><th>{name}</th><td style="color:{colour};font-weight:bold">{grade}</td>'
        f'<td style="text-align:left">{finding} <i>{advice}</i></td></tr>'
    )


def _shortened(text: str) -> str:
    return textwrap.shorten(visible(text, None), _WIDTH, placeholder=" ...")


def _sentences(*texts: str) -> str:
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in texts if text)


def _wrapped(name: str, grade: str, text: str) -> list[str]:
    """Return a row as lines of text."""
    head = f"{name:<{_NAME_WIDTH}}{grade:<6}"
    return textwrap.wrap(
        visible(text, None), _WIDTH, initial_indent=head, subsequent_indent=" " * len(head)
    )


# --- the evidence -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fitted:
    """The fit that is judged.

    Attributes
    ----------
    V : DataMatrix (F, N)
        The original samples, if samples have weights.
    W : array (F, K)
    H : array (K, N)
    loss : Loss
    penalties : Penalties
    n_fixed : int
        The number of known components, which come first.
    init : str
        The init if it is the whole fit, otherwise "random".
    names : tuple of K str
        The names of the components.
    """

    V: DataMatrix
    W: Array
    H: Aligned
    loss: Loss
    penalties: Penalties = NO_PENALTIES
    n_fixed: int = 0
    init: str = "random"
    names: Texts = ()

    @property
    def K(self) -> int:
        """The number of components."""
        return int(self.W.shape[1])

    def name(self, k: int) -> str:
        """Return the number of a component, or its name if it has one of its own."""
        return self.names[k].removeprefix("component ") if self.names else str(k)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the halves of the samples show.

    Attributes
    ----------
    cosines, structure
        As in `Diagnosis`.
    why_open : str
        Why the structure was not tested; "" if it was.
    class_shares : array (K,)
        As in `Diagnosis`.
    class_name : str
        What the classes are called.
    n_judged, n_samples : int
        How many samples were fitted again, and how many there are.
    """

    cosines: Array
    structure: Structure | None
    why_open: str
    class_shares: Array
    class_name: str
    n_judged: int
    n_samples: int


def gather(
    fitted: Fitted,
    features: FeatureFit,
    *,
    groups: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    n_splits: int = N_SPLITS,
    stop: Stop = lambda: False,
    watch: Watch = str,
) -> Evidence:
    """Fit halves of the samples, and test whether components predict hidden features.

    Parameters
    ----------
    fitted : Fitted
    features : FeatureFit
    groups : array (N,), optional
        The group of each sample, such as its donor. A group is in one half only.
    classes : array (N,), optional
        Known classes of the samples. They do not change the halves.
    n_splits : int
        Number of splits into halves; with 0, nothing is fitted.
    stop : callable
        Asked after each iteration of the fits; True ends them, and finished splits count.
    watch : callable
        Called with a note such as "split 2 of 3" before the fits of each split.
    """
    V, K = fitted.V, fitted.K
    indices = evenly_spaced(V.n_samples, _n_held(V))
    shares = np.full(K, np.nan)
    given = {"groups": groups, "classes": classes}
    known = {
        name: _labels(name, values, V.n_samples)[indices]
        for name, values in given.items()
        if values is not None
    }
    name = next(iter(known), "classes")
    if known:
        labels = known[name]
        shares = class_shares(fitted.W, np.asarray(fitted.H[:, indices]), labels)
    part = take_samples(V, indices)
    equal = units_of(part)
    units = equal if groups is None else units_of(part, labels)
    rng = default_rng(0)
    if units.max() < 1:  # a single sample or group has no halves
        n_splits = 0
    why_open = "not tested: no halves of the samples were fitted"
    if n_splits:
        why_open = _why_open(part, features, equal, K)
    predicted = None
    if not why_open:
        once = np.unique(equal, return_index=True)[1]
        predicted = structure(part, K, fitted.loss, units, once[equal[once] >= 0], rng)
    how = HalfFit(
        fitted.loss,
        fitted.penalties,
        exact(fitted.W[:, : fitted.n_fixed]),
        fitted.init,
        stop,
        watch,
    )
    spectra = half_spectra(part, K, how, units, rng, n_splits)
    return Evidence(
        cosines=cosines_in_halves(fitted.W, spectra),
        structure=predicted,
        why_open=why_open,
        class_shares=shares,
        class_name={"groups": "group", "classes": "class"}[name],
        n_judged=len(indices),
        n_samples=V.n_samples,
    )


def _labels(name: str, values: ArrayLike, n_samples: int) -> Array:
    """Number the classes (N,) of the samples."""
    given = numbered(name, values)
    if given.size != n_samples:
        raise DataError(
            f"{name} has {given.size} labels for {n_samples} samples: give one for each"
        )
    return np.unique(given, return_inverse=True)[1]


def _n_held(V: DataMatrix) -> int:
    """Return how many samples are fitted again: all, unless they take too much memory."""
    per_sample = max(V.n_entries / V.n_samples, 1.0)
    return int(min(V.n_samples, max(_MAX_HELD_ENTRIES / per_sample, 1)))


def _why_open(V: DataMatrix, features: FeatureFit, equal: Array, K: int) -> str:
    """Return why halves cannot show whether components predict; "" if they can."""
    if K == 1:
        return "one component describes the mean, and is not compared with less"
    if not enough_features(V.n_features, K):
        least = MIN_FEATURES_PER_COMPONENT * K
        return f"not tested: {K} components need {least} features, and there are {V.n_features}"
    if not enough_units(equal, K):
        return f"{counted(int(equal.max()) + 1, 'different sample')} are too few for two halves"
    return "not tested: a few large features decide" if features.is_of_few else ""


def class_shares(W: Array, H: Aligned, labels: Array) -> Array:
    """Return the share (K,) of the variation of each component that classes explain.

    It is eta squared of the share of the component in each sample, less what chance gives.

    >>> H = np.array([[3.0, 3.0, 1.0, 1.0], [1.0, 1.0, 3.0, 3.0]])
    >>> [class_shares(np.eye(2), H, np.array(one)) for one in ([0, 0, 1, 1], [0, 1, 0, 1])]
    [array([1., 1.]), array([0., 0.])]
    """
    amounts = np.asarray(H, dtype=float).T * np.linalg.norm(exact(W), axis=0)
    usages = over(amounts, amounts.sum(axis=1, keepdims=True))
    sizes = np.bincount(labels).astype(float)
    sums = np.zeros((sizes.size, usages.shape[1]))
    np.add.at(sums, labels, usages)
    mean = usages.mean(axis=0)
    between = (sums**2 / sizes[:, None]).sum(axis=0) - len(labels) * mean**2
    explained = over(between, ((usages - mean) ** 2).sum(axis=0))
    chance = (sizes.size - 1) / max(len(labels) - 1, 1)
    return np.clip((explained - chance) / max(1 - chance, 1e-12), 0.0, 1.0)


# --- grades -------------------------------------------------------------------------------------


def agreement(cosines: Array) -> Array:
    """Return the second lowest of the cosines (n, K) of each component; NaN without fits."""
    if not len(cosines):
        return np.full(cosines.shape[1], np.nan)
    return np.sort(cosines, axis=0)[min(1, len(cosines) - 1)]


def grade_components(
    cosines: Array, found: Structure | None, *, are_apart: bool = False
) -> list[str]:
    """Return the grade of each component from what halves of the samples show.

    Parameters
    ----------
    cosines : array (n, K)
        The cosine of each component with its partner in each fit of a half.
    found : Structure or None
        Whether components predict; None if it is not known.
    are_apart : bool
        Whether samples are proved to lie in cones that are apart, which is structure too.

    Examples
    --------
    >>> cosines = np.array([[0.99, 0.9, 0.3], [0.99, 0.9, 0.9], [0.2, 0.9, 0.4]])
    >>> grade_components(cosines, Structure(0.8, 0.8))
    ['interpret', 'with care', 'do not']
    >>> grade_components(cosines, Structure(0.3, 0.3))
    ['with care', 'with care', 'do not']
    """
    n_fits, K = cosines.shape
    if not n_fits:
        return ["open"] * K
    known = agreement(cosines)
    resembles = np.median(cosines, axis=0) >= _ALIKE_COSINE
    if found is not None and found.share < _MIN_STRUCTURE:
        return np.where(known >= _NEARLY_SAME_COSINE, "with care", "do not").tolist()
    is_clear = are_apart if found is None else found.far >= _MIN_FAR_STRUCTURE
    best = "interpret" if is_clear else "with care"
    return np.select([known >= _SAME_COSINE, resembles], [best, "with care"], "do not").tolist()


def _component_reasons(evidence: Evidence, fitted: Fitted, found: Uniqueness | None) -> list[str]:
    """Return for each component why it has its grade, and what is known of other factors."""
    n_fits = len(evidence.cosines)
    typical = np.median(evidence.cosines, axis=0) if n_fits else ()
    n_same = (evidence.cosines >= _SAME_COSINE).sum(axis=0)
    reasons = []
    for k in range(fitted.K):
        parts = ["no half of the samples was fitted"]
        if k < fitted.n_fixed:
            parts = ["given, not estimated"]
        elif n_fits:
            same = f"nearly the same in {n_same[k]} of {n_fits} fits of halves"
            parts = [f"{same} (typical cosine {typical[k]:.2f})"]
        if _follows(evidence, k):
            share = evidence.class_shares[k]
            parts.append(f"follows the {evidence.class_name} ({share:.0%} of its variation)")
        parts.append(
            "other factors: not searched" if found is None else found.in_words(k, fitted.names)
        )
        reasons.append("; ".join(parts))
    return reasons


def _follows(evidence: Evidence, k: int) -> bool:
    return bool(evidence.class_shares[k] > _MAX_CLASS_SHARE)


def _grades(evidence: Evidence, fitted: Fitted, *, are_apart: bool) -> list[str]:
    """Return the grades; known components need no evidence, and others must not follow a class."""
    grades = grade_components(evidence.cosines, evidence.structure, are_apart=are_apart)
    for k, grade in enumerate(grades):
        if k < fitted.n_fixed:
            grades[k] = "interpret"
        elif grade == "interpret" and _follows(evidence, k):
            grades[k] = "with care"
    return grades


# --- the rows -----------------------------------------------------------------------------------


def _headline(grades: Sequence[str], fitted: Fitted) -> str:
    chosen = [fitted.name(k) for k, grade in enumerate(grades) if grade == "interpret"]
    total = counted(fitted.K, "component")
    if set(grades) == {"open"}:
        return f"open: the {total} were not checked"
    if not chosen:
        return (
            f"none of {total} can be interpreted"
            if fitted.K > 1
            else "the component cannot be interpreted"
        )
    if len(chosen) == fitted.K:
        return (
            f"all {total} can be interpreted"
            if fitted.K > 1
            else "the component can be interpreted"
        )
    listed = f": {', '.join(chosen)}" if fitted.K <= _MAX_LISTED else ""
    return f"{len(chosen)} of {total} can be interpreted{listed}"


def data_row(found: Sequence[Pitfall]) -> Row:
    """Return the row about the data."""
    if not found:
        return Row("Data", "good", "no trouble with units, outliers, classes or codes")
    grade = max((one.grade for one in found), key=GRADES.index)
    first = next(one for one in found if one.grade == grade)
    others = [one.finding for one in found if one is not first]
    return Row("Data", grade, "; ".join([first.finding, *others]), first.advice)


def structure_row(evidence: Evidence, grades: Sequence[str], worst: str) -> Row:
    """Return the row about structure: whether components predict what they have not seen."""
    found = evidence.structure
    if found is None:
        return Row("Structure", "open", evidence.why_open)
    share = f"{found.share:.0%} of samples"
    finding = f"components predict hidden features better than a single one in {share}"
    if found.share < _MIN_STRUCTURE:
        return Row("Structure", "poor", finding, "so does noise, or a single profile with noise")
    if found.far < _MIN_FAR_STRUCTURE:
        advice = "neighbouring features are correlated, which looks like components"
        return Row("Structure", "fair", finding, advice)
    grade = "good" if "interpret" in grades else "fair"
    return Row("Structure", grade, f"{finding}{worst}")


def components_row(evidence: Evidence, grades: Sequence[str], fitted: Fitted, data: Row) -> Row:
    """Return the row about the components."""
    parts = []
    for grade in COMPONENT_GRADES:
        chosen = [fitted.name(k) for k, one in enumerate(grades) if one == grade]
        if chosen:
            is_listed = fitted.K <= _MAX_LISTED
            shown = ", ".join(chosen) if is_listed else f"{len(chosen)} of {fitted.K}"
            words = "do not interpret" if grade == "do not" else grade
            parts.append(f"{words}: {shown}")
    following = [fitted.name(k) for k in range(fitted.K) if _follows(evidence, k)]
    if following:
        parts.append(
            f"{', '.join(following)} follow{'s' * (len(following) == 1)} the {evidence.class_name}"
        )
    if evidence.n_judged < evidence.n_samples:
        parts.append(f"judged on {evidence.n_judged:,} of {evidence.n_samples:,} samples")
    n_good = grades.count("interpret")
    if set(grades) == {"open"}:
        return Row("Components", "open", "not checked", "call diagnose(), or leave out --quick")
    grade = "good" if n_good == fitted.K else "fair" if n_good else "poor"
    all_follow = all(_follows(evidence, k) for k, one in enumerate(grades) if one != "interpret")
    advice = "" if n_good == fitted.K else _next_step(evidence, data, all_follow=all_follow)
    return Row("Components", grade, "; ".join(parts), advice)


def _next_step(evidence: Evidence, data: Row, *, all_follow: bool) -> str:
    """Return what to do about components that cannot be interpreted: the first cause first."""
    found = evidence.structure
    if data.grade == "poor":
        return "change the data first"
    if found is not None and found.share < _MIN_STRUCTURE:
        return ""
    if all_follow:
        return f"fit the samples of one {evidence.class_name} alone"
    return "try another number of components, or more samples"


def number_row(K: int, selection: Selection | None, decided_by: str) -> Row:
    """Return the row about the number of components, which repeats what `choose_k` found."""
    if selection is None and decided_by == "user":
        advice = "compare with select_k(X), or conenmf rank"
        return Row("Number", "open", f"{counted(K, 'component')}, as you chose", advice)
    is_guess = f" a {GUESS}: " in decided_by if selection is None else selection.grade == GUESS
    return Row("Number", "open" if is_guess else "good", visible(decided_by, None))


def optimum_row(certificate: AnyCertificate | None, error: str, problem: str) -> Row:
    """Return the row about the optimiser: how near the error is to the lowest possible one."""
    if problem:
        return Row("Optimum", "poor", error, problem)
    if certificate is None:
        return Row("Optimum", "open", error, "to get a lower bound, call certify()")
    lower = certificate.lower_bound
    if not certificate.is_bound_telling:
        advice = "try certify(effort=20)"
        return Row("Optimum", "open", f"{error}; no useful lower bound is known", advice)
    finding = f"{error}; no fit with as many components is below {lower:.4g}"
    near = certificate.relative_error <= _NEAR_BOUND_RATIO * lower + 1e-9
    return Row("Optimum", "good" if near else "fair", finding)


def other_rows(
    certificate: AnyCertificate | None, Q: tuple[float, float] | None, details: Details
) -> Iterator[Row]:
    """Yield the rows that apply to some data: noise of counts, residuals, cones."""
    floor = getattr(certificate, "floor_in_words", str)()
    if floor:
        is_far = certificate.above_floor > _FAR_ABOVE_FLOOR  # type: ignore[union-attr]
        advice = "try a larger K, or check whether the counts are overdispersed" if is_far else ""
        yield Row("Noise", "poor" if is_far else "good", f"the fit is {floor}", advice)
    if Q is not None:
        advice = advice_on_sigma(*Q)
        finding = f"Q is {Q[0]:,.0f}; the expected Q is {Q[1]:,.0f}"
        yield Row("Residuals", "poor" if advice else "good", finding, advice)
    cones = cones_in_words(details.cones)
    if cones:
        yield Row("Cones", "good", cones)


# --- the door -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class About:
    """What is known of a fit besides its factors.

    Attributes
    ----------
    error : str
        The error in words.
    problem : str
        What to do if the run found nothing or ended too early; "" otherwise.
    selection : Selection or None
        How the number of components was chosen.
    K_decided_by : str
        As in `Factorization`.
    Q : (float, float) or None
        Q and the expected Q, if the uncertainties are known.
    """

    error: str
    problem: str = ""
    selection: Selection | None = None
    K_decided_by: str = "user"
    Q: tuple[float, float] | None = None


def judge(
    fitted: Fitted,
    details: Details,
    certificate: AnyCertificate | None,
    others: Uniqueness,
    about: About,
    *,
    groups: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    n_splits: int = N_SPLITS,
    stop: Stop = lambda: False,
    watch: Watch = str,
) -> Diagnosis:
    """Gather evidence about a fit, and turn it into a diagnosis.

    Parameters
    ----------
    fitted : Fitted
    details, certificate, others, about
        What is known of the fit: its data, its error, other factors, and the rest.
    groups, classes, n_splits
        As in `diagnose`.
    stop : callable
        Asked after each iteration of a fit of a half; True ends it.
    watch : callable
        Called with a note such as "split 2 of 3" before the fits of each split.
    """
    looked = Looked.at(fitted.V, exact(fitted.W), fitted.H)
    features = looked.features()
    evidence = gather(
        fitted,
        features,
        groups=groups,
        classes=classes,
        n_splits=n_splits,
        stop=stop,
        watch=watch,
    )
    are_apart = bool(cones_in_words(details.cones))
    if are_apart and evidence.structure and evidence.structure.share < _MIN_STRUCTURE:
        evidence = replace(evidence, structure=None, why_open=_SINGLE_FEATURES)
    found = evidence.structure
    grades = _grades(evidence, fitted, are_apart=are_apart)
    for_counts = fitted.loss.degree != 2
    wrong = list(pitfalls(fitted.V, looked, features, fitted.K, for_counts=for_counts))
    data = data_row(wrong)
    rows = (
        data,
        structure_row(evidence, grades, _worst_described(features, fitted)),
        components_row(evidence, grades, fitted, data),
        number_row(fitted.K, about.selection, about.K_decided_by),
        optimum_row(certificate, about.error, about.problem),
        *other_rows(certificate, about.Q, details),
    )
    return Diagnosis(
        headline=_headline(grades, fitted),
        rows=rows,
        components=tuple(grades),
        reasons=tuple(_component_reasons(evidence, fitted, others)),
        cosines=evidence.cosines,
        structure=math.nan if found is None else found.share,
        far_structure=math.nan if found is None else found.far,
        class_shares=evidence.class_shares,
        details=details,
    )


def _worst_described(features: FeatureFit, fitted: Fitted) -> str:
    """Name the features that the fit hardly describes; "" if there are none."""
    poor = features.poor
    if not poor.size:
        return ""
    share = f"{poor.size} of {len(features.squares)} features"
    return f"; {share} hardly described (R2 < 0.1): {named(poor, fitted.V.names)}"


def diagnose(
    V: DataMatrix,
    W: ArrayLike,
    H: Any,
    *,
    loss: str = "frobenius",
    groups: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    n_splits: int = N_SPLITS,
) -> Diagnosis:
    """Judge V ~ W H: whether its components may be interpreted, and what keeps them from it.

    A fitted model, and a result, have a method of this name that knows more: penalties, known
    components, and how the number of components was chosen.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    W : array (F, K)
    H : array (K, N)
    loss : str
        The loss of the fit.
    groups : array (N,), optional
        The group of each sample, such as its donor. Halves of the samples are then halves of the
        groups, and a component that follows a group is to be interpreted with care.
    classes : array (N,), optional
        Known classes of the samples; a component that follows them is marked too.
    n_splits : int
        The number of splits into halves; both halves of each are fitted. With 0, components are
        not checked.

    Examples
    --------
    >>> from conenmf import factorize, from_rows
    >>> rng = np.random.default_rng(0)
    >>> V = from_rows(rng.random((200, 40)))
    >>> result = factorize(V, 3)
    >>> diagnose(V, result.W, result.H).row("Structure").grade
    'poor'
    """
    V = as_data(V, nonzero=True, holes=True)
    W, Ht = check_factors(V, W, H)
    n_splits = integer("n_splits", n_splits, at_least=0)
    fitted = Fitted(V, W, Ht.T, get_loss(loss))
    with V.own_threads():
        amounts = V.by_rows(lambda _, rows: rows * norm(W, axis=0), Ht)
        labels = V.by_rows(
            lambda _, rows: np.where(rows.any(axis=1), rows.argmax(axis=1), -1), amounts
        )
        certificate = certify(V, W, H, loss=loss)
        details = describe(V, W, Ht.T, labels)
        others = uniqueness(V, W, H, loss=loss, max_iter=search_iterations(V, W))
        about = About(f"relative error {certificate.relative_error:.4g}")
        return judge(
            fitted,
            details,
            certificate,
            others,
            about,
            groups=groups,
            classes=classes,
            n_splits=n_splits,
        )


def search_iterations(V: DataMatrix, W: Array) -> int:
    """Return how long a diagnosis searches for other factors: not at all if that takes long."""
    return 200 if V.n_entries * W.shape[1] <= MAX_SEARCHED else 0
