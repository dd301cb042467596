import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conenmf import cr1_nmf, deterministic_bound, from_columns, lower_bound
from conenmf.bounds import cone_sines


@given(seed=st.integers(0, 10**6))
def test_theorem_4_for_any_data(seed):
    rng = np.random.default_rng(seed)
    V = rng.random((7, 25)) ** 2
    data = from_columns(V)
    W, H, cones = cr1_nmf(data, int(rng.integers(1, 6)), rng=rng)
    error = np.linalg.norm(V - W @ H) / np.linalg.norm(V)
    assert error <= deterministic_bound(data, W, cones.labels) + 1e-12


@given(seed=st.integers(0, 10**6))
def test_eckart_young_is_below_every_factorisation(seed):
    rng = np.random.default_rng(seed)
    V = rng.random((7, 25))
    K = int(rng.integers(1, 8))
    W, H = rng.random((7, K)), rng.random((K, 25))
    H = np.linalg.lstsq(W, V, rcond=None)[0]
    bound = lower_bound(from_columns(V), K)
    assert bound <= np.linalg.norm(V - W @ H) / np.linalg.norm(V) + 1e-7
    sigma = np.linalg.svd(V, compute_uv=False)
    assert bound == pytest.approx(np.sqrt((sigma[K:] ** 2).sum() / (sigma**2).sum()), abs=1e-7)


def test_sines(main_backend, both_twins, sample_matrix):
    V = main_backend(sample_matrix)
    W, _, cones = cr1_nmf(V, 4)
    sines = cone_sines(V, 3 * W, cones.labels)
    assert sines[0] == sines[17] == 0
    for n in (1, 20):
        v, w = sample_matrix[:, n], W[:, cones.labels[n]]
        angle = np.arccos(v @ w / np.linalg.norm(v) / np.linalg.norm(w))
        assert sines[n] == pytest.approx(np.sin(angle))
