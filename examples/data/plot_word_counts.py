"""
Counts of words, without weights
================================

Topics are usually computed from weighted words, tf-idf, because least squares would otherwise fit
mainly the frequent words. The Poisson loss takes the counts as they are: the factors are a topic
model, whose topics are probabilities of words, and whose rates add up to the lengths of the texts.
"""

# %%
# Texts
# -----
#
# The help texts of some modules of Python's standard library, as counts of words.

import argparse
import asyncio
import datetime
import inspect
import itertools
import logging
import random
import re
import socket
import statistics
import tarfile
import threading
import zipfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from conenmf import ConeNMF, factorize, from_rows
from conenmf.names import Names

modules = [argparse, asyncio, datetime, itertools, logging, random, re, socket, statistics]
modules += [tarfile, threading, zipfile]
texts, origin = [], []
for module in modules:
    for _, thing in sorted(vars(module).items(), key=lambda item: item[0]):
        members = [thing]
        if inspect.isclass(thing):
            members += [member for _, member in sorted(vars(thing).items(), key=lambda m: m[0])]
        for member in members:
            text = inspect.getdoc(member) if callable(member) else None
            if text and len(text) > 120 and text not in texts:
                texts.append(text)
                origin.append(module.__name__)
words = CountVectorizer(min_df=3, max_df=0.5, stop_words="english", token_pattern="[a-z]{3,}")
X = words.fit_transform(texts)
X = X[np.flatnonzero(np.asarray(X.sum(axis=1)))]  # texts with no other words are left out
print(f"{X.shape[0]} texts x {X.shape[1]} words, {X.sum()} counts")

# %%
# Topics
# ------
#
# We fit ten components to the raw counts. The certificate states how much of the deviance is
# explained, how much noise alone would leave, and a lower bound for ten components.

V = from_rows(X, names=Names.of(feature_names=words.get_feature_names_out()))
result = factorize(V, 10, loss="poisson")
result.certify()
print("\n".join(result.summary()))
result.plot_components(top=6)
plt.show()

# %%
# Real texts are *overdispersed*: a word that occurs once in a text is likely to occur again, so
# that a Poisson model, however many topics it has, stays above its noise floor. That is a property
# of texts, not a failure of the fit.
#
# Topics are probabilities
# ------------------------
#
# Scale each topic to the sum one. Its coefficient in a text is then the number of words that come
# from this topic. These numbers add up exactly to the length of the text, because the best rates
# have the same sums as the counts.

topics = result.W / result.W.sum(axis=0)
words_of_topics = result.H.T * result.W.sum(axis=0)
lengths = np.asarray(X.sum(axis=1)).ravel()
difference = abs(words_of_topics.sum(axis=1) - lengths).max()
print(f"largest difference to the lengths: {difference:.1e}")

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
share = words_of_topics.sum(axis=0) / lengths.sum()
order = np.argsort(-share)
heaviest = words.get_feature_names_out()[np.argsort(-topics, axis=0)[:3]]
ax.barh([", ".join(three) for three in heaviest.T[order]], share[order])
ax.invert_yaxis()
ax.set(xlabel="share of all words", title="Topics by the words that they explain")
plt.show()

# %%
# New texts
# ---------
#
# ``transform`` solves a Poisson regression for each text; words that were not seen in training
# have no rate and are left out. ``score`` is the share of the deviance that is explained.

model = ConeNMF(10, loss="poisson").fit(X)
new = ["Return a socket connected to the address.", "Wait until a thread releases the lock."]
for text, row in zip(new, model.transform(words.transform(new)), strict=True):
    topic = model.components_[(row * model.components_.sum(axis=1)).argmax()]
    print(f"{text!r}: {', '.join(words.get_feature_names_out()[np.argsort(-topic)[:4]])}")
print(f"deviance explained: {model.score(X):.2f}")

# sphinx_gallery_thumbnail_number = 2
