"""A loss under a made-up name, registered in one place, is taken everywhere."""

import numpy as np
import pytest

from conenmf import ConeNMF, factorize, from_rows, stability, write_report
from conenmf.scale.checkpoint import Checkpoint
from conenmf.solve.loss import Words
from conenmf.solve.losses import LOSSES
from conenmf.solve.losses.beta_divergence import BetaDivergence
from conenmf.solve.losses.frobenius import Frobenius
from conenmf.solve.losses.poisson import Poisson

WORDS = Words("share of the strangeness", "strangeness", "strangeness {error:.4g}{known}")


@pytest.fixture(params=[Frobenius, Poisson, BetaDivergence])
def loss(request, monkeypatch):
    made_up = type("MadeUp", (request.param,), {"name": "made-up", "words": WORDS})
    monkeypatch.setitem(LOSSES, "made-up", made_up())
    return request.param


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    blocks = np.kron(np.eye(3), np.ones((9, 4))) * rng.uniform(20, 90, (27, 12))
    return np.round(blocks) + rng.integers(1, 4, (27, 12))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fit_transform_and_summary(loss, X):
    model = ConeNMF(3, loss="made-up")
    A = model.fit_transform(X)
    np.testing.assert_allclose(model.transform(X), A)
    usual = ConeNMF(3, loss=loss.name).fit(X)
    np.testing.assert_array_equal(model.components_, usual.components_)
    assert model.result_.loss == "made-up"
    assert model.result_.summary()[0].startswith("3 components; strangeness 0.")


def test_the_report(loss, X, tmp_path):
    write_report(factorize(from_rows(X), 3, loss="made-up"), tmp_path / "report.html")
    assert "strangeness" in (tmp_path / "report.html").read_text("utf-8").casefold()


def test_a_run_that_the_user_ended_resumes(loss, X, tmp_path):
    options = {"loss": "made-up", "init": "cr1", "tol": 0.0, "max_iter": 12}
    whole = factorize(from_rows(X), 3, **options)
    place = Checkpoint(tmp_path / "run")  # every minute, and when the run is ended
    factorize(from_rows(X), 3, checkpoint=place, callback=lambda now: now.iteration == 5, **options)
    resumed = factorize(from_rows(X), 3, checkpoint=place, **options)
    np.testing.assert_array_equal(resumed.W, whole.W)


def test_stability(loss, X):
    resample = "samples" if loss.degree else "start"
    found = stability(from_rows(X), 3, 4, loss="made-up", resample=resample)
    assert (found.loss, found.verdict) == ("made-up", "stable")
    assert any(sentence.startswith("strangeness: ") for sentence in found.in_sentences())
