"""Tests of `judge.choose_k`."""

import numpy as np
import pytest
import scipy.sparse as sp

from conenmf import factorize, from_columns, from_rows, make_cones, select_k
from conenmf.errors import ComponentsError, DataTypeError, OptionError
from conenmf.judge import choose_k as module
from conenmf.judge.choose_k import (
    METHODS,
    OF_COUNTS,
    Evidence,
    Vote,
    by_thinning,
    choose_k,
    determine_relevance,
    masked_nnls,
)
from conenmf.linalg.svd import Spectrum
from conenmf.solve.inits import mixing


@pytest.fixture(scope="module")
def cones():
    return make_cones(60, 4, 0.1, n_samples=200, rng=np.random.default_rng(0)).V


def rng_of(seed):
    return np.random.default_rng(seed)


def mixtures(strengths, noise):
    """Mixtures of five parts, with noise."""
    rng = np.random.default_rng(1)
    W = np.repeat(np.eye(5), 8, axis=0) * rng.uniform(0.5, 1, (40, 1))
    H = strengths[:, None] * rng.gamma(1.0, 1.0, (5, 250))
    return np.maximum(W @ H + noise * rng.standard_normal((40, 250)), 0)


@pytest.fixture(scope="module")
def parts():
    return mixtures(np.ones(5), 0.05)


@pytest.fixture(scope="module")
def fading_parts():
    """Each fainter than the one before, so that no ratio of singular values stands out."""
    return mixtures(0.6 ** np.arange(5), 0.1)


def test_cones_are_counted(cones, main_backend, small_blocks):
    V = main_backend(cones)
    table = select_k(V, range(2, 9), methods=["cones", "ratio", "parallel"])
    assert (table.K, table.decided_by) == (4, "cones")
    assert table.votes["cones"].reason == f"{table.reason}; also apart: no other number of clusters"
    scores = table.votes["cones"].scores
    assert (scores > 0).tolist() == [k == 4 for k in table.ks]
    assert choose_k(V) == (4, "cones", table.reason)


def test_a_notebook_shows_what_each_estimator_says(cones):
    table = select_k(from_columns(cones), range(2, 7), methods=["cones", "ratio"])
    page = table._repr_html_()
    assert f"recommended: {table.K}; {table.reason}" in page
    assert f"ratio: 4; {table.votes['ratio'].reason}" in page


def test_cones_are_counted_by_the_ratio(cones, main_backend):
    table = select_k(main_backend(cones), range(2, 9), methods=["ratio", "parallel"])
    assert table.K == 4
    assert table.decided_by == "ratio"
    assert table.reason.startswith("the largest ratio stands out by a factor of ")


@pytest.mark.parametrize("name", sorted({*METHODS} - {"cones", "relevance", *OF_COUNTS}))
def test_every_estimator_counts_parts(name, parts):
    vote = select_k(from_columns(parts), range(2, 9), methods=[name]).votes[name]
    assert vote.K == 5, vote
    assert vote.scores.shape == (7,)


def test_relevance_counts_cones_in_noise():
    V = from_columns(make_cones(60, 4, 0.2, n_samples=300, noise=0.1, rng=rng_of(0)).V)
    vote = select_k(V, range(2, 11), methods=["relevance"]).votes["relevance"]
    assert (vote.K, vote.reason) == (4, "4 of 10 components are relevant")
    assert ((vote.scores > 0.1) == (np.arange(2, 11) <= 4)).all()


def test_every_estimator_reads_sparse_data(parts):
    rng = np.random.default_rng(0)
    X = sp.csr_array(parts.T * (rng.random(parts.T.shape) < 0.5))
    table = select_k(from_rows(X), [2, 3, 4])
    assert set(table.votes) == {*METHODS} - {*OF_COUNTS}
    assert all(np.isfinite(vote.scores).all() for vote in table.votes.values())


def test_mixtures_are_not_left_to_the_ratio(fading_parts):
    V = from_columns(fading_parts)
    table = select_k(V, range(2, 9), methods=["ratio", "crossval"])
    assert table.decided_by == "crossval"
    assert table.reason.startswith("samples are mixtures: mixing cones lowers the error by ")
    assert mixing(V, 5) > 0.12


def test_a_cliff_in_the_singular_values_decides(parts):
    """Mixtures too; the fifth ratio is 28 times the next largest, so there is no doubt."""
    decision = choose_k(from_columns(parts))
    assert decision[:2] == (5, "ratio")
    assert "stands out by a factor of 27.9" in decision.reason


