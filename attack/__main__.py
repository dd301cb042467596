"""Attack the library: a line for each kind of cases, and for each failure how to repeat it."""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import secrets
import sys
import time
import warnings
from collections import Counter

from . import kills, numbers, options
from .cases import FAILURES, Attack, run_case

KINDS: dict[str, Attack] = {
    "fits": numbers.attack,
    "options": options.attack,
    "checkpoint-kills": kills.attack_checkpoint,
    "command-kills": kills.attack_command,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 if a guarantee was broken."""
    parser = argparse.ArgumentParser("python -m attack", description=__doc__)
    parser.add_argument(
        "kinds", nargs="*", metavar="KIND", default=list(KINDS), help=f"of {', '.join(KINDS)}"
    )
    parser.add_argument("--cases", type=int, help="of each kind; by default as the time allows")
    parser.add_argument("--minutes", type=float, help="for all kinds; 10 without --cases")
    parser.add_argument("--seed", type=int, help="by default a new one, which is printed")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.kinds) - set(KINDS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(KINDS)}")
    if chosen.cases is None and chosen.minutes is None:
        chosen.minutes = 10.0
    seed = secrets.randbelow(2**31) if chosen.seed is None else chosen.seed
    print(f"seed {seed}", flush=True)
    seconds = None if chosen.minutes is None else 60 * chosen.minutes / len(chosen.kinds)
    shared = (seed, chosen.first, chosen.cases, seconds)
    return int(sum(run_kind(kind, *shared) for kind in chosen.kinds) > 0)


def run_kind(
    kind: str, seed: int, first: int = 0, cases: int | None = None, seconds: float | None = None
) -> int:
    """Run cases of a kind, as many as given or for so long; print and return what failed."""
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    for number in itertools.count(first) if cases is None else range(first, first + cases):
        if seconds is not None and time.monotonic() - began > seconds:
            break
        ending = run_case(KINDS[kind], kind, seed, number)
        outcomes[ending.outcome] += 1
        if ending.failed:
            again = f"python -m attack {kind} --seed {seed} --first {number} --cases 1"
            print(f"{ending.outcome}: {ending.note}\n    {again}", flush=True)
    found = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
    seconds = time.monotonic() - began
    print(f"{kind}: {outcomes.total():,} cases in {seconds:.0f} s: {found}", flush=True)
    return sum(outcomes[name] for name in FAILURES)


if __name__ == "__main__":
    faulthandler.enable()
    warnings.simplefilter("ignore")
    sys.exit(main())
