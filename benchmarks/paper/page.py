"""One page from the rows that the scripts kept: tables beside the paper's, figures, verdicts.

Writes ``page.md`` and its pictures beside the rows. A verdict is computed from the rows, never
typed: a claim holds, holds partly, does not hold, or was not measured.
"""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from protocol import experiment

Row = dict[str, str]
HOLDS, PARTLY, DOES_NOT, NOT_MEASURED = "holds", "holds partly", "does not hold", "not measured"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim of the paper, and the numbers that say so."""

    claim: str
    verdict: str
    evidence: str


def judged(claim: str, cases: Iterable[tuple[str, bool]]) -> Verdict:
    """A claim holds if it holds in every case, and partly if it does in some."""
    found = list(cases)
    if not found:
        return Verdict(claim, NOT_MEASURED, "no rows")
    held = sum(holds for _, holds in found)
    verdict = HOLDS if held == len(found) else PARTLY if held else DOES_NOT
    failed = "; ".join(text for text, holds in found if not holds)
    evidence = f"in {held} of {len(found)} cases"
    return Verdict(claim, verdict, evidence + (f"; not: {failed}" if failed else ""))


def read(folder: Path, name: str) -> list[Row]:
    """The rows that a script kept; none if it has not run."""
    path = folder / f"{name}.csv"
    if not path.exists():
        return []
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def table(header: list[str], lines: Iterable[Iterable[object]]) -> list[str]:
    """A table in Markdown."""
    rows = [" | ".join(map(str, line)) for line in [header, ["---"] * len(header), *lines]]
    return [f"| {row} |" for row in rows] + [""]


# --- Figure 2 ---------------------------------------------------------------------------------


def figure2(rows: list[Row], folder: Path) -> tuple[list[str], list[Verdict]]:
    """The errors beside the bounds, and whether they stay below and come near."""
    means: dict[tuple[str, float, int], list[float]] = {}
    bounds: dict[float, tuple[float, float]] = {}
    for row in rows:
        key = (row["algorithm"], float(row["alpha"]), int(row["N"]))
        means.setdefault(key, []).append(float(row["error"]))
        bounds[key[1]] = float(row["deterministic"]), float(row["probabilistic"])
    errors = {key: statistics.mean(values) for key, values in means.items()}
    figure, axes = plt.subplots(1, max(len(bounds), 1), figsize=(10, 4), layout="constrained")
    for ax, (alpha, (largest, limit)) in zip(np.atleast_1d(axes), bounds.items(), strict=False):
        for name in dict.fromkeys(name for name, *_ in errors):
            points = sorted((N, e) for (n, a, N), e in errors.items() if (n, a) == (name, alpha))
            ax.semilogx(*zip(*points, strict=True), marker=".", label=name)
        ax.axhline(largest, color="0.5", linestyle=":", label="deterministic bound")
        ax.axhline(limit, color="0.2", linestyle="--", label="probabilistic bound")
        ax.set(title=f"alpha = {alpha}", xlabel="N", ylabel="relative error")
        ax.legend(fontsize="small")
    figure.savefig(folder / "figure2.png", dpi=120)
    plt.close(figure)
    cr1 = {(a, N): e for (name, a, N), e in errors.items() if name == "cr1-nmf"}
    lines = [
        (a, N, f"{e:.5f}", f"{bounds[a][1]:.5f}", f"{bounds[a][0]:.5f}")
        for (a, N), e in sorted(cr1.items())
    ]
    text = table(["alpha", "N", "cr1-nmf", "probabilistic", "deterministic"], lines)
    below = judged(
        "The error of cr1-nmf is below both bounds",
        ((f"alpha {a}, N {N}", e < min(bounds[a])) for (a, N), e in sorted(cr1.items())),
    )
    gaps = {
        alpha: [bounds[alpha][1] - e for (a, N), e in sorted(cr1.items()) if a == alpha]
        for alpha in bounds
    }
    near = judged(
        "At alpha = 0.2 it tends to the probabilistic bound as N grows",
        (
            (f"gaps {', '.join(f'{gap:.4f}' for gap in gaps[a])}", _shrinks(gaps[a]))
            for a in gaps
            if a == 0.2
        ),
    )
    return ["![Figure 2](figure2.png)", "", *text], [below, near]


def _shrinks(gaps: list[float]) -> bool:
    return len(gaps) > 1 and 0 <= gaps[-1] < gaps[0] / 2


# --- Table I ----------------------------------------------------------------------------------


def table1(rows: list[Row], folder: Path) -> tuple[list[str], list[Verdict]]:
    """Seconds to the error of cr1-nmf, as ratios, beside the paper's."""
    names = ("mult", "nnlsb", "hals")
    lines, cases = [], []
    for N in sorted({int(row["N"]) for row in rows}):
        here = [row for row in rows if int(row["N"]) == N]
        ours = {
            name: statistics.median(float(row[f"{name} / cr1-nmf"]) for row in here)
            for name in names
        }
        seconds = statistics.median(float(row["cr1-nmf"]) for row in here)
        cells = [f"{ours[name]:.1f} ({float(here[0][f'{name}, paper']):.1f})" for name in names]
        lines.append([N, f"{seconds:.3f} s", *cells])
        if N >= 1000:
            cases += [(f"{name} at N = {N}: {ours[name]:.1f}", ours[name] >= 10) for name in names]
    text = table(["N", "cr1-nmf", *(f"{name} / cr1-nmf (paper)" for name in names)], lines)
    claim = "mult, nnlsb and hals take at least ten times as long to the error of cr1-nmf"
    return text, [judged(claim, cases)]


