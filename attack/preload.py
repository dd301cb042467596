"""What the fork server imports, once for all workers."""

import contextlib

import numpy as np

import conenmf

for _name in conenmf.__all__:
    getattr(conenmf, _name)
for _package in (
    "h5py",
    "zarr",
    "numcodecs",
    "PIL.Image",
    "pyarrow.parquet",
    "anndata",
    "scipy.io",
):
    with contextlib.suppress(ImportError):
        __import__(_package)

with contextlib.suppress(Exception):  # compiled kernels are loaded from their cache here
    from conenmf import factorize, from_rows

    factorize(from_rows(np.random.default_rng(0).random((8, 5)), n_threads=1), 2)
