"""Texts as numbers: the same as scikit-learn's, kept with a result, and read again alike."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from tests.entries import entries

from conenmf import ConeNMF, from_texts
from conenmf.data.prepare import Words

ENGLISH = [
    "the oak and the elm are in the wood",
    "an elm and an oak of the wood",
    "salt and pepper are on the table",
    "the pepper is on a table with the salt",
    "in the wood there is an oak",
]
GERMAN = [
    "die eiche und die ulme sind im wald",
    "eine ulme und eine eiche sind im wald",
    "salz und pfeffer sind auf dem tisch",
    "der pfeffer und das salz sind auf dem tisch",
]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (Words(), {"stop_words": "english", "min_df": 2, "max_df": 0.95}),
        (Words("none", 1), {"max_df": 0.5}),
        (Words("none", 1, 1.0, 7), {"max_df": 1.0, "max_features": 7}),
        (Words("english", 1, ngrams=2), {"stop_words": "english", "ngram_range": (1, 2)}),
    ],
)
def test_the_numbers_are_those_of_scikit_learn(words, options):
    V = from_texts(ENGLISH, words=words)
    vectorizer = TfidfVectorizer(**{"max_df": 0.95} | options)
    np.testing.assert_array_equal(entries(V).T, vectorizer.fit_transform(ENGLISH).toarray())
    assert V.names.feature_names == tuple(vectorizer.get_feature_names_out())
    new = ["an oak with salt", "nothing known"]
    again = from_texts(new, words=V.vocabulary)
    np.testing.assert_array_equal(entries(again).T, vectorizer.transform(new).toarray())


def test_english_is_known_by_its_frequent_words():
    V = from_texts(ENGLISH)
    assert not {"the", "and", "is"} & set(V.vocabulary.words)
    assert "without English stop words" in V.remarks[0]
    V = from_texts(GERMAN)
    assert "und" not in V.vocabulary.words  # in more than half of the texts
    assert "im" in V.vocabulary.words
    assert V.vocabulary.settings["stop_words"] == "none"


def test_a_saved_result_takes_new_texts(reloaded):
    V = from_texts(ENGLISH)
    result = ConeNMF(2).fit(V).result_
    loaded = reloaded(result)
    new = ["oak and elm", "pepper, pepper"]
    again = from_texts(new, words=loaded.vocabulary)
    np.testing.assert_array_equal(entries(again), entries(from_texts(new, words=result.vocabulary)))
    assert loaded.vocabulary.words == V.names.feature_names
    assert (
        "2 have none of them" in from_texts(["xx", "yy", "oak"], words=loaded.vocabulary).remarks[0]
    )