# --- Figure 3 ---------------------------------------------------------------------------------


def figure3(rows: list[Row], folder: Path) -> tuple[list[str], list[Verdict]]:
    """The number of cones that is found under noise."""
    found: dict[tuple[float, int], list[int]] = {}
    for row in rows:
        found.setdefault((float(row["delta"]), int(row["N"])), []).append(int(row["K"]))
    truth = int(rows[0]["true"]) if rows else 0
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    for delta in sorted({delta for delta, _ in found}):
        sizes = sorted(N for d, N in found if d == delta)
        means = [statistics.mean(found[delta, N]) for N in sizes]
        spread = [statistics.pstdev(found[delta, N]) for N in sizes]
        ax.errorbar(sizes, means, spread, marker=".", capsize=3, label=f"delta = {delta}")
    ax.axhline(truth, color="0.5", linestyle=":")
    ax.set(xscale="log", xlabel="N", ylabel="estimated K", title="Number of cones under noise")
    ax.legend()
    figure.savefig(folder / "figure3.png", dpi=120)
    plt.close(figure)
    lines = [
        (delta, N, ", ".join(map(str, values))) for (delta, N), values in sorted(found.items())
    ]
    text = table(["delta", "N", "estimates"], lines)
    enough = {0.1: 2000, 0.5: 10000}
    cases = [
        (f"delta {delta}, N {N}: {values}", all(value == truth for value in values))
        for (delta, N), values in sorted(found.items())
        if N >= enough.get(delta, 0)
    ]
    claim = "K is found under noise: for delta 0.1 from N = 2000 on, for 0.5 from 10000 on"
    return ["![Figure 3](figure3.png)", "", *text], [judged(claim, cases)]


# --- Tables III and V -------------------------------------------------------------------------

STARTS = ("rand", "cr1-nmf", "spkm", "nndsvd")


def table5(rows: list[Row], folder: Path) -> tuple[list[str], list[Verdict]]:
    """Seconds of the starts, and until nnlsb reaches given errors from each."""
    columns = ("start", "1.04", "1.02", "1.01")
    lines, starting, reaching, ending = [], [], [], []
    for name in dict.fromkeys(row["dataset"] for row in rows):
        here = [row for row in rows if row["dataset"] == name]
        seconds = {
            start: {
                column: statistics.median(float(row[f"{start}: {column}"]) for row in here)
                for column in columns
            }
            for start in STARTS
        }
        last = {
            start: statistics.mean(float(row[f"{start}: last error"]) for row in here)
            for start in STARTS
        }
        for start in STARTS:
            shown = [f"{value:.2f}" for value in seconds[start].values()]
            lines.append([name, start, *shown, f"{last[start]:.5f}"])
        work = {start: seconds[start]["start"] for start in STARTS if start != "rand"}
        fastest = min(work, key=work.__getitem__)
        starting.append((f"{name}: {fastest}", fastest == "cr1-nmf"))
        for column in columns[1:]:
            times = {start: seconds[start][column] for start in STARTS}
            first = min(times, key=times.__getitem__)
            reaching.append((f"{name}, {column}: {first}", first == "cr1-nmf"))
        told = f"{name}: {last['cr1-nmf']:.5f} and {min(last.values()):.5f}"
        ending.append((told, last["cr1-nmf"] <= 1.001 * min(last.values())))
    header = ["dataset", "start", "s for it", *(f"s to {c} x lowest" for c in columns[1:]), "last"]
    verdicts = [
        judged("cr1-nmf is the fastest start (beside spkm and nndsvd)", starting),
        judged("From cr1-nmf, nnlsb is the first to reach each error", reaching),
        judged("From cr1-nmf, nnlsb ends at the lowest error (within 0.1%)", ending),
    ]
    return table(header, lines), verdicts


