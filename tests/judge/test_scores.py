"""Components by the names of features, for results and for the estimator."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from conenmf import ConeNMF
from conenmf.components import largest_features
from conenmf.errors import DataError
from conenmf.judge.matching import match_components, named_after
from conenmf.judge.scores import scores
from conenmf.names import Names
from conenmf.plots import abundance_maps


def test_the_original_programs_agree(oracle):
    true, pred = oracle["labels_true"], oracle["labels_pred"]
    found = scores(true, pred)
    assert found == pytest.approx({name: float(oracle[name]) for name in found}, abs=1e-12)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.randoms())
def test_a_perfect_clustering_under_any_names(labels, random):
    names = list("abcde")
    random.shuffle(names)
    renamed = [names[label] for label in labels]
    assert scores(labels, renamed) == pytest.approx({"nmi": 1, "purity": 1, "dice": 1})


def test_purity_is_of_clusters_and_dice_of_classes():
    found = scores([0, 0, 0, 0, 1, 1], ["a", "a", "a", "b", "b", "c"])
    assert found["purity"] == pytest.approx((3 + 1 + 1) / 6)
    assert found["dice"] == pytest.approx((2 * 3 / (4 + 3) + 2 * 1 / (2 + 1)) / 2)


@given(rng=st.integers(0, 10**6).map(np.random.default_rng))
def test_matching_undoes_a_permutation(rng):
    W = rng.random((20, 5)) ** 4
    order = rng.permutation(5)
    found, cosines = match_components(W[:, order], W * rng.random(5) * 3)
    np.testing.assert_array_equal(found, order)
    np.testing.assert_allclose(cosines, 1)


def test_matching_with_more_and_with_zero_components(refuses):
    assert match_components(np.eye(4)[:, :2], np.eye(4)[:, ::-1])[0].tolist() == [3, 2]
    assert match_components(np.zeros((3, 2)), np.ones((3, 2)))[1].tolist() == [0, 0]
    message = "W has 2 components and W_other only 1: swap them"
    refuses(DataError, message, lambda: match_components(np.ones((3, 2)), np.ones((3, 1))))


def test_a_known_component_gives_its_name_once():
    W = np.array([[1.0, 1.0, 0.0], [0.0, 0.1, 0.0], [0.0, 0.0, 1.0]])  # two are like "oak"
    names, known = named_after(W, np.eye(3)[:, [0, 2]], ["oak", "elm"])
    assert names == ("oak", "like oak 1", "elm")
    assert known[1] == "another component like oak (cosine 1.00)"


def test_large_maps_keep_pixels_at_equal_distances(rng):
    W, H = rng.random((5, 3)), rng.random((3, 600))
    whole = abundance_maps(W, H, (20, 30))
    np.testing.assert_allclose(whole.sum(axis=0), 1)
    few = abundance_maps(W, H, (20, 30), max_pixels=500)
    np.testing.assert_array_equal(few, whole[:, ::2, ::2])  # 450 pixels, of 1800


TEXTS = ["oak elm oak", "elm oak ash", "salt pepper", "pepper salt salt", "oak elm", "salt pepper"]


@pytest.fixture
def counts():
    words = TfidfVectorizer()
    return words.fit_transform(TEXTS), words.get_feature_names_out()


def test_the_largest_features_come_first_and_zeros_never():
    W = np.array([[0.0, 2.0], [3.0, 2.0], [5.0, 0.0]])
    assert largest_features(W, Names(), 2) == [
        ["feature 2", "feature 1"],
        ["feature 0", "feature 1"],
    ]
    assert largest_features(W, Names(), 9) == largest_features(W, Names(), 2)


def test_words_of_a_sparse_matrix(counts):
    X, words = counts
    assert sp.issparse(X)
    model = ConeNMF(2).fit(X, feature_names=words)
    topics = {frozenset(topic[:2]) for topic in model.top_features(3)}
    assert topics == {frozenset({"oak", "elm"}), frozenset({"salt", "pepper"})}
    assert model.top_features(3) == model.result_.top_features(3)
    assert not hasattr(model, "feature_names_in_")  # scikit-learn would warn in transform
    assert model.transform(X).shape == (6, 2)


def test_a_frame_of_components(counts):
    X, words = counts
    model = ConeNMF(2).fit(X, feature_names=words)
    frame = model.components_frame()
    expected = pd.DataFrame(model.components_, ["component 0", "component 1"], words)
    pd.testing.assert_frame_equal(frame, expected, check_names=False)
    pd.testing.assert_frame_equal(model.result_.components_frame(), frame)
    bare = ConeNMF(2).fit(X).components_frame(feature_names=words)
    pd.testing.assert_frame_equal(bare, frame)
