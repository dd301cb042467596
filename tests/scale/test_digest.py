"""The digest of the data: one for every storage, another for every change."""

import itertools

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import from_columns, from_rows, open_data
from conenmf.data.known import observed_only, weigh_samples
from conenmf.scale.checkpoint import digest, known_digest


@pytest.fixture
def counts():
    return np.random.default_rng(0).poisson(0.7, (60, 25)).astype(float)


def test_it_is_the_same_for_every_storage(backend, sample_matrix):
    assert digest(backend(sample_matrix)) == digest(from_columns(sample_matrix))


def test_it_takes_one_pass(counts):
    V = from_rows(counts)
    before = V.passes
    digest(V)
    assert V.passes - before == 1


def test_it_does_not_depend_on_blocks_threads_or_chunks(counts, tmp_path):
    np.save(tmp_path / "x.npy", counts)
    same = [from_rows(counts), from_columns(counts.T), from_rows(counts.astype(np.uint8))]
    for block_samples, n_threads in itertools.product((1, 7, 60), (1, 3)):
        options = {"block_samples": block_samples, "n_threads": n_threads}
        same += [from_rows(counts, **options), from_rows(sp.csr_array(counts), **options)]
        same += [open_data(tmp_path / "x.npy", max_memory="1MB", **options)]
    for rows in (1, 13, 60):
        same += [from_rows(da.from_array(counts, chunks=(rows, 25)))]
    assert {digest(V) for V in same} == {digest(same[0])}


def test_zeros_are_zeros(counts):
    stored = sp.csr_array(counts)
    stored.data[::3] = 0  # zeros that are stored, and a sign that does not count
    signed = stored.toarray()
    signed[signed == 0] = -0.0
    assert digest(from_rows(stored)) == digest(from_rows(signed))
    assert digest(from_rows(np.abs(signed))) == digest(from_rows(signed))


@pytest.mark.seed(1)
def test_every_change_is_seen(counts, rng):
    unchanged = digest(from_rows(counts))
    for number in range(300):
        X = counts.copy()
        n, m = rng.choice(60, 2, replace=False)
        f, g = rng.choice(25, 2, replace=False)
        kind = number % 5
        if kind == 0:
            X[n, f] = np.nextafter(X[n, f], 9)
        elif kind == 1:
            X[n] = rng.permutation(X[n])
        elif kind == 2:
            X[[n, m]] = X[[m, n]]
        elif kind == 3:
            X[:, [f, g]] = X[:, [g, f]]
        else:
            X[n, f], X[m, g] = X[m, g] + 1, X[n, f]
        assert (digest(from_rows(X)) == unchanged) == np.array_equal(X, counts)
    reversed_ = counts.copy()
    reversed_[3] = reversed_[3, ::-1]
    for X in (counts[:, ::-1], counts[::-1], reversed_, counts + np.eye(60, 25) * 1e-9):
        assert digest(from_rows(X)) != unchanged
    for dtype in (np.float32, np.float64):
        X = counts.astype(dtype)
        assert digest(from_rows(X[:, ::-1])) != digest(from_rows(X))


@pytest.mark.seed(2)
def test_known_entries_have_their_own_digest(backend, counts, rng):
    mask, weights = rng.random((25, 60)) > 0.3, rng.random((25, 60))
    X = counts.T
    assert known_digest(backend(X)) is None
    known = [{"mask": mask}, {"mask": ~mask}, {"weights": weights}, {"weights": 2 * weights}]
    found = [
        known_digest(observed_only(backend(X), **{k: v.T for k, v in one.items()})) for one in known
    ]
    assert found == [known_digest(from_columns(X, **one)) for one in known]
    weighed = [weigh_samples(backend(X), w) for w in (np.arange(60), np.arange(60)[::-1] / 7)]
    found += [known_digest(V) for V in weighed]
    assert len({*found}) == 6


def test_of_sparse_data_the_pattern_is_what_is_known(counts):
    stored = sp.csr_array(counts)
    stored.data[::3] = 0  # known to be zero
    one, other = (from_rows(X, missing="zeros") for X in (stored, sp.csr_array(stored.toarray())))
    assert digest(one) == digest(other)
    assert known_digest(one) != known_digest(other)
    pattern = sp.csr_array(counts).toarray() != 0
    assert known_digest(one) == known_digest(from_rows(stored.toarray(), mask=pattern))


def test_one_weight_changes_it():
    X, rng = np.ones((30, 9)), np.random.default_rng(0)
    weights = rng.random(X.shape) + 0.5
    found = {known_digest(from_rows(X, weights=weights))}
    for number in range(40):
        other = weights.copy()
        other[number % 30, number % 9] += 1e-12 * (number + 1)
        found.add(known_digest(from_rows(X, weights=other)))
    assert len(found) == 41
