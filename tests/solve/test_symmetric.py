"""Symmetric factors V ~ W S W' of graphs: their error, their conditions, and what is refused."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import nnls as scipy_nnls
from sklearn.metrics import normalized_mutual_info_score as agreement

import conenmf
from conenmf import ConeNMF, Factorization, factorize, from_rows
from conenmf.errors import DataError, NotAvailableError, OptionError
from conenmf.export import write_tables
from conenmf.judge.displacement import displacement
from conenmf.kernels import clock
from conenmf.solve.run import Stopping
from conenmf.solve.symmetric import affinities, finish_symmetric, improved

SYMMETRIC = {"symmetric": True}


def planted(links, sizes, seed=0):
    """A graph whose edges have the probabilities `links` between groups, and the groups."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    chance = np.asarray(links)[groups][:, groups]
    upper = np.triu(rng.random(chance.shape) < chance, 1)
    return (upper | upper.T).astype(float), groups


WITHIN = np.full((3, 3), 0.05) + 0.45 * np.eye(3)
MIXED = np.full((3, 3), 0.05) + 0.45 * np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]])
BETWEEN = np.full((4, 4), 0.05) + 0.45 * np.kron(np.eye(2), [[0, 1], [1, 0]])
GRAPHS = {
    "assortative": (WITHIN, [20, 20, 20]),
    "mixed": (MIXED, [20, 20, 20]),
    "disassortative": (BETWEEN, [18, 18, 18, 18]),
}


def squared_error(A, W, S):
    return ((A - W @ S @ W.T) ** 2).sum()


@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_error_is_that_of_the_plain_fit_and_the_groups_are_found(kind, seed):
    A, groups = planted(*GRAPHS[kind], seed)
    K = len(GRAPHS[kind][1])
    plain = factorize(A, K)
    found = factorize(A, K, **SYMMETRIC)
    assert found.relative_error <= 1.001 * plain.relative_error
    assert agreement(groups, found.labels) > 0.98
    assert found.affinities.min() >= 0
    np.testing.assert_array_equal(found.affinities, found.affinities.T)
    np.testing.assert_allclose(np.linalg.norm(found.W, axis=0), 1)
    np.testing.assert_allclose(found.H, found.affinities @ found.W.T, atol=1e-12)
    own = np.sqrt(squared_error(A, found.W, found.affinities)) / np.linalg.norm(A)
    assert found.relative_error == pytest.approx(own, rel=1e-10)
    contributions = found.W * np.linalg.norm(found.H, axis=1)
    np.testing.assert_array_equal(found.labels, contributions.argmax(axis=1))


@pytest.mark.parametrize("seed", [3, 5])
def test_columns_of_h_are_other_starts_if_the_plain_fit_is_not_symmetric(seed):
    sizes = [80, 60, 40, 30, 20, 10]
    A, _ = planted(np.full((6, 6), 0.05) + 0.35 * np.eye(6), sizes, seed)
    plain = factorize(A, 6)
    likeness = (plain.W * plain.H.T).sum(axis=0)
    likeness /= np.linalg.norm(plain.W, axis=0) * np.linalg.norm(plain.H, axis=1)
    assert likeness.min() < 0.5
    found = factorize(A, 6, **SYMMETRIC)
    assert found.relative_error <= 1.001 * plain.relative_error


def test_a_small_group_draws_no_nodes_from_a_large_one():
    A, groups = planted(np.full((6, 6), 0.05) + 0.35 * np.eye(6), [80, 60, 40, 30, 20, 10], seed=1)
    roots = np.sqrt(A.sum(axis=0))
    found = factorize(A / roots / roots[:, None], 6, **SYMMETRIC)
    assert agreement(groups, found.labels) > 0.99
    assert agreement(groups, found.W.argmax(axis=1)) < 0.99


def test_the_affinities_tell_linked_groups_from_groups_with_links_inside():
    A, groups = planted(*GRAPHS["mixed"])
    found = factorize(A, 3, **SYMMETRIC)
    first, second, third = (found.labels[groups == group][0] for group in range(3))
    S = found.affinities
    assert S[first, first] > 10 * max(S[first, second], S[first, third])
    assert S[second, third] > 10 * max(S[second, second], S[third, third])
    assert "lies between groups" in found.summary()[1]


