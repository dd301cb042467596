"""Figure 4: relative error against iterations, four inits with three solvers.

An init that takes longer begins later, by its shift (Table IV), and is compared where the others
end, after so many iterations fewer; nnlsb has no shift. The paper's claim is about speed of
convergence "and/or" the last error, so both are judged: the error after a tenth of the iterations
(for nnlsb after five), and the last one. Its exception, nndsvd with hals on PaviaU, is a claim of
its own.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from presentation import Row, Section, Table, Text, Verdict, drawn
from protocol import main
from races import (
    ORIGINAL,
    SIZES,
    SOLVERS,
    by_init,
    datasets,
    error_at,
    kept_iterations,
    numbers,
    run,
    unfinished,
)
from starts import INITS
from table3 import TIMED
from table4 import SOLVERS as SHIFTED
from table4 import shift
from verdicts import Case, ahead, decided, spread

TITLE = "Figure 4: error against iterations"
EXCEPTION = ("paviau", "hals")


def show(rows: list[Row]) -> Section:
    """Curves, and who is lowest."""
    names = datasets(rows)
    size = (11, 3 * len(names))
    figure, axes = plt.subplots(len(names), 3, figsize=size, layout="constrained", squeeze=False)
    lines = []
    cases: dict[str, list[Case]] = {"soon": [], "last": [], "exception": []}
    for name, across in zip(names, axes, strict=True):
        for solver, ax in zip(SOLVERS, across, strict=True):
            groups = by_init(rows, name, solver)
            if set(groups) != set(INITS):
                ax.set_axis_off()
                continue
            count = min(int(row["iterations"]) for group in groups.values() for row in group)
            late = {
                init: shift(rows, name, solver, init) if solver in SHIFTED and init in TIMED else 0
                for init in groups
            }
            for init, group in groups.items():
                at = [n for n in kept_iterations(count) if n <= count]
                mean = np.mean([numbers(row["errors"])[: len(at)] for row in group], axis=0)
                ax.semilogy(np.array(at) + late[init], mean, label=init)
            ax.set(title=f"{name}, {solver}", xlabel="iteration", ylabel="relative error")
            soon = count // 10 if solver in SHIFTED else 5
            for when, end in (("soon", soon), ("last", count)):
                found = {
                    init: [error_at(row, max(end - late[init], 1)) for row in group]
                    for init, group in groups.items()
                }
                runs = len(found["cr1-nmf"])
                cells = [spread(found[init], 4) for init in INITS]
                lines.append([name, solver, end, runs, *cells])
                if name not in ORIGINAL:
                    continue
                best = "cr1-nmf"
                if (ORIGINAL[name], solver) == EXCEPTION:
                    best, when = "nndsvd", "exception" if when == "last" else ""
                if when:
                    others = {init: found[init] for init in INITS if init != best}
                    text = f"{name}, {solver}, iteration {end}: {best}"
                    cases[when].append(ahead(text, found[best], others, digits=4))
    next(ax for ax in axes.flat if ax.lines).legend()
    picture = drawn(figure, "figure4", "Relative errors against iterations")
    header = ["dataset", "solver", "iteration", "runs", *INITS]
    note = Text("Mean and standard deviation of the error, shifts counted (the paper: 20 runs).")
    body = [picture, Table(header, lines), note, *unfinished(rows)]
    return Section(body, _verdicts(cases))


def _verdicts(cases: dict[str, list[Case]]) -> list[Verdict]:
    return [
        decided("From cr1-nmf the error is the lowest of the four inits early on", cases["soon"]),
        decided("From cr1-nmf the last error is the lowest of the four inits", cases["last"]),
        decided("The paper's exception: nndsvd with hals is best for PaviaU", cases["exception"]),
    ]


if __name__ == "__main__":
    main("races", __doc__, run, show, SIZES)
