"""No function takes a missing entry for a zero: it handles it, with the right number, or refuses.

The calls are those of `test_arguments`, which has one of every public function, with data of which
entries are missing in place of the complete ones. What is not in `HANDLED` must refuse them.
"""

import numpy as np
import pytest
from tests import test_arguments as GIVEN

import conenmf
from conenmf import factorize, from_columns, from_rows
from conenmf.data.imputation import fill_missing
from conenmf.data.known import observed_only, weigh_samples
from conenmf.data.views import MappedMatrix, take_samples
from conenmf.errors import NotAvailableError
from conenmf.judge.stability import stability_over
from conenmf.solve.coefficients import coefficients
from conenmf.solve.losses import FROBENIUS, POISSON
from conenmf.solve.losses.count_bounds import poisson_gaps
from conenmf.solve.losses.poisson import margins, regressions

pytestmark = pytest.mark.filterwarnings("ignore")

F, N, K = GIVEN.F, GIVEN.N, GIVEN.K
DATA, COUNTS = GIVEN.MODEL.V, np.floor(9 * GIVEN.MODEL.V) + 1
KNOWN = np.random.default_rng(0).random((F, N)) > 0.15
WEIGHTS = KNOWN * np.random.default_rng(1).gamma(2.0, 1.0, (F, N))
HOLED = {
    "mask": (from_columns(DATA, mask=KNOWN), from_columns(COUNTS, mask=KNOWN)),
    "weights": (from_columns(DATA, weights=WEIGHTS), from_columns(COUNTS, weights=WEIGHTS)),
}
W, H = GIVEN.W, GIVEN.H

HANDLED = {  # each has a check of its numbers below
    "factorize",
    "compare",
    "certify",
    "diagnose",
    "uniqueness",
    "stability",  # in test_residuals.py
    "judge.stability.stability_over",
    "judge.displacement.displacement",  # in test_displacement.py
    "components_for",  # in test_requirement.py
    "select_k",  # by hidden entries, or with means in place of few missing ones
}


def with_holes(path, kind):
    """The arguments of a call that are data, with missing entries; none without such."""
    data, counts = HOLED[kind]
    changed = {}
    for name, (_, value) in GIVEN.CALLS[path].items():
        if value is GIVEN.V:
            changed[name] = data
        elif value is GIVEN.COUNTS:
            changed[name] = counts
        elif value is GIVEN.SPECTRUM or name in ("penalties", "problem"):
            changed[name] = None
    return changed if any(value is not None for value in changed.values()) else {}


TAKING = [path for path in GIVEN.CALLS if with_holes(path, "mask")]


def test_the_list_is_of_functions_that_take_data():
    assert len(TAKING) > 15
    assert {*TAKING} >= HANDLED


@pytest.mark.parametrize("kind", HOLED)
@pytest.mark.parametrize("path", TAKING)
def test_data_with_holes_are_handled_or_refused(path, kind, tmp_path, monkeypatch, refuses):
    monkeypatch.chdir(tmp_path)
    if path in HANDLED:
        GIVEN.call(path, **with_holes(path, kind))
        return
    refuses(NotAvailableError, "missing or weighted", GIVEN.call, path, **with_holes(path, kind))


def test_what_reads_all_data_refuses_those_with_holes(refuses):
    V = HOLED["mask"][0]
    refuses(NotAvailableError, "missing or weighted", MappedMatrix, V, np.sqrt, dtype=V.dtype)
    X = np.where(KNOWN, DATA, np.nan).T
    refuses(NotAvailableError, None, conenmf.ConeNMF(K, missing="nan").partial_fit, X)


# --- numbers, by plain NumPy ------------------------------------------------------------------


def squares(p, X, W, H):
    return float((p * (X - W @ H) ** 2).sum())