def test_a_diagonal_s_is_said_to_be_w_times_itself():
    W = np.kron(np.eye(3), np.ones((7, 1)))
    found = factorize(W @ W.T, 3, **SYMMETRIC)
    np.testing.assert_allclose(found.affinities, 7 * np.eye(3), atol=1e-6)
    assert "S is diagonal, so V ~ W W'" in found.summary()[1]
    assert found.relative_error < 1e-7


@pytest.mark.parametrize("seed", range(4))
def test_the_affinities_are_the_nonnegative_least_squares_solution(seed):
    rng = np.random.default_rng(seed)
    W = rng.random((12, 4)) ** 2
    A = rng.standard_normal((12, 12))
    A += A.T
    S = affinities(W.T @ W, W.T @ A @ W)
    _, residual = scipy_nnls(np.kron(W, W), A.ravel())
    assert squared_error(A, W, S) == pytest.approx(residual**2, rel=1e-9)
    np.testing.assert_array_equal(S, S.T)
    assert S.min() >= 0


def test_unused_columns_have_no_affinities():
    W = np.array([[1.0, 0.0], [2.0, 0.0]])
    S = affinities(W.T @ W, W.T @ W @ W.T @ W)
    np.testing.assert_allclose(S, [[1, 0], [0, 0]])


def test_rounds_never_raise_the_error_and_the_residual_tends_to_zero():
    rng = np.random.default_rng(3)
    A, _ = planted(*GRAPHS["mixed"])
    V = from_rows(A)
    W = rng.random((60, 3))
    errors = []
    for rounds in (0, 1, 2, 3, 5, 10, 40):
        better = improved(V, W, Stopping(0, max_iter=rounds), clock())
        end = finish_symmetric(V, better, sort=False)
        errors.append(end.squared_error)
    assert np.diff(errors).max() < 1e-9 * errors[0]
    assert errors[-1] < 0.95 * errors[0]
    exact = finish_symmetric(V, improved(V, W, Stopping(0, max_iter=400), clock()), sort=False)
    assert exact.kkt_residual < 1e-7


def test_the_residual_is_the_norm_of_steps_over_single_entries():
    rng = np.random.default_rng(4)
    A, groups = planted(*GRAPHS["mixed"])
    W = np.eye(3)[groups] + 0.3 * rng.random((60, 3))
    end = finish_symmetric(from_rows(A), W, sort=False)
    S = end.affinities
    B = W @ S  # the factor beside W is held
    squares = (B**2).sum(axis=0)
    steps = np.minimum(W, (W @ B.T - A) @ B / squares)
    expected = np.sqrt((squares * steps**2).sum()) / np.linalg.norm(A)
    assert end.kkt_residual == pytest.approx(expected, rel=1e-6)  # S is exact
    slope = 4 * (W @ B.T - A) @ B
    moved = 1e-6 * rng.standard_normal(W.shape)
    change = squared_error(A, W + moved, S) - squared_error(A, W - moved, S)
    assert change / 2 == pytest.approx((slope * moved).sum(), rel=1e-6)


def test_the_certificate_is_of_this_problem():
    A, _ = planted(*GRAPHS["mixed"])
    found = factorize(A, 3, tol=1e-9, max_iter=500, **SYMMETRIC)
    certificate = found.certify()
    assert certificate.lower_bound <= found.relative_error
    assert certificate.kkt_residual == pytest.approx(found.first_certificate.kkt_residual, rel=1e-6)
    again = conenmf.certify(A, found.W, found.H, problem=found.problem)
    assert again.kkt_residual == pytest.approx(certificate.kkt_residual, rel=1e-6)
    assert certificate.kkt_residual < 1e-5


def test_every_storage_gives_the_same_graph(main_backend):
    A, _ = planted(*GRAPHS["mixed"])
    V = main_backend(A)
    if V.is_remote:
        with pytest.raises(OptionError, match="Dask arrays: pass a sparse matrix"):
            factorize(V, 3, **SYMMETRIC)
        return
    plain = factorize(A, 3, **SYMMETRIC)
    found = factorize(V, 3, **SYMMETRIC)
    assert found.relative_error == pytest.approx(plain.relative_error, rel=1e-6)
    assert agreement(plain.labels, found.labels) == 1  # linked groups contribute the same
    assert found.W.dtype == V.dtype


