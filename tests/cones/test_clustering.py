"""Algorithm 1: the lazy form makes the plain choices, Lemma 1, ties and zero columns."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from conenmf import cluster_cones, cr1_nmf, from_columns, make_cones
from conenmf.cones.clustering import assign
from conenmf.cones.geometry import angles_between, enclosing_cones
from conenmf.cones.rank_one import cr1_plus_plus, rank_one_factors
from conenmf.errors import (
    ComponentsError,
    OptionError,
)


def one_cosine_at_a_time(V, K, first):
    """The paper's two loops on bare numbers; ties within rounding to the lowest index."""
    V = V.astype(float)
    tie = 8 * np.finfo(float).eps * np.sqrt(V.shape[0])
    norms = np.linalg.norm(V, axis=0)
    samples = [n for n in range(V.shape[1]) if norms[n] > 0]
    unit = {n: V[:, n] / norms[n] for n in samples}
    centres = [first]
    for _ in range(K - 1):
        largest = {n: max(float(unit[i] @ unit[n]) for i in centres) for n in samples}
        smallest = min(largest.values())
        centres.append(min(n for n in samples if largest[n] <= smallest + tie))
    labels = np.full(V.shape[1], -1)
    for n in samples:
        cosines = [float(unit[i] @ unit[n]) for i in centres]
        labels[n] = min(k for k in range(K) if cosines[k] >= max(cosines) - tie)
    return centres, labels


def count_directions(V):
    """Greedy count of samples that are not parallel to an earlier one."""
    directions = []
    for v in V.astype(float).T:
        if v.any():
            v = v / np.linalg.norm(v)
            if all(v @ u < 1 - 1e-12 for u in directions):
                directions.append(v)
    return len(directions)


@st.composite
def matrices(draw):
    """Matrices with ties, duplicates, zero columns: small integers; or arbitrary reals."""
    F, N = draw(st.integers(1, 6)), draw(st.integers(1, 25))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    if draw(st.booleans()):
        V = draw(hnp.arrays(np.int64, (F, N), elements=st.integers(0, 3))).astype(dtype)
    else:
        seed = draw(st.integers(0, 10**6))
        rng = np.random.default_rng(seed)
        V = (rng.random((F, N)) * (rng.random((F, N)) < 0.8)).astype(dtype)
    V[0, 0] = max(V[0, 0], 1)
    return V


@pytest.mark.parametrize("method", ["plain", "exact"])
@pytest.mark.parametrize("make", [np.asarray, sp.csc_array], ids=["dense", "sparse"])
@given(V=matrices(), block=st.sampled_from([7, 10**6]), data=st.data())
def test_lazy_algorithm_1_is_the_plain_one_centre_for_centre(make, method, V, block, data):
    K = data.draw(st.integers(1, count_directions(V)))
    first = data.draw(st.sampled_from(np.flatnonzero(V.any(axis=0)).tolist()))
    opened = from_columns(make(V))
    opened.block_samples = block
    cones = cluster_cones(opened, K, first=first, method=method)
    centres, labels = one_cosine_at_a_time(V, K, first)
    assert (cones.centres.tolist(), cones.labels.tolist()) == (centres, labels.tolist())


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("seed", "dtype"), [(0, np.float32), (1, np.float64)])
def test_lazy_is_plain_on_larger_matrices(main_backend, small_blocks, seed, dtype):
    V = make_cones(40, 6, 0.2, n_samples=300, noise=0.05, rng=np.random.default_rng(seed)).V
    V = V.astype(dtype)
    opened = main_backend(V)
    before = opened.passes
    plain = cluster_cones(opened, 25, first=7, method="plain")
    assert opened.passes - before == pytest.approx(25 + 25 / 300)  # and the centres themselves
    cones = cluster_cones(opened, 25, first=7)
    centres, labels = one_cosine_at_a_time(V, 25, 7)
    assert cones.centres.tolist() == plain.centres.tolist() == centres
    assert np.array_equal(cones.directions, plain.directions)
    assert np.asarray(cones.labels).tolist() == np.asarray(plain.labels).tolist() == labels.tolist()


@pytest.mark.parametrize(("method", "passes"), [("plain", 4), ("exact", 4), ("one-pass", 1)])
def test_every_form_makes_the_same_choice_on_small_data(method, passes, sample_matrix):
    """There "exact" runs the plain loop, which looks at the block once for each further centre."""
    V = from_columns(sample_matrix)
    plain = cluster_cones(V, 5, method="plain")
    before = V.passes
    cones = cluster_cones(V, 5, method=method)
    single_samples = 0 if method == "one-pass" else 5 / V.shape[1]
    assert V.passes - before == pytest.approx(passes + single_samples + 1)  # one to assign
    assert (cones.centres.tolist(), cones.labels.tolist()) == (
        plain.centres.tolist(),
        plain.labels.tolist(),
    )


