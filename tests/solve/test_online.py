"""Streams: batches in any order and of any size lead to nearly the factors of all samples."""

import pickle

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conenmf import cr1_nmf, factorize, from_columns, make_cones
from conenmf.cones.rank_one import cr1_error
from conenmf.cones.streams import SKETCH_SIZE
from conenmf.solve import online
from conenmf.solve.coefficients import coefficients
from conenmf.solve.online import ConeStream


def cut(V, size):
    return [V[:, start : start + size] for start in range(0, V.shape[1], size)]


def run(V, K, size, make=from_columns, **options):
    stream = ConeStream(V.shape[0], K)
    for batch in cut(V, size):
        stream.update(make(batch, **options))
    return stream


def in_order(model, order, rng):
    """Samples and labels in an order."""
    n = {
        "as drawn": np.arange(model.labels.size),
        "cone after cone": np.argsort(model.labels, kind="stable"),
        "one of each cone last": rng.permutation(model.labels.size),
    }[order]
    if order == "one of each cone last":
        firsts = [np.flatnonzero(model.labels[n] == k)[0] for k in np.unique(model.labels)]
        n = np.concatenate([np.delete(n, firsts), n[firsts]])
    return model.V[:, n], model.labels[n]


def owners(stream, model):
    """The true cone of each centre."""
    return (model.axes.T @ stream.cones.directions).argmax(axis=0)


def relative_error(V, W):
    data = from_columns(V)
    return np.sqrt(coefficients(data, W)[2] / data.total)


ORDERS = ("as drawn", "cone after cone", "one of each cone last")


@given(
    rng=st.integers(0, 10**6).map(np.random.default_rng),
    K=st.integers(1, 5),
    alpha=st.floats(0.01, 0.3),
    size=st.sampled_from([1, 2, 7, 60]),
    order=st.sampled_from(ORDERS),
)
def test_cones_are_right_for_every_order_and_size_of_batch(rng, K, alpha, size, order):
    model = make_cones(20, K, alpha, n_samples=60, rng=rng)
    V, labels = in_order(model, order, rng)
    V[:, rng.random(60) < 0.05] = 0.0
    nonzero = V.any(axis=0)
    stream = ConeStream(20, K)
    seen, settled = 0, None
    for batch in cut(V, size):
        stream.update(from_columns(batch, n_threads=1))
        seen += batch.shape[1]
        sent = np.flatnonzero(nonzero[:seen])
        mine = owners(stream, model)
        assert set(mine) == set(labels[sent])
        assert stream.cones.counts.sum() == sent.size
        if len(set(labels[sent])) == K:
            assert sorted(mine) == list(range(K))
            if settled is not None:
                np.testing.assert_array_equal(stream.cones.directions, settled)
            settled = stream.cones.directions
        for k in set(mine):  # no sum holds a sample of another cone
            truth = V[:, sent[labels[sent] == k]].sum(axis=1)
            np.testing.assert_allclose(stream.cones.sums[:, mine == k].sum(axis=1), truth)
    assert stream.n_samples == 60
    W = stream.W
    assert np.isfinite(W).all()
    assert W.min() >= 0
    if settled is not None:
        axes_error = relative_error(V, stream.cones.sums)
        assert axes_error <= np.sin(2 * alpha) + 1e-12
    assert pickle.loads(pickle.dumps(stream)).W.tobytes() == W.tobytes()


@settings(max_examples=25)
@given(
    rng=st.integers(0, 10**6).map(np.random.default_rng),
    K=st.integers(1, 4),
    alpha=st.floats(0.05, 0.3),
    size=st.sampled_from([5, 13, 120]),
    order=st.sampled_from(ORDERS),
)
def test_axes_are_nearly_as_good_as_all_samples_at_once(rng, K, alpha, size, order):
    model = make_cones(30, K, alpha, n_samples=120, rng=rng)
    assume(np.unique(model.labels).size == K)
    V, _ = in_order(model, order, rng)
    at_once = cr1_error(from_columns(V), *cr1_nmf(from_columns(V), K)[:2])
    explained = (run(V, K, size).axes.T @ V).max(axis=0)
    error = np.sqrt(1 - (explained**2).sum() / (V**2).sum())
    assert error <= np.sqrt(1 + 1 / SKETCH_SIZE) * at_once + 1e-9


