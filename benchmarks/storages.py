"""Same data, same answer: every kind of data fitted in every storage, and how far the fits differ.

The same samples are held dense and sparse in memory, in blocks of several sizes, in files and in
Dask arrays cut in several ways, and are fitted with the defaults and with each init. A fit counts
as the same if its K and its labels are equal, and if its relative error and its W H / ||V|| are
within 1e-8 of those of the first storage; for single precision, if they are within 1e-3 and all but
1 % of the labels are equal. Where both fits are exact, which a solver takes an error below 1e-7
for, W H may differ by 2e-7. Every fit that is not the same is printed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dask
import dask.array as da
import h5py
import numpy as np
import scipy.sparse as sp
import zarr

import conenmf
from conenmf.data.matrix import DataMatrix
from conenmf.solve.inits import INITS

DRAWN = ("cr1++", "random", "nndsvdar", "spkm", "kmeans")  # inits that need a generator
TOLERANCES = {"float64": 1e-8, "float32": 1e-3}
LABEL_SHARES = {"float64": 0.0, "float32": 0.01}  # of labels that may differ
EXACT_ERROR = 1e-7  # below it a fit is exact for the solver, and W H ...
EXACT_TOLERANCE = 2e-7  # ... is known to this


class Kind(NamedTuple):
    """Samples in rows, how many components to fit, and which inits, all if not stated.

    The init "K" is "auto" with a K that is chosen too.
    """

    X: np.ndarray
    K: int
    inits: tuple[str, ...] = ("K", "auto", *INITS)


class Difference(NamedTuple):
    """How far a fit is from that of the first storage: the share of labels, error, W H."""

    labels: float
    error: float
    product: float


def _mixtures(rng: np.random.Generator, N: int, F: int, K: int, noise: float) -> np.ndarray:
    X = rng.dirichlet(np.full(K, 0.4), size=N) @ rng.gamma(1.0, size=(K, F))
    return X + noise * rng.random(X.shape)


def _counts(rng: np.random.Generator, N: int, F: int, K: int, mean: float) -> np.ndarray:
    rates = rng.gamma(0.3, size=(N, K)) @ rng.gamma(0.1, size=(K, F))
    X = rng.poisson(mean * rates / rates.mean()).astype(float)
    X[X.sum(axis=1) == 0, 0] = 1.0
    return X


def _unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def kinds() -> dict[str, Kind]:
    """The data: small ones of every kind, and some that are large enough for sketches."""
    rng = np.random.default_rng(20)
    cones = conenmf.make_cones(40, 4, 0.15, n_samples=300, rng=rng).V.T
    mixed = _mixtures(rng, 250, 40, 5, 0.05)
    blocks = np.kron(np.eye(4), np.ones((25, 8)))  # equal singular values
    few = ("K", "auto", "cr1", "nndsvda", "nnsvdlrc", "snpa")
    return {
        "cones": Kind(cones, 4),
        "mixtures": Kind(mixed, 5),
        "low rank": Kind(rng.random((200, 6)) @ rng.random((6, 60)) + rng.random((200, 60)), 6),
        "counts": Kind(_counts(rng, 300, 80, 5, 0.3), 5),
        "unit norms": Kind(_unit(mixed), 5),
        "unit cones": Kind(_unit(cones), 4),
        "duplicates": Kind(np.tile(_unit(mixed[:40]), (5, 1)), 5),
        "equal blocks": Kind(blocks, 4),
        "three of four": Kind(blocks, 3),
        "equal singular": Kind(blocks + 0.05 * rng.random(blocks.shape), 4),
        "binary": Kind((rng.random((200, 40)) < 0.2).astype(float), 5),
        "rank deficient": Kind(rng.random((150, 3)) @ rng.random((3, 30)), 5),
        "tiny": Kind(rng.random((6, 4)), 2),
        "full K": Kind(rng.random((30, 6)) * (rng.random((30, 6)) < 0.7), 6),
        "scaled": Kind(1e12 * mixed, 5),
        "flat": Kind(_mixtures(rng, 700, 600, 8, 1.0), 8, few),
        "large mixtures": Kind(_mixtures(rng, 4000, 300, 6, 0.1), 6, few),
        "large cones": Kind(conenmf.make_cones(300, 5, 0.2, n_samples=4000, rng=rng).V.T, 5, few),
        "large counts": Kind(_counts(rng, 2500, 900, 8, 0.1), 8, few),
    }


def storages(folder: Path) -> dict[str, Callable[[np.ndarray], DataMatrix]]:
    """Every way to hold samples in rows; the first is the reference of the others."""

    def path(ending: str) -> str:
        return tempfile.mkstemp(ending, dir=folder)[1]

    def in_file(X: np.ndarray, **options: Any) -> DataMatrix:
        name = path(".npy")
        np.save(name, X)
        return conenmf.open_data(name, **options)

    def hdf5(X: np.ndarray) -> DataMatrix:
        file = h5py.File(path(".h5"), "w")
        chunks = (min(len(X), 64), min(X.shape[1], 50))
        return conenmf.from_rows(file.create_dataset("X", data=X, chunks=chunks), block_samples=33)

    def in_zarr(X: np.ndarray) -> DataMatrix:
        array = zarr.create_array(tempfile.mkdtemp(dir=folder), data=X, overwrite=True)
        return conenmf.from_rows(array)

    def sparse_file(X: np.ndarray) -> DataMatrix:
        name = path(".npz")
        sp.save_npz(name, sp.csr_array(X), compressed=False)
        return conenmf.open_data(name, block_samples=50)

    def chunked(X: np.ndarray, count: int) -> da.Array:
        return da.from_array(X, chunks=(-(-len(X) // count), -1))

    def uneven(X: np.ndarray) -> DataMatrix:
        first = max(1, len(X) // 7)
        return conenmf.from_rows(da.from_array(X, chunks=((first, len(X) - first), -1)))

    return {
        "dense": conenmf.from_rows,
        "dense, by columns": lambda X: conenmf.from_rows(np.asfortranarray(X)),
        "dense, blocks of 7%": lambda X: conenmf.from_rows(X, block_samples=1 + len(X) // 14),
        "CSR": lambda X: conenmf.from_rows(sp.csr_array(X)),
        "CSC, blocks of 20%": lambda X: conenmf.from_rows(
            sp.csc_array(X), block_samples=1 + len(X) // 5
        ),
        "file": in_file,
        "file, blocks of 10%": lambda X: in_file(X, block_samples=1 + len(X) // 10),
        "HDF5": hdf5,
        "Zarr": in_zarr,
        "sparse file": sparse_file,
        "Dask, 3 chunks": lambda X: conenmf.from_rows(chunked(X, 3)),
        "Dask, 20 chunks": lambda X: conenmf.from_rows(chunked(X, 20)),
        "Dask, uneven": uneven,
        "Dask, sparse": lambda X: conenmf.from_rows(
            chunked(X, 4).map_blocks(sp.csr_matrix, dtype=X.dtype)
        ),
    }


def fit(V: DataMatrix, K: int, init: str) -> tuple[Any, str]:
    """The result, or the error's name, and how it came about."""
    rng = np.random.default_rng(1) if init in DRAWN else None
    try:
        if init == "K":
            result = conenmf.factorize(V)
        else:
            result = conenmf.factorize(V, K, init=init, rng=rng)
    except conenmf.ConeNMFError as problem:
        return type(problem).__name__, "error"
    iterations = result.history.elapsed.size
    return result, f"K = {result.K}, {result.init_used}, {iterations} iterations"


