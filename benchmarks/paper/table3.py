"""Table III: seconds of the inits, as the library makes them.

A init need not be exact: the axes of cones are found to 5%, singular vectors to 0.1%; the authors
stopped when an eigenvalue moved by less than 1e-4, as cr1-nmf does in Table I.
"""

from __future__ import annotations

import statistics

from presentation import Row, Section, Table, judged
from protocol import main
from races import SIZES, datasets, run

TITLE = "Table III: seconds of the inits"
TIMED = ("cr1-nmf", "spkm", "nndsvd")
PAPER = {  # seconds on the authors' machine
    "ck": (3.30, 6.68, 9.45),
    "faces94": (14.50, 32.23, 32.81),
    "georgia_tech": (18.90, 24.77, 21.28),
    "paviau": (0.73, 2.47, 0.84),
}
LIKE = {"georgia_tech_crop": "georgia_tech", "paviau_subset": "paviau"}


def seconds(rows: list[Row], dataset: str) -> dict[str, float]:
    """The median of each init, over all runs and solvers."""
    return {
        init: statistics.median(
            float(row["seconds of init"])
            for row in rows
            if (row["dataset"], row["init"]) == (dataset, init)
        )
        for init in TIMED
    }


def show(rows: list[Row]) -> Section:
    """Ratios to cr1-nmf, beside the paper's."""
    lines, cases, closest = [], [], []
    for name in datasets(rows):
        ours, theirs = seconds(rows, name), PAPER.get(LIKE.get(name, name))
        ratios = [
            f"{ours[init] / ours['cr1-nmf']:.1f}"
            + (f" ({theirs[TIMED.index(init)] / theirs[0]:.1f})" if theirs else "")
            for init in TIMED[1:]
        ]
        lines.append([name, f"{ours['cr1-nmf']:.3f} s", *ratios])
        fastest = min(ours, key=ours.__getitem__)
        cases.append((f"{name}: {fastest} takes {ours[fastest]:.3f} s", fastest == "cr1-nmf"))
        others = min(ours[init] for init in TIMED[1:]) / ours["cr1-nmf"]
        closest.append(f"{name}: {others:.1f}")
    header = ["dataset", "cr1-nmf", *(f"{init} / cr1-nmf (paper)" for init in TIMED[1:])]
    claim = "cr1-nmf is the fastest init (rand left out, as in the paper)"
    note = f"times as long for the next: {'; '.join(closest)}"
    return Section([Table(header, lines)], [judged(claim, cases, note)])


if __name__ == "__main__":
    main("races", __doc__, run, show, SIZES)
