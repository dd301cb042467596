"""
Noise below zero
================

After its background is subtracted, a detector has negative entries where there is no signal.
Replacing them by zeros raises the mean, and the components get a background that is not real. With
``negative="keep"`` the data stay as they are, and only the factors are nonnegative.
"""

import matplotlib.pyplot as plt
import numpy as np

from conenmf import ConeNMF

# %%
# Two lines on no background
# --------------------------

rng = np.random.default_rng(0)
x = np.linspace(0, 1, 120)
spectra = np.exp(-((x - np.array([[0.3], [0.7]])) ** 2) / 0.002)
X = rng.gamma(1.0, size=(400, 2)) @ spectra + 0.3 * rng.standard_normal((400, 120))
print(f"{(X < 0).mean():.0%} of the entries are negative")

kept = ConeNMF(2, negative="keep", max_iter=1000).fit(X)
cut = ConeNMF(2, max_iter=1000).fit(np.maximum(X, 0))

# %%
# What is found
# -------------
#
# Grey lines are the truth; each component is scaled to its largest entry.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for ax, (title, model) in zip(axes, (("cut off at zero", cut), ("kept", kept)), strict=True):
    ax.plot(x, spectra.T, color="0.7", linewidth=4)
    for component in model.components_:
        ax.plot(x, component / component.max())
    ax.set(title=title, xlabel="channel")
plt.show()

# %%
# The certificate holds: no two nonnegative components, and none of any sign, have a smaller error.

certificate = kept.certify()
print(f"error {certificate.relative_error:.4f}, lower bound {certificate.lower_bound:.4f}")