def difference(result: Any, reference: Any, norm: float) -> Difference:
    """Compare two fits; one that raised an error equals another that raised the same."""
    if isinstance(result, str) or isinstance(reference, str):
        same = isinstance(result, str) and result == reference
        return Difference(*([0.0] * 3 if same else [np.inf] * 3))
    if result.K != reference.K:
        return Difference(*[np.inf] * 3)
    WH, before = (r.W.astype(float) @ np.asarray(r.H, dtype=float) for r in (result, reference))
    labels = np.mean(np.asarray(result.labels) != np.asarray(reference.labels))
    error = abs(result.relative_error - reference.relative_error)
    product = float(np.linalg.norm(WH - before)) / norm
    is_exact = max(result.relative_error, reference.relative_error) < EXACT_ERROR
    if is_exact and product < EXACT_TOLERANCE:
        return Difference(float(labels), 0.0, 0.0)
    return Difference(float(labels), error, product)


def compare(
    name: str, kind: Kind, folder: Path, arguments: argparse.Namespace
) -> Iterator[tuple[str, str, str, Difference, str]]:
    """The difference of every storage and init for one kind of data."""
    X = kind.X.astype(arguments.dtype)
    norm = float(np.linalg.norm(kind.X))
    held = {
        storage: open_(X)
        for storage, open_ in storages(folder).items()
        if storage in ("dense", *(arguments.storage or [storage]))
    }
    for init in kind.inits:
        if init not in (arguments.init or kind.inits):
            continue
        fits = {storage: fit(V, kind.K, init) for storage, V in held.items()}
        reference, story = fits["dense"]
        for storage, (result, own_story) in list(fits.items())[1:]:
            found = difference(result, reference, norm)
            yield name, init, storage, found, f"{story} -> {own_story}"


def main() -> None:
    """Print every comparison that fails, and a summary for each init."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", action="append", help="only this kind of data")
    parser.add_argument("--init", action="append", help="only this init")
    parser.add_argument("--storage", action="append", help="only this storage")
    parser.add_argument("--dtype", choices=TOLERANCES, default="float64")
    arguments = parser.parse_args()
    tolerance, share = TOLERANCES[arguments.dtype], LABEL_SHARES[arguments.dtype]
    began = time.perf_counter()
    counts: dict[str, list[int]] = {}
    worst: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, dask.config.set(scheduler="synchronous"):
        for name, kind in kinds().items():
            if arguments.kind and name not in arguments.kind:
                continue
            for row in compare(name, kind, Path(folder), arguments):
                _, init, storage, found, story = row
                differs = found.labels > share or max(found.error, found.product) > tolerance
                count = counts.setdefault(init, [0, 0])
                count[0] += differs
                count[1] += 1
                worst[init] = max(worst.get(init, 0.0), found.error, found.product)
                if differs:
                    print(
                        f"{name:15} {init:9} {storage:20} labels {found.labels:7.2g}  "
                        f"error {found.error:7.1e}  W H {found.product:7.1e}  {story}",
                        flush=True,
                    )
    print("\ninit        differ of    largest difference")
    for init, (differ, total) in counts.items():
        print(f"{init:10} {differ:7d} {total:5d}  {worst[init]:.1e}")
    differ, total = (sum(column) for column in zip(*counts.values(), strict=True))
    print(f"{'all':10} {differ:7d} {total:5d}  in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
