"""The ledger: what was attacked, with which seeds, and how it ended.

Lines of JSON, only ever appended. A batch is one line of counts; what failed or was noted has a
line of its own, with all that is needed to repeat it. A campaign that is started again with the
same ledger and seed continues where it was.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cases import FAILURES, NOTED
from .workers import Result

MAX_EXAMPLES = 3000  # lines for single cases of a kind


@dataclass
class Totals:
    """The counts of one kind."""

    cases: int = 0
    problems: int = 0  # as many as cases, but where a case is a batch
    past_header: int = 0
    with_header: int = 0  # cases of which it was determined
    compared: int = 0
    seconds: float = 0.0
    peak: int = 0  # bytes
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, line: dict[str, Any]) -> None:
        """Add a batch."""
        for name in ("cases", "problems", "past_header", "with_header", "compared", "seconds"):
            setattr(self, name, getattr(self, name) + line[name])
        self.peak = max(self.peak, line["peak"])
        self.outcomes.update(line["outcomes"])

    @property
    def failures(self) -> int:
        """Cases in which a guarantee was broken."""
        return sum(self.outcomes[name] for name in FAILURES)


class Ledger:
    """A file of results."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.examples: Counter[str] = Counter()
        for line in self.lines():
            if line["what"] == "case":
                self.examples[line["kind"]] += 1

    def lines(self) -> Iterable[dict[str, Any]]:
        """Every line that is whole: the last one may have been cut by a kill."""
        if not self.path.exists():
            return
        with open(self.path, encoding="utf-8") as stream:
            for text in stream:
                if text.endswith("\n"):
                    yield json.loads(text)

    def finished(self, seed: int) -> dict[str, set[int]]:
        """The first cases of the batches that are done, by kind."""
        done: dict[str, set[int]] = defaultdict(set)
        for line in self.lines():
            if line["what"] == "batch" and line["seed"] == seed:
                done[line["kind"]].add(line["first"])
        return done

    def write(self, kind: str, seed: int, first: int, results: list[Result]) -> None:
        """Append a batch and its remarkable cases."""
        endings = [result.ending for result in results]
        lines: list[dict[str, Any]] = []
        for result in results:
            outcome = result.ending.outcome
            if outcome in FAILURES or (outcome in NOTED and self.examples[kind] < MAX_EXAMPLES):
                self.examples[kind] += 1
                lines.append(
                    {"what": "case", "kind": kind, "seed": seed, "case": result.number}
                    | {"outcome": outcome, "note": result.ending.note}
                )
        batch = {
            "what": "batch",
            "kind": kind,
            "seed": seed,
            "first": first,
            "cases": len(results),
            "problems": sum(ending.count for ending in endings),
            "past_header": sum(bool(ending.past_header) for ending in endings),
            "with_header": sum(ending.past_header is not None for ending in endings),
            "compared": sum(ending.compared for ending in endings),
            "seconds": round(sum(result.seconds for result in results), 3),
            "peak": max((result.extra_memory for result in results), default=0),
            "outcomes": Counter(ending.outcome for ending in endings),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write("".join(json.dumps(line) + "\n" for line in (*lines, batch)))

    def totals(self) -> dict[str, Totals]:
        """The counts by kind."""
        totals: dict[str, Totals] = defaultdict(Totals)
        for line in self.lines():
            if line["what"] == "batch":
                totals[line["kind"]].add(line)
        return dict(totals)

    def cases(self, outcomes: Iterable[str]) -> list[dict[str, Any]]:
        """The single cases that ended so."""
        wanted = set(outcomes)
        return [x for x in self.lines() if x["what"] == "case" and x["outcome"] in wanted]
