"""Who takes part in peers.py: our configurations, and every peer that pip can install."""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import NMF, MiniBatchNMF

from conenmf import ConeNMF
from conenmf.solve.run import Iteration

SEED = 0
Factors = tuple[np.ndarray, np.ndarray]  # coefficients (N, K), components (K, F)

OURS: dict[str, dict[str, Any]] = {  # arguments of ConeNMF; the first one is the headline
    "ConeNMF": {"init": "auto", "solver": "hals"},
    "without sketch": {"init": "auto", "solver": "hals", "sketch": None},
    "from cr1": {"init": "cr1", "solver": "hals"},
}


@dataclass(frozen=True)
class Peer:
    """A way to fit X in so many iterations, and the package that it needs."""

    fit: Callable[[Any, int, int], Factors]
    package: str = "sklearn"
    sparse: bool = True


def _scikit_learn(solver: str, init: str) -> Peer:
    def fit(X: Any, K: int, iterations: int) -> Factors:
        model = NMF(K, init=init, solver=solver, tol=0, max_iter=iterations, random_state=SEED)
        return model.fit_transform(X), model.components_

    return Peer(fit)


def _mini_batch(X: Any, K: int, iterations: int) -> Factors:
    """An iteration is a pass over all batches."""
    model = MiniBatchNMF(K, tol=0, max_no_improvement=None, max_iter=iterations, random_state=SEED)
    return model.fit_transform(X), model.components_


def _torchnmf(X: Any, K: int, iterations: int) -> Factors:
    import torch
    import torchnmf

    torch.manual_seed(SEED)
    if sp.issparse(X):
        places = X.tocoo()
        indices = torch.from_numpy(np.stack([places.row, places.col]).astype(np.int64))
        V = torch.sparse_coo_tensor(
            indices, torch.from_numpy(places.data), X.shape, check_invariants=False
        ).coalesce()
    else:
        V = torch.from_numpy(X)
    model = torchnmf.nmf.NMF(X.shape, K).to(V.dtype)
    model.fit(V, beta=2, tol=-np.inf, max_iter=iterations)  # with 0 it stops at a rounding error
    return model.H.detach().numpy(), model.W.detach().numpy().T


def _tensorly(init: str) -> Peer:
    def fit(X: Any, K: int, iterations: int) -> Factors:
        from tensorly.decomposition import non_negative_parafac_hals

        weights, (A, B) = non_negative_parafac_hals(
            X,
            K,
            n_iter_max=iterations,
            init=init,
            svd="randomized_svd",  # its default takes many times as long
            tol=0,
            random_state=SEED,
        )
        return A * weights, B.T

    return Peer(fit, "tensorly", sparse=False)


PEERS: dict[str, Peer] = {
    "NMF cd nndsvda": _scikit_learn("cd", "nndsvda"),
    "NMF cd nndsvd": _scikit_learn("cd", "nndsvd"),
    "NMF cd random": _scikit_learn("cd", "random"),
    "NMF mu nndsvda": _scikit_learn("mu", "nndsvda"),
    "NMF mu random": _scikit_learn("mu", "random"),
    "MiniBatchNMF": Peer(_mini_batch),
    "torchnmf": Peer(_torchnmf, "torchnmf"),
    "TensorLy hals svd": _tensorly("svd"),
    "TensorLy hals random": _tensorly("random"),
}


def installed(names: list[str]) -> dict[str, Peer]:
    """The peers of these names, all if there are none, without those that are not installed."""
    chosen = {}
    for name, peer in PEERS.items():
        if names and name not in names:
            continue
        if importlib.util.find_spec(peer.package) is None:
            print(f"{name}: {peer.package} is not installed, left out")
        else:
            chosen[name] = peer
    return chosen


def reaches(error: float, target: float) -> bool:
    """Whether the error is at or below the target, but for rounding."""
    return error <= target * (1 + 1e-9)


@dataclass
class Descent:
    """One fit of ours: seconds since the call and error after each iteration, and the end."""

    seconds: list[float]
    errors: list[float]
    finish: float  # seconds of the exact coefficients after the last iteration
    init: str
    stop_reason: str

    def time_to(self, error: float) -> float:
        """Seconds until the error was at or below this one, infinity if it never was.

        The exact coefficients, with which a fit ends, are counted in.
        """
        reached = (
            seconds + self.finish
            for seconds, now in zip(self.seconds, self.errors, strict=True)
            if reaches(now, error)
        )
        return next(reached, np.inf)


def descend(X: Any, K: int, options: dict[str, Any], target: float, limit: float) -> Descent:
    """Fit until the error is at or below the target, or the limit of seconds is over."""
    seconds: list[float] = []
    errors: list[float] = []

    def watch(progress: Iteration) -> bool:
        seconds.append(time.perf_counter() - began)
        errors.append(progress.relative_error)
        return reaches(errors[-1], target) or seconds[-1] > limit

    model = ConeNMF(K, tol=0, max_iter=10**6, callback=watch, **options)
    began = time.perf_counter()
    model.fit(X)
    result = model.result_
    return Descent(
        seconds,
        errors,
        result.seconds["finish"],
        result.init_used,
        result.stop_reason,
    )


def warm_up(names: Iterable[str], X: Any) -> None:
    """Compile all that is compiled: numba at the first fit, torch at one of the next ones."""
    for name in names:
        for _ in range(4):
            fit_once(name, X, 3, 3)


def expected_seconds(name: str, X: Any, K: int, iterations: int, enough: float) -> float:
    """About how long so many iterations take; at most `enough` if one of them already says so."""

    def seconds(count: int) -> float:
        began = time.perf_counter()
        fit_once(name, X, K, count)
        return time.perf_counter() - began

    first = seconds(1)
    if first * iterations <= enough:
        return first * iterations  # too much: the init is in it
    return first + max(seconds(3) - first, 0.0) / 2 * (iterations - 1)


def fit_once(name: str, X: Any, K: int, iterations: int) -> Factors:
    """A fit of ours or of a peer, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged is no news
        if name in PEERS:
            return PEERS[name].fit(X, K, iterations)
        model = ConeNMF(K, tol=0, max_iter=iterations, **OURS[name])
        return model.fit_transform(X), model.components_
