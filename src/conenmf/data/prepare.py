"""Data prepared for factorization: counts are scaled and weighted, and texts become numbers.

`apply_preparation` returns a view: every block is changed when it is read, in any storage, and
nothing is written or copied. An entry x of feature f becomes y = a d log(1 + b x) or a d b x: b
scales the sample to a given sum, d is the weight of f, and a scales the sample to unit length.
Zeros stay zero, so sparse data stay sparse. Only d is computed from the data. A `Preparation`
stores it, so the same steps apply to new samples. `prepare` of `io.open` makes one from the user's
choices.

scikit-learn's `TfidfVectorizer` counts and weights the words of texts. The words and their weights
form a `Vocabulary` of plain values. A result stores it, so new texts are read in the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from ..arguments import choice, integer, number, optional
from ..errors import (
    DataError,
    DataTypeError,
    NotAvailableError,
    Option,
    OptionError,
)
from ..text import shown
from ..types import Array, Facts, Texts
from .blocks import Block, dense, divisors, exact, norms, products
from .matrix import DataMatrix, PerSample
from .views import MappedMatrix, change_entries, times_features, times_samples

MAX_TOTAL = 1e15
_TOKEN = r"(?u)\b\w{2,100}\b"  # longer ones are not words
_LOOKED_AT_TEXTS = 1000  # texts read to find out their language
_FREQUENT_WORDS = 25  # the texts are English if half of these are English stop words
_MAX_NGRAMS = 5
_MAX_DF = 0.95
_MAX_DF_WITHOUT_LIST = 0.5


@dataclass(frozen=True, eq=False)
class Preparation:
    """The steps of `prepare`, in the order in which they are applied.

    Attributes
    ----------
    total : float or None
        The sum to which each sample is scaled.
    log1p : bool
        Take log(1 + x).
    idf : array (F,) or None
        The weight of each feature, log(N / df), where df of the N samples have the feature. A
        feature without any nonzero entry has weight 0.
    normalize : bool
        Scale each sample to unit length.
    floor : float
        This number is added to each entry.

    Examples
    --------
    >>> Preparation(log1p=True, normalize=True).in_words()
    'log(1 + x) of each entry, then each sample scaled to unit length'
    """

    total: float | None = None
    log1p: bool = False
    idf: Array | None = None
    normalize: bool = False
    floor: float = 0.0

    def in_words(self) -> str:
        """Describe the steps."""
        steps = []
        if self.total is not None:
            steps.append(f"each sample scaled to a sum of {self.total:g}")
        if self.log1p:
            steps.append("log(1 + x) of each entry")
        if self.idf is not None:
            steps.append("each feature times log(N / df), if df of N samples have it")
        if self.normalize:
            steps.append("each sample scaled to unit length")
        if self.floor:
            steps.append(f"{self.floor:.4g} added to each entry")
        return ", then ".join(steps)

    def reordered(self, features: Array) -> Preparation:
        """Return the preparation for data with these features, given by their indices here."""
        return self if self.idf is None else replace(self, idf=self.idf[features])


def apply_preparation(V: DataMatrix, preparation: Preparation) -> DataMatrix:
    """Return a view of V with the steps that were applied to other data; up to two passes."""
    if not V.is_complete:
        raise NotAvailableError(
            "only complete data can be prepared, but some entries are missing or weighted: "
            "prepare the data before you hide or weight entries, or leave the preparation out"
        )
    if V.preparation is not None:
        raise OptionError("the data are prepared already: ask for all steps in one call")
    idf = preparation.idf
    view = V
    with V.own_threads():
        if preparation.total is not None:
            view = to_sums(view, preparation.total)
        view = change_entries(view, np.log1p if preparation.log1p else np.asarray)
        if idf is not None:
            view = times_features(view, idf)
        if preparation.normalize:
            inverse = view.by_rows(lambda index, squared: 1.0 / norms(squared), view.norms_squared)
            view = times_samples(view, inverse)
        if preparation.floor:
            view = MappedMatrix(view, partial(_raised, floor=preparation.floor), dtype=view.dtype)
    view.preparation = preparation
    view.remarks = V.remarks
    words = preparation.in_words()
    if words:
        view.remarks = (*V.remarks, f"prepared: {words}")
    return view


def _raised(block: Block, *, floor: float) -> Block:
    return dense(block).astype(block.dtype, copy=False) + block.dtype.type(floor)


def to_sums(V: DataMatrix, total: float) -> DataMatrix:
    """Return a view of V with samples scaled to a sum; one pass."""
    sums, _ = V.sweep(_sums)
    scales = V.by_rows(lambda index, sums: total / divisors(sums), sums)
    return times_samples(V, scales)


def inverse_frequencies(V: DataMatrix) -> Array:
    """Return log(N / df) for each feature."""
    (count,) = V.sweep(_samples_with)
    idf: Array = np.log(V.n_samples / np.maximum(count, 1))
    idf[count == 0] = 0.0
    if not idf.any():
        raise OptionError(
            Option("tfidf", True),
            " gives every feature the weight log(N / df) = 0, since all samples have it: "
            "leave it out",
        )
    return idf


def _samples_with(block: Any) -> tuple[Array]:
    return (np.asarray((block != 0).sum(axis=1, dtype=float)).ravel(),)


def _sums(block: Block) -> PerSample:
    ones = np.ones((block.shape[0], 1))
    return products(exact(block), ones)[:, 0], None


# --- texts --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """Options that select the words that become features.

    Attributes
    ----------
    stop_words : {"auto", "english", "none"}
        Frequent words to leave out: scikit-learn's English list, or none. "auto" uses the list if
        half of the 25 most frequent words of the texts are in it.
    min_df : int
        A word must be in at least this many texts.
    max_df : float, optional
        A word may be in at most this share of the texts; by default 0.95 with a list of stop words,
        and 0.5 without one.
    max_words : int, optional
        Keep only this many of the most frequent words.
    ngrams : int
        With 2, pairs of neighbouring words are features too, and so on.

    Examples
    --------
    >>> from conenmf import from_texts
    >>> V = from_texts(["red apple", "red pear", "green pear"], words=Words(min_df=2, max_df=1.0))
    >>> V.names.feature_names
    ('pear', 'red')
    """

    stop_words: str = "auto"
    min_df: int = 2
    max_df: float | None = None
    max_words: int | None = None
    ngrams: int = 1

    def __post_init__(self) -> None:
        choice("stop_words", self.stop_words, ("auto", "english", "none"))
        integer("min_df", self.min_df, at_least=1)
        optional(number, "max_df", self.max_df, above=0, at_most=1)
        optional(integer, "max_words", self.max_words, at_least=1)
        integer("ngrams", self.ngrams, at_least=1, at_most=_MAX_NGRAMS)

    def counted(self, texts: Iterable[Any]) -> tuple[Any, Vocabulary, str]:
        """Return the weights of words in texts (N, F), sparse, the vocabulary, and remarks.

        Parameters
        ----------
        texts : iterable of str
        """
        stream = _check_texts(texts)
        first = list(islice(stream, _LOOKED_AT_TEXTS))
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
        except DataTypeError:
            raise
        except ValueError as problem:  # no words are left
            raise DataError(
                f"no word is in {self.min_df} texts or more and in at most {limit:.0%} of "
                "them: give more texts, lower ",
                Option("min_df"),
                " or raise ",
                Option("max_df"),
            ) from problem
        words = tuple(vectorizer.get_feature_names_out().tolist())
        stops = "English" if listed == "english" else "a list of"
        selection = f"words in {self.min_df} texts or more and in at most {limit:.0%} of them"
        remark = (
            f"each text is a sample, each of {len(words)} words a feature: {selection}, "
            f"without {stops} stop words, weighted by tf-idf"
        )
        return X, Vocabulary(words, vectorizer.idf_, settings), remark


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The words of texts and their weights.

    Attributes
    ----------
    words : tuple of str
    idf : array (F,)
        The weight of each word; words in fewer texts have larger weights.
    settings : mapping
        Plain values: "stop_words", which is "english" or "none", and "ngrams".
    """

    words: Texts
    idf: Array
    settings: Facts

    def __repr__(self) -> str:
        return f"Vocabulary(words={shown(self.words)}, settings={shown(self.settings)})"

    def counted(self, texts: Iterable[Any]) -> tuple[Any, Vocabulary, str]:
        """Return the weights of these words in texts (N, F), this vocabulary and remarks."""
        vectorizer = _vectorizer(self.settings, vocabulary=list(self.words))
        vectorizer.idf_ = self.idf
        X = vectorizer.transform(_check_texts(texts))
        remark = f"each text is a sample, by the {len(self.words)} words of an earlier fit"
        unknown = int((np.diff(X.indptr) == 0).sum())
        if unknown:
            remark += f"; {unknown} have none of them"
        return X, self, remark


def _vectorizer(settings: Facts, **options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    stop_words = "english" if settings["stop_words"] == "english" else None
    ngrams = (1, settings["ngrams"])
    return TfidfVectorizer(
        stop_words=stop_words, ngram_range=ngrams, token_pattern=_TOKEN, **options
    )


def _check_texts(texts: Iterable[Any]) -> Iterator[str]:
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataTypeError(
                f"text {place} is {shown(text)}, expected a text: remove it, or put an empty one"
            )
        yield text


def _are_english(texts: list[str]) -> bool:
    """Return whether half of the words that occur in most texts are English stop words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(dict.fromkeys(re.findall(_TOKEN, text.lower()), 1))
    frequent = {word for word, _ in counts.most_common(_FREQUENT_WORDS)}
    return 2 * len(frequent & ENGLISH_STOP_WORDS) >= len(frequent)
