"""
Uncertainties as weights
========================

The uncertainty sigma of each measurement is known. With ``weights = 1 / sigma**2`` precise
measurements count more, and the components come closer to the truth.
"""

# %%
# Spectra with two detectors
# --------------------------
#
# The second half of the channels is ten times as noisy as the first, and a few samples were
# measured for a short time only.

import matplotlib.pyplot as plt
import numpy as np

from conenmf import ConeNMF
from conenmf.judge.matching import match_components

rng = np.random.default_rng(0)
x = np.linspace(0, 1, 80)
spectra = np.exp(-((x - np.array([[0.2], [0.45], [0.75]])) ** 2) / 0.01) + 0.1
spectra += 0.5 * np.exp(-((x - np.array([[0.6], [0.9], [0.3]])) ** 2) / 0.005)
abundances = rng.dirichlet(np.full(3, 0.5), 300)
sigma = np.where(x < 0.5, 0.01, 0.1) * rng.choice([1.0, 5.0], (300, 1), p=[0.8, 0.2])
X = np.maximum(abundances @ spectra + sigma * rng.standard_normal((300, 80)), 0)

plain = ConeNMF(3, max_iter=1000).fit(X)
weighted = ConeNMF(3, max_iter=1000).fit(X, weights=1 / sigma**2)

# %%
# Components with and without weights
# -----------------------------------

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for ax, (title, model) in zip(
    axes, (("all entries alike", plain), ("1 / sigma²", weighted)), strict=True
):
    order, cosines = match_components(spectra.T, model.components_.T)
    for truth, k in zip(spectra, order, strict=True):
        found = model.components_[k]
        ax.plot(x, truth / np.linalg.norm(truth), color="0.7", linewidth=4)
        ax.plot(x, found / np.linalg.norm(found))
    ax.set(title=f"{title}: mean cosine {cosines.mean():.4f}", xlabel="channel")
plt.show()

# %%
# Weights of samples
# ------------------
#
# ``sample_weight`` is one number for each sample. A weight of 2 is equivalent to repeating
# the sample.

times = np.where(sigma[:, 0] > 0.02, 1, 25)
once = ConeNMF(3).fit(X, sample_weight=times)
print(f"relative error, weighted by samples: {once.relative_error_:.4f}")
