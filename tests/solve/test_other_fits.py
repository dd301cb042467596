"""A checkpoint is resumed by the same fit with the same bits, and refused by every other one."""

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import ConeNMF
from conenmf.errors import CheckpointError
from conenmf.scale.checkpoint import Checkpoint

N, F = 60, 12
KNOWN = "the mask, the weights or the missing entries are not those"
FIXED = "the fixed components or their names are not those"

_rng = np.random.default_rng(0)
X = _rng.poisson(_rng.gamma(1.0, 2, (N, 3)) @ _rng.gamma(1.0, 1, (3, F))).astype(float)

# What a fit gives to `ConeNMF` and to `fit`, and what a message says if only this differs.
KINDS = {
    "plain": ({}, {}, None),
    "sum to one": ({"sum_to_one": True}, {}, "its penalties is"),
    "L2": ({"alpha_W": 0.1, "l1_ratio": 0.0}, {}, "its penalties is"),
    "L1": ({"alpha_W": 0.1, "alpha_H": 0.2, "l1_ratio": 1.0}, {}, "its penalties is"),
    "orthogonal": ({"orthogonality": 0.1}, {}, "its penalties is"),
    "mask": ({}, {"mask": X != 1}, KNOWN),
    "another mask": ({}, {"mask": X != 2}, KNOWN),
    "weights": ({}, {"weights": 1 / (1 + X)}, KNOWN),
    "weights of features": ({}, {"weights": np.arange(1.0, F + 1)}, KNOWN),
    "weights of samples": ({}, {"sample_weight": np.linspace(1, 2, N)}, KNOWN),
    "repeated samples": ({}, {"sample_weight": 1 + np.arange(N) % 2}, KNOWN),
    "missing": ({"missing": "zeros"}, {}, KNOWN),
    "fixed": ({"fixed": X[:1]}, {}, FIXED),
    "others fixed": ({"fixed": X[1:2]}, {}, FIXED),
    "poisson": ({"loss": "poisson"}, {}, "its loss is"),
    "poisson, L1": ({"loss": "poisson", "alpha_W": 0.1, "l1_ratio": 1.0}, {}, "its loss is"),
    "poisson, mask": ({"loss": "poisson"}, {"mask": X != 1}, "its loss is"),
}


class KilledError(Exception):
    pass


def killed(now):
    if now.iteration == 3:
        raise KilledError


def fit(kind, **more):
    of_model, of_fit, _ = KINDS[kind]
    options = {"init": "random", "random_state": 0, "solver": "auto", "max_iter": 6, "tol": 0}
    return ConeNMF(3, **options | of_model | more).fit(sp.csr_array(X), **of_fit)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_fit_resumes_with_the_same_bits_and_others_are_refused(tmp_path, kind):
    whole = fit(kind)
    with pytest.raises(KilledError):
        fit(kind, checkpoint=Checkpoint(tmp_path, every=0), callback=killed)
    before = [*KINDS][[*KINDS].index(kind) - 1]
    for other in KINDS if kind == "plain" else ("plain", before):
        if other != kind:
            name = (
                KINDS[other if kind == "plain" else kind][2] if "plain" in (kind, other) else None
            )
            with pytest.raises(
                CheckpointError, match=f"belongs to another run: {name or 'the|its'}"
            ):
                fit(other, checkpoint=tmp_path)
    resumed = fit(kind, checkpoint=tmp_path)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    np.testing.assert_array_equal(resumed.result_.H, whole.result_.H)
    assert resumed.n_iter_ == 6
