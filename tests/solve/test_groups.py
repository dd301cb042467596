"""Groups of samples: the objective, scales and the table beside plain NumPy, and what they keep."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from conenmf import ConeNMF, Factorization, Problem, factorize, from_columns, from_rows, stability
from conenmf.data.groups import Groups
from conenmf.errors import (
    CheckpointError,
    DataError,
    InputWarning,
    NotAvailableError,
    OptionError,
)
from conenmf.fields.measurements import bootstrap
from conenmf.scale.checkpoint import Checkpoint
from conenmf.solve import groups as solve_groups
from conenmf.solve.constraints import Penalties
from conenmf.solve.groups import estimate_scales, fit_groups, problem_of_groups, sums_of
from conenmf.solve.run import Stopping

K, F, SIZE = 3, 40, 60
LOSSES = ("frobenius", "poisson")


def draw(seed=0, sd=0.5, table=((1, 1, 0), (1, 0, 1), (0, 1, 1)), size=SIZE, depth=400):
    """Counts (F, N), labels, scales and usages of groups that use the components of a table."""
    rng = np.random.default_rng(seed)
    table = np.array(table, bool)
    G = len(table)
    W = rng.lognormal(0, 0.3, (F, K))
    W[np.arange(F), np.arange(F) % K] *= 8
    W /= W.sum(axis=0)
    scales = rng.lognormal(0, sd, (G, F))
    codes = np.repeat(np.arange(G), size)
    H = rng.gamma(0.5, 1.0, (K, codes.size)) * table[codes].T
    rates = (W @ H) * scales[codes].T
    rates *= depth / np.maximum(rates.sum(axis=0), 1e-9)
    labels = np.array(["ash", "elm", "oak"])[codes] if G == 3 else codes
    return rng.poisson(rates).astype(float), labels, scales, table


@pytest.fixture(scope="module")
def drawn():
    return draw()


def objective(V, W, H, groups, loss, weights=None):
    """What the model minimises, as it is defined."""
    codes = groups.codes
    p = np.ones(V.shape) if weights is None else weights
    b = groups.scales[codes].T
    used = H if groups.table is None else np.where(groups.table[codes].T, H, 0)
    if loss == "frobenius":
        return (p * (V / b - W @ used) ** 2).sum()
    x = b * (W @ used)
    logs = np.where(V > 0, V * np.log(np.where(V > 0, V, 1) / np.where(V > 0, x, 1)), 0)
    return (p * (logs - V + x)).sum()


def fitted(V, labels, loss, **options):
    return factorize(from_columns(V), K, loss=loss, groups=labels, **options)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_objective_is_that_of_the_model(drawn, loss):
    V, labels, *_ = drawn
    result = fitted(V, labels, loss)
    groups = result.problem.groups
    assert groups.scales.shape == (3, F)
    assert result.group_table.shape == (3, K)
    assert (groups.scales != 1).any()
    expected = objective(V, result.W, result.H, groups, loss)
    assert result.objective == pytest.approx(expected, rel=1e-9)
    assert not result.H[~result.group_table[groups.codes].T].any()


@pytest.mark.parametrize("kind", ["whole", "sparse", "mask", "weights", "pattern"])
def test_the_error_is_that_of_the_data(drawn, kind, rng):
    """Not that of V / b, which the run minimises."""
    V, labels, *_ = drawn
    weights = np.ones(V.shape)
    if kind == "mask":
        weights = (rng.random(V.shape) < 0.8).astype(float)
    elif kind == "weights":
        weights = rng.uniform(0.5, 2, V.shape)
    elif kind == "pattern":
        weights = (V > 0).astype(float)
    data = {
        "whole": lambda: from_columns(V),
        "sparse": lambda: from_columns(sp.csc_array(V)),
        "mask": lambda: from_columns(V, mask=weights > 0),
        "weights": lambda: from_columns(V, weights=weights),
        "pattern": lambda: from_rows(sp.csr_array(V.T), missing="zeros"),
    }[kind]()
    result = factorize(data, K, groups=labels, max_iter=60)
    groups = result.problem.groups
    assert groups.has_scales
    fit = groups.scales[groups.codes].T * (result.W @ result.H)
    expected = np.sqrt((weights * (V - fit) ** 2).sum() / (weights * V**2).sum())
    assert result.relative_error == pytest.approx(expected, rel=1e-9)


def test_the_error_of_the_model_is_in_the_units_of_x(drawn):
    V, labels, *_ = drawn
    model = ConeNMF(K, max_iter=60)
    fit = model.fit_transform(V.T, groups=labels) @ model.components_
    fit *= model.group_scales_[np.unique(labels, return_inverse=True)[1]]
    assert model.reconstruction_err_ == pytest.approx(np.linalg.norm(V.T - fit), rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_h_is_the_best_for_w(drawn, loss):
    """No step of any coefficient lowers the objective of the definition."""
    V, labels, *_ = drawn
    result = fitted(V, labels, loss)
    groups, H = result.problem.groups, result.H
    best = objective(V, result.W, H, groups, loss)
    for k in range(K):
        for factor, shift in ((0.99, 0.0), (1.01, 0.0), (1.0, 1e-3 * H.mean())):
            moved = H.copy()
            moved[k] = moved[k] * factor + shift
            assert objective(V, result.W, moved, groups, loss) >= best * (1 - 1e-12)


def test_scales_and_table_of_the_truth_are_found(drawn):
    V, labels, scales, table = drawn
    result = fitted(V, labels, "poisson")
    found = np.log(result.group_scales)
    truth = np.log(scales) - np.log(scales).mean(axis=0)
    truth -= truth.mean(axis=1, keepdims=True)
    assert np.corrcoef(found.ravel(), truth.ravel())[0, 1] > 0.9
    columns = {tuple(one) for one in result.group_table.T.tolist()}
    assert columns == {tuple(one) for one in table.T.tolist()}
    assert result.groups == ("ash", "elm", "oak")


@pytest.mark.parametrize("loss", LOSSES)
def test_norms(drawn, loss):
    """The mean log scale of each feature is zero, and so is a weighted one of each group."""
    V, labels, *_ = drawn
    result = fitted(V, labels, loss)
    logs = np.log(result.group_scales)
    np.testing.assert_allclose(logs.mean(axis=0), 0, atol=1e-12)
    weights = np.linalg.lstsq(
        np.vstack([logs, np.ones(F)]), np.append(np.zeros(3), 1.0), rcond=None
    )[0]
    np.testing.assert_allclose(logs @ weights, 0, atol=1e-9)


def few_features(seed, K, loss):
    """Samples (N, 8 K + 1) of K groups, of which two lack a component, and labels."""
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(K), 60)
    W = rng.gamma(0.4, size=(K, 8 * K + 1))
    H = rng.gamma(0.5, size=(codes.size, K))
    H[codes == K - 1, K - 1] = 0
    H[codes == 0, K - 2] = 0
    means = (H @ W) * np.exp(0.5 * rng.normal(size=(K, W.shape[1])))[codes]
    if loss == "frobenius":
        return means * (1 + 0.02 * rng.random(means.shape)), codes
    return rng.poisson(300 * means / means.sum(axis=1).mean()).astype(float), codes


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("K", [3, 4])
def test_the_table_costs_hardly_any_error(K, loss, monkeypatch):
    """As many groups as components, and few features: scales and components compete."""
    errors = []
    for seed in range(1, 7):
        X, labels = few_features(seed, K, loss)
        V = from_rows(X)
        plain = factorize(V, K, loss=loss)
        fit = factorize(V, K, loss=loss, groups=labels)
        with monkeypatch.context() as patch:
            patch.setattr(solve_groups, "_SHARES", {})
            free = factorize(V, K, loss=loss, groups=labels)
        # What a run minimises: the error of the data divided by the scales.
        last = [one.history.relative_error[-1] for one in (fit, free, plain)]
        errors.append(last)
        assert last[0] <= 1.6 * last[1]  # another minimum
        assert fit.relative_error < plain.relative_error
    fit, free, plain = np.mean(errors, axis=0)
    assert fit < 1.1 * free
    assert fit < 0.6 * plain


def test_groups_that_share_no_component_have_scales_of_one():
    """What one of them has more of is in its components."""
    V, labels, *_ = draw(5, table=np.array([[1, 0, 0], [1, 0, 0], [0, 1, 1]]), sd=0.3)
    result = fitted(V, labels, "poisson")
    np.testing.assert_array_equal(result.problem.groups.blocks, [0, 0, 1])
    np.testing.assert_allclose(result.group_scales[2], 1, rtol=1e-12)
    assert (result.group_scales[0] != 1).any()
    np.testing.assert_allclose(result.group_scales[:2].prod(axis=0), 1, rtol=1e-12)
    assert "2 sets of groups have no component in common" in result.problem.groups.sentence


@pytest.mark.parametrize("loss", LOSSES)
def test_a_fit_that_is_stopped_early_has_scales_of_its_factors(drawn, loss):
    """Their variance is not the one that the first stretches assume."""
    V, *_ = draw(1, sd=0.0, table=np.ones((3, K)))
    labels = np.arange(V.shape[1]) % 4
    for limit in ({"max_iter": 20}, {"callback": lambda now: now.iteration == 60}):
        result = fitted(V, labels, loss, **limit)
        assert (result.group_scales == 1).all()
    V, labels, *_ = drawn
    stopped = fitted(V, labels, loss, callback=lambda now: now.iteration == 60)
    assert len(stopped.history.relative_error) == 60
    assert stopped.stop_reason == "callback"
    expected = objective(V, stopped.W, stopped.H, stopped.problem.groups, loss)
    assert stopped.objective == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_without_differences_the_fit_is_the_plain_one(loss):
    """Labels that say nothing leave scales of one and a full table."""
    V, *_ = draw(1, sd=0.0, table=np.ones((3, K)))
    labels = np.arange(V.shape[1]) % 4
    result = fitted(V, labels, loss)
    assert (result.group_scales == 1).all()
    assert result.group_table.all()
    plain = factorize(from_columns(V), K, loss=loss, max_iter=2000, tol=1e-9)
    longer = fitted(V, labels, loss, max_iter=2000, tol=1e-9)
    assert longer.relative_error == pytest.approx(plain.relative_error, rel=1e-4)
    assert longer.certify() is not None  # nothing that a judge does not know


@pytest.mark.parametrize("loss", LOSSES)
def test_names_and_order_of_groups_do_not_matter(drawn, loss):
    V, labels, *_ = drawn
    one = fitted(V, labels, loss)
    other = fitted(V, np.array(["c", "a", "b"])[np.unique(labels, return_inverse=True)[1]], loss)
    assert other.groups == ("a", "b", "c")
    np.testing.assert_allclose(other.group_scales, one.group_scales[[1, 2, 0]], rtol=1e-6)
    np.testing.assert_array_equal(other.group_table, one.group_table[[1, 2, 0]])


@pytest.mark.parametrize("loss", LOSSES)
def test_the_unit_does_not_matter(drawn, loss):
    V, labels, *_ = drawn
    one, other = (fitted(unit * V, labels, loss) for unit in (1.0, 2.0**40))
    np.testing.assert_allclose(other.group_scales, one.group_scales, rtol=1e-6)
    np.testing.assert_array_equal(other.group_table, one.group_table)


@pytest.mark.parametrize(("loss", "nearly"), [("frobenius", 1e-4), ("poisson", 0.03)])
def test_every_storage_gives_the_same(main_backend, drawn, loss, nearly):
    """Counts in blocks take another step of W, so that they agree at the end alone."""
    V, labels, *_ = drawn
    limits = {"max_iter": 60, "init": "cr1"}
    result = factorize(main_backend(V), K, loss=loss, groups=labels, **limits)
    own = factorize(from_columns(V), K, loss=loss, groups=labels, **limits)
    np.testing.assert_array_equal(result.group_table, own.group_table)
    np.testing.assert_allclose(result.group_scales, own.group_scales, rtol=nearly)
    assert result.relative_error == pytest.approx(own.relative_error, rel=nearly / 30)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["mask", "weights", "pattern"])
def test_holes_and_weights(drawn, loss, kind, rng):
    V, labels, *_ = drawn
    mask = rng.random(V.shape) < 0.8
    weights = np.where(mask, 1.0 if kind == "mask" else rng.uniform(0.5, 2, V.shape), 0.0)
    if kind == "pattern":
        V, weights = V + mask, mask.astype(float)
        data = from_rows(sp.csr_array(np.where(mask, V, 0).T), missing="zeros")
    elif kind == "mask":
        data = from_columns(V, mask=mask)
    else:
        data = from_columns(V, weights=weights)
    result = factorize(data, K, loss=loss, groups=labels, max_iter=80)
    groups = result.problem.groups
    assert (groups.scales != 1).any()
    expected = objective(V, result.W, result.H, groups, loss, weights)
    assert result.objective == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_penalties_and_known_components(drawn, loss):
    V, labels, *_ = drawn
    penalties = Penalties(l1_h=0.1, l1_w=0.1)
    known = factorize(from_columns(V), K, loss=loss).W[:, :1]
    result = fitted(V, labels, loss, penalties=penalties, fixed=known, max_iter=80)
    np.testing.assert_array_equal(result.W[:, :1], known)
    value = objective(V, result.W, result.H, result.problem.groups, loss)
    factor = 2 if loss == "frobenius" else 1
    expected = value + factor * (0.1 * result.H.sum() + 0.1 * result.W.sum())
    assert result.objective == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_of_samples_are_repetitions(drawn, loss, rng):
    V, labels, *_ = drawn
    counts = rng.integers(1, 3, V.shape[1])
    model = ConeNMF(K, loss=loss, max_iter=80)
    A = model.fit_transform(V.T, sample_weight=counts, groups=labels)
    assert A.shape == (V.shape[1], K)
    np.testing.assert_allclose(model.transform(V.T, groups=labels), A, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_transform(drawn, loss, tmp_path):
    V, labels, *_ = drawn
    X = V.T
    model = ConeNMF(K, loss=loss)
    A = model.fit_transform(X, groups=labels)
    np.testing.assert_array_equal(model.transform(X, groups=labels), A)
    some = np.flatnonzero(labels == "elm")[:5]
    np.testing.assert_allclose(model.transform(X[some], groups=["elm"] * 5), A[some], rtol=1e-8)
    with pytest.warns(InputWarning, match="scales of one are used"):
        plain = model.transform(X[some])
    assert not np.array_equal(plain, A[some])
    with pytest.warns(InputWarning, match="1 new group of fewer than 20 samples, such as 'fir'"):
        A_of_five = model.transform(X[some], groups=["fir"] * 5)
    np.testing.assert_allclose(A_of_five, plain, rtol=1e-8)
    own = labels == "oak"
    assert not np.array_equal(model.transform(X[own], groups=["fir"] * own.sum()), A[own])
    model.save(tmp_path / "model.npz")
    loaded = ConeNMF.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.transform(X, groups=labels), A)
    np.testing.assert_array_equal(loaded.group_scales_, model.group_scales_)
    np.testing.assert_array_equal(loaded.group_table_, model.group_table_)
    assert loaded.groups_ == model.groups_ == ("ash", "elm", "oak")
    result = Factorization.load(tmp_path / "model.npz")
    assert result.problem.groups.codes.tolist() == model.result_.problem.groups.codes.tolist()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_new_group_gets_scales_from_its_samples(drawn, loss):
    """They are nearly those that the same samples had in the fit."""
    V, labels, *_ = drawn
    result = fitted(V, labels, loss)
    own = labels == "oak"
    new = from_columns(V[:, own])
    groups = problem_of_groups(
        new, Problem(loss), result.W, result.problem.groups, ["fir"] * own.sum()
    ).groups
    assert groups.names == ("ash", "elm", "oak", "fir")
    np.testing.assert_array_equal(groups.scales[:3], result.group_scales)
    logs = np.log(groups.scales[2:])
    assert np.corrcoef(logs)[0, 1] > 0.8
    assert logs[1] @ result.problem.groups.weights == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("stop", [3, 20, 36])
def test_an_interrupted_fit_resumes_with_the_same_bits(drawn, loss, stop, tmp_path):
    """In the plain part, in a stretch, and after the table was decided."""
    V, labels, *_ = drawn
    limits = {"init": "cr1", "max_iter": 40, "tol": 0.0}

    def killed(now):
        if now.iteration == stop:
            raise KeyboardInterrupt

    place = Checkpoint(tmp_path / "run", every=0)
    with pytest.raises(KeyboardInterrupt):
        fitted(V, labels, loss, checkpoint=place, callback=killed, **limits)
    resumed = fitted(V, labels, loss, checkpoint=place, **limits)
    whole = fitted(V, labels, loss, **limits)
    np.testing.assert_array_equal(resumed.W, whole.W)
    np.testing.assert_array_equal(resumed.group_scales, whole.group_scales)
    np.testing.assert_array_equal(resumed.group_table, whole.group_table)
    groups = [one.problem.groups for one in (resumed, whole)]
    assert groups[0].matter == groups[1].matter
    np.testing.assert_array_equal(groups[0].weights, groups[1].weights)
    with pytest.raises(CheckpointError, match="the groups of the samples are not those"):
        fitted(V, labels[::-1], loss, checkpoint=place, **limits)


# --- estimates ----------------------------------------------------------------------------------


def test_the_variance_of_scales_is_that_of_the_truth(rng):
    """From sums over parts of groups, for any noise and unit."""
    truth = rng.lognormal(0, 0.3, (8, 400))
    fitted_sums = np.ones((4, 8, 400)) * rng.lognormal(3, 1, 400)
    for unit, dispersion in ((1.0, 0.0), (1e-6, 0.2)):
        means = truth * fitted_sums
        noisy = rng.poisson(
            rng.gamma(1 / (dispersion + 1e-9), dispersion + 1e-9, means.shape) * means
        )
        found = estimate_scales(unit * noisy, unit * fitted_sums)
        assert found.variance == pytest.approx(0.3**2, rel=0.4)
        logs = np.log(truth)
        logs = logs - logs.mean(axis=0)
        raw = np.log(np.maximum(noisy.sum(axis=0), 0.5) / fitted_sums.sum(axis=0))
        errors = [((one - logs) ** 2).mean() for one in (np.log(found.scales), raw, 0 * raw)]
        assert errors[0] < min(errors[1:])


@pytest.mark.parametrize(("G", "size"), [(2, 1.0), (6, 1.0), (6, 3.0)])
def test_no_variance_gives_scales_of_one(G, size):
    """Also of sums of few counts, where features without deviations must not count for more."""
    found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        fitted_sums = np.ones((4, G, 200)) * rng.lognormal(size, 1, 200)
        scales = estimate_scales(rng.poisson(fitted_sums), 3 * fitted_sums).scales
        found += (scales != 1).any()
    assert found <= 2


def test_a_component_that_all_groups_use_a_little_stays():
    """Its share is two percent everywhere, with labels that say nothing."""
    rng = np.random.default_rng(3)
    W = rng.lognormal(0, 0.3, (F, K))
    W[np.arange(F), np.arange(F) % K] *= 20
    W /= W.sum(axis=0)
    shares = rng.dirichlet([1.0, 1.0], 240) * 0.98
    H = np.column_stack([shares, np.full(240, 0.02)]) * 2000
    V = rng.poisson(W @ H.T).astype(float)
    result = fit_groups(
        from_columns(V), np.arange(240) % 4, "poisson", W, H.T, stopping=Stopping(max_iter=60)
    )
    assert result.groups.bars is None


# --- doors --------------------------------------------------------------------------------------

SAMPLES = from_columns(np.arange(1.0, 91.0).reshape(2, 45))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"] * 20, "expected one label for each of the 45 samples"),
        ([["a"]] * 45, "expected one label"),
        (np.arange(45) + 0.5, "each of the 45 samples a group of its own"),
        (["a"] * 20 + [None] * 2 + ["b"] * 23, "no label for 2 samples, the first is sample 20"),
        ([1.0] * 44 + [np.nan], "no label for 1 samples, the first is sample 44"),
        (np.ma.array(["a"] * 45, mask=[0] * 44 + [1]), "the first is sample 44"),
    ],
)
def test_refused_labels(labels, message, refuses):
    refuses(DataError, message, Groups.of, labels, SAMPLES)


def test_remarks():
    with pytest.warns(InputWarning, match="all samples are of the group 'a'"):
        assert Groups.of(["a"] * 45, SAMPLES) is None
    with pytest.warns(InputWarning, match="1 of 2 groups have fewer than 20 samples"):
        Groups.of(["a"] * 40 + ["b"] * 5, SAMPLES)
    labels = pd.Series(pd.Categorical(["a"] * 20 + ["b"] * 25, categories=["b", "a", "z"]))
    with pytest.warns(InputWarning, match="1 of the categories of the groups have no samples"):
        assert Groups.of(labels, SAMPLES).names == ("a", "b")


def test_labels_are_matched_with_samples_by_name():
    names = [f"s{n}" for n in range(45)]
    frame = pd.DataFrame(np.arange(1.0, 91.0).reshape(45, 2), index=names)
    labels = pd.Series(np.repeat(["a", "b"], [20, 25]), index=names)
    V = from_rows(frame)
    groups = Groups.of(labels.sample(frac=1.0, random_state=0), V)
    assert groups.codes.tolist() == [0] * 20 + [1] * 25
    for labels in (np.repeat([1, 10, 2], 20), np.repeat([1.0, 10.0, 2.0], 20)):
        assert Groups.of(labels, LONGER).names == ("1", "2", "10")


LONGER = from_columns(np.ones((2, 60)))


def test_refused_options(drawn, refuses):
    V, labels, *_ = drawn
    V = from_columns(V)
    message = "solver=None takes no groups"
    refuses(OptionError, message, factorize, V, K, groups=labels, solver=None)
    message = "loss='itakura-saito' takes no groups"
    refuses(OptionError, message, factorize, V, K, groups=labels, loss="itakura-saito")
    scene = Penalties(sum_to_one=True)
    refuses(OptionError, "leave out sum_to_one", factorize, V, K, groups=labels, penalties=scene)
    message = "fitted without groups"
    refuses(OptionError, message, ConeNMF(K).fit(V).transform, V, groups=labels)


def test_judges_refuse_groups_by_name(drawn, refuses):
    V, labels, *_ = drawn
    result = fitted(V, labels, "poisson", max_iter=60)
    judges = (result.certify, result.uniqueness, result.components_for, result.diagnose)
    for judge in judges:
        message = f"{judge.__name__} is not available for a fit with groups"
        refuses(NotAvailableError, message, judge)
    message = "stability is not available for a fit with groups"
    problem = Problem("poisson", groups=labels)
    refuses(NotAvailableError, message, stability, from_columns(V), K, 3, problem=problem)


@pytest.fixture(scope="module")
def modelled(drawn):
    V, labels, *_ = drawn
    model = ConeNMF(K, max_iter=60).fit(V.T, groups=labels)
    assert model.result_.problem.has_effects
    return model


def test_resampling_refuses_groups_by_name(drawn, modelled, refuses):
    V, *_ = drawn
    message = "bootstrap is not available for a fit with groups"
    refuses(NotAvailableError, message, bootstrap, modelled.result_, 2)
    message = "stability is not available for a fit with groups"
    refuses(NotAvailableError, message, modelled.stability, V.T, 2)


def test_a_score_says_that_it_leaves_groups_out(drawn, modelled):
    V, *_ = drawn
    with pytest.warns(InputWarning, match="scales of one are used"):
        modelled.score(V.T)


def test_batches_do_not_follow_groups(drawn):
    """After a fit whose groups differ there is no `partial_fit`; other groups are forgotten."""
    V, labels, *_ = drawn
    model = ConeNMF(K, max_iter=60).fit(V.T, groups=labels)
    assert not hasattr(model, "partial_fit")
    model.fit(draw(1, sd=0.0, table=np.ones((3, K)))[0].T, groups=labels)
    assert model.groups_ == ("ash", "elm", "oak")
    model.partial_fit(V.T)
    assert not hasattr(model, "groups_")
    assert not hasattr(model, "group_scales_")


@pytest.mark.parametrize("loss", LOSSES)
def test_all_components_may_be_known(drawn, loss):
    V, labels, *_ = drawn
    known = fitted(V, labels, loss, max_iter=60).W
    result = fitted(V, labels, loss, fixed=known)
    np.testing.assert_array_equal(result.W, known)
    assert result.problem.has_effects


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["no weight", "one sample", "small weights", "hidden"])
def test_a_group_that_hardly_counts_keeps_its_components(loss, kind):
    """Coefficients do not depend on weights, and what is unknown is not unused."""
    V, labels, *_ = draw(2, sd=0.0, table=np.ones((3, K)))
    weights = (labels != "ash").astype(float)
    if kind == "one sample":
        weights[0] = 1e-3
    elif kind == "small weights":
        weights[labels == "ash"] = 1e-3
    model = ConeNMF(K, loss=loss, tol=1e-3)
    if kind == "hidden":
        mask = np.broadcast_to(weights[:, None], V.T.shape) > 0
        with pytest.warns(InputWarning, match="nothing is observed of 60 samples"):
            model.fit(V.T, mask=mask, groups=labels)
    else:
        A = model.fit_transform(V.T, sample_weight=weights, groups=labels)
        assert (A[labels == "ash"].sum(axis=1) > 0).all()
        assert (model.labels_ >= 0).all()
    assert model.group_table_.all()


def test_residuals_are_those_of_the_data(drawn, rng):
    V, labels, *_ = drawn
    sigma = rng.uniform(1, 3, V.shape)
    result = factorize(from_columns(V, sigma=sigma), K, groups=labels, max_iter=60)
    groups = result.problem.groups
    expected = (V - groups.scales[groups.codes].T * (result.W @ result.H)) / sigma
    np.testing.assert_allclose(result.residuals().scaled, expected.T, atol=1e-9)
    assert result.settings["Q"] == pytest.approx((expected**2).sum())


def test_a_fit_that_ended_early_does_not_speak_of_scales(drawn):
    V, labels, *_ = drawn
    result = fitted(V, labels, "frobenius", max_iter=1)
    assert result.group_scales is None
    assert "ended before the scales" in " ".join(result.summary())


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["10", "9", "100", "2"], ("2", "9", "10", "100")),
        ([0.5, 10, 2, 1e3], ("0.5", "2", "10", "1000")),
        (["day 10", "day 9", "day 1", "night"], ("day 1", "day 10", "day 9", "night")),
    ],
)
def test_groups_are_in_the_order_of_their_numbers_or_names(labels, names, rng):
    own = [labels[place] for place in rng.integers(4, size=120)]
    groups = Groups.of(own, from_rows(rng.random((120, 3))))
    assert groups.names == names
    said = [f"{one:g}" if isinstance(one, float | int) else one for one in own]
    assert [groups.names[code] for code in groups.codes] == said
    assert groups.sizes.tolist() == [said.count(name) for name in names]


@pytest.mark.parametrize("G", [2, 5])
def test_noise_has_no_scales(G):
    """Deviations of independent parts from sums that fit them."""
    rng = np.random.default_rng(G)
    expected = rng.lognormal(3, 1, (4, G, 60))
    for _ in range(20):
        found = estimate_scales(rng.poisson(expected).astype(float), expected)
        assert found.significance < 3
        assert (found.scales == 1).all()
        assert (found.features == 1).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_a_small_group_may_use_all_components(loss):
    """Which ones its few samples need is chance."""
    V, _, _, table = draw(sd=0.0)
    codes = np.repeat(np.arange(3), SIZE)
    chosen = np.sort(np.r_[np.flatnonzero(codes < 2), np.flatnonzero(codes == 2)[:12]])
    with pytest.warns(InputWarning, match="1 of 3 groups have fewer than 20 samples"):
        result = fitted(V[:, chosen], codes[chosen], loss)
    assert result.group_table[2].all()
    assert sorted(map(tuple, result.group_table[:2].T)) == sorted(map(tuple, table[:2].T != 0))


@pytest.mark.parametrize("loss", LOSSES)
def test_known_components_stay_as_they_are(drawn, loss, rng):
    """The factor of each feature that the scales leave goes to the other components."""
    V, labels, *_ = drawn
    known = rng.gamma(1.0, size=(F, 1))
    result = fitted(V, labels, loss, fixed=known)
    np.testing.assert_array_equal(result.W[:, :1], known)
    assert result.problem.groups.has_scales


@pytest.mark.parametrize("has_holes", [False, True])
def test_sums_are_over_equal_parts_of_each_group(has_holes, rng):
    """Each sample belongs to one part of its group, whatever the order of samples."""
    V, labels = rng.random((5, 170)), rng.choice(list("abc"), 170, p=[0.2, 0.3, 0.5])
    known = rng.random(V.shape) > 0.2 * has_holes
    data = from_columns(np.where(known, V, np.nan), missing="nan") if has_holes else from_columns(V)
    groups = Groups.of(labels, data)
    found = sums_of(data, groups)
    P, G, _ = found.of_data.shape
    assert (found.parts // P == groups.codes).all()
    counts = np.bincount(found.parts, minlength=G * P).reshape(G, P)
    assert (np.ptp(counts, axis=1) <= 1).all()
    for part in range(G * P):
        own = found.parts == part
        expected = (V * known)[:, own].sum(axis=1)
        np.testing.assert_allclose(found.of_data[part % P, part // P], expected, rtol=1e-12)


@pytest.mark.parametrize("has_holes", [False, True])
def test_uncertainties_count_in_groups(drawn, has_holes, rng):
    """Q is that of the data and the model with its scales, and W H is the best for it."""
    V, labels, *_ = drawn
    X = V.T / V.mean()
    sigma = 0.1 + 0.1 * X
    X[rng.random(X.shape) < 0.1 * has_holes] = np.nan
    result = factorize(from_rows(X, sigma=sigma, missing="nan"), K, groups=labels)
    codes = result.problem.groups.codes
    scales = result.group_scales[codes]
    used = np.where(result.group_table[codes], result.H.T, 0)

    def Q(H, W):
        return np.nansum(((X - scales * (H @ W.T)) / sigma) ** 2)

    least = Q(used, result.W)
    assert result.settings["Q"] == pytest.approx(least, rel=1e-9)
    assert result.objective == pytest.approx(least, rel=1e-9)
    for factor in (0.99, 1.01):
        for k in range(K):
            moved = used.copy()
            moved[:, k] *= factor
            assert Q(moved, result.W) >= least * (1 - 1e-9)