def test_it_reads_far_less_than_one_pass_per_centre():
    V = from_columns(make_cones(200, 20, 0.2, n_samples=2000, rng=np.random.default_rng(0)).V)
    before = V.passes
    cluster_cones(V, 20)
    assert V.passes - before < 5  # the plain form takes 20


@given(rng=st.integers(0, 10**7).map(np.random.default_rng))
def test_lemma_1_clusters_are_the_true_cones(same_clusters, rng):
    model, K = draw_cones(rng, fewest=2)
    assert same_clusters(model.labels, cluster_cones(from_columns(model.V), K, rng=rng).labels)


def draw_cones(rng, fewest=1):
    """Cones that are barely farther apart than is assumed, each with a sample."""
    K = int(rng.integers(fewest, 7))
    angles = rng.uniform(0.01, 0.25, K)
    largest, second = np.sort(np.append(angles, 0.0))[::-1][:2]
    apart = 3 * largest + second + rng.uniform(1e-3, 0.1)
    model = make_cones(80, K, angles, angle=apart, n_samples=150, rng=rng)
    assume(np.unique(model.labels).size == K)
    return model, K


@given(seed=st.integers(0, 10**7), block=st.integers(1, 60))
def test_one_pass_finds_every_cone(same_clusters, seed, block):
    """Blocks that see some of the cones only, in any order, lead to the true cones."""
    rng = np.random.default_rng(seed)
    model, K = draw_cones(rng)
    order = np.argsort(model.labels) if seed % 2 else np.arange(150)  # one cone after the other
    V = from_columns(model.V[:, order], block_samples=block)
    before = V.passes
    cones = cluster_cones(V, K, method="one-pass", rng=rng)
    assert V.passes - before == 2.0  # one to choose, one to label
    assert same_clusters(model.labels[order], cones.labels)
    assert cones.labels[cones.centres].tolist() == list(range(K))
    W, H, again = cr1_nmf(V, K, method="one-pass", first=int(cones.centres[0]))
    assert again.centres.tolist() == cones.centres.tolist()
    exact = cr1_nmf(V, K)
    assert np.linalg.norm(W @ H - exact[0] @ exact[1]) <= 1e-6 * V.norm


def test_one_pass_on_every_storage(main_backend, small_blocks, sample_matrix, refuses):
    cones = cluster_cones(main_backend(sample_matrix), 5, first=3, method="one-pass")
    assert (cones.centres[0], np.unique(cones.centres).size) == (3, 5)
    directions = sample_matrix[:, cones.centres]
    unit = directions / np.linalg.norm(directions, axis=0)
    np.testing.assert_allclose(cones.directions, unit, atol=1e-14)
    line = main_backend(np.outer(np.ones(12), np.arange(40.0)))
    few = "only 1 distinct direction,"
    refuses(ComponentsError, few, cluster_cones, line, 2, method="one-pass")


def test_lemma_1_needs_a_sample_in_each_cone():
    """Otherwise K clusters are too many, and samples of one cone are put into two."""
    model = make_cones(80, 2, 0.05, angle=1.0, n_samples=20, rng=np.random.default_rng(0))
    V = from_columns(model.V[:, model.labels == 0])
    assert set(cluster_cones(V, 2).labels.tolist()) == {0, 1}


def smallest_diameter(angles, K):
    """The largest angle within a cluster, for the best of all clusterings."""
    N = angles.shape[0]
    labels = np.indices((K,) * N).reshape(N, -1)
    together = labels[:, None] == labels
    return np.where(together, angles[:, :, None], 0.0).max(axis=(0, 1)).min()


@pytest.mark.parametrize("way", ["exact", "one-pass", "drawn"])
@settings(max_examples=30)
@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_no_clusters_are_narrower_than_the_least_size_angle(way, rng):
    V = rng.random((5, 7)) * (rng.random((5, 7)) < 0.7) * 10.0 ** rng.uniform(-3, 0, 7)
    V[0, 0] += 1
    K = int(rng.integers(1, min(3, count_directions(V)) + 1))
    held = from_columns(V, block_samples=2)
    if way == "drawn":
        cones = cr1_plus_plus(held, K, rng=rng, runs=1)[2]
    else:
        cones = cluster_cones(held, K, rng=rng, method=way)
    unit = V[:, V.any(axis=0)] / np.linalg.norm(V[:, V.any(axis=0)], axis=0)
    angles = np.arccos(np.clip(unit.T @ unit, -1, 1))
    best = smallest_diameter(angles, K)
    assert 2 * cones.least_size_angle <= best + 1e-7
    assert best <= 2 * cones.radius + 1e-7
    if way == "exact":  # and then clusters are at most twice as wide as they must be
        assert cones.least_size_angle == pytest.approx(cones.radius / 2, abs=1e-7)


