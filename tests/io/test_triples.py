"""Which tables are lists of ratings."""

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf.io.source import NamedMatrix
from conenmf.io.triples import are_ratings
from conenmf.names import Names


@pytest.mark.parametrize(
    ("users", "items", "n", "expected"),
    [
        (100, 10, 200, True),  # two for every user, on average
        (100, 10, 199, False),
        (10, 100, 199, False),
        (20, 20, 200, True),  # half of all pairs
        (20, 20, 201, False),
        (100, 100, 448, True),  # by chance, ten pairs would occur twice
        (100, 100, 447, False),
    ],
)
def test_the_numbers_of_users_items_and_ratings_decide(users, items, n, expected, rng):
    ends = np.unravel_index(rng.choice(users * items, n, replace=False), (users, items))
    values = rng.integers(1, 6, n).astype(float)
    table = NamedMatrix(sp.csr_array((values, ends), (users, items)), Names())
    assert are_ratings(table) == expected
    table.matrix.data += np.arange(n) / 100  # amounts
    assert not are_ratings(table)
