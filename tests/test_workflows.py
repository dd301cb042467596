"""What people do with an estimator: data frames, pipelines, searches, files, notebooks."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

from conenmf import ConeNMF, make_cones


@pytest.fixture(scope="module")
def X():
    return make_cones(12, 3, 0.1, n_samples=90, rng=np.random.default_rng(0)).V.T


def frames(X):
    names = [f"gene {f}" for f in range(X.shape[1])]
    return pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_data_frames_in_and_out(X, kind):
    frame = dict(zip(("pandas", "polars"), frames(X), strict=True))[kind]
    model = ConeNMF(3).fit(frame)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert model.result_.names.feature(2) == "gene 2"
    plain = ConeNMF(3).fit_transform(X)
    A = model.transform(frame)
    np.testing.assert_allclose(A, plain, rtol=1e-9)  # polars keeps columns together
    with sklearn.config_context(transform_output=kind):
        table = ConeNMF(3).fit_transform(frame)
    assert type(table).__module__.startswith(kind)
    columns = ["conenmf0", "conenmf1", "conenmf2"]
    assert list(table.columns) == list(model.get_feature_names_out()) == columns
    np.testing.assert_allclose(table.to_numpy(), plain, rtol=1e-9)
    assert type(model.set_output(transform=kind).transform(frame)) is type(table)


def test_an_index_of_names_is_kept(X):
    frame = frames(X)[0].set_axis([f"cell {n}" for n in range(90)])
    model = ConeNMF(3).set_output(transform="pandas")
    assert list(model.fit_transform(frame).index[:2]) == ["cell 0", "cell 1"]
    assert model.result_.names.sample(89) == "cell 89"


@pytest.mark.parametrize("vectorizer", [TfidfVectorizer, CountVectorizer])
def test_topics_of_texts(vectorizer):
    texts = ["cat dog cat", "dog dog cat", "stock bond", "bond stock stock", "cat dog", "bond"]
    topics = make_pipeline(vectorizer(), ConeNMF(2))
    A = topics.fit_transform(texts)
    owners = A.argmax(axis=1)
    assert owners[0] == owners[1] == owners[4] != owners[2] == owners[3] == owners[5]
    np.testing.assert_array_equal(topics.transform(["dog"]).argmax(), owners[0])


def test_in_a_notebook(X):
    model = ConeNMF(3)
    model.fit(X)
    assert "sk-container" in model._repr_html_()
    assert "<br>3 components; relative error" in model.result_._repr_html_()
