"""
Topics in text
==============

The help texts of Python's own modules become a matrix of words, and its components are topics:
words that occur together. No corpus needs to be downloaded.
"""

# %%
# Texts
# -----
#
# One document for every function and class of a few modules of the standard library.

import argparse
import ast
import asyncio
import datetime
import email.message
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
from sklearn.feature_extraction.text import TfidfVectorizer

from conenmf import ConeNMF, factorize, from_rows
from conenmf.judge.scores import scores
from conenmf.names import Names

modules = [
    *(argparse, ast, asyncio, datetime, email.message, itertools, logging, random, re),
    *(socket, statistics, tarfile, threading, zipfile),
]
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
print(len(texts), "texts")

# %%
# The entries are counts times inverse document frequencies, in a sparse matrix that is never made
# dense.

words = TfidfVectorizer(min_df=4, max_df=0.25, stop_words="english", token_pattern="[a-z]{3,}")
X = words.fit_transform(texts)
print(f"{X.shape[0]} texts x {X.shape[1]} words, {X.nnz / np.prod(X.shape):.1%} not zero")

# %%
# Topics
# ------
#
# We fit twelve components. With a data frame, or names given to ``from_rows``, a result knows the
# names of its features; then ``plot_components`` shows the words with the largest weights in each.

V = from_rows(X, names=Names.of(feature_names=words.get_feature_names_out()))
result = factorize(V, 12)
result.plot_components(top=6)
plt.show()

# %%
# Which text is about what?
# -------------------------
#
# The label of a text is the topic that contributes most to it. The table compares the topics with
# the modules that the texts come from:

names = sorted(set(origin))
table = np.zeros((len(names), result.K))
for name, label in zip(origin, result.labels, strict=True):
    if label >= 0:
        table[names.index(name), label] += 1
share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
figure, ax = plt.subplots(figsize=(7, 5), layout="constrained")
image = ax.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
ax.set_yticks(range(len(names)), names)
heaviest = words.get_feature_names_out()[np.argsort(-result.W, axis=0)[:2]]
ax.set_xticks(range(result.K), [" + ".join(pair) for pair in heaviest.T], rotation=40, ha="right")
ax.spines[:].set_visible(False)
figure.colorbar(image, label="share of the module's texts", shrink=0.8)
plt.show()

# %%
# A fitted model also assigns new texts to topics: ``transform`` computes their exact coefficients.

model = ConeNMF(12).fit(X)
new = ["Return a socket connected to the address.", "Wait until a thread releases the lock."]
for text, row in zip(new, model.transform(words.transform(new)), strict=True):
    topic = model.components_[row.argmax()]
    print(f"{text!r}: {', '.join(words.get_feature_names_out()[np.argsort(-topic)[:4]])}")
print(f"Dice against the modules: {scores(origin, result.labels)['dice']:.2f}")

# sphinx_gallery_thumbnail_number = 2