@pytest.mark.seed(1)
@pytest.mark.thinned(2)
@pytest.mark.parametrize("size", [1, 20, 150])
@pytest.mark.parametrize("order", ORDERS[:2])
def test_a_stream_of_cones_ends_near_the_batch_error(order, size, rng):
    V, _ = in_order(make_cones(200, 8, 0.2, n_samples=1500, rng=rng), order, rng)
    batch = factorize(from_columns(V), 8, init="cr1").relative_error
    assert relative_error(V, run(V, 8, size).W) <= 1.01 * batch


def test_small_cones_one_after_the_other_end_near_algorithm_two():
    """Few samples of few features: what hals gains on all at once is out of reach."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        V, _ = in_order(make_cones(60, 4, 0.15, n_samples=200, rng=rng), "cone after cone", rng)
        batch = factorize(from_columns(V), 4, init="cr1", solver=None).relative_error
        assert relative_error(V, run(V, 4, 10).W) <= 1.01 * batch


def test_every_backend(main_backend, small_blocks, sample_matrix):
    stream = run(sample_matrix, 5, 20, main_backend)
    np.testing.assert_allclose(stream.cones.sums.sum(axis=1), sample_matrix.sum(axis=1))
    assert stream.W.shape == (12, 5)
    assert relative_error(sample_matrix, stream.W) < 0.6


def test_passes():
    model = make_cones(50, 3, 0.2, n_samples=90, rng=np.random.default_rng(0))
    stream = ConeStream(50, 3)
    first, second = from_columns(model.V[:, :50]), from_columns(model.V[:, 50:])
    stream.update(first)
    assert first.passes == 1 + 2 + 50
    stream.update(second)
    assert second.passes == 1 + 1 + 3


def test_fewer_directions_than_components_and_zero_samples():
    stream = ConeStream(3, 3)
    stream.update(from_columns(np.zeros((3, 4))))
    assert not stream.W.any()
    stream.update(from_columns(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])))
    np.testing.assert_array_equal(stream.W, np.diag([1.0, 0.0, 0.0]))
    stream.update(from_columns(np.array([[0.0], [5.0], [0.0]])))
    np.testing.assert_allclose(stream.W, np.diag([1.0, 1.0, 0.0]), atol=1e-12)
    assert (stream.n_samples, stream.n_batches) == (8, 3)


def test_an_outlier_becomes_a_centre_but_takes_no_component(rng):
    V = rng.gamma(2.0, size=(30, 3)) @ rng.dirichlet(np.ones(3), 400).T
    stream = run(V, 3, 100)
    before = relative_error(V, stream.W)
    outlier = np.zeros((30, 1))
    outlier[4] = 1e-3
    stream.update(from_columns(outlier))
    assert (stream.cones.directions.T @ outlier).max() == pytest.approx(1e-3)
    assert relative_error(V, stream.W) < 1.05 * before + 1e-6


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_the_scale_of_the_data_does_not_matter(scale, sample_matrix):
    expected = run(sample_matrix, 4, 10).W
    np.testing.assert_allclose(run(scale * sample_matrix, 4, 10).W, expected, atol=1e-6)


def test_continuing_from_factors():
    model = make_cones(80, 4, 0.15, n_samples=600, rng=np.random.default_rng(2))
    past, rest = model.V[:, :400], model.V[:, 400:]
    result = factorize(from_columns(past), 4)
    H = result.H
    stream = ConeStream.from_factors(result.W, H @ H.T, H.sum(axis=1), 400)
    unit = result.W / np.linalg.norm(result.W, axis=0)
    np.testing.assert_allclose(stream.W, unit, atol=1e-12)
    stream.update(from_columns(rest))
    assert stream.n_samples == 600
    batch = factorize(from_columns(model.V), 4).relative_error
    assert relative_error(model.V, stream.W) <= 1.01 * batch
    cones = factorize(from_columns(past), 4, solver=None)
    W, H = np.column_stack([cones.W[:, :3], np.zeros(80)]), cones.H  # one that is not there
    stream = ConeStream.from_factors(W, H @ H.T, H.sum(axis=1), 400)
    assert stream.cones.counts.size == 3
    stream.update(from_columns(model.V))
    assert relative_error(model.V, stream.W) <= 1.05 * batch


def test_the_past_weighs_as_the_root_of_its_share():
    a, b = np.array([3.0, 1.0]), np.array([1.0, 3.0])
    stream = ConeStream(2, 1)
    for sample in (a, b):
        stream.update(from_columns(np.tile(sample[:, None], 8)))
    w, past = a / np.linalg.norm(a), np.sqrt(8 / 16)
    for _ in range(3):  # updates of h and w for each batch
        h = b @ w / (w @ w)
        w = (past * 8 * a * np.linalg.norm(a) + 8 * b * h) / (past * 8 * (a @ a) + 8 * h**2)
    np.testing.assert_allclose(stream.W[:, 0], w / np.linalg.norm(w), rtol=1e-6)


def test_recent_samples_weigh_more_in_w_but_not_in_what_a_component_is_worth():
    first, second = np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[0.0, 6.0], [1.0, 0.0]])
    stream = ConeStream(2, 2)
    for batch in (first, second):
        stream.update(from_columns(batch))
    order = stream.W[0].argsort()[::-1]
    worth, recent = (np.diagonal(one)[order] for one in (stream._factors.D, stream._factors.A))
    np.testing.assert_allclose(worth, [25 + 36, 1])
    np.testing.assert_allclose(recent, [25 * np.sqrt(2 / 4) + 36, 1])


def test_a_stream_goes_on_with_as_many_equal_samples_as_there_were():
    W, H = np.array([[0.6, 0.0], [0.8, 2.0]]), np.repeat([[3.0], [5.0]], 7, axis=1)
    stream = ConeStream.from_factors(W, H @ H.T, H.sum(axis=1), 7)
    np.testing.assert_allclose(stream.cones.counts, [7, 7])
    np.testing.assert_allclose(stream.cones.sums, W * H.sum(axis=1))


def test_the_cheapest_merge_is_that_of_the_smallest_singular_value(rng):
    """Of all pairs, w h' + w' h'' is nearest to rank one."""
    W, H = rng.random((6, 4)), rng.random((4, 30))
    W /= np.linalg.norm(W, axis=0)
    B, unused = rng.random((6, 4)), np.zeros((4, 4))
    factors = online._Factors(W, unused, B, H @ H.T)
    errors = {
        (i, j): np.linalg.svd(W[:, [i, j]] @ H[[i, j]], compute_uv=False)[1] ** 2
        for i in range(4)
        for j in range(i + 1, 4)
    }
    error, *pair = factors.cheapest_merge()
    assert tuple(pair) == min(errors, key=errors.get)
    assert error == pytest.approx(min(errors.values()))
    i, j = pair
    total = rng.random(6)
    merged = factors.with_merged(i, j, total, 5.0)
    np.testing.assert_allclose(merged.W[:, j], total / np.linalg.norm(total))
    assert merged.D[j, j] == merged.A[j, j] == pytest.approx(total @ total / 5)
    joint = np.sqrt(np.diagonal(H @ H.T))[[i, j]] @ W[:, [i, j]].T
    np.testing.assert_allclose(merged.W[:, i], joint / np.linalg.norm(joint))
    shares = merged.W[:, i] @ W[:, [i, j]]
    own = shares @ H[[i, j]]
    assert merged.D[i, i] == pytest.approx(own @ own)
    np.testing.assert_allclose(merged.B[:, i], B[:, [i, j]] @ shares)
