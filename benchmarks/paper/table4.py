"""Table IV: by how many iterations each init comes late: floor(its seconds / an iteration's)."""

from __future__ import annotations

import statistics

from presentation import Row, Section, Table
from protocol import main
from races import SIZES, by_init, datasets, numbers, run
from table3 import LIKE, TIMED

TITLE = "Table IV: shifts"
SOLVERS = ("mult", "hals")  # iterations of nnlsb take unequal times, so it has no shift
PAPER = {
    "ck": {"mult": (3, 6, 8), "hals": (2, 5, 7)},
    "faces94": {"mult": (2, 5, 5), "hals": (2, 4, 4)},
    "georgia_tech": {"mult": (3, 4, 3), "hals": (2, 3, 2)},
    "paviau": {"mult": (2, 7, 2), "hals": (1, 5, 1)},
}


def shift(rows: list[Row], dataset: str, solver: str, init: str) -> int:
    """The iterations that could have been made while the init was."""
    group = by_init(rows, dataset, solver)[init]
    late = statistics.median(float(row["seconds of init"]) for row in group)
    each = statistics.median(
        float(seconds[-1]) / len(seconds) for seconds in (numbers(row["seconds"]) for row in group)
    )
    return int(late / each)


def show(rows: list[Row]) -> Section:
    """Shifts, with the paper's in brackets."""
    names = datasets(rows)
    lines = []
    for solver in SOLVERS:
        for place, init in enumerate(TIMED):
            cells = []
            for name in names:
                theirs = PAPER.get(LIKE.get(name, name))
                paper = f" ({theirs[solver][place]})" if theirs else ""
                cells.append(f"{shift(rows, name, solver, init)}{paper}")
            lines.append([f"{init} + {solver}", *cells])
    return Section([Table(["init + solver (paper)", *names], lines)])


if __name__ == "__main__":
    main("races", __doc__, run, show, SIZES)
