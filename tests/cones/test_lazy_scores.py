"""Lazy greedy choice: the same choices as when all scores are computed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conenmf.cones.clustering import LazyScores
from conenmf.data.memory import DenseMatrix


class Numbers(DenseMatrix):
    """Samples 1, 2, ... of one feature, of which few can be gathered at a time."""

    def __init__(self, N, max_gather):
        super().__init__(np.arange(1.0, N + 1)[:, None])
        self.max_gather = max_gather


@pytest.mark.parametrize("max_gather", [1, 13, 512])
@settings(max_examples=30)
@given(rng=st.integers(0, 10**6).map(np.random.default_rng), tie=st.sampled_from([0.0, 0.05]))
def test_the_choice_is_that_of_looking_at_everything(max_gather, rng, tie):
    """Scores after k choices are the k-th row of a table that falls from row to row."""
    N, K = int(rng.integers(1, 200)), int(rng.integers(1, 8))
    table = np.minimum.accumulate(rng.integers(0, 40, (K + 1, N)) / 10.0, axis=0)
    forbidden = rng.random(N) < 0.2
    forbidden[rng.integers(N)] = False
    looked_at = []

    def score(block, squared, *, n_choices, row):
        samples = block[0].astype(int) - 1  # the only feature is the number of the sample
        np.testing.assert_allclose(squared, block[0] ** 2)
        looked_at.extend(samples)
        return row[samples]

    V = Numbers(N, max_gather)
    lazy = LazyScores(V, np.where(forbidden, -np.inf, table[0]), score, n_choices=0, tie=tie)
    for k in range(1, min(K, N - int(forbidden.sum())) + 1):
        exact = np.where(forbidden, -np.inf, table[k])
        index, largest, column = lazy.worst(k, row=table[k])
        assert (largest, index, column.tolist()) == (
            exact.max(),
            np.flatnonzero(exact >= exact.max() - tie)[0],
            [index + 1],
        )
        assert not forbidden[looked_at].any()
        forbidden[index] = True
        looked_at.clear()
