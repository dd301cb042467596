"""
What penalties do
=================

The first part makes each digit use few components. The second makes abundances sum to one, and
keeps the components close to the data.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from conenmf import ConeNMF

# %%
# Few components for each sample
# ------------------------------
#
# Orthogonality makes the components of digits whole digits: nearly one component for each sample.

X = load_digits().data
choices = ({}, {"alpha_W": 0.3, "l1_ratio": 1.0}, {"orthogonality": 1.0})
figure, axes = plt.subplots(3, 10, figsize=(9, 3.2), layout="constrained")
for row, options in zip(axes, choices, strict=True):
    model = ConeNMF(10, max_iter=500, tol=1e-4, **options)
    used = (model.fit_transform(X) > 0).mean()
    name = ", ".join(f"{key}={value:g}" for key, value in options.items()) or "none"
    print(f"{name}: {used:.0%} of the coefficients, error {model.relative_error_:.3f}")
    row[0].set_title(name, loc="left")
    for ax, component in zip(row, model.components_, strict=True):
        ax.imshow(component.reshape(8, 8), cmap="gray_r")
        ax.set(xticks=[], yticks=[])
plt.show()

# %%
# Abundances, and the volume of components
# ----------------------------------------
#
# Pixels are mixtures of three materials, and none is pure. Coefficients sum to one. Without a
# further penalty, every triangle of components that contains the data fits equally well. The volume
# penalty pulls its corners towards the data.

rng = np.random.default_rng(0)
corners = np.array([[1.0, 0.1, 0.2], [0.2, 1.0, 0.1], [0.1, 0.2, 1.0]]) @ rng.random((3, 20))
abundances = rng.dirichlet(np.ones(3), 2000)
abundances = abundances[abundances.max(axis=1) < 0.8][:200]
Y = abundances @ corners + 0.005 * rng.random((200, 20))
plane = np.linalg.svd(Y - Y.mean(axis=0), full_matrices=False)[2][:2].T

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.scatter(*(Y @ plane).T, s=4, color="0.7", label="data")
ax.scatter(*(corners @ plane).T, s=80, marker="*", color="black", label="truth")
for volume in (1e-9, "auto"):
    model = ConeNMF(3, sum_to_one=True, min_volume=volume, max_iter=500).fit(Y)
    found = (model.components_ @ plane)[[0, 1, 2, 0]]
    ax.plot(*found.T, marker="o", label=f"min_volume={volume}")
ax.legend()
ax.set(title="Triangles of components, in the plane of the data")
plt.show()

# sphinx_gallery_thumbnail_number = 1
