"""Table II: the datasets, as they are here and as they are in the paper."""

from __future__ import annotations

from presentation import Row, Section, Table, Text, judged
from protocol import Experiment, main
from races import SIZES, data

from conenmf.datasets import DATASETS

TITLE = "Table II: the datasets"
PAPER = {  # F, N, K
    "ck": (3136, 8795, 97),
    "faces94": (36000, 3040, 152),
    "georgia_tech": (307200, 750, 50),
    "paviau": (207400, 103, 9),
}
INSTEAD = {"georgia_tech_crop": "georgia_tech", "paviau_subset": "paviau"}


def run(rows: Experiment) -> None:
    for name in rows.at_hand(list(SIZES[rows.scale])):
        rows.row(lambda name=name: _shape(name), dataset=name)


def _shape(name: str) -> dict[str, object]:
    V, K = data(name)
    return {"F": V.shape[0], "N": V.shape[1], "K": K}


def show(rows: list[Row]) -> Section:
    """Which dataset replaces which."""
    lines, cases = [], []
    for row in rows:
        name = row["dataset"]
        original = INSTEAD.get(name, name)
        paper = ""
        if original in PAPER:
            F, N, K = PAPER[original]
            paper = f"{original}: {F} x {N}, K = {K}"
            cases.append((name, int(row["N"]) == N))
        described = DATASETS[name].preprocessing
        lines.append([name, row["F"], row["N"], row["K"], paper, described])
    table = Table(["dataset", "F", "N", "K", "the paper's", "what was done"], lines)
    note = Text(
        "faces94 is taken at half size (100 x 90). The paper's table has Georgia Tech at its full "
        "size; its authors shrank it to 49 x 64 before use, as here."
    )
    return Section([table, note], [judged("The number of samples is the paper's", cases)])


if __name__ == "__main__":
    main("table2", __doc__, run, show, SIZES)
