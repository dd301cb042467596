"""Texts as numbers: which words count, and how much, by scikit-learn's `TfidfVectorizer`.

A sample is a text, a feature is a word, and an entry is how often the word is in the text, times a
weight that is larger the fewer texts have the word; every text has norm 1. The words and their
weights make a `Vocabulary`, plain values that a result keeps, so that new texts are read alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from ..arguments import array, choice, integer, number, optional, several
from ..errors import DataTypeError, EmptyDataError, Message, Option, OptionError
from ..text import shown
from .blocks import Array

__all__ = ["Vocabulary", "Words"]

_TOKEN = r"(?u)\b\w{2,100}\b"  # longer ones are no words
_STOP_WORDS = ("auto", "english", "none")
_LOOKED_AT_TEXTS = 1000  # for their language
_FREQUENT_WORDS = 25  # of which half have to be English stop words
_MAX_NGRAMS = 5
_MAX_DF, _MAX_DF_WITHOUT_LIST = 0.95, 0.5


@dataclass(frozen=True)
class Words:
    """Which words of texts are features.

    Attributes
    ----------
    stop_words : {"auto", "english", "none"}
        Frequent words to leave out: those of scikit-learn's English list, or none. "auto" leaves
        them out of English texts: half of their 25 most frequent words are in the list.
    min_df : int
        A word has to be in so many texts.
    max_df : float, optional
        A word may be in at most this share of the texts; by default 0.95 with a list of stop words,
        and 0.5 without one.
    max_words : int, optional
        Keep only the most frequent ones.
    ngrams : int
        With 2, pairs of neighbouring words are features too, and so on.
    """

    stop_words: str = "auto"
    min_df: int = 2
    max_df: float | None = None
    max_words: int | None = None
    ngrams: int = 1

    def __post_init__(self) -> None:
        choice("stop_words", self.stop_words, _STOP_WORDS)
        integer("min_df", self.min_df, at_least=1)
        optional(number, "max_df", self.max_df, above=0, at_most=1)
        optional(integer, "max_words", self.max_words, at_least=1)
        integer("ngrams", self.ngrams, at_least=1, at_most=_MAX_NGRAMS)

    def counted(self, texts: Iterable[Any]) -> tuple[Any, Vocabulary, str]:
        """The weights of words in texts (N, F), sparse, the vocabulary, and what was done."""
        stream = _checked_texts(texts)
        first = list(islice(stream, _LOOKED_AT_TEXTS))
        if not first:
            raise EmptyDataError("there are no texts: give at least one")
        listed = self.stop_words
        if listed == "auto":
            listed = "english" if _are_english(first) else "none"
        limit = self.max_df or (_MAX_DF if listed == "english" else _MAX_DF_WITHOUT_LIST)
        settings = {"stop_words": listed, "ngrams": self.ngrams}
        vectorizer = _vectorizer(
            settings, min_df=self.min_df, max_df=float(limit), max_features=self.max_words
        )
        try:
            X = vectorizer.fit_transform(chain(first, stream))
        except (DataTypeError, MemoryError):
            raise
        except ValueError as problem:  # no word is left
            raise EmptyDataError(
                Message(
                    f"no word is in {self.min_df} texts or more and in at most {limit:.0%} of "
                    "them: give more texts, lower ",
                    Option("min_df"),
                    " or raise ",
                    Option("max_df"),
                )
            ) from problem
        words = vectorizer.get_feature_names_out().tolist()
        vocabulary = Vocabulary(tuple(words), np.asarray(vectorizer.idf_), settings)
        stops = (
            "without English stop words" if listed == "english" else "without a list of stop words"
        )
        remark = (
            f"each text is a sample, each of {len(words)} words a feature: words in {self.min_df} "
            f"texts or more and in at most {limit:.0%} of them, {stops}, weighted by tf-idf"
        )
        return X, vocabulary, remark


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary:
    """The words that texts were read with, and their weights.

    Attributes
    ----------
    words : tuple of str
    idf : array (F,)
        The weight of each word: the fewer texts it is in, the larger.
    settings : mapping
        Of plain values: "stop_words", "english" or "none", and "ngrams".
    """

    words: tuple[str, ...]
    idf: Array
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        words = several("words", self.words, "a list of words")
        if not all(isinstance(word, str) for word in words) or len(set(words)) < len(words):
            raise OptionError("the words of a vocabulary are texts, and each is there once")
        idf = array("idf", self.idf, (len(words),), at_least=0).astype(np.float64)
        settings = dict(self.settings)
        if settings.keys() != {"stop_words", "ngrams"}:
            problem = f"settings={shown(settings)}, expected "
            raise OptionError(Message(problem, Option("stop_words"), " and ngrams"))
        choice("stop_words", settings["stop_words"], _STOP_WORDS[1:])
        integer("ngrams", settings["ngrams"], at_least=1, at_most=_MAX_NGRAMS)
        for name, value in (("words", tuple(words)), ("idf", idf), ("settings", settings)):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Vocabulary(words={shown(self.words)}, settings={shown(self.settings)})"

    def counted(self, texts: Iterable[Any]) -> tuple[Any, Vocabulary, str]:
        """The weights of these words in texts (N, F), sparse, this vocabulary, what was done."""
        vectorizer = _vectorizer(self.settings, vocabulary=list(self.words))
        vectorizer.idf_ = self.idf
        X = vectorizer.transform(_checked_texts(texts))
        if X.shape[0] == 0:
            raise EmptyDataError("there are no texts: give at least one")
        remark = f"each text is a sample, by the {len(self.words)} words of an earlier fit"
        unknown = int((np.diff(X.indptr) == 0).sum())
        if unknown:
            remark += f"; {unknown} have none of them"
        return X, self, remark


def _vectorizer(settings: Mapping[str, Any], **options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    stop_words = "english" if settings["stop_words"] == "english" else None
    ngrams = (1, settings["ngrams"])
    return TfidfVectorizer(
        stop_words=stop_words, ngram_range=ngrams, token_pattern=_TOKEN, **options
    )


def _checked_texts(texts: Iterable[Any]) -> Iterator[str]:
    for number_, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataTypeError(
                f"text {number_} is {shown(text)}, expected a text: remove it, or put an empty one"
            )
        yield text


def _are_english(texts: list[str]) -> bool:
    """Whether half of the most frequent words are English stop words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

    try:
        counter = CountVectorizer(token_pattern=_TOKEN, binary=True)
        counts = np.asarray(counter.fit_transform(texts).sum(axis=0)).ravel()
    except ValueError:  # no words at all
        return False
    order = np.argsort(-counts, kind="stable")[:_FREQUENT_WORDS]
    frequent = counter.get_feature_names_out()[order]
    return 2 * sum(word in ENGLISH_STOP_WORDS for word in frequent) >= len(frequent)
