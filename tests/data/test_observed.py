import numpy as np
import scipy.sparse as sp

from conenmf import from_rows
from conenmf.data.observed import observed_only


def test_nothing_said_leaves_the_data_as_they_are():
    for X in (np.eye(3), sp.csr_array(np.eye(3))):
        V = from_rows(X)
        assert observed_only(V) is V
