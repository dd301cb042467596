"""How results are shown: tables, pictures and verdicts, in Markdown.

A verdict is computed from rows, never typed: a claim holds, holds partly, does not hold, or was
not measured. `verdicts` adds the claims that need a test, which may not decide.
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Row = dict[str, str]
LISTED = 8  # cases in which a claim fails; the tables have all
LEAST = 6  # runs that a verdict needs
HOLDS, PARTLY, DOES_NOT, NOT_MEASURED = "holds", "holds partly", "does not hold", "not measured"
TOO_FEW = "too few runs"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim, and the numbers that say so."""

    claim: str
    verdict: str
    evidence: str


def judged(
    claim: str, cases: Iterable[tuple[str, bool]], note: str = "", runs: Sequence[int] = ()
) -> Verdict:
    """A claim holds if it holds in every case, and partly if it does in some.

    The note, numbers that a reader wants even if the claim holds, goes into the evidence. If the
    cases compare means, `runs` has the number of runs of each. Cases with too few are shown and
    not judged, and a claim that has such cases holds partly at best.

    >>> judged("2 is even, 3 is even", [("2", True), ("3", False)])
    Verdict(claim='2 is even, 3 is even', verdict='holds partly', evidence='1 of 2 cases; not: 3')
    """
    found = list(cases)
    if not found:
        return Verdict(claim, NOT_MEASURED, "no rows")
    enough = [n >= LEAST for n in runs] or [True] * len(found)
    clear = list(compress(found, enough))
    few = [case for case, is_clear in zip(found, enough, strict=True) if not is_clear]
    held = sum(holds for _, holds in clear)
    verdict = DOES_NOT if clear else TOO_FEW
    if held:
        verdict = HOLDS if held == len(found) else PARTLY
    evidence = f"{held} of {len(found)} cases"
    evidence += f" ({note})" if note else ""
    evidence += listed("not", [text for text, holds in clear if not holds], LISTED)
    seen = sum(holds for _, holds in few)
    few = sorted(few, key=lambda case: case[1])  # those against the claim first
    evidence += listed(f"{TOO_FEW}, {seen} for it", [text for text, _ in few], LISTED)
    return Verdict(claim, verdict, evidence)


def listed(name: str, texts: Sequence[str], most: int) -> str:
    more = f"; and {len(texts) - most} more" if len(texts) > most else ""
    return f"; {name}: {'; '.join(texts[:most])}{more}" if texts else ""


@dataclass(frozen=True)
class Table:
    """A header and lines of cells."""

    header: Sequence[str]
    lines: Sequence[Sequence[object]]

    def __str__(self) -> str:
        rows = [self.header, ["---"] * len(self.header), *self.lines]
        return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


@dataclass(frozen=True)
class Picture:
    """A drawing, and what a reader who cannot see it should know."""

    name: str
    png: bytes
    text: str

    def __str__(self) -> str:
        return f"![{self.text}]({self.name})"


@dataclass(frozen=True)
class Section:
    """A table or figure of the paper with ours, and what became of its claims."""

    body: Sequence[Table | Picture | str]
    verdicts: Sequence[Verdict] = ()


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
    size = (5 * across, 3.2 * down)
    figure, places = plt.subplots(down, across, figsize=size, layout="constrained", squeeze=False)
    for place in places.flat[len(panels) :]:
        place.set_axis_off()
    named: list[str] = []
    for place, (title, lines) in zip(places.flat, panels.items(), strict=False):
        for label, line in lines.items():
            place.errorbar(*line, marker=".", markersize=3, capsize=2, label=label)
        place.set(title=title, **axes)
        if lines and list(lines) != named:
            place.legend(fontsize="small")
            named = list(lines)
    return drawn(figure, name, text)


def verdict_table(verdicts: Iterable[Verdict]) -> Table:
    lines = [(found.claim, found.verdict, found.evidence) for found in verdicts]
    return Table(["claim", "verdict", "evidence"], lines)


def mean_and_deviation(values: Sequence[float], digits: int = 3) -> str:
    """The mean, and the standard deviation if there is more than one value."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def grouped(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Rows by their values in some columns, or in one, in the order in which these first occur."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        values = tuple(row[name] for name in names)
        groups.setdefault(values if len(names) > 1 else values[0], []).append(row)
    return groups


def as_markdown(title: str, sections: Mapping[str, Section], apart: Sequence[str]) -> str:
    """The page in Markdown; verdicts of the sections named `apart` have their own table."""
    parts: list[object] = [f"# {title}"]
    for heading, is_apart in (("Claims of the paper", False), ("Beyond the paper", True)):
        found = [
            verdict
            for name, section in sections.items()
            if (name in apart) == is_apart
            for verdict in section.verdicts
        ]
        parts += [f"## {heading}", verdict_table(found)]
    for name, section in sections.items():
        parts += [f"## {name}", *section.body]
    return "\n\n".join(map(str, parts)) + "\n"
