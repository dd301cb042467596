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

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import norm
from numpy.random import default_rng
from numpy.typing import ArrayLike

from ..arguments import integer
from ..data.blocks import exact
from ..data.matrix import Aligned, DataMatrix
from ..data.resample import evenly_spaced
from ..data.validate import check_factors
from ..data.views import take_samples
from ..io.open import as_data
from ..solve.coefficients import sorted_rows
from ..solve.losses import Loss
from ..solve.problem import Problem, problem_of
from ..text import counted, visible
from ..types import Array, Texts
from .association import MAX_CLASS_SHARE, named_columns, shares_by_class
from .certificate import AnyCertificate, certify
from .choose_k import GUESS
from .details import Details, cones_in_words, describe
from .halves import (
    N_SPLITS,
    HalfFit,
    Structure,
    Watch,
    cosines_in_halves,
    half_spectra,
    structure,
    units_of,
    why_untested,
)
from .pitfalls import Features, Pitfall, pitfalls
from .residuals import advice_on_sigma
from .span import span_in_words
from .uniqueness import Uniqueness, uniqueness

GRADES = ("good", "fair", "poor", "open")
COMPONENT_GRADES = ("interpret", "with care", "do not", "open")

# Chosen by `benchmarks/certainty.py verdict`, on the draws that are marked there.
_SAME_COSINE = 0.95  # in all halves but one: the component returns
_ALIKE_COSINE = 0.8  # in most halves: something like it returns
_MIN_STRUCTURE = 0.45  # share of samples that components predict better than one does
_MIN_FAR_STRUCTURE = 0.3  # ... if neighbouring features are hidden too
_NEARLY_SAME_COSINE = 0.9  # without structure, in all halves but one

_SINGLE_FEATURES = "single features tell the cones apart, so none predicts another"
_MAX_HELD_ENTRIES = 1 << 25  # of the samples that are fitted again
# Entries of V times components up to which a diagnosis asks for more than it needs: a better lower
# bound, and a search for other factors. They take a few fits.
_MAX_BOUNDED = 1 << 21
_MAX_SEARCHED = 1 << 20
_DEARER = 8  # ... as much if the loss is not least squares
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

    def lines(self, *, with_advice: bool) -> list[str]:
        """Return the row as lines of at most 100 characters.

        Parameters
        ----------
        with_advice : bool
            Whether the advice follows the finding.
        """
        head = f"{self.name:<{_NAME_WIDTH}}{self.grade:<6}"
        text = _sentences(self.finding, self.advice if with_advice else "")
        return textwrap.wrap(text, _WIDTH, initial_indent=head, subsequent_indent=len(head) * " ")

    def html(self) -> str:
        """Return the row of a table, with the colour of the grade."""
        cells = (self.name, self.grade, _sentences(self.finding), _sentences(self.advice))
        name, grade, finding, advice = map(escape, cells)
        return (
            f'<tr><th>{name}</th><td style="color:{_COLOURS[grade]};font-weight:bold">{grade}</td>'
            f'<td style="text-align:left">{finding} <i>{advice}</i></td></tr>'
        )


