"""The datasets of the paper and other common ones, preprocessed as in the paper.

`load` looks into the folder that the variable CONENMF_DATA names, which has a folder for each
dataset with ``V.npz`` and ``labels.npy`` or with the official files, then into the user's cache,
then into installed packages. Nothing is fetched without ``download=True``, and nothing is
shipped: each dataset comes from its official source on the terms given there.
"""

from __future__ import annotations

from .catalogue import DATASETS, Description
from .dataset import Dataset, available, fingerprint, load, log_counts, tf_idf

__all__ = [
    "DATASETS",
    "Dataset",
    "Description",
    "available",
    "fingerprint",
    "load",
    "log_counts",
    "tf_idf",
]
