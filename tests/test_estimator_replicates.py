"""Stability and choice of K by the estimator are those of the functions."""

import numpy as np
import pandas as pd
import pytest

import conenmf
from conenmf import ConeNMF, from_rows
from conenmf.judge.choose_k import choose_k


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    parts = rng.gamma(0.5, 4, (60, 3)) @ rng.gamma(0.5, 4, (3, 20))
    return pd.DataFrame(rng.poisson(parts).astype(float), columns=[f"word {f}" for f in range(20)])


@pytest.mark.seed(5)
@pytest.mark.parametrize("loss", ["frobenius", "poisson"])
def test_the_estimator_fits_many_times(X, loss, rng):
    model = ConeNMF(3, loss=loss, max_iter=20, tol=1e-3, random_state=5)
    found = model.stability(X, 4, resample="counts")
    options = {"loss": loss, "resample": "counts", "max_iter": 20, "tol": 1e-3}
    expected = conenmf.stability(from_rows(X), 3, 4, rng=rng, **options)
    np.testing.assert_array_equal(found.spectra, expected.spectra)
    assert found.names.feature_names[0] == "word 0"
    assert not hasattr(model, "components_")
    assert not hasattr(model, "n_features_in_")  # the model is not changed
    np.testing.assert_array_equal(model.fit(X).stability(X, 4, resample="counts").W, found.W)


def test_the_number_of_components_may_be_chosen(X):
    chosen = choose_k(from_rows(X)).K
    model = ConeNMF(max_iter=500)
    assert model.stability(X, 2).K == chosen
    model.fit(X)
    assert model.stability(X, 2).K == model.n_components_
