"""Table IV: by how many iterations each init comes late: floor(its seconds / an iteration's)."""

from __future__ import annotations

import statistics

from presentation import Row, Section, Table, Text
from protocol import main
from races import ORIGINAL, SIZES, by_init, datasets, run
from table3 import TIMED

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
    each = statistics.median(float(row["seconds"]) / int(row["iterations"]) for row in group)
    return int(late / each)


def show(rows: list[Row]) -> Section:
    """Shifts, with the paper's in brackets."""
    names = [
        name for name in datasets(rows)
        if all(set(TIMED) <= set(by_init(rows, name, solver)) for solver in SOLVERS)
    ]  # fmt: skip
    lines = []
    for solver in SOLVERS:
        for place, init in enumerate(TIMED):
            cells = []
            for name in names:
                theirs = PAPER.get(ORIGINAL.get(name, ""))
                paper = f" ({theirs[solver][place]})" if theirs else ""
                cells.append(f"{shift(rows, name, solver, init)}{paper}")
            lines.append([f"{init} + {solver}", *cells])
    note = Text(
        "From medians of seconds of the processor; the paper, in brackets, from means of 20 runs. "
        "It makes no claim about them; they enter Figure 4."
    )
    return Section([Table(["init + solver (paper)", *names], lines), note])


if __name__ == "__main__":
    main("races", __doc__, run, show, SIZES)
