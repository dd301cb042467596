"""What is shown of an experiment: tables, pictures, and a verdict on each claim, in Markdown.

A verdict is computed from rows, never typed. A claim has cases (a dataset, a solver, an error to be
reached), and each case is a test on paired repetitions: Wilcoxon's signed-rank test, two-sided, at
5 %, with the p values of all cases of a claim adjusted by Holm's method. A case holds or fails if
its test decides. A case that could not be decided even if all its pairs pointed one way has too few
runs. Claims of the kind "always" are counted, without a test. A claim holds if it holds in every
case, and partly if it does in some.
"""

from __future__ import annotations

import io
import statistics
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

Row = dict[str, str]
LEVEL = 0.05
LEAST = 6  # pairs: fewer cannot reach that level
EXACT = 13  # pairs, up to which p values are exact even if gains are equal
LISTED = 9  # cases of a claim that are listed one by one; the tables have all
NOT_MEASURED = "not measured"
# what became of a claim, and the numbers that say so
Verdict = namedtuple("Verdict", "claim verdict evidence")
# Whether the data speak for a claim, how likely they would if there were no difference (0: counted,
# not tested), and the smallest p value that so many pairs can have
Case = namedtuple("Case", "text speaks_for p best", defaults=(0.0, 0.0))


def tested(text: str, gains: Iterable[float]) -> Case:
    """The case that gains are positive; infinite ones are the largest.

    >>> tested("all six", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    Case(text='all six', speaks_for=True, p=0.03125, best=0.03125)
    """
    gains = np.fromiter(gains, float)
    best = 2.0 ** (1 - gains.size) if gains.size >= LEAST else 1.0
    gains = gains[~np.isnan(gains) & (gains != 0)]
    if not gains.size:
        return Case(text, False, 1.0, best)
    p = _exact(gains) if gains.size <= EXACT else float(stats.wilcoxon(gains).pvalue)
    return Case(text, bool(np.median(gains) > 0), p, best)


def _exact(gains: np.ndarray) -> float:
    """The p value from all signs, as that of SciPy; there it takes a thousand times as long."""
    ranks = stats.rankdata(abs(gains))
    sums, found = np.indices((2,) * gains.size).reshape(gains.size, -1).T @ ranks, ranks[gains > 0]
    tails = (sums <= found.sum() + 1e-9).mean(), (sums >= found.sum() - 1e-9).mean()
    return float(min(1.0, 2 * min(tails)))


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
    with np.errstate(invalid="ignore"):  # NaN if both are infinite
        tests = [tested(n, sign * np.subtract(theirs, ours)) for n, theirs in others.items()]
    behind = [test for test in tests if not test.speaks_for]
    decides = min(behind, key=lambda one: one.p) if behind else max(tests, key=lambda one: one.p)
    p = min(1.0, len(tests) * decides.p) if behind else decides.p
    rival = others[decides.text]
    wins = sum(sign * b > sign * a for a, b in zip(ours, rival, strict=True))
    told = f"{spread(ours, digits)}, {decides.text} {spread(rival, digits)}"
    return Case(f"{text}: {told}, ahead in {wins} of {len(ours)}", not behind, p, decides.best)


def share_above(text: str, held: int, total: int, least: float) -> Case:
    """The case that an event has at least a given probability, by the exact binomial test.

    It speaks for the claim if the event is as frequent as that in the rows. The exact interval of
    90 % beside it leaves out what either test, alone, rejects at 5 %.
    """
    speaks_for = held >= least * total
    test = stats.binomtest(held, total, least, alternative="greater" if speaks_for else "less")
    told = f"{text}: {held} of {total}, {interval(held, total)}"
    return Case(told, speaks_for, float(test.pvalue), min(least, 1 - least) ** total)


def interval(held: int, total: int) -> str:
    """The exact interval of a probability, each side of which is wrong in at most 5 %.

    >>> interval(30, 30)
    '0.90 to 1.00'
    """
    found = stats.binomtest(held, total).proportion_ci(1 - 2 * LEVEL)
    return f"{found.low:.2f} to {found.high:.2f}"