def _sentences(*texts: str) -> str:
    return " ".join(visible(f"{text[0].upper()}{text[1:]}.", None) for text in texts if text)


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
        The share of samples whose hidden features several components predict better than a single
        one does, with random features hidden, and with neighbouring ones; NaN if not computed.
    class_shares : array (K,)
        The share of the variation of each component that groups or classes explain; NaN if
        neither was given.
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
        headline = textwrap.shorten(visible(self.headline, None), _WIDTH, placeholder=" ...")
        for with_advice in (True, False):
            found = [row.lines(with_advice=with_advice) for row in self.rows]
            if sum(map(len, found)) < _MAX_LINES:
                break
        else:
            found = [lines[:1] for lines in found]
        return [headline, *chain(*found)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(row.html() for row in self.rows)
        return f"<p><b>{escape(visible(self.headline, None))}</b></p><table>{rows}</table>"


# --- the evidence -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fit:
    """The fit that is judged, and what is known of it.

    Attributes
    ----------
    V : DataMatrix (F, N)
        The original samples, if samples have weights.
    W : array (F, K)
    H : array (K, N)
    how : HalfFit
        How its halves are fitted.
    details, certificate, others : Details, Certificate or None, Uniqueness
        A description, how good the error is, and other factors.
    error : str
        The error in words.
    advice : str
        What to do if the run found nothing or ended too early; "" otherwise.
    K_decided_by : str
        As in `Factorization`.
    Q, Q_expected : float or None, float
        Q and the expected Q, if the uncertainties are known.
    names : tuple of K str
        The names of the components.
    inflation : float
        How many times the divergence of Poisson counts the noise of these counts leaves, as the
        choice of K has estimated it.
    """

    V: DataMatrix
    W: Array
    H: Aligned
    how: HalfFit
    details: Details
    certificate: AnyCertificate | None
    others: Uniqueness
    error: str
    advice: str = ""
    K_decided_by: str = "user"
    Q: float | None = None
    Q_expected: float = 0.0
    names: Texts = ()
    inflation: float = 1.0

    @property
    def n_fixed(self) -> int:
        """The number of known components, which come first."""
        return self.how.problem.n_fixed

    @property
    def labels(self) -> list[str]:
        """The number of each component, or its name if it has one of its own."""
        names = self.names or map(str, range(self.W.shape[1]))
        return [name.removeprefix("component ") for name in names]


class Evidence(NamedTuple):
    """What the halves of the samples show.

    Attributes
    ----------
    cosines : array (n, K)
        As in `Diagnosis`.
    structure : Structure or None
    why_open : str
        Why the structure was not tested; "" if it was.
    class_shares : array (K,)
        As in `Diagnosis`.
    class_names : list of K str
        What the classes are called that explain most of each component.
    sampled : list of str
        How many of the samples were fitted again; empty if all were.
    """

    cosines: Array
    structure: Structure | None
    why_open: str
    class_shares: Array
    class_names: list[str]
    sampled: list[str]

    @property
    def follows(self) -> Array:
        """Which components (K,) follow the classes."""
        return self.class_shares > MAX_CLASS_SHARE


def gather(
    fit: Fit,
    features: Features,
    groups: ArrayLike | None,
    classes: ArrayLike | None,
    n_splits: int,
    watch: Watch,
) -> Evidence:
    """Fit halves of the samples, and test whether components predict hidden features.

    The parameters are those of `Factorization.diagnose`.
    """
    V = fit.V
    K = fit.W.shape[1]
    indices = evenly_spaced(V.n_samples, _n_held(V))
    of_groups = named_columns("groups", groups, V.n_samples, "group")
    columns = {**named_columns("classes", classes, V.n_samples), **of_groups}
    shares = np.full(K, np.nan)
    names = [""] * K
    if columns:
        found = shares_by_class(fit.W, fit.H, columns)
        largest = np.argmax([*found.values()], axis=0)
        shares = np.max([*found.values()], axis=0)
        names = [[*columns][place] for place in largest]
    part = take_samples(V, indices)
    equal = units = units_of(part)
    for labels in of_groups.values():
        if (labels != labels[0]).any():  # several groups
            units = units_of(part, labels[indices])
    if units.max() < 1:  # a single sample has no halves
        n_splits = 0
    why_open = "not tested: no halves of the samples were fitted"
    if n_splits:
        few = "not tested: a few large features decide" if features.is_of_few else ""
        why_open = why_untested(part, K, equal) or few
    rng = default_rng(0)
    predicts = None if why_open else structure(part, K, fit.how.problem.loss, units, equal, rng)
    spectra = half_spectra(part, K, fit.how, units, rng, n_splits, watch)
    cosines = cosines_in_halves(fit.W, spectra)
    sampled = []
    if len(indices) < V.n_samples:
        sampled.append(f"judged on {len(indices):,} of {V.n_samples:,} samples")
    return Evidence(cosines, predicts, why_open, shares, names, sampled)


def _n_held(V: DataMatrix) -> int:
    """Return how many samples are fitted again: all, unless they take too much memory."""
    per_sample = max(V.n_entries / V.n_samples, 1.0)
    return max(int(_MAX_HELD_ENTRIES / per_sample), 1)


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


def _judged(evidence: Evidence, fit: Fit, *, are_apart: bool) -> tuple[list[str], list[str]]:
    """Return the grade of each component, and its reason with what is known of other factors.

    Known components need no evidence, and others must not follow a class.
    """
    cosines = evidence.cosines
    grades = grade_components(cosines, evidence.structure, are_apart=are_apart)
    reasons = []
    for k, grade in enumerate(grades):
        reason = "no half of the samples was fitted"
        if k < fit.n_fixed:
            grades[k] = "interpret"
            reason = "given, not estimated"
        elif len(cosines):
            n_same = (cosines[:, k] >= _SAME_COSINE).sum()
            typical = np.median(cosines[:, k])
            same = f"nearly the same in {n_same} of {len(cosines)} fits of halves"
            reason = f"{same} (typical cosine {typical:.2f})"
        if evidence.follows[k]:
            share = f"{evidence.class_shares[k]:.0%} of its variation"
            reason += f"; follows the {evidence.class_names[k]} ({share})"
            if k >= fit.n_fixed and grade == "interpret":
                grades[k] = "with care"
        reasons.append(f"{reason}; {fit.others.in_words(k, fit.names)}")
    return grades, reasons


# --- the rows -----------------------------------------------------------------------------------


def _by_grade(grades: Sequence[str], labels: Sequence[str]) -> dict[str, list[str]]:
    """Return the labels of the components with each grade."""
    found: dict[str, list[str]] = {grade: [] for grade in COMPONENT_GRADES}
    for grade, label in zip(grades, labels, strict=True):
        found[grade].append(label)
    return found


def _headline(by_grade: Mapping[str, Sequence[str]], K: int) -> str:
    total = counted(K, "component")
    if len(by_grade["open"]) == K:
        return f"open: the {total} were not checked"
    chosen = by_grade["interpret"]
    if len(chosen) == K > 1:
        return f"all {total} can be interpreted"
    listed = f": {', '.join(chosen)}" if chosen and K <= _MAX_LISTED else ""
    return f"{len(chosen) or 'none'} of {total} can be interpreted{listed}"


def data_row(found: Sequence[Pitfall]) -> Row:
    """Return the row about the data; the gravest pitfall comes first, and gives the advice."""
    if not found:
        return Row("Data", "good", "no trouble with units, outliers, classes or codes")
    return Row("Data", found[0].grade, "; ".join(one.finding for one in found), found[0].advice)


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
    return Row("Structure", grade, f"{finding}; {worst}".removesuffix("; "))


def components_row(
    by_grade: Mapping[str, Sequence[str]], evidence: Evidence, labels: Sequence[str], data: Row
) -> Row:
    """Return the row about the components."""
    K = len(labels)
    if len(by_grade["open"]) == K:
        advice = "call diagnose(), or leave out --quick"
        return Row("Components", "open", "not checked", advice)
    parts = []
    for grade, own in by_grade.items():
        if own:
            words = "do not interpret" if grade == "do not" else grade
            shown = ", ".join(own) if K <= _MAX_LISTED else f"{len(own)} of {K}"
            parts.append(f"{words}: {shown}")
    following: dict[str, list[str]] = {}
    for k in map(int, np.flatnonzero(evidence.follows)):
        following.setdefault(evidence.class_names[k], []).append(labels[k])
    for name, own in following.items():
        parts.append(f"follow the {name}: {', '.join(own)}")
    finding = "; ".join([*parts, *evidence.sampled])
    good = by_grade["interpret"]
    if len(good) == K:
        return Row("Components", "good", finding)
    all_follow = {*labels} == {*good, *chain(*following.values())}
    advice = _next_step(evidence, data, all_follow=all_follow)
    return Row("Components", "fair" if good else "poor", finding, advice)


def _next_step(evidence: Evidence, data: Row, *, all_follow: bool) -> str:
    """Return what to do about components that cannot be interpreted: the first cause first."""
    found = evidence.structure
    if data.grade == "poor":
        return "change the data first"
    if found is not None and found.share < _MIN_STRUCTURE:
        return ""
    if all_follow:
        name = evidence.class_names[int(evidence.class_shares.argmax())]
        return f"fit the samples of one {name} alone"
    return "try another number of components, or more samples"


def number_row(K: int, decided_by: str) -> Row:
    """Return the row about the number of components, which repeats what `choose_k` found."""
    if decided_by == "user":
        advice = "compare with select_k(X), or conenmf rank"
        return Row("Number", "open", f"{counted(K, 'component')}, as you chose", advice)
    return Row("Number", "open" if f" a {GUESS}: " in decided_by else "good", decided_by)


def optimum_row(fit: Fit) -> Row:
    """Return the row about the optimiser: how near the error is to the lowest possible one."""
    if fit.advice:
        return Row("Optimum", "poor", fit.error, fit.advice)
    certificate = fit.certificate
    if certificate is None:
        return Row("Optimum", "open", fit.error, "to get a lower bound, call certify()")
    if not certificate.is_bound_telling:
        finding = f"{fit.error}; no useful lower bound is known"
        return Row("Optimum", "open", finding, "try certify(effort=20)")
    lower = certificate.lower_bound
    is_near = certificate.relative_error <= _NEAR_BOUND_RATIO * lower + 1e-9
    finding = f"{fit.error}; no fit with as many components is below {lower:.4g}"
    span = span_in_words(fit.others.span_angles)
    if span:
        finding += f"; {span}"
    return Row("Optimum", "good" if is_near else "fair", finding)


def other_rows(fit: Fit, cones: str) -> Iterator[Row]:
    """Yield the rows that apply to some data: noise of counts, residuals, cones."""
    certificate: Any = fit.certificate
    floor = getattr(certificate, "floor_in_words", str)()
    if floor:
        ratio = 1 + certificate.above_floor
        finding = f"the fit is {floor}"
        if fit.inflation > 1:
            finding = (
                f"the divergence is {ratio:.3g} times what Poisson counts would leave; counts that "
                f"vary as these do leave about {fit.inflation:.3g} times as much"
            )
        advice = ""
        if ratio > (1 + _FAR_ABOVE_FLOOR) * fit.inflation:
            advice = "try a larger K, or check whether the counts are overdispersed"
        yield Row("Noise", "poor" if advice else "good", finding, advice)
    if fit.Q is not None:
        advice = advice_on_sigma(fit.Q, fit.Q_expected)
        finding = f"Q is {fit.Q:,.0f}; the expected Q is {fit.Q_expected:,.0f}"
        yield Row("Residuals", "poor" if advice else "good", finding, advice)
    if cones:
        yield Row("Cones", "good", cones)


# --- the door -----------------------------------------------------------------------------------


def judge(
    fit: Fit,
    groups: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    n_splits: int = N_SPLITS,
    watch: Watch = str,
) -> Diagnosis:
    """Gather evidence about a fit, and turn it into a diagnosis.

    The parameters are those of `Factorization.diagnose`.
    """
    V = fit.V
    K = fit.W.shape[1]
    features = Features.of(V, exact(fit.W), fit.H)
    evidence = gather(fit, features, groups, classes, n_splits, watch)
    cones = cones_in_words(fit.details.cones)
    found = evidence.structure
    if cones and found and found.share < _MIN_STRUCTURE:
        evidence = evidence._replace(structure=None, why_open=_SINGLE_FEATURES)
    grades, reasons = _judged(evidence, fit, are_apart=bool(cones))
    by_grade = _by_grade(grades, fit.labels)
    wrong = pitfalls(V, features, K, for_counts=fit.how.problem.loss.noise is not None)
    data = data_row(list(wrong))
    rows = (
        data,
        structure_row(evidence, grades, features.poor_in_words(V.names)),
        components_row(by_grade, evidence, fit.labels, data),
        number_row(K, fit.K_decided_by),
        optimum_row(fit),
        *other_rows(fit, cones),
    )
    share, far = evidence.structure or (np.nan, np.nan)
    return Diagnosis(
        headline=_headline(by_grade, K),
        rows=rows,
        components=tuple(grades),
        reasons=tuple(reasons),
        cosines=evidence.cosines,
        structure=share,
        far_structure=far,
        class_shares=evidence.class_shares,
        details=fit.details,
    )


def diagnose(
    V: DataMatrix,
    W: ArrayLike,
    H: Any,
    *,
    loss: str = "frobenius",
    problem: Problem | None = None,
    groups: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    n_splits: int = N_SPLITS,
) -> Diagnosis:
    """Judge V ~ W H: whether its components may be interpreted, and what keeps them from it.

    A fitted model, and a result, have a method of this name that also knows how the number of
    components was chosen.

    Parameters
    ----------
    V : DataMatrix (F, N), or anything that `from_rows` reads, with samples in rows
    W : array (F, K)
    H : array (K, N)
    loss : str
        The loss of the fit.
    problem : Problem, optional
        What the fit minimised, if that is more than a loss.
    groups : array (N,), optional
        The group of each sample, such as its donor. Halves of the samples are then halves of the
        groups, and a component that follows a group is to be interpreted with care.
    classes : array (N,) or table of N rows, optional
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
    problem = problem_of(problem, loss, "diagnose").bind(V)
    max_iter = search_iterations(V, W.shape[1], problem.loss)
    with V.own_threads():
        certificate = certify(V, W, H, problem=problem)
        how = {"order": np.arange(W.shape[1]), "sizes": norm(W, axis=0)}
        _, labels, _ = V.map(sorted_rows, Ht, V.norms_squared, **how)
        fit = Fit(
            V=V,
            W=W,
            H=Ht.T,
            how=HalfFit(problem),
            details=describe(V, W, Ht.T, labels),
            certificate=certificate,
            others=uniqueness(V, W, H, problem=problem, max_iter=max_iter),
            error=f"relative error {certificate.relative_error:.4g}",
        )
        return judge(fit, groups, classes, n_splits)


def is_bounded(V: DataMatrix, K: int, loss: Loss) -> bool:
    """Return whether a diagnosis computes a better lower bound than the one that is free."""
    return _work(V, K, loss) <= _MAX_BOUNDED


def search_iterations(V: DataMatrix, K: int, loss: Loss) -> int:
    """Return how long a diagnosis searches for other factors: not at all if that takes long."""
    return 200 if _work(V, K, loss) <= _MAX_SEARCHED else 0


def _work(V: DataMatrix, K: int, loss: Loss) -> int:
    return V.n_entries * K * (1 if loss.noise is None else _DEARER)
