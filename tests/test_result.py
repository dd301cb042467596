"""A result judges itself, is printed, copied and pickled."""

import copy
import pickle

import numpy as np
import pytest

from conenmf import certify, factorize, from_columns, from_rows
from conenmf.errors import ConeNMFError, DataChangedError, NotAvailableError
from conenmf.solve.constraints import Penalties

# --- judging ----------------------------------------------------------------------------------


def test_a_result_judges_itself(cones):
    V = from_columns(cones)
    result = factorize(V, 4)
    assert result.certificate is result.diagnosis is None
    assert result.certify() == certify(V, result.W, result.H)
    assert result.certify() is result.certificate
    result.diagnose()
    assert result.certificate == certify(V, result.W, result.H)
    again = factorize(V, 4)
    more = again.certify(effort=5)
    again.diagnose(effort=0)  # less effort would forget what is proved
    assert again.certificate == more
    passes = V.passes
    assert result.diagnose() is result.diagnosis
    assert result.certify() is result.certificate
    assert V.passes == passes


def test_data_that_were_changed_after_the_fit_are_not_judged(rng, refuses):
    """The matrix shares the memory of the array."""
    X = rng.random((60, 20))
    changed, shuffled, judged = (factorize(from_rows(X), 3) for _ in range(3))
    judged.diagnose()
    changed.certify()  # so that the diagnosis computes no error
    X[:] = X[::-1].copy()  # of the same norm
    refuses(DataChangedError, "were changed after the fit", shuffled.certify)
    X[:, 5] *= 2
    refuses(DataChangedError, "were changed after the fit", changed.diagnose)
    assert judged.diagnose() is judged.diagnosis


def test_pickling_keeps_the_certificate_and_not_the_data(cones, refuses):
    V = from_columns(cones)
    result = factorize(V, 4)
    passes = V.passes
    loaded = pickle.loads(pickle.dumps(result))
    first = loaded.certify()
    assert first == result.first_certificate
    assert (loaded.data, loaded.certificate, result.certificate, V.passes) == (
        *(None, None, None),
        passes,
    )
    no_data = r"certify\(\) needs the data.*or use conenmf.certify\(V, W, H\)"
    refuses(AttributeError, no_data, loaded.certify, effort=1)
    plain = result.certify(effort=0)
    assert first.lower_bound == plain.lower_bound == plain.eckart_young > 0
    assert first.kkt_residual == pytest.approx(plain.kkt_residual, rel=1e-6, abs=1e-12)
    assert (first.effort, first.relative_error) == (0, result.relative_error)
    assert pickle.loads(pickle.dumps(result)).certificate == plain


def test_data_that_changed_are_noticed(cones, refuses):
    changed = cones.copy()
    result = factorize(from_columns(changed), 4, max_iter=3, tol=0)
    changed[:] /= changed.sum(axis=0)
    for judge in (result.diagnose, result.certify):
        refuses(ConeNMFError, "the data were changed after the fit", judge)


# --- for people -------------------------------------------------------------------------------


NOT_THE_SMALLEST = np.array([[18, 18, 8, 6], [9, 5, 15, 9], [2, 8, 11, 17.0]])
MIXTURES = np.tile(np.eye(5), 2)[:, :4] @ np.random.default_rng(0).dirichlet(np.ones(4), 90).T


@pytest.mark.parametrize(
    ("data", "K", "expected"),
    [
        (MIXTURES, 4, None),
        (np.random.default_rng(0).random((20, 30)), 3, None),
        (NOT_THE_SMALLEST, 2, "yes, samples of different cones are 0.294 rad farther apart than"),
        (np.outer([1.0, 2.0, 3.0], [1.0, 2.0]), 1, None),
        (np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 1.0]), 2, None),
    ],
)
def test_the_summary_mentions_cones_only_if_there_are_some(data, K, expected):
    result = factorize(from_columns(data), K, init="random", rng=np.random.default_rng(0))
    result.diagnose()
    said = [line for line in result.summary() if line.startswith("Cones: ")]
    if expected is None:
        assert said == []
    else:
        (line,) = said
        assert line.startswith(f"Cones: the data fall into cones: {expected}")


def test_after_a_diagnosis_the_summary_is_about_the_components(cones):
    result = factorize(from_columns(cones), 4)
    result.certify()
    result.uniqueness()
    first = result.summary()[0]
    found = result.diagnose()
    headline, *findings = result.summary()[1:]
    assert result.summary()[0] == first
    assert headline == found.headline
    assert findings == [f"{row.name}: {row.finding}" for row in found.rows]


# --- copies and changes ---------------------------------------------------------------------


def test_copies_keep_data_and_certificate(cones):
    result = factorize(from_columns(cones), 4, max_iter=3, tol=0)
    certificate = result.certify()
    for duplicate in (copy.copy(result), copy.deepcopy(result)):
        assert duplicate.data is result.data
        assert duplicate.certificate == certificate
    assert copy.deepcopy(result).W is not result.W


def test_more_effort_replaces_the_certificate_and_less_does_not():
    result = factorize(from_columns(np.random.default_rng(0).random((20, 60)) ** 4), 4)
    plain = result.certify(effort=0)
    assert plain.lower_bound == plain.eckart_young
    result.diagnose()
    assert result.certificate == plain
    better = result.certify(effort=5)
    assert better.lower_bound > plain.lower_bound
    result.diagnose()
    assert result.certificate is result.certify(effort=2) is result.certify() is better
    result.diagnose(effort=8)
    assert result.certificate.effort == 8


def test_a_result_keeps_which_components_are_unique(reloaded, rng, refuses):
    X = rng.dirichlet([4.0] * 3, 80) @ (rng.random((3, 20)) + 0.1)
    result = factorize(from_rows(X + 0.02 * rng.random(X.shape)), 3)
    found = result.uniqueness()
    assert "can be moved" in found.verdicts
    assert found.summary() in result.summary()
    again = reloaded(result).uniqueness()
    assert (again.verdicts, again.lines()) == (found.verdicts, found.lines())
    np.testing.assert_array_equal(again.upper, found.upper)
    moved = found.verdicts.index("can be moved")
    refuses(NotAvailableError, "they were not kept", again.other, moved)


def test_of_a_fit_with_penalties_exact_factors_alone_are_sought(rng):
    X = rng.dirichlet([4.0] * 3, 80) @ (rng.random((3, 20)) + 0.1)
    result = factorize(from_rows(X), 3, penalties=Penalties(l2_w=0.01, l2_h=0.01))
    assert not result.uniqueness().was_searched
