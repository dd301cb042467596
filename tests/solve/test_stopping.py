import pytest

from conenmf.solve.run import Stopping, StopReason


@pytest.mark.parametrize(
    ("errors", "elapsed", "reason"),
    [
        ([], 0.0, None),
        ([0.5] * 5, 0.0, None),
        ([0.5] * 7, 0.0, None),
        ([0.5, 1e-8], 0.0, StopReason.EXACT),
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], 0.0, StopReason.MAX_ITER),
        ([0.5], 9.0, StopReason.MAX_TIME),
    ],
)
def test_the_limits(errors, elapsed, reason):
    assert Stopping(max_iter=8, max_time=9.0).reason(errors, elapsed) is reason


def test_iterations_that_were_undone_are_no_evidence_unless_all_are():
    stopping = Stopping(tol=1e-3, window=3)
    falls = [1.0, 0.9, 0.81, 0.81, 0.80999, 0.80999, 0.80998]  # two of the last four were undone
    assert stopping.reason(falls, 0.0) is None
    assert stopping.reason([*falls, 0.80997], 0.0) is StopReason.CONVERGED
    assert stopping.reason([0.5] * 6, 0.0) is None
    assert stopping.reason([0.5] * 7, 0.0) is StopReason.CONVERGED  # as many as two windows
