"""Verdicts on claims that one method is ahead of others, from paired repetitions.

A case (a dataset, a solver, an error to be reached) compares the claimed method with each other
one, repetition by repetition, by the signed-rank test of Wilcoxon: exact, two-sided, with ties. It
holds if the method is ahead of every other one, fails if one of them is ahead of it, and is not
decided otherwise; the p values of all cases of a claim are adjusted by Holm's method, and 5% is
the level. A claim holds if it holds in every case.

With fewer than six pairs this test cannot reach 5%, however large the difference is, and after
Holm's adjustment it takes more. A case that could not be decided even if all its pairs pointed one
way has too few runs: no verdict, but the means, their difference, and in how many pairs the method
is ahead.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from presentation import DOES_NOT, HOLDS, LEAST, NOT_MEASURED, PARTLY, TOO_FEW, Verdict, listed
from scipy import stats

LEVEL = 0.05
NOT_DECIDED = "not decided"
LISTED = 9  # cases that are listed one by one; the tables have all


@dataclass(frozen=True)
class Case:
    """Whether the data speak for a claim, and how likely they would if there were no difference."""

    text: str
    speaks_for: bool
    p: float
    best: float  # the smallest p value that so many pairs can have


def smallest(pairs: int) -> float:
    """The p value of pairs that all point one way; 1 for fewer than six.

    >>> smallest(5), smallest(6)
    (1.0, 0.03125)
    """
    return 2.0 ** (1 - pairs) if pairs >= LEAST else 1.0


def signed_rank(differences: Sequence[float]) -> float:
    """The two-sided p value of Wilcoxon's signed-rank test, exact with ties.

    Differences of zero, and those of two values that are both infinite, are left out. Infinite
    differences are the largest.

    >>> signed_rank([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    0.03125
    """
    found = np.asarray(differences, dtype=float)
    found = found[~np.isnan(found) & (found != 0)]
    if not found.size:
        return 1.0
    ranks = np.round(2 * stats.rankdata(np.abs(found))).astype(int)  # whole numbers, as ties halve
    ways = np.zeros(ranks.sum() + 1)
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] = ways[rank:] + ways[: ways.size - rank]
    share = ways / ways.sum()
    positive = int(ranks[found > 0].sum())
    tail = min(share[: positive + 1].sum(), share[positive:].sum())
    return min(1.0, 2 * float(tail))


def ahead(
    text: str,
    ours: Sequence[float],
    others: Mapping[str, Sequence[float]],
    *,
    largest: bool = False,
    digits: int = 3,
) -> Case:
    """The case that our values are smaller than those of every other method, or larger.

    Against several others, a case for the claim needs all tests, so its p value is the largest;
    a case against it needs one, so its p value is the smallest times their number.
    """
    sign = -1.0 if largest else 1.0
    tests = {}
    for name, theirs in others.items():
        with np.errstate(invalid="ignore"):
            gain = sign * (np.asarray(theirs, dtype=float) - np.asarray(ours, dtype=float))
        tests[name] = (_centre(gain), signed_rank(gain.tolist()), gain)
    behind = [name for name, (centre, *_) in tests.items() if centre <= 0]
    if behind:
        rival = min(behind, key=lambda name: (tests[name][1], np.nan_to_num(tests[name][2]).mean()))
        p = min(1.0, len(tests) * tests[rival][1])
    else:
        rival = max(tests, key=lambda name: tests[name][1])
        p = tests[rival][1]
    gain = tests[rival][2]
    told = f"{spread(ours, digits)}, {rival} {spread(others[rival], digits)}"
    if np.isfinite(gain).all():
        told += f", difference {-sign * gain.mean():+.2g}"
    told += f", ahead in {np.count_nonzero(gain > 0)} of {len(ours)}"
    return Case(f"{text}: {told}", not behind, p, smallest(len(ours)))


def _centre(gains: np.ndarray) -> float:
    """The difference of rank sums, which has the sign that the test looks at."""
    found = gains[~np.isnan(gains) & (gains != 0)]
    return float((np.sign(found) * stats.rankdata(np.abs(found))).sum()) if found.size else 0.0


def spread(values: Sequence[float], digits: int = 3) -> str:
    """The mean and the standard deviation; the median where some are infinite, "never".

    Values that are all the same, as of a method that draws nothing, have no deviation.
    """
    finite = [value for value in values if np.isfinite(value)]
    if len(finite) < len(values):
        middle = statistics.median(values)
        text = f"median {_short(middle, digits)}" if np.isfinite(middle) else "never"
        return f"{text} ({len(values) - len(finite)} of {len(values)} never)"
    mean = _short(statistics.mean(finite), digits)
    return mean if len(set(finite)) < 2 else f"{mean} ± {_short(statistics.stdev(finite), 2)}"


def _short(value: float, digits: int) -> str:
    """So many significant digits, and large numbers without an exponent."""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text else text


def share_above(text: str, held: int, total: int, least: float) -> Case:
    """The case that an event has at least a given probability, by the exact binomial test.

    It speaks for the claim if the event is as frequent as that in the rows; only a significantly
    smaller share speaks against it, and only enough rows for it. The exact interval of 90% beside
    it leaves out what either test, unadjusted, rejects at 5%.
    """
    speaks_for = held >= least * total
    test = stats.binomtest(held, total, least, alternative="greater" if speaks_for else "less")
    best = min(least, 1 - least) ** total if total >= LEAST else 1.0
    told = f"{text}: {held} of {total}, {interval(held, total)}"
    return Case(told, speaks_for, float(test.pvalue) if total >= LEAST else 1.0, best)


def interval(held: int, total: int) -> str:
    """The exact interval of a probability, each side of which is wrong in at most 5%.

    >>> interval(30, 30)
    '0.90 to 1.00'
    """
    found = stats.binomtest(held, total).proportion_ci(1 - 2 * LEVEL)
    return f"{found.low:.2f} to {found.high:.2f}"


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p values for several tests.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p)
    largest = 0.0
    for place, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - place) * p[index]))
        adjusted[index] = largest
    return adjusted


def decided(claim: str, cases: Iterable[Case], note: str = "") -> Verdict:
    """The verdict on a claim from its cases.

    >>> decided("ours is smaller", [Case("a", True, 0.001, 0.001), Case("b", False, 0.2, 0.001)])
    Verdict(claim='ours is smaller', verdict='holds partly', evidence='holds in 1, not decided in \
1 (1 leans against it) of 2 cases; not decided: b (p 0.2)')
    """
    found = list(cases)
    if not found:
        return Verdict(claim, NOT_MEASURED, "no rows")
    groups: dict[str, list[str]] = {"holds": [], "fails": [], NOT_DECIDED: [], TOO_FEW: []}
    against = dict.fromkeys(groups, 0)
    each = [case.p for case in found]
    for place, (case, p) in enumerate(zip(found, holm(each), strict=True)):
        if p < LEVEL:
            group = "holds" if case.speaks_for else "fails"
        elif holm([*each[:place], case.best, *each[place + 1 :]])[place] < LEVEL:
            group = NOT_DECIDED
        else:
            group = TOO_FEW
        groups[group].append(case.text if group == TOO_FEW else f"{case.text} (p {p:.2g})")
        against[group] += not case.speaks_for
    if groups["holds"]:
        verdict = HOLDS if len(groups["holds"]) == len(found) else PARTLY
    else:
        verdict = DOES_NOT if groups["fails"] else NOT_DECIDED if groups[NOT_DECIDED] else TOO_FEW
    counts = [
        f"{name} in {len(texts)}{_leaning(name, against[name])}"
        for name, texts in groups.items()
        if texts
    ]
    evidence = f"{', '.join(counts)} of {len(found)} cases" + (f" ({note})" if note else "")
    for name, texts in groups.items():
        if texts and (name != "holds" or verdict == HOLDS):
            evidence += listed(name, texts, LISTED)
    return Verdict(claim, verdict, evidence)


def _leaning(name: str, against: int) -> str:
    """How many of the cases without an answer point against the claim."""
    if name not in (NOT_DECIDED, TOO_FEW):
        return ""
    return f" ({against or 'none'} {'leans' if against == 1 else 'lean'} against it)"