def test_an_estimator_of_your_own(cones):
    def elbow(V, ks, rng):
        return Vote(np.ones(ks.size), 3, "because")

    table = select_k(from_columns(cones), [2, 3], methods=[elbow])
    assert (table.K, table.decided_by, table.reason) == (3, "elbow", "because")


def test_the_table_reads_well(cones):
    text = str(select_k(from_columns(cones), [3, 4, 5], methods=["ratio", "parallel"]))
    lines = text.splitlines()
    assert lines[0].split() == ["K", "ratio", "parallel"]
    assert lines[2].split()[0] == "4"
    assert lines[2].split()[1].endswith("*")
    assert lines[-1].startswith("recommended: 4; ")


def test_a_long_name_does_not_touch_the_next_column(cones):
    def ninety_percent_of_all(V, ks, rng):
        return Vote(np.linspace(0.1, 0.9, ks.size), 4, "because")

    methods = ["ratio", ninety_percent_of_all, "parallel"]
    text = str(select_k(from_columns(cones), [3, 4, 5], methods=methods))
    head, *rows = text.splitlines()[:4]
    assert head.split() == ["K", "ratio", "ninety_percent_of_all", "parallel"]
    assert {len(row) for row in rows} == {len(head)}


def test_auto_says_who_decided(cones, fading_parts):
    assert factorize(from_columns(cones), max_iter=1).K_decided_by == "cones"
    result = factorize(from_columns(fading_parts), max_iter=1)
    assert result.K_decided_by == "parallel"
    assert result.K == 5


def test_every_number_of_clusters_that_are_apart_is_listed():
    turns = np.add.outer([0.1, 1.0, 1.3], 0.01 * np.arange(6)).ravel()
    V = from_columns(np.stack([np.cos(turns), np.sin(turns), turns**2]))
    reason = select_k(V, [2, 3], methods="cones").votes["cones"].reason
    assert reason.startswith("3 clusters are apart, with a separation of ")
    assert reason.endswith(" rad; also apart: 2")


def noisy_cones():
    """Samples in three cones, with noise that turns the short ones anywhere."""
    return make_cones(60, 3, 0.1, n_samples=200, noise=0.05, rng=np.random.default_rng(0)).V


def test_noise_leaves_the_decision_to_the_ratio():
    decision = choose_k(from_columns(noisy_cones()))
    assert decision[:2] == (3, "ratio")
    assert decision.reason.startswith(
        "no clusters of 200 samples are apart; the largest ratio stands out by a factor of 1."
    )


def test_all_doors_lead_to_the_same_number(cones, fading_parts):
    for V in map(from_columns, (cones, fading_parts, noisy_cones())):
        decision = choose_k(V)
        result = factorize(V, max_iter=1)
        assert (result.K, result.K_decided_by) == decision[:2]
        table = select_k(V, rng=np.random.default_rng(3), methods=["cones", "ratio", "parallel"])
        assert (table.K, table.decided_by, table.reason) == decision


def test_another_estimator_decides_only_if_it_must(cones, parts):
    table = select_k(from_columns(cones), [2, 3, 5], methods=["cones", "parallel"])
    assert table.decided_by == "parallel"
    assert table.reason.startswith("cones chooses 4, which is no candidate; ")
    table = select_k(from_columns(parts), [2, 3], methods=["cones", "parallel"])
    assert (table.K, table.decided_by) == (3, "parallel")
    assert "parallel chooses 5, which is no candidate; at least 3" in table.reason


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("cones", *OF_COUNTS)])
def test_a_limit_is_not_an_estimate(name, parts):
    vote = select_k(from_columns(parts), [3, 4], methods=[name]).votes[name]
    assert vote.K == 4
    assert vote.reason.startswith("at least 4")


def test_the_search_is_widened():
    """More parts, and more cones, than are searched at first; the table shows them too."""
    rng = np.random.default_rng(0)
    X = rng.gamma(0.3, size=(600, 60)) @ np.kron(np.eye(60), np.ones((1, 3)))
    X = np.maximum(X + 0.5 * rng.standard_normal(X.shape), 0)
    assert choose_k(from_rows(X))[:2] == (57, "parallel")  # 50 is the first limit
    V = from_columns(make_cones(130, 60, 0.05, n_samples=700, rng=rng).V)
    table = select_k(V, methods=["cones", "parallel"])
    assert (table.K, table.decided_by, table.ks[-1]) == (60, "cones", 65)


