"""The same bits before and after a change: a digest of many fits on fixed inputs.

Run it at two commits and compare what it prints; a line that differs is a value that changed.
Every fit states its init, solver and memory limit, so that a new default changes nothing
here. Digests depend on the machine and on the versions of NumPy and its BLAS.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import scipy.sparse as sp

import conenmf
from conenmf.cones.bounds import probabilistic_bound
from conenmf.cones.counting import estimate_rank
from conenmf.cones.geometry import cone_geometry
from conenmf.linalg.svd import Spectrum
from conenmf.solve.online import ConeStream

SOLVERS = ("hals", "mult", "nnlsb", "plain-hals", "plain-mult", "plain-nnlsb")
INITS = ("cr1", "cr1++", "random", "nndsvd", "nndsvda", "nndsvdar", "nnsvdlrc")
INITS += ("spa", "snpa", "spkm", "kmeans", "auto")


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
                    fit(V, 5, init="cr1", solver=solver),
                )
            if place == "memory":
                for init in INITS:
                    yield (
                        f"{name} {place} init={init}",
                        fit(V, 5, init=init, solver="hals"),
                    )


def pieces(folder: Path) -> Iterator[tuple[str, str]]:
    """The digest of what the parts of the library return."""
    for name, X in matrices().items():
        for place, V in kept(X, folder, name):
            for method in ("exact", "one-pass"):
                cones = conenmf.cluster_cones(V, 4, method=method)
                yield (
                    f"{name} {place} cones {method}",
                    digest(cones.labels, cones.centres, cones.directions),
                )
            W, H, _ = conenmf.cr1_nmf(V, 4)
            yield f"{name} {place} cr1_nmf", digest(W, H)
            yield f"{name} {place} svd", digest(*Spectrum(V).truncated_svd(6))
            certificate = conenmf.certify(V, W, H)
            yield (
                f"{name} {place} certify",
                digest(certificate.relative_error, certificate.lower_bound),
            )
            estimate = estimate_rank(V, 2, 8)
            yield f"{name} {place} rank", digest(estimate.singular_values, estimate.ratios)
        V = conenmf.from_rows(X)
        cones = cone_geometry(V, conenmf.cluster_cones(V, 4).labels)
        yield f"{name} geometry", digest(cones.axes, cones.angles, cones.between)
        batches = ConeStream(X.shape[1], 4)
        for part in range(0, X.shape[0], X.shape[0] // 4 + 1):
            batches.update(conenmf.from_rows(X[part : part + X.shape[0] // 4 + 1]))
        yield f"{name} stream", digest(batches.W)
    V = conenmf.from_rows(matrices()["mixed"][:300])
    yield "mixed select_k", digest(int(conenmf.select_k(V, ks=range(2, 6)).K))
    bound = probabilistic_bound([0.1, 0.2, 0.3], [0.2, 0.3, 0.5])
    yield "probabilistic bound", digest(round(float(bound), 10))


def main() -> None:
    """Print a line for each value, and a digest of them all."""
    total = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        for name, value in (*fits(Path(folder)), *pieces(Path(folder))):
            total.update(value.encode())
            print(f"{value}  {name}", flush=True)
    print(f"{total.hexdigest()[:32]}  all")


if __name__ == "__main__":
    main()
