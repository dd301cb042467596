"""Where runs on the sample matrix begin."""

import numpy as np
import pytest


@pytest.fixture
def init():
    rng = np.random.default_rng(1)
    return rng.random((12, 3)), rng.random((3, 40))