def test_the_time_may_run_out(parts):
    V = from_columns(parts)
    decision = choose_k(V, max_time=0.0)
    assert decision.decided_by == "ratio"
    assert decision.reason.startswith("the time ran out; the largest ratio")
    assert "of 200 samples" in decision.reason


def test_the_time_may_run_out_after_the_ratio(fading_parts, monkeypatch):
    monkeypatch.setattr(Evidence, "is_late", property(lambda self: "ratio" in self.__dict__))
    decision = choose_k(from_columns(fading_parts))
    assert decision[:2] == (5, "ratio")
    assert decision.reason.startswith("the time ran out; ")


def test_one_spectrum_serves_the_whole_choice(parts):
    V = from_columns(parts)
    alone = [choose_k(V), str(select_k(V, [4, 5], methods=["ratio"]))]
    spectrum = Spectrum(V)
    assert choose_k(V, spectrum=spectrum) == alone[0]
    before = V.passes
    assert str(select_k(V, [4, 5], methods=["ratio"], spectrum=spectrum)) == alone[1]
    shared = V.passes - before
    before = V.passes
    select_k(V, [4, 5], methods=["ratio"])
    assert shared < V.passes - before


def test_a_seed_decides(parts):
    V = from_columns(parts)
    tables = [select_k(V, [4, 5], methods=["crossval", "stability"]) for _ in range(2)]
    for name in ("crossval", "stability"):
        first, second = (table.votes[name].scores for table in tables)
        np.testing.assert_array_equal(first, second)


def test_large_data_are_sampled():
    V = from_columns(make_cones(50, 3, 0.1, n_samples=5000, rng=np.random.default_rng(0)).V)
    before = V.passes
    table = select_k(V, [2, 3, 4], methods=["parallel", "crossval", "stability"])
    assert V.passes - before < 2
    assert table.votes["parallel"].K == 3


def test_bad_input(cones):
    V = from_columns(cones)
    with pytest.raises(ComponentsError, match="expected an integer of at least 1"):
        select_k(V, [0, 1])
    with pytest.raises(ComponentsError, match="expected integers"):
        select_k(V, [])
    with pytest.raises(ComponentsError, match="61 components are more than"):
        select_k(V, [61])
    with pytest.raises(OptionError, match=r"methods='magic' is unknown.*'ratio', 'edge'"):
        select_k(V, [2], methods=["magic"])
    with pytest.raises(OptionError, match="methods is empty"):
        select_k(V, [2], methods=[])
    with pytest.raises(DataTypeError, match="expected a DataMatrix"):
        select_k(cones)


# --- parts ------------------------------------------------------------------------------------


def test_masked_least_squares_sees_only_known_entries():
    rng = np.random.default_rng(0)
    W, H = rng.random((30, 3)), rng.random((20, 3))
    V = W @ H.T
    observed = rng.random(V.shape) < 0.7
    corrupted = np.where(observed, V, 100.0)
    found = np.full_like(H, 0.5)
    for _ in range(100):
        found = masked_nnls(W, corrupted, observed, found)
    np.testing.assert_allclose(found, H, atol=1e-6)


@pytest.mark.parametrize(
    "X",
    [
        np.ones((10, 10)),
        np.outer(np.arange(1.0, 27), np.arange(1.0, 42)),
        np.outer([0, 0, 3.0, 0], np.arange(5.0)),
        np.outer(np.ones(9), np.arange(1.0, 9)) + 1e-10 * np.eye(9, 8),
    ],
    ids=["constant", "outer", "one sample", "almost"],
)
def test_auto_finds_one_component_in_rank_one_data(X):
    result = factorize(from_rows(X), max_iter=5)
    assert result.K == 1
    assert result.relative_error < 1e-6


@pytest.mark.parametrize(
    "X", [np.eye(4), np.eye(8), [[1.0, 2.0], [3.0, 4.0]], [[2.0]], np.ones((5, 3))], ids=str
)
def test_tiny_tables_have_an_answer(X):
    table = select_k(from_rows(X))
    assert 1 <= table.K <= min(np.shape(X))
    assert str(table)


def test_zero_samples_are_no_samples():
    X = np.zeros((42, 6))
    X[3], X[40] = np.arange(6), 1.0
    table = select_k(from_rows(X), [3, 4], methods="crossval")
    assert "too few entries" in table.reason


