import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from conenmf.greedy import LazyScores


@given(seed=st.integers(0, 10**6), tie=st.sampled_from([0.0, 0.05]))
def test_the_choice_is_that_of_looking_at_everything(seed, tie):
    """Scores after k choices are the k-th row of a table that falls from row to row."""
    rng = np.random.default_rng(seed)
    N, K = int(rng.integers(1, 200)), int(rng.integers(1, 8))
    table = np.minimum.accumulate(rng.integers(0, 40, (K + 1, N)) / 10.0, axis=0)
    forbidden = rng.random(N) < 0.2
    forbidden[rng.integers(N)] = False
    looked_at = []

    def refresh(samples, seen):
        looked_at.extend(samples)
        return table[k, samples]

    lazy = LazyScores(np.where(forbidden, -np.inf, table[0]), chosen=0, tie=tie)
    for k in range(1, K + 1):
        exact = np.where(forbidden, -np.inf, table[k])
        index, score = lazy.worst(k, refresh)
        assert score == exact.max()
        assert index == np.flatnonzero(exact >= exact.max() - tie)[0]
    assert not forbidden[looked_at].any()
