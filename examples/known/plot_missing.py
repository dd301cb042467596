"""
Missing entries, imputed
========================

Some pixels of images are missing: single ones, or whole squares. The fit uses the known pixels, and
its reconstruction fills in the others.
"""

# %%
# Holes
# -----
#
# The data are handwritten digits. Most images lack a tenth of their pixels; the last ones lack a
# square of four by four.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from conenmf import ConeNMF

truth = load_digits().data
rng = np.random.default_rng(0)
X = truth.copy()
X[rng.random(X.shape) < 0.1] = np.nan
squares = X[-6:].reshape(-1, 8, 8)
squares[:, 2:6, 2:6] = np.nan

model = ConeNMF(16, missing="nan", alpha_W=0.001, tol=1e-3)
imputed = model.inverse_transform(model.fit_transform(X))
print(f"relative error of known pixels: {model.relative_error_:.3f}")

# %%
# What the fit imputes
# --------------------
#
# Top: the images with their holes. Middle: the imputed images. Bottom: the truth. Small L2
# penalties keep coefficients small for images with few known pixels.

shown = [0, 1, 2, *range(len(X) - 6, len(X))]
figure, axes = plt.subplots(3, len(shown), figsize=(9, 3.2), layout="constrained")
filled = np.where(np.isnan(X), imputed, X)
for row, (title, images) in zip(
    axes, (("known", X), ("imputed", filled), ("truth", truth)), strict=True
):
    row[0].set_ylabel(title)
    for ax, n in zip(row, shown, strict=True):
        ax.imshow(np.ma.masked_invalid(images[n].reshape(8, 8)), cmap="gray_r", vmin=0, vmax=16)
        ax.set(xticks=[], yticks=[], facecolor="#c8553d")
plt.show()

# %%
# Is it better than a mean?
# -------------------------

holes = np.isnan(X)
by_mean = np.broadcast_to(np.nanmean(X, axis=0), X.shape)
for name, guess in (("means of pixels", by_mean), ("the fit", imputed)):
    error = np.sqrt(((guess - truth)[holes] ** 2).mean())
    print(f"{name}: root mean square error {error:.2f} of 16")