def test_stability_is_that_of_samples_drawn_again():
    rng = np.random.default_rng(0)
    V = from_columns(np.kron(np.eye(3), np.ones((8, 40))) * rng.random((24, 120)))
    table = select_k(V, [2, 3, 4, 5], methods=["stability"])
    vote = table.votes["stability"]
    assert (vote.K, table.K) == (3, 3)
    assert vote.scores[1] == 1.0
    assert (vote.scores[2:] < 0.8).all()
    assert (np.diff(vote.errors) < 0).all()
    assert "found in 80% of the fits" in vote.reason
    noise = from_columns(rng.random((30, 60)))
    assert "no number is stable" in select_k(noise, [5, 6], methods=["stability"]).reason
    left = table.plot()[0]
    (right,) = (ax for ax in left.figure.axes if ax is not left)
    np.testing.assert_array_equal(left.lines[0].get_ydata(), vote.scores)
    np.testing.assert_array_equal(right.lines[0].get_ydata(), vote.errors)


def test_a_ratio_that_samples_of_unit_norm_do_not_have_is_not_trusted():
    """Two more components are in faint samples only."""
    rng = np.random.default_rng(0)
    W = np.repeat(np.eye(4), 8, axis=0) * rng.uniform(0.5, 1, (32, 1))
    H = rng.gamma(1.0, 1.0, (4, 240))
    H[2:, :120] = 0
    H[:, 120:] *= 1e-3
    V = W @ H * (1 + 0.01 * rng.standard_normal((32, 240)))
    V += 0.002 * np.linalg.norm(V, axis=0) * rng.random(V.shape)
    decision = choose_k(from_columns(V))
    assert decision.K == 4
    assert decision.decided_by == "parallel"
    assert "samples as they are and of unit norm disagree (2 and 4)" in decision.reason


def noisy(seed=0):
    rng = np.random.default_rng(seed)
    return make_cones(60, 3, 0.2, n_samples=200, noise=0.1, rng=rng).V


def published(V, W, H, phi, a, prior, n_iter):
    """The updates of Tan and Fevotte for beta = 2, written out for a whole matrix."""
    (F, N), K = V.shape, W.shape[1]
    if prior == "l2":
        c, b = (F + N) / 2 + a + 1, np.pi * (a - 1) * V.mean() / (2 * K)
    else:
        c, b = F + N + a + 1, np.sqrt((a - 1) * (a - 2) * V.mean() / K)

    def scales():
        if prior == "l2":
            return ((W**2).sum(axis=0) / 2 + (H**2).sum(axis=1) / 2 + b) / c
        return (W.sum(axis=0) + H.sum(axis=1) + b) / c

    scale = scales()
    for _ in range(n_iter):
        shrink = phi / np.tile(scale[:, None], (1, N))
        H = H * (W.T @ V) / (W.T @ (W @ H) + (shrink * H if prior == "l2" else shrink))
        shrink = phi / np.tile(scale[None, :], (F, 1))
        W = W * (V @ H.T) / ((W @ H) @ H.T + (shrink * W if prior == "l2" else shrink))
        scale = scales()
    fit = ((V - W @ H) ** 2).sum() / (2 * phi)
    if prior == "l2":
        sizes = (W**2).sum(axis=0) / 2 + (H**2).sum(axis=1) / 2
    else:
        sizes = W.sum(axis=0) + H.sum(axis=1)
    return W, H, scale, b / c, fit + ((sizes + b) / scale + c * np.log(scale)).sum()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("prior", ["l1", "l2"])
