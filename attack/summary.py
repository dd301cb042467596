"""The table of counts, printed and written into the page on reliability."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from .cases import FAILURES
from .kinds import KINDS
from .ledger import Ledger, Totals

BEGIN, END = "<!-- counts begin -->", "<!-- counts end -->"
_COLUMNS = ("kind", "cases", "past header", "accepted", "compared", "refused", "recovered")
_COLUMNS += ("alone", "known", "failed")


def heading(ledger: Ledger) -> str:
    """The seeds, and the cases of each group."""
    seeds = sorted({line["seed"] for line in ledger.lines() if line["what"] == "batch"})
    groups: Counter[str] = Counter()
    for name, totals in ledger.totals().items():
        groups[KINDS[name].group] += totals.cases
    counts = ", ".join(f"{count:,} {group}" for group, count in groups.items())
    plural = "s" if len(seeds) != 1 else ""
    return f"Seed{plural} {', '.join(map(str, seeds))}; cases: {counts}."


def table(ledger: Ledger) -> str:
    """The counts of every kind, as Markdown."""
    totals = ledger.totals()
    rows = [_row(name, totals[name]) for name in KINDS if name in totals]
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|---" * len(_COLUMNS) + "|", *rows]
    return "\n".join(lines)


def _row(name: str, totals: Totals) -> str:
    share = f"{totals.past_header / totals.with_header:.0%}" if totals.with_header else ""
    count = totals.outcomes
    failed = ", ".join(f"{count[kind]} {kind}" for kind in FAILURES if count[kind]) or "0"
    numbers = [count["accepted"], totals.compared, count["refused"], count["recovered"]]
    numbers += [count["alone"], count["known"]]
    cases = f"{totals.cases:,}"
    if KINDS[name].counted:
        cases += f" ({totals.problems:,} {KINDS[name].counted})"
    cells = [name, cases, share, *(f"{n:,}" if n else "" for n in numbers), failed]
    return "| " + " | ".join(cells) + " |"


def failures_of(ledger: Ledger) -> str:
    """Every failure with its line to repeat it, the most frequent notes first."""
    cases = ledger.cases(FAILURES)
    frequent = Counter((c["kind"], c["outcome"], c["note"][:60]) for c in cases)
    lines = []
    for (kind, outcome, note), count in frequent.most_common():
        alike = (
            c for c in cases if (c["kind"], c["outcome"], c["note"][:60]) == (kind, outcome, note)
        )
        first = next(alike)
        lines.append(
            f"{count} x {kind} {outcome}: {first['note']}\n"
            f"    python -m attack one {kind} --seed {first['seed']} --case {first['case']}"
        )
    return "\n".join(lines)


def write_into(page: Path, ledger: Ledger) -> None:
    """Replace the table of a page."""
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{heading(ledger)}\n\n{table(ledger)}\n{END}{after}", "utf-8")
