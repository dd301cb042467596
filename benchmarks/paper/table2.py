"""Table II: the datasets, as they are here and as they are in the paper."""

from __future__ import annotations

from presentation import Row, Section, Table, Text, judged
from protocol import Experiment, main
from races import ORIGINAL, data
from races import SIZES as RACES

from conenmf.datasets import DATASETS

TITLE = "Table II: the datasets"
PAPER = {  # F, N, K
    "ck": (3136, 8795, 97),
    "faces94": (36000, 3040, 152),
    "georgia_tech": (307200, 750, 50),
    "paviau": (207400, 103, 9),
}
DIFFERS = {
    "faces94 / 2": "half of each side (100 x 90 pixels), for the time of nnlsb",
    "georgia_tech_crop": "crops of the faces at 49 x 64, not frames; the authors shrank the frames "
    "to 49 x 64 too",
    "paviau_subset": "a part of 140 x 80 pixels, 5.4% of the scene",
}


SIZES = {  # what the other tables take; faces94 at its full size is only begun with time left
    scale: [name for name in sizes if name != "faces94"] for scale, sizes in RACES.items()
}


def run(rows: Experiment) -> None:
    for name in rows.at_hand(SIZES[rows.scale]):
        rows.row(lambda name=name: _shape(name), dataset=name)


def _shape(name: str) -> dict[str, object]:
    V, K = data(name)
    return {"F": V.shape[0], "N": V.shape[1], "K": K}


def show(rows: list[Row]) -> Section:
    """Which dataset represents which, and what differs."""
    lines = []
    cases: dict[str, list[tuple[str, bool]]] = {"F": [], "N": [], "K": []}
    for row in rows:
        name = row["dataset"]
        original = ORIGINAL.get(name)
        paper = ""
        if original:
            theirs = dict(zip("FNK", PAPER[original], strict=True))
            paper = f"{original}: {theirs['F']} x {theirs['N']}, K = {theirs['K']}"
            for size, found in cases.items():
                text = f"{name}: {row[size]} instead of {theirs[size]}"
                found.append((text, int(row[size]) == theirs[size]))
        preprocessing = DATASETS[name.partition(" / ")[0]].preprocessing
        lines.append(
            [name, row["F"], row["N"], row["K"], paper, DIFFERS.get(name, ""), preprocessing]
        )
    header = ["dataset", "F", "N", "K", "the paper's", "what differs", "what was done"]
    note = Text(
        "Every verdict on real data below is one on these numbers: those of faces94 at half "
        "size, on crops of Georgia Tech and on a part of PaviaU."
    )
    words = {"F": "features", "N": "samples", "K": "components"}
    verdicts = [
        judged(f"The number of {words[size]} ({size}) is the paper's", found)
        for size, found in cases.items()
    ]
    return Section([Table(header, lines), note], verdicts)


if __name__ == "__main__":
    main("table2", __doc__, run, show, SIZES)
