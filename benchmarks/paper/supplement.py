"""The supplement's curves: relative error of nnlsb against seconds, init included."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from presentation import Row, Section, drawn
from protocol import main
from races import SIZES, by_init, datasets, kept_iterations, numbers, run

TITLE = "Supplement: error of nnlsb against seconds"


def show(rows: list[Row]) -> Section:
    """One curve for each init: the first run, with all iterations equally long."""
    names = datasets(rows)
    size = (5 * min(len(names), 2), 3.2 * -(-len(names) // 2))
    shape = (-(-len(names) // 2), min(len(names), 2))
    figure, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    for name, ax in zip(names, axes.flat, strict=False):
        for init, group in by_init(rows, name, "nnlsb").items():
            row = group[0]
            at = np.array(kept_iterations(int(row["iterations"])))
            each = float(row["seconds"]) / int(row["iterations"])
            seconds = float(row["seconds of init"]) + each * at
            ax.semilogy(seconds, numbers(row["errors"]), marker=".", markersize=3, label=init)
        ax.set(title=name, xlabel="seconds of the processor", ylabel="relative error")
    axes.flat[0].legend()
    return Section([drawn(figure, "supplement", "Relative errors of nnlsb against seconds")])


if __name__ == "__main__":
    main("races", __doc__, run, show, SIZES)