def test_the_updates_are_the_published_ones(prior, main_backend, small_blocks):
    """From where one iteration has led, nine more."""
    V, options = noisy(), {"prior": prior, "noise": 0.01, "shape": 6.0, "tol": 0.0}
    D = main_backend(V)
    first = determine_relevance(D, 5, max_iter=1, rng=np.random.default_rng(1), **options)
    last = determine_relevance(D, 5, max_iter=10, rng=np.random.default_rng(1), **options)
    H = np.asarray(first.H)
    W, H, scale, bound, objective = published(V, first.W, H, 0.01, 6.0, prior, 9)
    np.testing.assert_allclose(last.W, W, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(np.asarray(last.H), H, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(last.scales, scale, rtol=1e-9)
    assert last.bound == pytest.approx(bound, rel=1e-12)
    assert last.objectives[-1] == pytest.approx(objective, rel=1e-9)


@pytest.mark.parametrize("prior", ["l1", "l2"])
def test_the_objective_never_rises(prior):
    found = determine_relevance(from_columns(noisy()), 6, prior=prior, max_iter=200, tol=0.0)
    steps = np.diff(found.objectives)
    assert (steps <= 1e-10 * np.abs(found.objectives[:-1])).all()
    assert (found.scales >= found.bound).all()


def test_irrelevant_components_vanish():
    found = determine_relevance(from_columns(noisy()), 10)
    assert found.n_relevant == 3
    kept = found.scales > 2 * found.bound
    assert kept.sum() == 3
    assert found.W[:, ~kept].max() < 1e-6 * found.W.max()
    noisier = determine_relevance(from_columns(noisy()), 10, noise=10.0)  # than anything there is
    assert noisier.n_relevant < 3


def test_data_without_noise_keep_too_many():
    """As the paper says of samples in cones: what is beside the axes counts as components."""
    V = make_cones(60, 3, 0.2, n_samples=200, rng=np.random.default_rng(0)).V
    assert determine_relevance(from_columns(V), 10, max_iter=300).n_relevant > 3


def topics(rng, K, n_samples=200, n_features=150, length=120):
    patterns = rng.dirichlet(np.full(n_features, 0.1), K)
    shares = rng.dirichlet(np.full(K, 0.3), n_samples) * rng.gamma(4, length / 4, (n_samples, 1))
    return rng.poisson(shares @ patterns)


def signatures(rng, K, n_samples=200, n_features=60):
    return rng.poisson(rng.gamma(0.7, 300, (n_samples, K)) @ rng.dirichlet([0.1] * n_features, K))


@pytest.mark.parametrize("make", [topics, signatures])
@pytest.mark.parametrize("K", [1, 3, 6])
def test_it_finds_the_number_of_components_of_drawn_counts(make, K):
    X = make(np.random.default_rng(K), K)
    vote = by_thinning(
        Evidence(from_rows(sp.csr_array(X))), np.arange(1, 11), np.random.default_rng(0)
    )
    assert vote.K == K
    assert np.nanargmin(vote.scores) == K - 1
    assert vote.scores[0] == pytest.approx(1.0, abs=1e-6)


def test_it_ends_when_more_components_predict_worse():
    X = topics(np.random.default_rng(0), 2)
    vote = by_thinning(Evidence(from_rows(X)), np.arange(1, 21), np.random.default_rng(0))
    assert vote.K == 2
    assert np.isfinite(vote.scores[:6]).all()
    assert np.isnan(vote.scores[7:]).all()


def test_a_limit_of_thinned_counts_is_not_an_estimate():
    X = topics(np.random.default_rng(0), 5)
    vote = by_thinning(Evidence(from_rows(X)), np.array([2, 3]), np.random.default_rng(0))
    assert vote.K == 3
    assert vote.reason.startswith("at least 3")


def test_dense_and_sparse_counts_have_the_same_vote():
    X = topics(np.random.default_rng(1), 3, 80, 60)
    dense, sparse = (
        by_thinning(Evidence(from_rows(data)), np.arange(1, 6), np.random.default_rng(0))
        for data in (X, sp.csr_array(X))
    )
    np.testing.assert_allclose(dense.scores, sparse.scores, rtol=1e-6)
    assert dense.K == sparse.K


def test_it_votes_where_there_are_counts_only():
    X = topics(np.random.default_rng(2), 2, 30, 12)
    assert "thinning" in select_k(from_rows(X), [1, 2, 3]).votes
    assert "thinning" not in select_k(from_rows(X / 7), [1, 2, 3]).votes
    with pytest.raises(DataTypeError, match="not counts"):
        select_k(from_rows(X / 7), [1, 2], methods=["thinning"])


def test_few_counts_are_no_reason_to_fail():
    X = np.zeros((5, 4))
    X[2, 1] = 1
    vote = by_thinning(Evidence(from_rows(X)), np.arange(1, 4), np.random.default_rng(0))
    assert vote.K == 1
    assert "too few" in vote.reason


def test_a_count_that_one_part_has_not_seen_is_no_reason_to_fail(monkeypatch):
    monkeypatch.setattr(module, "_THINNED_SAMPLES", 60)
    X = topics(np.random.default_rng(3), 2, 70, 40)
    X[5] = 0
    X[5, 3] = 1  # a sample whose only count is in one part
    X[:, 7] = 0
    X[6, 7] = 1
    vote = by_thinning(Evidence(from_rows(X)), np.arange(1, 4), np.random.default_rng(0))
    assert np.isfinite(vote.scores).all()