# --- Table VII --------------------------------------------------------------------------------

NMI = {  # of the paper, with its standard deviation; starts in the order of STARTS
    "mult": ((0.595, 0.040), (0.649, 0.049), (0.608, 0.052), (0.580, 0.000)),
    "nnlsb": ((0.597, 0.030), (0.655, 0.046), (0.618, 0.052), (0.585, 0.000)),
    "hals": ((0.609, 0.044), (0.621, 0.052), (0.619, 0.052), (0.583, 0.000)),
}


def table7(rows: list[Row], folder: Path) -> tuple[list[str], list[Verdict]]:
    """Clustering scores beside the paper's."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["start"], row["solver"]), []).append(row)
    lines, nmi = [], {}
    for (name, start, solver), here in groups.items():
        scores = [
            statistics.mean(float(row[score]) for row in here)
            for score in ("nmi", "Dice", "purity")
        ]
        nmi[name, start, solver] = scores[0]
        known = name == "tr11" and solver in NMI
        mean, spread = NMI[solver][STARTS.index(start)] if known else (0.0, 0.0)
        theirs = f"{mean:.3f} ± {spread:.3f}" if known else ""
        lines.append([name, start, solver, *(f"{score:.3f}" for score in scores), theirs])
    above, best, within = [], [], []
    for (name, start, solver), ours in nmi.items():
        if start == "cr1-nmf":
            told = f"{name}, {solver}: {ours:.3f}"
            others = [nmi[name, other, solver] for other in STARTS]
            above.append((told, ours > others[0]))
            best.append((told, ours == max(others)))
            if name == "tr11":
                mean, spread = NMI[solver][1]
                within.append((f"{told} and {mean:.3f} ± {spread:.3f}", abs(ours - mean) <= spread))
    text = table(["dataset", "start", "solver", "nmi", "Dice", "purity", "nmi, paper"], lines)
    verdicts = [
        judged("With each solver, cr1-nmf clusters better than rand (nmi)", above),
        judged("With each solver, cr1-nmf clusters best of the four starts (nmi)", best),
        judged("nmi of cr1-nmf on tr11 is within the paper's standard deviation", within),
    ]
    return text, verdicts


Section = Callable[[list[Row], Path], tuple[list[str], list[Verdict]]]
SECTIONS: dict[str, tuple[str, Section]] = {
    "figure2": ("Figure 2: errors and bounds", figure2),
    "table1": ("Table I: time to the error of cr1-nmf", table1),
    "figure3": ("Figure 3: the number of cones", figure3),
    "table5": ("Tables III and V: starts, and nnlsb from them", table5),
    "table7": ("Table VII: clustering of text", table7),
}


def write(folder: Path) -> Path:
    """Write the page of the rows in a folder."""
    verdicts: list[Verdict] = []
    body: list[str] = []
    for name, (title, section) in SECTIONS.items():
        rows = read(folder, name)
        if not rows:
            continue
        text, found = section(rows, folder)
        facts = json.loads((folder / f"{name}.json").read_text())
        body += [f"## {title}", "", *text, f"Seed {facts['seed']}, {facts['machine']}.", ""]
        verdicts += found
    head = ["# The paper, reproduced", ""]
    head += table(
        ["claim", "verdict", "evidence"], ((v.claim, v.verdict, v.evidence) for v in verdicts)
    )
    page = folder / "page.md"
    page.write_text("\n".join([*head, *body]))
    return page


if __name__ == "__main__":
    print(write(experiment("page", __doc__ or "").folder))