def divergence(p, X, W, H):
    is_known = p > 0  # the rate of a missing entry may be zero
    p, X, model = p[is_known], X[is_known], (W @ H)[is_known]
    return float((p * (X * np.log(X / model) - X + model)).sum())


@pytest.mark.parametrize("kind", HOLED)
class TestNumbers:
    @pytest.fixture
    def p(self, kind):
        return {"mask": KNOWN.astype(float), "weights": WEIGHTS}[kind]

    @pytest.fixture
    def V(self, kind):
        return HOLED[kind][0]

    @pytest.fixture
    def C(self, kind):
        return HOLED[kind][1]

    def test_errors(self, V, C, p):
        result = factorize(V, K, max_iter=5)
        error = np.sqrt(squares(p, DATA, result.W, result.H) / (p * DATA**2).sum())
        found = (result.relative_error, result.certify().relative_error)
        assert found == pytest.approx((error, error), rel=1e-9)
        assert 0 <= result.certify().lower_bound <= error
        assert f"{error:.4g}" in result.summary()[0]
        limits = {"max_iter": 100, "tol": 1e-6}
        table = conenmf.compare(V, K, inits=["cr1"], solvers=["hals"], **limits)
        again = factorize(V, K, init="cr1", solver="hals", **limits)
        assert table.contenders[0].relative_error == pytest.approx(again.relative_error, rel=1e-9)
        counted = factorize(C, K, loss="poisson")
        value = divergence(p, COUNTS, counted.W, counted.H)
        found = (counted.objective, counted.certify().divergence, counted.relative_error)
        assert found == pytest.approx((value, value, value / margins(C).scale), rel=1e-7)

    def test_coefficients(self, V, C, p):
        H, _, value = coefficients(V, W)
        assert value == pytest.approx(squares(p, DATA, W, H), rel=1e-9)
        gradient = W.T @ (p * (W @ H - DATA))
        assert np.abs(np.minimum(H, gradient)).max() < 1e-8 * np.abs(W.T @ DATA).max()
        assert FROBENIUS.coefficients(V, W)[2] == value
        positive = W + 0.01
        H, _, sums = regressions(C, positive)
        assert sums.divergence == pytest.approx(divergence(p, COUNTS, positive, H), rel=1e-7)
        gradient = positive.T @ (p * (1 - COUNTS / (positive @ H)))
        assert np.abs(np.minimum(H, gradient)).max() < 1e-3 * np.abs(positive.T @ p).max()
        assert POISSON.coefficients(C, positive)[2] == pytest.approx(sums.divergence)

    def test_margins(self, C, p):
        found = margins(C)
        np.testing.assert_allclose(found.features, (p * COUNTS).sum(axis=1))
        np.testing.assert_allclose(found.samples, (p * COUNTS).sum(axis=0))
        one = factorize(C, 1, loss="poisson", tol=1e-10)
        assert found.divergence == pytest.approx(divergence(p, COUNTS, one.W, one.H), rel=1e-4)
        assert POISSON.on(C).relative_error(found.divergence / POISSON.on(C).unit) == pytest.approx(
            1
        )
        assert FROBENIUS.on(HOLED["mask"][0]).total == pytest.approx((KNOWN * DATA**2).sum())

    def test_certificates(self, C, p):
        positive = W + 0.01
        H = regressions(C, positive)[0]
        value = divergence(p, COUNTS, positive, H)
        for judge in (poisson_gaps, lambda V, W, H: POISSON.bounds(V).certify(W, H)):
            assert judge(C, positive, H).divergence == pytest.approx(value, rel=1e-7)
        assert POISSON.bounds(C).certify(positive, H).lower_bound == 0

    def test_views(self, V, p):
        index = np.array([5, 2, 2, 9])
        part = take_samples(V, index)
        expected = from_columns(DATA[:, index], weights=p[:, index]).observed
        assert part.observed.total == pytest.approx(expected.total)
        np.testing.assert_array_equal(np.asarray(part.observed.weights), p[:, index].T)
        assert part.observed.missing == pytest.approx((p[:, index] == 0).mean())
        s = np.random.default_rng(2).random(N)
        weighed = weigh_samples(V, s)
        assert weighed.observed.total == pytest.approx((p * s * DATA**2).sum())
        means = (KNOWN * DATA).sum(axis=1) / KNOWN.sum(axis=1)
        whole = fill_missing(V)
        assert whole.observed is None
        shown = np.asarray(whole.columns(np.arange(N)))
        np.testing.assert_allclose(shown, np.where(KNOWN, DATA, means[:, None]))

    def test_choices_predict_entries_where_many_are_missing(self, V):
        chosen = conenmf.select_k(V)
        assert (chosen.decided_by, chosen.grade) == ("hidden", "guess")
        assert factorize(V, max_iter=5).K == chosen.K

    def test_the_diagnosis_uses_known_entries_only(self, V, p):
        result = factorize(V, K)
        found = result.diagnose(effort=0).details
        shown = np.where(p > 0, DATA, result.W @ result.H)
        values = np.linalg.svd(shown, compute_uv=False)
        seen = found.rank.singular_values
        np.testing.assert_allclose(seen, values[: seen.size])
        left = (p * (DATA - result.W @ result.H) ** 2).sum(axis=0)
        own = np.sqrt(left / (p * DATA**2).sum(axis=0))
        np.testing.assert_allclose(found.inspected.errors, own[found.inspected.indices], rtol=1e-7)
        assert len(result.uniqueness().verdicts) == K


