"""The supplement's curves: relative error of nnlsb against seconds, init included."""

from __future__ import annotations

import matplotlib.pyplot as plt
from presentation import Row, Section, drawn
from protocol import main
from races import SIZES, by_init, datasets, numbers, run

TITLE = "Supplement: error of nnlsb against seconds"


def show(rows: list[Row]) -> Section:
    """One curve for each init: the first run."""
    names = datasets(rows)
    size = (5 * min(len(names), 2), 3.2 * -(-len(names) // 2))
    shape = (-(-len(names) // 2), min(len(names), 2))
    figure, axes = plt.subplots(*shape, figsize=size, layout="constrained", squeeze=False)
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    for name, ax in zip(names, axes.flat, strict=False):
        for init, group in by_init(rows, name, "nnlsb").items():
            row = group[0]
            seconds = float(row["seconds of init"]) + numbers(row["seconds"])
            ax.semilogy(seconds, numbers(row["errors"]), marker=".", markersize=3, label=init)
        ax.set(title=name, xlabel="seconds", ylabel="relative error")
    axes.flat[0].legend()
    return Section([drawn(figure, "supplement", "Relative errors of nnlsb against seconds")])


if __name__ == "__main__":
    main("races", __doc__, run, show, SIZES)