def judged(claim: str, cases: Iterable[Case], note: str = "") -> Verdict:
    """The verdict on a claim from its cases.

    >>> judged("2 is even, 3 is even", [Case("2", True), Case("3", False)])
    Verdict(claim='2 is even, 3 is even', verdict='holds partly', \
evidence='holds in 1, fails in 1 of 2 cases; fails: 3')
    """
    cases = list(cases)
    if not cases:
        return Verdict(claim, NOT_MEASURED, "no rows")
    groups: dict[str, list[Case]] = {
        "holds": [],
        "fails": [],
        "not decided": [],
        "too few runs": [],
    }
    for case, p in zip(cases, holm([case.p for case in cases]), strict=True):
        answer = "holds" if case.speaks_for else "fails"
        doubt = "not decided" if case.best < LEVEL / len(cases) else "too few runs"
        groups[answer if p < LEVEL else doubt].append(case._replace(p=p))
    groups = {outcome: group for outcome, group in groups.items() if group}
    first = next(iter(groups))
    verdict = "holds partly" if first == "holds" and len(groups) > 1 else first
    verdict = "does not hold" if first == "fails" else verdict
    counts = ", ".join(f"{outcome} in {len(group)}" for outcome, group in groups.items())
    evidence = f"{counts} of {len(cases)} cases{f' ({note})' if note else ''}"
    for outcome, group in groups.items():
        if outcome != "holds" or (verdict == "holds" and len(group) <= LISTED):
            texts = [f"{one.text} (p {one.p:.2g})" if one.p else one.text for one in group]
            more = [f"and {len(texts) - LISTED} more"] if len(texts) > LISTED else []
            evidence += f"; {outcome}: {'; '.join(texts[:LISTED] + more)}"
    return Verdict(claim, verdict, evidence)


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p values for several tests.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    adjusted[order] = np.maximum.accumulate(np.array(p)[order] * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1.0).tolist()


class Picture(NamedTuple):
    """A drawing, and what a reader who cannot see it should know."""

    name: str
    png: bytes
    text: str

    def __str__(self) -> str:
        return f"![{self.text}]({self.name})"


# A table or figure of the paper with ours, and what became of its claims
Section = namedtuple("Section", "body verdicts", defaults=((),))


def table(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def drawn(figure: plt.Figure, name: str, text: str) -> Picture:
    """The picture of a figure, which is closed."""
    stream = io.BytesIO()
    figure.savefig(stream, dpi=90, format="png", metadata={"Software": None})
    plt.close(figure)
    return Picture(f"{name}.png", stream.getvalue(), text)


def curves(
    name: str,
    text: str,
    panels: Mapping[str, Mapping[str, Sequence[Any]]],
    across: int,
    **axes: object,
) -> Picture:
    """Draw a panel for each title, with a curve for each label: x, y and, if known, deviations."""
    down = max(-(-len(panels) // across), 1)
    options = {"figsize": (5 * across, 3.2 * down), "layout": "constrained", "squeeze": False}
    figure, places = plt.subplots(down, across, **options)
    for place in places.flat[len(panels) :]:
        place.set_axis_off()
    for place, (title, lines) in zip(places.flat, panels.items(), strict=False):
        for label, line in lines.items():
            place.errorbar(*line, marker=".", markersize=3, capsize=2, label=label)
        place.set(title=title, **axes)
        if lines:
            place.legend(fontsize="small")
    return drawn(figure, name, text)


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


def grouped(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Rows by their values in some columns, or in one, in the order in which these first occur."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        values = tuple(row[name] for name in names)
        groups.setdefault(values if len(names) > 1 else values[0], []).append(row)
    return groups


def column(rows: Sequence[Row], name: str) -> list[float]:
    """The numbers that rows have in a column."""
    return [float(row[name]) for row in rows]


def curve(values: Iterable[float]) -> str:
    """Numbers for one cell; `numbers` reads them."""
    return " ".join(f"{value:.5g}" for value in values)


def numbers(cell: str) -> np.ndarray:
    return np.array(cell.split(), dtype=float)
