"""
Parts of faces
==============

A hundred faces of 25 x 25 pixels are written as mixtures of a few nonnegative images. Because
components can only be added, they are patterns that can be added to a face: a lit side, a dark
background, a bright forehead.
"""

# %%
# The faces ship with scikit-image: 100 crops of the "Labeled Faces in the Wild" dataset. A sample
# is a row of 625 pixels.

import matplotlib.pyplot as plt
import numpy as np
from skimage.data import lfw_subset

from conenmf import ConeNMF

faces = lfw_subset()[:100]
X = faces.reshape(100, -1)

model = ConeNMF(n_components=16).fit(X)
print(f"relative error {model.relative_error_:.3f}")
print(f"no 16 components can have less than {model.certify().lower_bound:.3f}")

# %%
# The components
# --------------
#
# ``plot_components`` draws the components as images if it knows the shape of an image. Components
# that contribute most come first.

weight = (model.transform(X) * np.linalg.norm(model.components_, axis=1)).sum(axis=0)
figure, axes = plt.subplots(2, 8, figsize=(9, 2.9), layout="constrained")
model.result_.plot_components(axes, components=np.argsort(-weight), image_shape=(25, 25))
for number, ax in enumerate(axes.ravel()):
    (image,) = ax.images
    image.set_clim(0, np.percentile(np.asarray(image.get_array()), 98))
    ax.set_title(f"{number + 1}", fontsize="small", fontweight="normal")
figure.suptitle("Sixteen components, the largest contribution first")
plt.show()

# %%
# A face is a sum
# ---------------
#
# The coefficients say how much of each component a face takes. The figure shows faces reconstructed
# from 4, 16 and 49 components. In the middle row, sixteen numbers represent 625 pixels.

shown = [3, 17, 28, 41, 56, 63, 77, 90]
figure, axes = plt.subplots(4, len(shown), figsize=(9, 5), layout="constrained")
rows = {"faces": X}
for K in (4, 16, 49):
    fit = ConeNMF(n_components=K).fit(X)
    rows[f"K = {K}"] = fit.inverse_transform(fit.transform(X))
for line, (name, images) in zip(axes, rows.items(), strict=True):
    for ax, n in zip(line, shown, strict=True):
        ax.imshow(images[n].reshape(25, 25), cmap="gray", vmin=0, vmax=1)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    line[0].set_ylabel(name)
plt.show()

# %%
# Which parts make one face?
# --------------------------
#
# The components that contribute most to a face, times their coefficients, add up to it. (Each
# picture is as bright as its brightest pixels.)

n = 41
parts = model.transform(X[[n]])[0][:, None] * model.components_
largest = np.argsort(-np.linalg.norm(parts, axis=1))[:5]
images = [*parts[largest], parts.sum(axis=0), X[n]]
titles = [*(f"part {k + 1}" for k in range(5)), "all 16 parts", "the face"]
figure, axes = plt.subplots(1, 7, figsize=(9, 1.7), layout="constrained")
for ax, image, title in zip(axes, images, titles, strict=True):
    ax.imshow(image.reshape(25, 25), cmap="gray", vmin=0, vmax=np.percentile(image, 99))
    ax.set_title(title, fontsize="small", fontweight="normal")
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
plt.show()

# sphinx_gallery_thumbnail_number = 2
