import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import from_rows
from conenmf.data.observed import observed_only
from conenmf.errors import NegativeValueError, OptionError


def test_nothing_said_leaves_the_data_as_they_are():
    for X in (np.eye(3), sp.csr_array(np.eye(3))):
        V = from_rows(X)
        assert observed_only(V) is V


@pytest.mark.parametrize("name", ["mask", "weights"])
def test_a_mask_or_weights_with_nan_are_refused(name):
    array = np.ones((6, 4))
    array[2, 1] = np.nan
    with pytest.raises(OptionError, match=f"{name} has NaN: expected .*; write 0 where an entry"):
        from_rows(np.ones((6, 4)), **{name: array})
    array[2, 1] = 2  # any other number in a mask is a known entry
    from_rows(np.ones((6, 4)), mask=array)


def test_noise_below_zero_is_told_of_the_option_that_keeps_it():
    with pytest.raises(NegativeValueError, match="if they are noise, pass negative='keep'"):
        from_rows(np.array([[1.0, -0.5], [2.0, 1.0]]))
