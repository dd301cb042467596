"""Figure 4: relative error against iterations, four inits with three solvers.

An init that takes longer begins later, by its shift (Table IV), and is compared where the others
end, after so many iterations fewer; nnlsb has no shift.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from presentation import Row, Section, Table, drawn, judged
from protocol import INITS, main
from races import SIZES, SOLVERS, by_init, datasets, numbers, run
from table3 import TIMED
from table4 import SOLVERS as SHIFTED
from table4 import shift

TITLE = "Figure 4: error against iterations"
EQUAL = 1.005  # errors within half a percent count as equal


def show(rows: list[Row]) -> Section:
    """Curves, and who ends lowest."""
    names = datasets(rows)
    size = (11, 3 * len(names))
    figure, axes = plt.subplots(len(names), 3, figsize=size, layout="constrained", squeeze=False)
    lines, cases = [], []
    for name, across in zip(names, axes, strict=True):
        for solver, ax in zip(SOLVERS, across, strict=True):
            last = {}
            for init, group in by_init(rows, name, solver).items():
                mean = np.mean([numbers(row["errors"]) for row in group], axis=0)
                late = shift(rows, name, solver, init) if solver in SHIFTED and init in TIMED else 0
                ax.semilogy(np.arange(1, mean.size + 1) + late, mean, label=init)
                last[init] = float(mean[max(mean.size - 1 - late, 0)])
            ax.set(title=f"{name}, {solver}", xlabel="iteration", ylabel="relative error")
            best = min(last, key=last.__getitem__)
            lines.append([name, solver, *(f"{last[init]:.5f}" for init in INITS), best])
            text = f"{name}, {solver}: {last['cr1-nmf'] / last[best] - 1:.1%} above {best}"
            cases.append((text, last["cr1-nmf"] <= EQUAL * last[best]))
    axes[0, 0].legend()
    claim = "From cr1-nmf the last error is the lowest, or within 0.5% of it, shifts counted"
    picture = drawn(figure, "figure4", "Relative errors against iterations")
    table = Table(["dataset", "solver", *(f"{init}, last" for init in INITS), "lowest"], lines)
    return Section([picture, table], [judged(claim, cases)])


if __name__ == "__main__":
    main("races", __doc__, run, show, SIZES)
