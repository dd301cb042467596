"""Holes, weights and penalties, measured: errors on what was hidden, objectives, times.

    python benchmarks/holes.py [PART ...]

with PART one of bits, holes, ratings, uncertainties, penalties. Data are read from the folder
CONENMF_DATA. PyPI's `esat` and `nmf-rs` are compared with in the environment of the interpreter
PEERS_PYTHON, by default this one (`benchmarks/holes_peers.py`).

L2 penalties and the number of components for ratings are chosen for each seed on a tenth of the
ratings that are known. Films without a known rating are predicted by the mean of all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import NMF

from conenmf import Factorization, datasets, factorize, from_rows
from conenmf.solve.constraints import Penalties
from conenmf.solve.losses import weighted

HIDDEN_SHARE, SEEDS = 0.1, (0, 1, 2)
IMAGES = {"indian_pines": 10, "orl_32x32": 40}


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    result = run()
    return result, time.perf_counter() - began


def bits() -> None:
    X = np.random.default_rng(0).random((500, 60))
    plain, asked = factorize(from_rows(X), 5), factorize(from_rows(X, missing="nan"), 5)
    print(f"nothing missing: the same bits {np.array_equal(plain.W, asked.W)}")


def holes() -> None:
    print(
        f"{'30% missing':15}{'K':>4}{'default':>10}{'Grams':>10}{'ratio':>8}{'seconds / full':>16}"
    )
    for name, K in IMAGES.items():
        X = np.asarray(datasets.load(name).X, dtype=np.float64)
        known = np.random.default_rng(0).random(X.shape) >= 0.3
        factorize(from_rows(X[:50], mask=known[:50]), 2)  # compiled
        _, full = timed(lambda X=X, K=K: factorize(from_rows(X), K))
        errors, seconds = [], []
        for has_grams in (False, True):
            with forced(has_grams):
                V = from_rows(X, mask=known)
                result, took = timed(lambda V=V, K=K: factorize(V, K))
            rest = (X - (result.W @ result.H).T)[~known]
            errors.append(np.linalg.norm(rest) / np.linalg.norm(X[~known]))
            seconds.append(took)
        filled, grams = errors
        print(f"{name:15}{K:4}{filled:10.5f}{grams:10.5f}{filled / grams:8.4f}", end="")
        print(f"{seconds[0] / full:16.2f}")


@contextmanager
def forced(has_grams: bool) -> Iterator[None]:
    """Fill holes in the loop, or use Gram matrices."""
    before = weighted._MAX_FILLED
    weighted._MAX_FILLED = 0.0 if has_grams else before
    yield
    weighted._MAX_FILLED = before


def ratings() -> None:
    S = sp.csr_array(sp.load_npz(Path(os.environ["CONENMF_DATA"]) / "movielens" / "V.npz"))
    users = sp.coo_array(S.T.astype(np.float64))
    chosen: list[str] = []
    print(f"{'squared error of hidden ratings':34}" + "".join(f"  seed {seed}" for seed in SEEDS))
    rows: dict[str, list[float]] = {}
    for seed in SEEDS:
        train, test = split(users, seed)
        inner, judge = split(sp.coo_array(train), 100 + seed)
        for name, error in means(train, test):
            rows.setdefault(name, []).append(error)
        for kind in ("alone", "with ones"):
            trials = product((1, 2, 3, 4), (0.25, 0.5, 1.0, 2.0, 4.0))
            scored = [(scored_fit(inner, judge, kind, *trial), trial) for trial in trials]
            K, ridge = min(scored)[1]
            chosen.append(f"seed {seed}, {kind}: K = {K + (kind != 'alone')}, L2 {ridge}")
            error = scored_fit(train, test, kind, K, ridge)
            rows.setdefault(f"NMF {kind}", []).append(error)
    for name, errors in rows.items():
        print(f"{name:34}" + "".join(f"{error:8.4f}" for error in errors))
    print("chosen on a tenth of the known ratings: " + "; ".join(chosen))


def split(users: Any, seed: int) -> tuple[Any, tuple[Any, Any, Any]]:
    hidden = np.random.default_rng(seed).random(users.data.size) < HIDDEN_SHARE
    parts = (users.data[~hidden], (users.row[~hidden], users.col[~hidden]))
    return (
        sp.csr_array(parts, shape=users.shape),
        (users.row[hidden], users.col[hidden], users.data[hidden]),
    )


def scored_fit(train: Any, test: tuple[Any, Any, Any], kind: str, K: int, ridge: float) -> float:
    fixed = None if kind == "alone" else np.ones((train.shape[1], 1))
    penalties = Penalties(l2_h=ridge, l2_w=ridge)
    V = from_rows(train, missing="zeros")
    result = factorize(V, K + (fixed is not None), fixed=fixed, penalties=penalties, max_iter=300)
    row, column, rating = test
    predicted = np.einsum("ek,ek->e", result.W[column], np.asarray(result.H).T[row])
    is_unseen = V.observed.empty_features[column]  # nothing is said of them: the mean
    predicted = np.where(is_unseen, train.data.mean(), predicted)
    return float(((np.clip(predicted, 1, 5) - rating) ** 2).mean())


def means(train: Any, test: tuple[Any, Any, Any]) -> Iterator[tuple[str, float]]:
    entries = sp.coo_array(train)
    row, column, rating = entries.row, entries.col, entries.data
    mean, (n, m) = rating.mean(), train.shape
    for name, index, where, size in (("users", row, test[0], n), ("films", column, test[1], m)):
        count = np.bincount(index, minlength=size)
        own = np.where(count > 0, np.bincount(index, rating, size) / np.maximum(count, 1), mean)
        yield f"means of {name}", float(((own[where] - test[2]) ** 2).mean())
    a, b = np.zeros(n), np.zeros(m)
    for _ in range(30):
        b = np.bincount(column, rating - mean - a[row], m) / (np.bincount(column, minlength=m) + 2)
        a = np.bincount(row, rating - mean - b[column], n) / (np.bincount(row, minlength=n) + 2)
    both = mean + a[test[0]] + b[test[1]]
    yield "regularised means of both", float(((both - test[2]) ** 2).mean())


def uncertainties() -> None:
    folder = Path(os.environ["CONENMF_DATA"]) / "esat"
    print(f"{'weighted objective':14}{'K':>3}{'ours':>14}{'seconds':>9}")
    for name, K, mark in (("Baltimore_{}.txt", 7, "\t"), ("BatonRouge-{}.csv", 6, ",")):
        X, sigma = (
            np.genfromtxt(folder / name.format(kind), delimiter=mark, skip_header=1)[:, 1:]
            for kind in ("con", "unc")
        )
        good = np.isfinite(X).all(axis=1) & np.isfinite(sigma).all(axis=1) & (sigma > 0).all(axis=1)
        X, sigma = np.maximum(X[good], 0), sigma[good]
        weights = 1 / sigma**2
        factorize(from_rows(X[:60], weights=weights[:60]), 2)  # compiled
        V = from_rows(X, weights=weights)
        result, took = timed(lambda V=V, K=K: factorize(V, K, max_iter=1000, tol=1e-6))
        print(f"{name[:11]:14}{K:3}{result.objective:14.1f}{took:9.2f}")
        for line in rivals(X, sigma, K):
            print(f"    {line}")


def rivals(X: Any, sigma: Any, K: int) -> Iterator[str]:
    script = Path(__file__).with_name("holes_peers.py")
    with TemporaryDirectory() as folder:
        np.savez(Path(folder) / "data.npz", X=X, sigma=sigma, K=K)
        command = [os.environ.get("PEERS_PYTHON", sys.executable), script, folder + "/data.npz"]
        environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    for line in done.stdout.splitlines():
        one = json.loads(line)
        if "problem" in one:
            yield f"{one['name']} {one['problem']}"
        else:
            yield f"{one['name']:8}{one['value']:14.1f}{one['seconds']:9.2f}"


def penalties() -> None:
    print(f"{'penalties':32}{'at equal factors':>18}{'ours / theirs at the end':>26}")
    X = np.asarray(datasets.load("orl_32x32").X, dtype=np.float64)
    X /= X.max()
    for alpha, l1_ratio in product((1e-4, 1e-3), (0.0, 0.5, 1.0)):
        options: dict[str, Any] = {"alpha_W": alpha, "l1_ratio": l1_ratio}
        theirs = NMF(20, init="nndsvd", max_iter=200, **options)
        A = theirs.fit_transform(X)
        C, own = theirs.components_, Penalties.as_in_sklearn(X.shape[::-1], **options)
        n, m = X.shape
        value = 0.5 * ((X - A @ C) ** 2).sum()
        value += alpha * m * (l1_ratio * A.sum() + 0.5 * (1 - l1_ratio) * (A**2).sum())
        value += alpha * n * (l1_ratio * C.sum() + 0.5 * (1 - l1_ratio) * (C**2).sum())
        terms = [term for term in (own.on_H, own.on_W(1.0)) if term is not None]
        equal = ((X - A @ C) ** 2).sum() + terms[0].value(A) + terms[1].value(C.T)
        result: Factorization = factorize(from_rows(X), 20, penalties=own)
        difference = abs(equal / (2 * value) - 1)
        name = f"alpha_W = {alpha:g}, l1_ratio = {l1_ratio}"
        print(f"{name:32}{difference:18.1e}{result.objective / (2 * value):26.6f}")


PARTS = {one.__name__: one for one in (bits, holes, ratings, uncertainties, penalties)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    for part in parser.parse_args().parts or PARTS:
        PARTS[part]()
        print()
