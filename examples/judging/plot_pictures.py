"""
Pictures of a result
====================

This example shows four methods of a result that draw it. They take matplotlib axes, or make new
ones, and return them: ``plot_history``, ``plot_spectrum``, ``plot_components`` and ``plot_cones``.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from conenmf import factorize
from conenmf.cones.simulate import make_cone_data

X, _ = make_cone_data(1000, 300, 8, alpha=0.15, random_state=1)
result = factorize(X)
result.certify()  # computed now, and drawn from now on
print("\n".join(result.summary()))

# %%
# On axes of your own
# -------------------
#
# The dashed line in the history is the lower bound for the error of any eight components. In the
# spectrum, bars are the ratios of neighbouring singular values. Between cones, a cross would mark a
# pair that is too close for the geometric assumption.

figure, axes = plt.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
result.plot_history(axes[0])
result.plot_spectrum(axes[1])
axes[1].set_xlim(0, 20.5)
result.plot_cones(axes[2])
plt.show()

# %%
# Against seconds, or passes over the data
# ----------------------------------------

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for ax, against in zip(axes, ("seconds", "passes"), strict=True):
    result.plot_history(ax, against=against)
plt.show()

# %%
# Components
# ----------
#
# Components are drawn as curves over the features by default, as images if an image shape is given,
# and as the features with the largest values if features have names, as in
# :doc:`/auto_examples/data/plot_topics`.

digits = factorize(load_digits().data, 12)
digits.plot_components(image_shape=(8, 8))
plt.show()

# %%
# Data that do not lie in cones look different: crosses everywhere.

figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
digits.plot_cones(ax)
plt.show()
print("\n".join(digits.summary()))

# sphinx_gallery_thumbnail_number = 3
