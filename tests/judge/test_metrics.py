from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import normalized_mutual_info_score

from conenmf.errors import FactorError, ShapeError
from conenmf.judge.metrics import dice, match_components, purity

ORACLE = sorted((Path(__file__).parents[1] / "oracle").glob("case*.npz"))


@pytest.mark.parametrize("path", ORACLE, ids=lambda path: path.stem)
def test_the_original_programs_agree(path):
    case = np.load(path)
    true, pred = case["labels_true"], case["labels_pred"]
    nmi = normalized_mutual_info_score(true, pred, average_method="geometric")
    assert nmi == pytest.approx(float(case["nmi"]), abs=1e-12)
    assert dice(true, pred) == pytest.approx(float(case["dice"]), abs=1e-12)
    assert purity(true, pred) == pytest.approx(float(case["purity"]), abs=1e-12)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.randoms())
def test_a_perfect_clustering_under_any_names(labels, random):
    names = list("abcde")
    random.shuffle(names)
    renamed = [names[label] for label in labels]
    assert dice(labels, renamed) == 1
    assert purity(labels, renamed) == 1


@pytest.mark.parametrize("score", [dice, purity])
@pytest.mark.parametrize(("true", "pred"), [([0, 1], [0]), ([], []), ([[0]], [[0]])])
def test_bad_labels(score, true, pred):
    with pytest.raises(ShapeError, match=r"same length|labels_true=.*, expected a list of classes"):
        score(true, pred)


@given(seed=st.integers(0, 10**6))
def test_matching_undoes_a_permutation(seed):
    rng = np.random.default_rng(seed)
    W = rng.random((20, 5)) ** 4
    order = rng.permutation(5)
    found, cosines = match_components(W[:, order], W * rng.random(5) * 3)
    np.testing.assert_array_equal(found, order)
    np.testing.assert_allclose(cosines, 1)


def test_matching_with_more_and_with_zero_components():
    found, cosines = match_components(np.eye(4)[:, :2], np.eye(4)[:, ::-1])
    assert found.tolist() == [3, 2]
    _, cosines = match_components(np.zeros((3, 2)), np.ones((3, 2)))
    assert cosines.tolist() == [0, 0]
    with pytest.raises(FactorError, match="W has 2 components and W_other only 1: swap them"):
        match_components(np.ones((3, 2)), np.ones((3, 1)))
    with pytest.raises(FactorError, match="cannot be paired"):
        match_components(np.ones((3, 2)), np.ones((4, 2)))
