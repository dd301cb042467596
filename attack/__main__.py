"""The command: ``python -m attack [KIND ...]``, ``one KIND --case N``, ``summary``."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from pathlib import Path

from .campaign import run_campaign, run_one
from .cases import FAILURES
from .kinds import KINDS, chosen
from .ledger import Ledger
from .summary import failures_of, heading, table, write_into
from .workers import Result

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "attack" / "results"
PAGE = ROOT / "docs" / "reliability.md"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 if a guarantee was broken."""
    options = _parser().parse_args(arguments)
    if options.what[:1] == ["one"]:
        return _one(options)
    if options.what[:1] == ["summary"]:
        return _summary(options)
    return _attack(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m attack", description=__doc__)
    parser.add_argument("what", nargs="*", metavar="KIND", help="kinds, groups, or all")
    parser.add_argument("--cases", type=int, help="of each kind; by default each has its own")
    parser.add_argument("--scale", type=float, default=1.0, help="times the default cases")
    parser.add_argument("--minutes", type=float, help="end after so many")
    parser.add_argument("--seed", type=int, help="by default a new one, which is printed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ledger", type=Path, default=RESULTS / "ledger.jsonl")
    parser.add_argument("--case", type=int, default=0, help="of one KIND")
    parser.add_argument("--write", action="store_true", help="summary: into docs/reliability.md")
    parser.add_argument("--failures", action="store_true", help="summary: every failure")
    return parser


def _attack(options: argparse.Namespace) -> int:
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    kinds = chosen(tuple(options.what))
    ledger = Ledger(options.ledger)
    print(f"seed {seed}, ledger {options.ledger}; to continue: --seed {seed}", flush=True)
    progress = _Progress(time.monotonic())
    complete = run_campaign(
        kinds,
        ledger,
        seed,
        cases=options.cases,
        minutes=options.minutes,
        scale=options.scale,
        n_workers=options.workers,
        keep=options.ledger.parent / "failures",
        on_result=progress.show,
    )
    print(table(ledger))
    if not complete:
        print(f"the time is over; to continue: --seed {seed} --ledger {options.ledger}")
    return 1 if progress.failures else 0


class _Progress:
    """A line for every failure, and one for every minute."""

    def __init__(self, began: float) -> None:
        self.began = self.shown = began
        self.cases = self.failures = 0

    def show(self, result: Result) -> None:
        """Count a result."""
        self.cases += 1
        ending, now = result.ending, time.monotonic()
        if ending.outcome in FAILURES:
            self.failures += 1
            print(f"{ending.outcome}: {ending.note}\n    {repeat(result)}", flush=True)
        if now - self.shown > 60:
            self.shown = now
            minutes = (now - self.began) / 60
            print(f"{minutes:.0f} min: {self.cases} cases, {self.failures} failures", flush=True)


def repeat(result: Result) -> str:
    """The line that repeats a case."""
    return f"python -m attack one {result.kind} --seed {result.seed} --case {result.number}"


def _one(options: argparse.Namespace) -> int:
    (name,) = options.what[1:]
    seed = 0 if options.seed is None else options.seed
    result = run_one(KINDS[name], seed, options.case, keep=RESULTS / "one")
    print(f"{result.ending}\n{result.seconds:.2f} s; {result.extra_memory / 1e6:.0f} MB")
    print(f"its files: {RESULTS / 'one' / f'{name}-{seed}-{options.case}'}")
    return 1 if result.ending.failed else 0


def _summary(options: argparse.Namespace) -> int:
    ledger = Ledger(options.ledger)
    if options.failures:
        print(failures_of(ledger))
    print(heading(ledger))
    print(table(ledger))
    if options.write:
        write_into(PAGE, ledger)
    return 0


if __name__ == "__main__":
    sys.exit(main())
