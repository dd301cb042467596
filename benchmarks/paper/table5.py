"""Table V: when nnlsb first reaches given errors from each init, and what its iterations cost.

The paper gives seconds, the init included. They depend on how fast iterations are, which differs
between programs, so iterations are judged beside them. "never" means not within the largest number
of iterations, which is in the table. The inits that the paper cites and those that came since stand
apart, without a verdict.
"""

from __future__ import annotations

import numpy as np
from presentation import Row, Section, Table, Text, Verdict
from protocol import main
from races import (
    ORIGINAL,
    SIZES,
    SOME,
    TARGETS,
    by_init,
    datasets,
    error_at,
    numbers,
    run,
    unfinished,
)
from starts import INITS, OTHERS
from verdicts import Case, ahead, decided, spread

TITLE = "Table V: nnlsb to given errors"
PAPER = {  # seconds of rand, cr1-nmf, spkm, nndsvd to each error on the authors' machine
    "ck": (
        (727.53, 40.27, 79.37, 309.25),
        (1389.32, 71.77, 91.23, 557.34),
        (np.inf, 129.62, 240.12, 1309.51),
    ),
    "faces94": (
        (2451.8, 338.8, 465.3, 1531.5),
        (7385.8, 706.3, 1231.1, 3235.8),
        (np.inf, 3585.2, 5501.4, 10588.6),
    ),
    "georgia_tech": (
        (3766.7, 147.3, 253.2, 2027.0),
        (5003.7, 308.2, 537.4, 2819.4),
        (7657.4, 1565.0, 2139.2, 4676.4),
    ),
    "paviau": (
        (192.51, 13.30, 32.00, 79.92),
        (224.65, 16.93, 40.27, 106.29),
        (289.48, 30.06, 52.40, 160.10),
    ),
}
MEASURES = {"iterations": "reached", "seconds": "seconds to reach"}


def show(rows: list[Row]) -> Section:
    """Iterations and seconds to each error, the cost of iterations, and the other inits."""
    lines, newer, costs = [], [], []
    cases: dict[str, list[Case]] = {measure: [] for measure in MEASURES}
    slower: list[Case] = []
    larger: list[Case] = []
    for name in datasets(rows):
        groups = by_init(rows, name, "nnlsb")
        if set(groups) != set(INITS):
            continue
        original = ORIGINAL.get(name, "")
        runs = len(groups["cr1-nmf"])
        for place, target in enumerate(TARGETS[name]):
            for measure, column in MEASURES.items():
                found = {
                    init: [float(numbers(row[column])[place]) for row in group]
                    for init, group in groups.items()
                }
                theirs = PAPER[original][place] if original and measure == "seconds" else None
                lines.append([name, target, measure, runs, *_cells(found, theirs)])
                if original and any(np.isfinite(value) for v in found.values() for value in v):
                    others = {init: found[init] for init in INITS if init != "cr1-nmf"}
                    text = f"{name}, {target}, {measure}"
                    cases[measure].append(ahead(text, found["cr1-nmf"], others))
            newer += _newer(rows, name, place, target)
        seconds = {i: [float(r["seconds of some"]) for r in g] for i, g in groups.items()}
        after = min(SOME, *(int(row["iterations"]) for group in groups.values() for row in group))
        errors = {i: [error_at(row, after) for row in g] for i, g in groups.items()}
        costs.append(
            [name, runs, *(f"{spread(seconds[i])} s, {spread(errors[i], 4)}" for i in INITS)]
        )
        if original:
            for slow in ("rand", "nndsvd"):
                for fast in ("cr1-nmf", "spkm"):
                    text = f"{name}, {fast} and {slow}"
                    slower.append(ahead(text, seconds[fast], {slow: seconds[slow]}))
                    larger.append(ahead(text, errors[fast], {slow: errors[slow]}, digits=4))
    header = ["dataset", "error", "measure", "runs", *INITS]
    cost = [f"first {SOME} iterations: dataset", "runs", *(f"{i}: seconds, error" for i in INITS)]
    note = Text(
        "Means and standard deviations; medians where some runs never got there. After the "
        "seconds, which are those of the processor with the init, stands their ratio to cr1-nmf, "
        "and in brackets the paper's (20 runs). It had other errors to reach for Georgia Tech and "
        "PaviaU, of which other images are here."
    )
    return Section(
        [Table(header, lines), note, *unfinished(rows), Table(cost, costs), *_beside(newer)],
        _verdicts(cases, slower, larger),
    )


def _verdicts(
    cases: dict[str, list[Case]], slower: list[Case], larger: list[Case]
) -> list[Verdict]:
    return [
        decided("From cr1-nmf, nnlsb needs the fewest iterations to each error",
                cases["iterations"]),
        decided("From cr1-nmf, nnlsb is the first to reach each error, in seconds",
                cases["seconds"]),
        decided(f"The first {SOME} iterations of nnlsb take longer from rand and nndsvd than from "
                "cr1-nmf and spkm", slower),
        decided(f"After {SOME} iterations of nnlsb errors from rand and nndsvd are larger than "
                "from cr1-nmf and spkm", larger),
    ]  # fmt: skip


def _cells(found: dict[str, list[float]], theirs: tuple[float, ...] | None) -> list[str]:
    """Values, and ratios of medians where both are finite, with the paper's in brackets."""
    cells = []
    middle = {init: float(np.median(values)) for init, values in found.items()}
    for place, init in enumerate(INITS):
        cell = spread(found[init])
        if theirs:
            if np.isfinite(middle[init]) and np.isfinite(middle["cr1-nmf"]):
                cell += f", {middle[init] / middle['cr1-nmf']:.1f}"
            ratio = theirs[place] / theirs[1]
            cell += f" ({ratio:.1f})" if np.isfinite(ratio) else " (never)"
        cells.append(cell)
    return cells


def _newer(rows: list[Row], name: str, place: int, target: float) -> list[list[object]]:
    """Iterations from each other init, beside those from cr1-nmf in the same runs."""
    groups = by_init(rows, name, "nnlsb", {"cr1-nmf", *OTHERS})
    if set(groups) != {"cr1-nmf", *OTHERS}:
        return []
    found = {
        init: spread([float(numbers(row["reached"])[place]) for row in group])
        for init, group in groups.items()
    }
    return [[name, target, len(groups["cr1-nmf"]), *(found[i] for i in ("cr1-nmf", *OTHERS))]]


def _beside(lines: list[list[object]]) -> list[Table]:
    header = ["iterations from other inits: dataset", "error", "runs", "cr1-nmf", *OTHERS]
    return [Table(header, lines)] if lines else []


if __name__ == "__main__":
    main("races", __doc__, run, show, SIZES)
