"""Table VI: clustering of faces. CK where it is at hand, the supplement's sets, and two others.

A run of mult on faces94 at its full size takes some two hours on one core for each init: 2000
iterations of 3.4 s. It is in ``--full``, last; 20 x 18 pixels, a tenth of each side, come before.
"""

from __future__ import annotations

import clustering
from presentation import NOT_MEASURED, Row, Section, Table, Verdict
from protocol import Experiment, main

TITLE = "Table VI: clustering of faces"
SIZES = {  # runs of the paper's inits and of the others, for each dataset; the paper has 10
    "tiny": {"digits": (1, 0)},
    "quick": {"ck": (3, 0), "georgia_tech_crop": (1, 0), "yale_32x32": (3, 1)},
    "full": {
        "ck": (10, 10),
        "georgia_tech_crop": (10, 0),
        "faces94 / 10": (10, 0),
        "yale_32x32": (10, 6),
        "orl_32x32": (10, 0),
        "coil20_32x32": (10, 0),
        "faces94": (10, 0),
    },
}
PAPER: clustering.Paper = {  # CK: nmi, Dice, purity, each with its standard deviation
    ("k-means", ""): ((0.941, 0.008), (0.773, 0.030), (0.821, 0.023)),
    ("spkm", ""): ((0.940, 0.010), (0.765, 0.036), (0.815, 0.031)),
    ("rand", "mult"): ((0.919, 0.009), (0.722, 0.026), (0.753, 0.025)),
    ("cr1-nmf", "mult"): ((0.987, 0.002), (0.944, 0.006), (0.961, 0.006)),
    ("spkm", "mult"): ((0.969, 0.005), (0.875, 0.020), (0.911, 0.018)),
    ("nndsvd", "mult"): ((0.870, 0.000), (0.614, 0.000), (0.619, 0.000)),
    ("rand", "nnlsb"): ((0.918, 0.011), (0.727, 0.026), (0.756, 0.027)),
    ("cr1-nmf", "nnlsb"): ((0.986, 0.003), (0.940, 0.011), (0.959, 0.010)),
    ("spkm", "nnlsb"): ((0.984, 0.004), (0.929, 0.014), (0.956, 0.012)),
    ("nndsvd", "nnlsb"): ((0.899, 0.000), (0.688, 0.000), (0.724, 0.000)),
    ("rand", "hals"): ((0.956, 0.007), (0.826, 0.017), (0.859, 0.022)),
    ("cr1-nmf", "hals"): ((0.974, 0.006), (0.889, 0.015), (0.925, 0.016)),
    ("spkm", "hals"): ((0.964, 0.005), (0.854, 0.015), (0.885, 0.020)),
    ("nndsvd", "hals"): ((0.942, 0.000), (0.786, 0.000), (0.830, 0.000)),
}


def run(rows: Experiment) -> None:
    clustering.run(rows, SIZES[rows.scale])


def show(rows: list[Row]) -> Section:
    """Ours beside the paper's; without CK the paper's alone."""
    section = clustering.show(rows, {"ck": PAPER}, ("faces94 / 10", "georgia_tech_crop"))
    if any(row["dataset"] == "ck" for row in rows):
        return section
    lines = [[*way, *clustering.text_of_paper(scores)] for way, scores in PAPER.items()]
    table = Table(["CK, the paper's", "solver", *clustering.SCORES], lines)
    missing = Verdict("ck: cr1-nmf clusters best", NOT_MEASURED, "CK needs a signed agreement")
    return Section([*section.body, table], [*section.verdicts, missing])


if __name__ == "__main__":
    main("table6", __doc__, run, show, SIZES)
