"""Table VII: clustering of tr11, documents weighted by tf-idf and scaled to unit length.

Without that weighting neither the errors nor the scores are in the range of the paper. More sets
of the same collection are measured too.
"""

from __future__ import annotations

import clustering
from presentation import Row, Section
from protocol import Experiment, main

TITLE = "Table VII: clustering of text"
SIZES = {  # runs of the paper's inits and of the others, for each dataset; the paper has 10
    "tiny": {"digits": (1, 1)},
    "quick": {"tr11": (10, 1)},
    "full": {"tr11": (37, 6), "wap": (10, 0)}
    | dict.fromkeys(("tr23", "tr31", "tr41", "tr45", "re0", "k1b"), (10, 0)),
}
PAPER: clustering.Paper = {  # nmi, Dice, purity, each with its standard deviation
    ("k-means", ""): ((0.520, 0.061), (0.470, 0.042), (0.673, 0.059)),
    ("spkm", ""): ((0.504, 0.103), (0.454, 0.085), (0.664, 0.091)),
    ("rand", "mult"): ((0.595, 0.040), (0.540, 0.050), (0.764, 0.025)),
    ("cr1-nmf", "mult"): ((0.649, 0.049), (0.610, 0.052), (0.791, 0.023)),
    ("spkm", "mult"): ((0.608, 0.052), (0.550, 0.061), (0.773, 0.031)),
    ("nndsvd", "mult"): ((0.580, 0.000), (0.515, 0.000), (0.761, 0.000)),
    ("rand", "nnlsb"): ((0.597, 0.030), (0.537, 0.040), (0.765, 0.018)),
    ("cr1-nmf", "nnlsb"): ((0.655, 0.046), (0.615, 0.050), (0.794, 0.023)),
    ("spkm", "nnlsb"): ((0.618, 0.052), (0.563, 0.065), (0.776, 0.027)),
    ("nndsvd", "nnlsb"): ((0.585, 0.000), (0.512, 0.000), (0.766, 0.000)),
    ("rand", "hals"): ((0.609, 0.044), (0.555, 0.056), (0.772, 0.024)),
    ("cr1-nmf", "hals"): ((0.621, 0.052), (0.580, 0.062), (0.778, 0.026)),
    ("spkm", "hals"): ((0.619, 0.052), (0.567, 0.061), (0.776, 0.027)),
    ("nndsvd", "hals"): ((0.583, 0.000), (0.511, 0.000), (0.768, 0.000)),
}


def run(rows: Experiment) -> None:
    clustering.run(rows, SIZES[rows.scale])


def show(rows: list[Row]) -> Section:
    return clustering.show(rows, {"tr11": PAPER}, ("tr11", "wap"))


if __name__ == "__main__":
    main("table7", __doc__, run, show, SIZES)
