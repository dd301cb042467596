"""The checksum belongs to the numbers, not to how they are stored."""

import numpy as np
import pytest
import scipy.sparse as sp
from tests.datasets.files import counts, place

from conenmf.datasets import fingerprint, load

# Most datasets here are smaller than those of the same name; other tests look for this warning.
pytestmark = pytest.mark.filterwarnings("ignore::conenmf.errors.InputWarning")


def test_numbers_are_recognised_however_they_are_stored(folder, rng, small):
    X, labels = counts(rng)
    small("tr11", sha256=fingerprint(X.toarray().astype(float), labels))
    place(folder, "tr11", X, labels)
    assert not load("tr11").verified  # dense numbers are others than sparse ones
    small("tr11", sha256=fingerprint(X.astype(np.float64), 5 - labels))
    assert load("tr11").verified
    small("tr11", sha256=fingerprint(X, labels[::-1] * labels))
    assert not load("tr11").verified


def test_fingerprints_tell_numbers_apart(rng):
    X = rng.random((3, 4), np.float32)
    assert fingerprint(X, None) == fingerprint(np.asfortranarray(X), None)
    others = [X.astype("f8"), X.T, X + 1, X[::-1], sp.csr_array(X)]
    assert len({fingerprint(other, None) for other in [X, *others]}) == 6


@pytest.mark.parametrize("other", [1 + 65536, 1 - 65536, -1, 1 << 40, np.inf, np.nan])
def test_no_number_passes_for_another(other):
    X = np.array([[1.0, 2.0], [3.0, 65535.0]])
    changed = X.copy()
    changed[0, 0] = other
    assert fingerprint(changed, None) != fingerprint(X, None)
    assert fingerprint(sp.csr_array(changed), None) != fingerprint(sp.csr_array(X), None)


def test_large_numbers_are_recognised_however_they_are_stored():
    X = np.array([[1, -70000], [0, 2]])
    same = [X, X.astype("i4"), X.astype("f8"), np.asfortranarray(X)]
    assert len({fingerprint(one, None) for one in same}) == 1
    padded = sp.csr_array(([1, -70000, 0, 2], [0, 1, 0, 1], [0, 2, 4]), shape=(2, 2))
    assert padded.nnz == 4
    assert fingerprint(padded, None) == fingerprint(sp.csr_array(X), None)