def test_single_precision_and_integers():
    A, _ = planted(*GRAPHS["mixed"])
    plain = factorize(A, 3, **SYMMETRIC)
    for other in (A.astype(np.float32), A.astype(int), sp.csr_array(A.astype(np.int8))):
        found = factorize(other, 3, **SYMMETRIC)
        assert found.relative_error == pytest.approx(plain.relative_error, rel=1e-5)
        assert agreement(plain.labels, found.labels) == 1  # linked groups contribute the same


def test_isolated_nodes_and_separate_parts():
    A, groups = planted(np.eye(2) * 0.7, [15, 20])  # no edges between the groups
    A = np.pad(A, (0, 2))
    found = factorize(A, 2, **SYMMETRIC)
    np.testing.assert_array_equal(found.labels[-2:], -1)
    np.testing.assert_array_equal(found.W[-2:], 0)
    assert agreement(groups, found.labels[:-2]) == 1


@pytest.mark.parametrize("sizes", [(1, 1), (4, 7)])
def test_one_group_of_a_bipartite_graph_has_both_sides(sizes):
    a, b = sizes
    A = np.block([[np.zeros((a, a)), np.ones((a, b))], [np.ones((b, a)), np.zeros((b, b))]])
    plain = factorize(A, 1)
    found = factorize(A, 1, **SYMMETRIC)  # W of the plain fit may have one side alone
    assert found.relative_error <= 1.001 * plain.relative_error
    assert found.labels.tolist() == [0] * (a + b)


def test_self_loops_are_entries_like_others():
    A, _ = planted(*GRAPHS["assortative"])
    looped = A + 3 * np.eye(len(A))
    found = factorize(looped, 3, **SYMMETRIC)
    own = squared_error(looped, found.W, found.affinities)
    assert found.objective == pytest.approx(own, rel=1e-10)


def test_rounding_does_not_make_a_graph_directed():
    A, _ = planted(*GRAPHS["mixed"])
    rough = A * (1 + 1e-9 * np.random.default_rng(0).standard_normal(A.shape))
    found = factorize(rough, 3, **SYMMETRIC)
    plain = factorize(A, 3, **SYMMETRIC)
    assert found.relative_error == pytest.approx(plain.relative_error, rel=1e-6)
    np.testing.assert_array_equal(found.affinities, found.affinities.T)


def test_a_directed_graph_is_refused_with_its_asymmetry_and_its_node():
    A, _ = planted(*GRAPHS["assortative"])
    A[7] += 1  # node 7 links to all
    nodes = [f"n{i}" for i in range(len(A))]
    share = np.linalg.norm(A - A.T) / np.linalg.norm(A)
    with pytest.raises(DataError, match=r"most of it at n7; pass X \+ X.T") as problem:
        factorize(pd.DataFrame(A, nodes, nodes), 3, **SYMMETRIC)
    said = float(str(problem.value).split("about ")[1].split()[0])
    assert 0.5 * share < said < 2 * share
    single = np.ones((40, 40))
    single[3, 30] += 1e-3
    with pytest.raises(DataError, match="symmetric matrix"):
        factorize(single, 2, **SYMMETRIC)


def test_names_of_rows_and_columns_are_the_same_nodes():
    A, groups = planted(*GRAPHS["assortative"])
    nodes = [f"n{i}" for i in range(len(A))]
    table = pd.DataFrame(A, nodes, nodes)
    with pytest.raises(DataError, match=r"row 'n1' is at the place of column 'n0'.*X.loc"):
        factorize(table.iloc[[1, 0, *range(2, len(A))]], 3, **SYMMETRIC)
    model = ConeNMF(3, **SYMMETRIC).fit(table)
    assert agreement(groups, model.labels_) == 1
    assert list(model.feature_names_in_) == nodes