def test_the_radius_can_be_twice_the_best():
    """Two clusters of size angle 0.2: from a sample at the edge, the radius is the whole angle."""
    angles = np.array([0.1, 0.5, 1.0, 1.4])
    V = from_columns(np.stack([np.cos(angles), np.sin(angles)]))
    radii = [cluster_cones(V, 2, first=first).radius for first in range(4)]
    assert max(radii) == pytest.approx(2 * 0.2)


def test_half_of_the_radius_bounds_nothing_if_centres_are_drawn():
    """Two long samples 0.3 rad apart become the centres; a short one has to join one of them."""
    at = np.array([0.0, 0.3, np.pi / 2])
    V = from_columns(np.array([np.cos(at), np.sin(at)]) * [1.0, 1.0, 1e-3])
    best = enclosing_cones(V, np.array([0, 0, 1]))[1].max()
    assert best == pytest.approx(0.15)
    for seed in range(10):
        cones = cr1_plus_plus(V, 2, rng=np.random.default_rng(seed))[2]
        assert cones.radius / 2 > 4 * best
        assert cones.least_size_angle == pytest.approx(best)
    found = cluster_cones(V, 2).least_size_angle
    assert found <= best + 1e-15  # the accuracy of `enclosing_cones`


@pytest.mark.thinned(2)
@pytest.mark.parametrize("angle", [1e-1, 1e-3, 1e-6, 1e-9, 1e-12])
def test_a_small_radius_has_all_its_digits(angle, main_backend):
    at = np.array([0.3, 0.3 + angle, 1.2, 1.2])
    V = main_backend(np.array([np.cos(at), np.sin(at)]) * [3.0, 1.0, 2.0, 0.5])
    for cones in (cluster_cones(V, 2, first=0), cr1_nmf(V, 2, first=0)[2]):
        assert cones.radius == pytest.approx(angle, rel=1e-9, abs=1e-15)


def test_each_centre_is_as_far_from_those_before_it_as_any_sample(
    main_backend, small_blocks, sample_matrix
):
    """Centres are nested; the angle of each to the earlier ones is the radius of fewer cones."""
    V = main_backend(sample_matrix)
    cones = cluster_cones(V, 9)
    apart = angles_between(cones.directions, cones.directions)
    to_earlier = [apart[k, :k].min() for k in range(1, 9)]
    radii = [cluster_cones(V, k).radius for k in range(1, 9)]
    np.testing.assert_allclose(to_earlier, radii, atol=1e-7)
    assert (np.diff(to_earlier) <= 0).all()
    assert cluster_cones(V, 5).centres.tolist() == cones.centres[:5].tolist()


def test_zero_columns_belong_to_no_cone(backend, sample_matrix):
    V = backend(sample_matrix)
    cones = cluster_cones(V, 4)
    zero = ~sample_matrix.any(axis=0)
    np.testing.assert_array_equal(cones.labels == -1, zero)
    W, H = rank_one_factors(V, cones)
    assert not H[:, zero].any()
    assert not W[5].any()


def test_the_first_centre(sample_matrix, refuses):
    V = from_columns(sample_matrix)
    assert cluster_cones(V, 3).centres[0] == np.argmax(V.norms_squared)
    assert cluster_cones(V, 3, first=9).centres[0] == 9
    drawn = {int(cluster_cones(V, 1, rng=np.random.default_rng(s)).centres[0]) for s in range(60)}
    assert len(drawn - {0, 17}) == len(drawn) > 20
    for first in (17, 40, -1):
        none = f"first={first} is not the index of a nonzero"
        refuses(OptionError, none, cluster_cones, V, 3, first=first)


def test_fewer_directions_than_components(refuses):
    V = from_columns([[1.0, 2.0, 0.0, 0.0, 3.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
    assert [cluster_cones(V, K).labels.max() for K in (1, 2)] == [0, 1]
    few = "only 2 distinct directions.*use at most 2"
    refuses(ComponentsError, few, cluster_cones, V, 3)


@pytest.mark.parametrize("method", ["exact", "plain", "one-pass"])
def test_only_rounding_is_a_tie(method):
    V = from_columns(np.array([[1.0, 0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1 + 1e-9, 1 - 1e-9]]))
    cones = cluster_cones(V, 2, method=method, first=0)
    np.testing.assert_array_equal(cones.labels, [0, 1, 0, 1, 0])


def test_a_sample_that_is_equally_near_to_centres_belongs_to_the_first(rng):
    """Rounding must not decide, and samples of zeros belong to none."""
    Z = np.eye(4)[:, [1, 2, 3]]
    V = np.array([[0, 1, 1, 0], [0, 1, 1 + 1e-12, 1], [0, 0, 1, 1 + 1e-12], [0, 0, 0, 0]]).T
    V = np.column_stack([V, [0, 0.2, 0.2, 1.0]])
    labels, smallest = assign(V, (V**2).sum(axis=0), Z=Z, tie=1e-10)
    assert labels.tolist() == [0, 0, 1, -1, 2]
    assert smallest == pytest.approx(np.sqrt(1 / 3))
