"""What files hold: the sample matrix, samples in rows."""

import numpy as np
import pytest


@pytest.fixture
def X(sample_matrix):
    return np.ascontiguousarray(sample_matrix.T)