def test_negative_edges_are_refused_or_kept_as_noise():
    A, groups = planted(*GRAPHS["assortative"])
    noise = 0.1 * np.random.default_rng(0).standard_normal(A.shape)
    noisy = A + noise + noise.T
    with pytest.raises(DataError, match="negative='keep'"):
        ConeNMF(3, **SYMMETRIC).fit(noisy)
    model = ConeNMF(3, negative="keep", **SYMMETRIC).fit(noisy)
    assert agreement(groups, model.labels_) == 1


X = planted(*GRAPHS["assortative"])[0]
REFUSED = {
    "square": (DataError, "not 60 rows and 50 columns", {}, X[:, :50], {}),
    "loss": (OptionError, "other losses", {"loss": "poisson"}, X, {}),
    "penalties": (OptionError, "penalties or known", {"alpha_W": 0.1}, X, {}),
    "fixed": (OptionError, "penalties or known", {"fixed": X[:1]}, X, {}),
    "groups": (OptionError, "groups of samples", {}, X, {"groups": np.arange(60) % 2}),
    "holes": (OptionError, "missing or weighted", {}, X, {"mask": ~np.eye(60, dtype=bool)}),
    "weights": (OptionError, "missing or weighted", {}, X, {"weights": 2 - X}),
    "sample_weight": (OptionError, "sample weights", {}, X, {"sample_weight": 1 + np.arange(60)}),
    "zeros": (OptionError, "missing or weighted", {"missing": "zeros"}, sp.csr_array(X), {}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_meaning_for_graphs_is_refused_by_name(case):
    error, words, options, data, given = REFUSED[case]
    with pytest.raises(error, match=f"symmetric=True .*{words}"):
        ConeNMF(3, **SYMMETRIC, **options).fit(data, **given)


JUDGES = {
    "transform": lambda model: model.transform(X),
    "predict": lambda model: model.predict(X),
    "score": lambda model: model.score(X),
    "explained_share": lambda model: model.explained_share(X),
    "partial_fit": lambda model: model.partial_fit(X),
    "stability": lambda model: model.stability(X),
    "diagnose": lambda model: model.diagnose(),
    "uniqueness": lambda model: model.uniqueness(),
    "components_for": lambda model: model.result_.components_for(),
    "select_k": lambda model: conenmf.select_k(X, problem=model.result_.problem),
    "displacement": lambda model: displacement(
        X, model.result_.W, model.result_.H, [1.0], problem=model.result_.problem
    ),
}


@pytest.mark.parametrize("judge", JUDGES)
def test_judges_of_two_free_factors_are_not_available(judge):
    model = ConeNMF(3, **SYMMETRIC).fit(X)
    with pytest.raises(NotAvailableError, match="symmetric=True"):
        JUDGES[judge](model)


def test_a_model_is_saved_with_its_affinities_and_judged_again(tmp_path):
    model = ConeNMF(3, **SYMMETRIC)
    A = model.fit_transform(X)
    np.testing.assert_allclose(A, model.components_.T @ model.result_.affinities, atol=1e-12)
    write_tables(model, tmp_path)
    table = pd.read_csv(tmp_path / "affinities.csv", index_col=0)
    np.testing.assert_allclose(table, model.result_.affinities, rtol=1e-12)
    model.save(tmp_path / "model.npz")
    again = ConeNMF.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.result_.affinities, model.result_.affinities)
    assert again.symmetric
    assert again.result_.problem.symmetric
    assert again.result_.summary() == model.result_.summary()
    assert again.certify(X).relative_error == pytest.approx(model.relative_error_, rel=1e-9)
    with pytest.raises(NotAvailableError, match="symmetric=True"):
        again.transform(X)
    plain = factorize(X, 3)
    plain.save(tmp_path / "plain.npz")
    assert Factorization.load(tmp_path / "plain.npz").affinities is None


def test_the_number_of_groups_can_be_estimated_and_rounds_can_be_left_out():
    model = ConeNMF(**SYMMETRIC).fit(X)
    assert model.n_components_ == 3
    start = factorize(X, 3, init="random", solver=None, rng=np.random.default_rng(0), **SYMMETRIC)
    W = factorize(X, 3, init="random", solver=None, rng=np.random.default_rng(0)).W
    cosines = start.W.T @ (W / np.linalg.norm(W, axis=0))
    np.testing.assert_allclose(np.sort(cosines.max(axis=1)), 1)
    assert start.relative_error > model.relative_error_
