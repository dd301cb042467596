"""A campaign: cases of several kinds dealt to workers, until all are done or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

from .cases import Kind
from .ledger import Ledger
from .workers import Result, Worker, context


class Batch(NamedTuple):
    """The cases of a kind from the first to before the last."""

    kind: Kind
    first: int
    last: int


def schedule(kinds: Iterable[Kind], cases: int | None, scale: float = 1.0) -> list[Batch]:
    """All batches, so ordered that every kind is at the same share of its cases at any time."""
    batches = []
    for kind in kinds:
        total = cases if cases is not None else max(1, round(kind.default * scale))
        for first in range(0, total, kind.batch):
            batch = Batch(kind, first, min(first + kind.batch, total))
            batches.append((first / total, kind.name, batch))
    return [batch for *_, batch in sorted(batches, key=lambda entry: entry[:2])]


def run_campaign(
    kinds: Iterable[Kind],
    ledger: Ledger,
    seed: int,
    *,
    cases: int | None = None,
    minutes: float | None = None,
    scale: float = 1.0,
    n_workers: int = 2,
    keep: Path | None = None,
    on_result: Callable[[Result], None] = lambda result: None,
) -> bool:
    """Run what is not in the ledger yet; return whether all of it was done within the time.

    `cases` is the number of each kind; by default each has its own, times `scale`. A batch is
    written to the ledger when it is complete. When the time is over, running batches are finished.
    The files of cases that fail are copied to the folder `keep`.
    """
    done = ledger.finished(seed)
    batches = [
        batch
        for batch in schedule(kinds, cases, scale)
        if batch.first not in done.get(batch.kind.name, ())
    ]
    end = None if minutes is None else time.monotonic() + 60 * minutes
    server = context()
    busy: dict[Worker, tuple[Batch, list[Result]]] = {}
    idle = [Worker(server, keep) for _ in range(min(n_workers, len(batches)))]
    waiting = iter(batches)
    over = False
    try:
        while True:
            over = over or (end is not None and time.monotonic() > end)
            while idle and not over and (batch := next(waiting, None)) is not None:
                worker = idle.pop()
                worker.give(batch.kind, seed, list(range(batch.first, batch.last)))
                busy[worker] = batch, []
            if not busy:
                return not over
            wait([worker.pipe for worker in busy], timeout=0.5)
            for worker, (batch, results) in list(busy.items()):
                for result in worker.results():
                    results.append(result)
                    on_result(result)
                if not worker.waiting:
                    ledger.write(batch.kind.name, seed, batch.first, results)
                    del busy[worker]
                    idle.append(worker)
    finally:
        for worker in (*idle, *busy):
            worker.close(at_once=worker in busy)


def run_one(kind: Kind, seed: int, number: int, keep: Path) -> Result:
    """Run a single case in a worker of its own, and keep its files."""
    worker = Worker(context(), keep, keep_all=True)
    worker.give(kind, seed, [number])
    results: list[Result] = []
    while not results:
        wait([worker.pipe], timeout=0.5)
        results += worker.results()
    worker.close()
    return results[0]
