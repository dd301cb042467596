import json

import pytest

from conenmf.solve.stopping import Stopping, StopReason


@pytest.mark.parametrize("reason", StopReason)
def test_every_reason_is_its_name_and_has_a_sentence(reason):
    assert reason == reason.value == str(reason) == json.loads(json.dumps(reason))
    assert StopReason(str(reason)) is reason
    assert len(reason.description) > 10


@pytest.mark.parametrize(
    ("errors", "elapsed", "reason"),
    [
        ([], 0.0, None),
        ([0.5] * 5, 0.0, None),
        ([0.5] * 6, 0.0, StopReason.CONVERGED),
        ([0.5, 1e-8], 0.0, StopReason.EXACT),
        ([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2], 0.0, StopReason.MAX_ITER),
        ([0.5], 9.0, StopReason.MAX_TIME),
    ],
)
def test_the_limits(errors, elapsed, reason):
    assert Stopping(max_iter=8, max_time=9.0).reason(errors, elapsed) is reason
