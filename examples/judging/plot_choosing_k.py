"""
Choosing the number of components
=================================

``n_components="auto"`` estimates the number. This example shows the ratios of singular values that
it uses where noise hides the cones, and the other estimators for samples that lie in none.
"""

# %%
# Samples in cones
# ----------------
#
# Seven cones, with noise. Without it the clusters would be apart, and counting them would do; here
# noise turns short samples. But the singular values drop after the seventh, and the ratio of
# neighbours has its largest value there. For cones that are alike the paper proves that this finds
# their number, given enough samples (Theorem 9).

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from conenmf import ConeNMF, from_rows, select_k
from conenmf.cones.simulate import make_cone_data

X, _ = make_cone_data(800, 200, 7, alpha=0.2, noise=0.02, random_state=0)
model = ConeNMF().fit(X)
print(model.n_components_, "components, decided by", model.result_.K_decided_by)

ax = model.result_.plot_spectrum()
ax.set_xlim(0, 20.5)
plt.show()

# %%
# Samples that are mixtures
# -------------------------
#
# Handwritten digits share strokes, so the singular values fall without a drop. ``select_k`` runs
# eight estimators and prints the number that each chooses. It also prints why there are no cones to
# count and why the ratio cannot be trusted here.

digits = load_digits().data[:800]
V = from_rows(digits)
selection = select_k(V, range(2, 19, 2))
print(selection)

# %%
# Each estimator has a score for every candidate:
#
# - *cones*: how far clusters of samples are apart, positive if samples lie in K cones;
# - *ratio*: a singular value over the next one, from the paper;
# - *edge*: singular values over the edge of noise that is alike in all features;
# - *parallel*: singular values over those of shuffled data, above 1 if there is structure;
# - *crossval*: the error on entries that were held out, lowest where more components begin to
#   describe noise;
# - *relevance*: the scale of a component over its least value, in a Bayesian model, less 1;
# - *stability*: the share of fits of samples drawn again that have the rarest component;
# - *thinning*: these data are whole numbers, so they can be split like counts: how badly components
#   that were fitted to most of them predict the others, relative to one component. They are no
#   Poisson counts, though, and the parts are not independent.

figure, axes = plt.subplots(2, 4, figsize=(12, 5.4), layout="constrained")
for ax, (name, vote) in zip(axes.flat, selection.votes.items(), strict=True):
    ax.plot(selection.ks, vote.scores, marker=".", color="C0")
    ax.axvline(vote.K, color="C1", linestyle="--", linewidth=1.2)
    ax.set(title=f"{name}: {vote.K}", xlabel="K")
plt.show()

# %%
# They need not agree, because they answer different questions: how many components
# differ from noise, how many predict best, how many come out the same every time.
#
# More components always mean less error
# --------------------------------------
#
# So the error itself cannot choose. Compared with its lower bound for K components, it shows how
# much the next component would gain.

ks = [2, 4, 7, 10, 15, 20]
fits = [ConeNMF(k, tol=1e-3).fit(digits) for k in ks]
figure, ax = plt.subplots(layout="constrained")
ax.plot(ks, [fit.relative_error_ for fit in fits], marker="o", label="error of the fit")
below = [fit.certify().lower_bound for fit in fits]
ax.plot(ks, below, linestyle="--", color="0.4", label="no fit can be below")
ax.fill_between(ks, 0, below, color="0.93")
ax.set(xlabel="number of components K", ylabel="relative error", title="Digits", ylim=(0, None))
ax.legend()
plt.show()
print(f"largest gap to the lower bound: {max(np.round(f.certify().gap, 3) for f in fits)}")
