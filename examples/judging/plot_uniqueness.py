"""
Are the components the only ones?
=================================

Even for the best fit, other factors may have the same error. ``result.uniqueness()`` decides for
each component whether it is unique or can be moved, or says that neither is known, and draws the
band within which it can move.
"""

import matplotlib.pyplot as plt
import numpy as np

from conenmf import factorize, from_columns

# %%
# Three spectra with two peaks each. In the first set, every sample is a mixture of all three; in
# the second there are samples of one spectrum alone, and each spectrum has wavelengths of its own.

rng = np.random.default_rng(0)
wavelengths = np.linspace(0, 1, 120)


def peak(place, width=0.06):
    """A peak that ends: it is zero farther away."""
    return np.maximum(1 - ((wavelengths - place) / (3 * width)) ** 2, 0) ** 3


spectra = np.stack(
    [
        peak(0.2) + 0.6 * peak(0.55),
        peak(0.4) + 0.5 * peak(0.8),
        peak(0.62) + 0.4 * peak(0.3),
    ],
    axis=1,
)
mixed = rng.dirichlet([5, 5, 5], 150).T
pure = np.hstack([np.eye(3), rng.dirichlet([0.5, 0.5, 0.5], 147).T])

# %%
# The fits have almost no error. Two components of the mixtures can be moved; the short search does
# not decide the third. In the second set the init "snpa" finds the pure samples, which need no
# solver: it is proved that there are no other factors of WH.

results = [
    factorize(from_columns(spectra @ mixed), 3),
    factorize(from_columns(spectra @ pure), 3, init="snpa", solver=None),
]
for name, result in zip(("mixtures", "pure samples"), results, strict=True):
    print(f"{name}: relative error {result.relative_error:.1e}")
    print(result.uniqueness(), end="\n\n")

# %%
# The band of a component is the range of its entries over all factors that were found.

fig, axes = plt.subplots(2, 3, figsize=(10, 5), layout="constrained", sharex=True)
for row, result in zip(axes, results, strict=True):
    result.uniqueness().plot(result.W, row)
plt.show()
