"""
Pipelines and searches
======================

``ConeNMF`` is a scikit-learn estimator: it can be used in pipelines, after a vectoriser or a scaler
and before a classifier, and grid search finds its settings, in parallel if you like.
"""

# %%
# From texts to classes
# ---------------------
#
# Which of scikit-learn's modules does a help text come from? Words are weighted, reduced to
# components and classified. Everything between is sparse.

import inspect

import matplotlib.pyplot as plt
import numpy as np
import sklearn.cluster
import sklearn.ensemble
import sklearn.linear_model
import sklearn.metrics
import sklearn.preprocessing
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from conenmf import ConeNMF

modules = ("cluster", "ensemble", "linear_model", "metrics", "preprocessing")
texts, kinds = [], []
for name in modules:
    module = getattr(sklearn, name)
    for member in sorted(module.__all__):
        thing = getattr(module, member)
        methods = [m for _, m in sorted(vars(thing).items())] if inspect.isclass(thing) else []
        for part in [thing, *methods]:
            text = inspect.getdoc(part) if callable(part) else None
            if text and len(text) > 200 and text not in texts:
                texts.append(text)
                kinds.append(name)
train, test, kinds_train, kinds_test = train_test_split(
    texts, kinds, stratify=kinds, random_state=0, test_size=0.3
)
print(len(train), "texts to learn from,", len(test), "to test")

pipeline = make_pipeline(
    TfidfVectorizer(min_df=3, stop_words="english", sublinear_tf=True),
    ConeNMF(n_components=20, tol=1e-3),
    Normalizer(),
    LogisticRegression(C=10.0),
)
pipeline.fit(train, kinds_train)
print(f"right: {pipeline.score(test, kinds_test):.0%}")

# %%
# How many components for *this* purpose?
# ---------------------------------------
#
# The grid search scores the classifier. ``n_jobs=2`` runs two fits at a time in processes of their
# own; each then uses one thread, so that they do not compete for cores.

search = GridSearchCV(
    pipeline, {"conenmf__n_components": [3, 6, 12, 25]}, cv=3, n_jobs=2, return_train_score=True
).fit(train, kinds_train)
ks = [setting["conenmf__n_components"] for setting in search.cv_results_["params"]]

figure, ax = plt.subplots(layout="constrained")
for part, colour, label in (("train", "0.6", "seen texts"), ("test", "C0", "unseen texts")):
    mean = search.cv_results_[f"mean_{part}_score"]
    spread = search.cv_results_[f"std_{part}_score"]
    ax.plot(ks, mean, marker="o", color=colour, label=label)
    ax.fill_between(ks, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
ax.set(xlabel="components", ylabel="right", title="Classes from components", xscale="log")
ax.set_xticks(ks, [str(k) for k in ks])
ax.minorticks_off()
ax.legend()
plt.show()
print(f"best: {search.best_params_}, right on the test texts: {search.score(test, kinds_test):.0%}")

# %%
# Without classes
# ---------------
#
# ``ConeNMF.score`` measures how well the components predict hidden words, so a search works without
# labels too. See :doc:`/auto_examples/judging/plot_choosing_k` for other criteria.

X = pipeline[0].transform(train)
alone = GridSearchCV(ConeNMF(tol=1e-3), {"n_components": [3, 6, 12]}, cv=3).fit(X)
for setting, score in zip(
    alone.cv_results_["params"], alone.cv_results_["mean_test_score"], strict=True
):
    print(setting, np.round(score, 3))
