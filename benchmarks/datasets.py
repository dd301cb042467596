"""The datasets of the benchmarks, samples in rows.

Cones and documents are generated, digits ship with scikit-learn, and the others are read by
`conenmf.datasets` from the folder named by CONENMF_DATA; what is not there is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits

from conenmf import make_cones
from conenmf.datasets import load as load_dataset
from conenmf.datasets import tf_idf
from conenmf.errors import DatasetError

SEED = 0


@dataclass(frozen=True)
class Dataset:
    """How to get the data, None where they are not there, and the number of components."""

    load: Callable[[], Any]
    K: int


def cones(F: int, N: int, K: int) -> np.ndarray:
    """Samples (N, F) of the paper's model, alpha = 0.2."""
    V = make_cones(F, K, 0.2, n_samples=N, rng=np.random.default_rng(SEED)).V
    return np.ascontiguousarray(V.T)


def topic_counts(N: int, F: int, nnz: int, topics: int, rng: np.random.Generator) -> sp.csr_array:
    """Counts (N, F) of terms in documents with exactly `nnz` nonzeros, from a topic model.

    Term frequencies follow Zipf's law; a topic is a Dirichlet draw around them, mixed with a fifth
    of the law itself; documents are Dirichlet mixtures of topics with log-normal lengths. Words
    are drawn until there are enough nonzeros, and a random surplus is dropped.
    """
    if nnz > N * F // 10:
        raise ValueError(f"{nnz} nonzeros in {N} x {F} are too many to be drawn word by word")
    frequency = 1.0 / (np.arange(F) + 2.7)
    frequency /= frequency.sum()
    terms = rng.gamma(0.01 * F * frequency, size=(topics, F))
    terms = 0.8 * terms / terms.sum(axis=1, keepdims=True) + 0.2 * frequency
    upto = np.cumsum(terms, axis=1)
    mixtures = rng.dirichlet(np.full(topics, 0.1), size=N)
    lengths = rng.lognormal(sigma=0.5, size=N)
    lengths *= nnz / lengths.sum()
    words = np.empty(0, np.int64)  # document * F + term
    while True:
        counts = rng.multinomial(np.ceil(lengths).astype(np.int64), mixtures)
        drawn = [words]
        for topic in range(topics):
            count = counts[:, topic]
            term = np.searchsorted(upto[topic], rng.random(count.sum()))
            drawn.append(np.repeat(np.arange(N) * F, count) + np.minimum(term, F - 1))
        words = np.concatenate(drawn)
        places, times = np.unique(words, return_counts=True)
        if places.size >= nnz:
            break
    kept = np.sort(rng.choice(places.size, nnz, replace=False, shuffle=False))
    document, term = np.divmod(places[kept], F)
    starts = np.searchsorted(document, np.arange(N + 1))
    parts = (times[kept].astype(np.float64), term.astype(np.int32), starts.astype(np.int32))
    return sp.csr_array(parts, shape=(N, F))


def topics(N: int, F: int, nnz: int, K: int) -> sp.csr_array:
    return tf_idf(topic_counts(N, F, nnz, K, np.random.default_rng(SEED)))


def stored(name: str) -> Any:
    """A dataset that is on this machine, counts as tf-idf; None if it is not there."""
    try:
        return load_dataset(name).X
    except DatasetError:
        print(f"{name}: neither in CONENMF_DATA nor in the cache, left out")
        return None


DATASETS = {
    "cones": Dataset(lambda: cones(1600, 10_000, 40), 40),
    "digits": Dataset(lambda: load_digits().data, 16),
    "georgia_tech_crop": Dataset(lambda: stored("georgia_tech_crop"), 40),
    "orl_112x92": Dataset(lambda: stored("orl_112x92"), 40),
    "indian_pines": Dataset(lambda: stored("indian_pines"), 15),
    "wap": Dataset(lambda: stored("wap"), 20),
    "k1b": Dataset(lambda: stored("k1b"), 20),
    "topics": Dataset(lambda: topics(100_000, 30_000, 10_000_000, 30), 30),
}
QUICK = DATASETS | {
    "cones": Dataset(lambda: cones(100, 300, 6), 6),
    "topics": Dataset(lambda: topics(500, 600, 20_000, 6), 6),
}


def shrunk(X: Any, samples: int = 300, features: int = 300) -> Any:
    """About so many samples and features of X, evenly spaced, without empty samples."""
    X = X[:: -(-X.shape[0] // samples)]
    X = X[:, :: -(-X.shape[1] // features)]
    X = X[np.flatnonzero(np.asarray(X.sum(axis=1)).ravel())]
    return X if sp.issparse(X) else np.ascontiguousarray(X)


def load(name: str, dtype: str, quick: bool) -> tuple[Any, int] | None:
    """The samples of that type and the number of components; None where they are not there."""
    dataset = (QUICK if quick else DATASETS)[name]
    X = dataset.load()
    if X is None:
        return None
    X = X.astype(dtype)
    return (shrunk(X, 100, 100), min(dataset.K, 6)) if quick else (X, dataset.K)
