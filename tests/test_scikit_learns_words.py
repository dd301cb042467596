"""Parameters of scikit-learn's NMF: each works here, or the error says what it is called here."""

import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import NMF

from conenmf import ConeNMF, factorize, from_columns
from conenmf.errors import ComponentsError, FileFormatError, OptionError, ParameterError
from conenmf.solve.losses import POISSON
from conenmf.solve.losses.frobenius import Frobenius

RNG = np.random.default_rng(0)
X = RNG.poisson(5 * RNG.random((30, 3)) @ RNG.random((3, 8))).astype(float) + 1.0


def test_every_parameter_of_scikit_learn_is_there_or_answered():
    theirs = set(inspect.signature(NMF).parameters) - set(inspect.signature(ConeNMF).parameters)
    assert {"beta_loss"} <= theirs
    for name in theirs:
        with pytest.raises(ParameterError, match=f"scikit-learn's {name} is .* here"):
            ConeNMF(2, **{name: "x"})
    with pytest.raises(TypeError, match="`partial_fit`"):
        ConeNMF(2, batch_size=100)
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        ConeNMF(2, wrong=1)


def test_the_signature_and_the_routes_of_metadata_stay():
    names = list(inspect.signature(ConeNMF).parameters)
    assert names[:2] == ["n_components", "init"]
    assert list(inspect.signature(ConeNMF.fit).parameters)[:4] == [
        "self",
        "X",
        "y",
        "sample_weight",
    ]
    assert set(ConeNMF().get_params()) == set(names)
    assert clone(ConeNMF(3, init="cr1")).init == "cr1"


@pytest.mark.parametrize("name", ["W", "H"])
def test_factors_as_arguments_are_answered_with_init(name):
    for method in (ConeNMF(2).fit, ConeNMF(2).fit_transform):
        with pytest.raises(ParameterError, match=rf"{name} is .*init=\(W, H\)"):
            method(X, **{name: np.ones((30, 2))})


def test_custom_and_none_are_answered():
    with pytest.raises(OptionError, match=r"scikit-learn's 'custom' is a pair .*init=\(W, H\)"):
        ConeNMF(2, init="custom").fit(X)
    with pytest.raises(OptionError, match="scikit-learn's 'cd' is 'hals' here"):
        ConeNMF(2, solver="cd").fit(X)
    with pytest.raises(ComponentsError, match="None means the number of features"):
        ConeNMF(None).fit(X)


@pytest.mark.parametrize(
    ("short", "loss"), [("kl", "poisson"), ("is", "itakura-saito"), (POISSON, "poisson")]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_loss_has_short_names_and_may_be_an_object(short, loss, tmp_path):
    expected = ConeNMF(2, loss=loss).fit(X)
    model = ConeNMF(2, loss=short).fit(X)
    np.testing.assert_array_equal(model.components_, expected.components_)
    assert model.result_.loss == loss
    model.save(tmp_path / "model.npz")
    again = ConeNMF.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.transform(X), expected.transform(X))


class Strange(Frobenius):
    """A loss that the library does not know."""

    name = "strange"


def test_a_loss_of_your_own_may_be_passed_and_pickled(tmp_path):
    result = factorize(from_columns(X.T), 2, loss=Strange())
    again = pickle.loads(pickle.dumps(result))
    assert again.problem.loss.name == "strange"
    np.testing.assert_array_equal(again.W, factorize(from_columns(X.T), 2).W)
    result.save(tmp_path / "result.npz")
    with pytest.raises(FileFormatError, match="loss='strange' is unknown"):
        type(result).load(tmp_path / "result.npz")


def test_a_solver_that_returns_zeros_is_refused():
    def nothing(G, C, Y):
        return np.zeros_like(Y)

    with pytest.raises(OptionError, match=r"solver='nothing' returned only zeros, .* mend"):
        factorize(from_columns(X.T), 2, solver=nothing)
