"""Table II: the datasets, as they are here and as they are in the paper."""

from __future__ import annotations

from presentation import Row, Section, Table, Text, judged
from protocol import Experiment, at_hand, main
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
    for name in at_hand(list(SIZES[rows.scale]), "table2"):
        rows.row(lambda name=name: _shape(name), dataset=name)


def _shape(name: str) -> dict[str, object]:
    V, K = data(name)
    return {"F": V.shape[0], "N": V.shape[1], "K": K}


def show(rows: list[Row]) -> Section:
    """What stands for what."""
    lines, cases = [], []
    for row in rows:
        name = row["dataset"]
        original = INSTEAD.get(name, name)
        paper = ""
        if original in PAPER:
            F, N, K = PAPER[original]
            paper = f"{original}: {F} x {N}, K = {K}"
            cases.append((name, (int(row["N"]), int(row["K"])) == (N, K)))
        described = DATASETS[name].preprocessing
        lines.append([name, row["F"], row["N"], row["K"], paper, described])
    table = Table(["dataset", "F", "N", "K", "the paper's", "what was done"], lines)
    missing = [name for name in PAPER if name not in {row["dataset"] for row in rows}]
    note = Text(
        f"Not on this machine: {', '.join(missing) or 'none of the paper is missing'}. "
        "faces94 is at half size (100 x 90); the authors shrank Georgia Tech to 49 x 64 too."
    )
    claim = "The number of samples and of components is the paper's"
    return Section([table, note], [judged(claim, cases)])


if __name__ == "__main__":
    main("table2", __doc__, run, show)
