"""The same bits before and after a change: a digest of many fits on fixed inputs.

Run it at two commits and compare what it prints; a line that differs is a value that changed.
Every fit states its init, solver, sketch and memory limit, so that a new default changes nothing
here. Digests depend on the machine and on the versions of NumPy and its BLAS. With ``--threads 60``
it fits counts as often with 1, 2, 3 and 4 threads instead, and counts the digests.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import scipy.sparse as sp

import conenmf

SOLVERS = ("hals", "mult", "nnlsb", "plain-hals", "plain-mult", "plain-nnlsb")
INITS = ("cr1", "cr1++", "random", "nndsvd", "nndsvda", "nndsvdar", "nnsvdlrc")
INITS += ("spa", "snpa", "spkm", "kmeans", "auto")


def find(name: str, *homes: str) -> Any:
    """A function of the library, from the first module that has it."""
    for home in ("conenmf", *(f"conenmf.{home}" for home in homes)):
        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError:
            continue
        if callable(getattr(module, name, None)):
            return getattr(module, name)
    raise LookupError(name)


def digest(*values: Any) -> str:
    """The first half of the SHA-256 of arrays and numbers."""
    sha = hashlib.sha256()
    for value in values:
        array = np.ascontiguousarray(value.compute() if hasattr(value, "compute") else value)
        sha.update(f"{array.dtype} {array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()[:32]


def matrices() -> dict[str, np.ndarray | sp.csr_array]:
    """Samples in rows: cones, mixtures, a sparse one, single precision, one of many features."""
    rng = np.random.default_rng(7)
    cones = conenmf.make_cones(80, 4, 0.15, n_samples=6000, rng=rng).V.T
    mixed = rng.gamma(0.4, size=(1500, 5)) @ rng.gamma(0.5, size=(5, 300))
    mixed += 0.05 * rng.random(mixed.shape)
    sparse = sp.random_array((2500, 400), density=0.03, rng=rng, format="csr")
    return {
        "cones": cones,
        "mixed": mixed,
        "mixed32": mixed.astype(np.float32),
        "sparse": sparse,
        "wide": np.ascontiguousarray(mixed[:200].T[:, :150].T * 3.0),
    }


def kept(X: Any, folder: Path, name: str) -> Iterator[tuple[str, Any]]:
    """The same samples in memory, in a file and on Dask."""
    limit = "200MB"
    yield "memory", conenmf.from_rows(X, n_threads=2)
    if sp.issparse(X):
        sp.save_npz(folder / f"{name}.npz", X, compressed=False)
        yield "file", conenmf.open_data(folder / f"{name}.npz", max_memory=limit)
        return
    np.save(folder / f"{name}.npy", X)
    yield "file", conenmf.open_data(folder / f"{name}.npy", max_memory=limit)
    yield "dask", conenmf.from_rows(da.from_array(X, chunks=(len(X) // 3 + 1, -1)), persist=True)


def fits(folder: Path) -> Iterator[tuple[str, str]]:
    """The digest of W, H, labels, error and history of every fit."""
    fixed = {"max_iter": 12, "tol": 0.0}

    def fit(V: Any, K: int, **options: Any) -> str:
        result = conenmf.factorize(V, K, rng=np.random.default_rng(1), **fixed, **options)
        history = result.history.relative_error
        return digest(result.W, result.H, result.labels, result.relative_error, history)

    for name, X in matrices().items():
        for place, V in kept(X, folder, name):
            for solver in SOLVERS:
                yield (
                    f"{name} {place} {solver}",
                    fit(V, 5, init="cr1", solver=solver, sketch=None),
                )
            if place == "memory":
                for init in INITS:
                    yield (
                        f"{name} {place} init={init}",
                        fit(V, 5, init=init, solver="hals", sketch=None),
                    )
                yield f"{name} {place} sketch=10", fit(V, 5, init="cr1", solver="hals", sketch=10)
                yield (
                    f"{name} {place} sketch=auto",
                    fit(V, 5, init="auto", solver="hals", sketch="auto"),
                )


def svd(V: Any, k: int) -> Any:
    """The truncated SVD, a function before it became a method."""
    try:
        return find("Spectrum", "linalg.svd", "linalg.spectrum")(V).truncated_svd(k)
    except LookupError:
        return find("truncated_svd", "linalg.spectrum")(V, k)


def pieces(folder: Path) -> Iterator[tuple[str, str]]:
    """The digest of what the parts of the library return."""
    geometry = find("cone_geometry", "cones.geometry")
    stream = find("ConeStream", "online", "solve.online")
    probabilistic = find("probabilistic_bound", "cones.bounds")
    for name, X in matrices().items():
        for place, V in kept(X, folder, name):
            for method in ("exact", "one-pass"):
                cones = conenmf.cluster_cones(V, 4, method=method)
                yield (
                    f"{name} {place} cones {method}",
                    digest(cones.labels, cones.centres, cones.directions, cones.cosines),
                )
            W, H, _ = conenmf.cr1_nmf(V, 4)
            yield f"{name} {place} cr1_nmf", digest(W, H)
            yield f"{name} {place} svd", digest(*svd(V, 6))
            certificate = conenmf.certify(V, W, H)
            yield (
                f"{name} {place} certify",
                digest(certificate.relative_error, certificate.lower_bound),
            )
            estimate = conenmf.estimate_rank(V, 2, 8)
            yield f"{name} {place} rank", digest(estimate.singular_values, estimate.ratios)
        V = conenmf.from_rows(X)
        cones = geometry(V, conenmf.cluster_cones(V, 4).labels)
        yield f"{name} geometry", digest(cones.axes, cones.angles, cones.between)
        batches = stream(X.shape[1], 4)
        for part in range(0, X.shape[0], X.shape[0] // 4 + 1):
            batches.update(conenmf.from_rows(X[part : part + X.shape[0] // 4 + 1]))
        yield f"{name} stream", digest(batches.W)
    V = conenmf.from_rows(matrices()["mixed"][:300])
    selection = conenmf.select_k(V, ks=range(2, 6), rng=np.random.default_rng(3))
    scores = [np.asarray(vote.scores, dtype=float) for vote in selection.votes.values()]
    yield "mixed select_k", digest(*scores)
    bound = probabilistic([0.1, 0.2, 0.3], [0.2, 0.3, 0.5])
    yield "probabilistic bound", digest(round(float(bound), 10))


def fits_with_threads(n_fits: int) -> None:
    """Print how many digests the fits of counts with 1, 2, 3 and 4 threads have."""
    for kind in (int, float):  # sums of whole numbers are exact in any order
        X = sp.random_array((1500, 3000), density=0.05, rng=np.random.default_rng(0), format="csr")
        X.data = np.ceil(5 * X.data) if kind is int else X.data
        for solver in ("newton", "mult"):
            options: dict[str, Any] = {"loss": "poisson", "solver": solver, "init": "random"}
            seen = set()
            for number in range(n_fits):
                V = conenmf.from_rows(X, n_threads=1 + number % 4, block_samples=100)
                rng = np.random.default_rng(0)
                result = conenmf.factorize(V, 8, rng=rng, max_iter=6, tol=0.0, **options)
                seen.add(digest(result.W, result.H))
            print(f"{kind.__name__:5} {solver:6} {n_fits} fits, {len(seen)} digests", flush=True)


def main() -> None:
    """Print a line for each value, and a digest of them all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--threads", type=int, metavar="FITS", help="fit counts with 1 to 4 threads"
    )
    n_fits = parser.parse_args().threads
    if n_fits:
        fits_with_threads(n_fits)
        return
    total = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        for name, value in (*fits(Path(folder)), *pieces(Path(folder))):
            total.update(value.encode())
            print(f"{value}  {name}", flush=True)
    print(f"{total.hexdigest()[:32]}  all")


if __name__ == "__main__":
    main()