def test_data_that_turn_out_complete_are_accepted():
    assert observed_only(from_rows(DATA.T), mask=np.ones((N, F), bool)).observed is None
    part = take_samples(from_columns(DATA, mask=np.arange(N) * np.ones((F, 1)) > 2), [5, 6])
    assert part.observed is None


def test_the_stability_of_several_numbers_is_that_of_each():
    V = HOLED["weights"][0]
    over = stability_over(V, [K], 3, max_iter=5, rng=np.random.default_rng(0)).found[K]
    alone = conenmf.stability(V, K, 3, max_iter=5, rng=np.random.default_rng(0))
    assert over.relative_error == alone.relative_error
    np.testing.assert_array_equal(over.W, alone.W)


def test_after_partial_fit_all_features_are_known():
    X = np.random.default_rng(0).random((60, 20))
    holes = X.copy()
    holes[:, 3] = np.nan
    model = conenmf.ConeNMF(3, missing="nan").fit(holes)
    assert np.isnan(model.inverse_transform(model.transform(X))[:, 3]).all()
    model.partial_fit(X)
    assert not np.isnan(model.inverse_transform(model.transform(X))).any()


def test_coefficients_of_counts_stay_in_range_where_one_feature_is_known():
    """Component 0 has next to nothing of the only feature that is known of a sample."""
    W = np.array([[0.9, 0.2], [0.1, 0.2], [1e-172, 0.6]])
    X = np.array([[2.0, 3.0, 1.0], [1.0, 1.0, 3.0], [4.0, 4.0, 4.0]])
    known = np.array([[True, True, False], [True, True, False], [True, True, True]])
    H, _, sums = regressions(from_columns(X, mask=known), W)
    assert H.max() < 100
    assert sums.divergence == pytest.approx(divergence(known, X, W, H))
    result = factorize(from_columns(X, mask=known), 2, loss="poisson", init=W, solver=None)
    assert result.objective == pytest.approx(sums.divergence)


def test_choices_see_means_in_place_of_few_holes():
    known = np.random.default_rng(0).random((F, N)) > 0.05
    means = (known * DATA).sum(axis=1) / known.sum(axis=1)
    whole = from_columns(np.where(known, DATA, means[:, None]))
    one, other = (conenmf.select_k(V) for V in (from_columns(DATA, mask=known), whole))
    assert one.sentence == other.sentence
