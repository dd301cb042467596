import pickle

import numpy as np
import pytest

from conenmf import ConeNMF, Factorization, certify, factorize, from_columns, from_rows
from conenmf.cones.certificate import Certificate
from conenmf.errors import DataChangedError, NotAvailableError, OptionError
from conenmf.judge.count_certificate import CountCertificate
from conenmf.report import render


@pytest.fixture(scope="module")
def counts():
    """Counts of three patterns, with known rates."""
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(0.5, 30, (80, 3)) @ rng.dirichlet(np.full(25, 0.2), 3))


@pytest.fixture(scope="module")
def fitted(counts):
    result = factorize(from_rows(counts), 3, loss="poisson")
    result.diagnose()
    return result


def test_the_loss_chooses_the_certificate(counts, fitted):
    V, W, H = from_rows(counts), fitted.W, fitted.H
    assert isinstance(certify(V, W, H), Certificate)
    by_name = [certify(V, W, H, loss=loss) for loss in ("poisson", "kullback-leibler")]
    assert by_name[0] == by_name[1] == fitted.certify()
    assert isinstance(by_name[0], CountCertificate)
    with pytest.raises(OptionError, match="loss"):
        certify(V, W, H, loss="absolute")
    # with a given component too the bound is that of all factors
    given = certify(V, W, H, loss="poisson", n_fixed=1)
    assert given.lower_bound == pytest.approx(by_name[0].lower_bound, rel=1e-12)


def test_a_fit_of_counts_judges_itself_in_the_words_of_counts(fitted):
    certificate = fitted.certify()
    assert certificate.divergence == pytest.approx(fitted.objective, rel=1e-9)
    assert certificate.relative_error == pytest.approx(fitted.relative_error, rel=1e-9)
    assert certificate.coefficient_gap <= 1e-7 * fitted.data.mean() * 25 * 80
    assert abs(certificate.above_floor) < 0.1
    summary = "\n".join(fitted.summary())
    assert f"{certificate.deviance_explained:.1%} of the deviance explained" in summary
    assert "noise floor" in summary
    assert "relative error" not in summary
    assert fitted.certify() is certificate
    assert fitted.certify(effort=12).effort == 12
    assert fitted.diagnose().certificate.effort == 12


def test_too_few_components_are_far_above_the_floor(counts):
    model = ConeNMF(1, loss="poisson").fit(counts)
    assert model.certify().above_floor > 0.3
    assert "overdispersed, or K is too small" in "\n".join(model.result_.summary())
    assert model.certify().lower_bound == pytest.approx(1.0)  # attained


def test_it_is_saved_and_loaded(fitted, tmp_path):
    fitted.save(tmp_path / "all.npz")
    loaded = Factorization.load(tmp_path / "all.npz")
    assert loaded.certify() == fitted.certify()
    assert loaded.diagnosis.certificate == fitted.certify()
    assert type(loaded.certify().is_refitted) is bool
    assert type(loaded.certify().effort) is int


def test_without_a_diagnosis_it_is_saved_too(counts, tmp_path):
    result = factorize(from_rows(counts), 2, loss="poisson")
    unjudged = pickle.loads(pickle.dumps(result))
    with pytest.raises(NotAvailableError, match="needs the data"):
        unjudged.certify()
    certificate = result.certify()
    result.save(tmp_path / "some.npz")
    loaded = Factorization.load(tmp_path / "some.npz")
    assert loaded.diagnosis is None
    assert loaded.certify() == certificate


def test_the_report_speaks_of_counts(fitted):
    page = render(fitted)
    assert "Deviance explained" in page
    assert "Noise floor" in page
    assert "Duality gaps" in page
    assert "share of the deviance left" in page
    assert "KKT residual" not in page
    shown = fitted.certify().is_bound_telling
    assert ("no nonnegative factorisation with" in page) == shown
    assert ("lower bound is" in page) == shown


def test_changed_data_are_noticed(counts):
    X = counts.astype(float)
    result = factorize(from_rows(X), 2, loss="poisson")
    X[0, 0] += 50
    with pytest.raises(DataChangedError):
        result.certify()


def test_data_that_are_not_in_memory_have_the_quick_floor(counts, tmp_path):
    np.save(tmp_path / "counts.npy", counts.T.astype(float))
    V = from_columns(np.load(tmp_path / "counts.npy", mmap_mode="r"))
    result = factorize(V, 3, loss="poisson")
    certificate = result.certify()
    assert not certificate.is_refitted
    assert "ignores the parameters" in certificate.floor_in_words()
