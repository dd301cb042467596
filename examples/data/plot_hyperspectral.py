"""
Hyperspectral unmixing
======================

A hyperspectral camera records a scene at many wavelengths. Most pixels show several materials at
once. The components are the spectra of the materials, the coefficients are maps of how much of each
there is.
"""

# %%
# A scene
# -------
#
# Four materials, with spectra made of a few smooth bands, cover a scene of 60 x 60 pixels. Their
# shares sum to one in every pixel and change gradually; some pixels are pure. A little noise is
# added, which may not push a pixel below zero.

import matplotlib.pyplot as plt
import numpy as np

from conenmf import ConeNMF
from conenmf.judge.scores import match_components

rng = np.random.default_rng(4)
side, materials = 60, ["water", "soil", "grass", "roof"]
wavelength = np.linspace(0.4, 2.5, 120)  # micrometres


def band(centre, width):
    return np.exp(-(((wavelength - centre) / width) ** 2))


spectra = np.stack(
    [
        0.25 * band(0.5, 0.25) + 0.03,
        0.15 + 0.5 * (1 - np.exp(-wavelength)) - 0.12 * band(1.9, 0.15) - 0.08 * band(2.2, 0.1),
        0.08 + 0.12 * band(0.55, 0.05) + 0.6 * band(1.0, 0.35) + 0.3 * band(1.65, 0.2),
        0.5 - 0.3 * (band(0.4, 0.2) + band(2.3, 0.2)) - 0.25 * (band(0.95, 0.12) + band(1.4, 0.1)),
    ]
)

y, x = np.mgrid[0:side, 0:side] / side
fields = np.stack(
    [
        np.exp(-(((x - 0.2 - 0.2 * y) / 0.16) ** 2)),
        np.exp(-(((x - 0.75) / 0.3) ** 2 + ((y - 0.2) / 0.25) ** 2)),
        np.exp(-(((x - 0.7) / 0.4) ** 2 + ((y - 0.75) / 0.3) ** 2)),
        1.5 * ((abs(x - 0.62) < 0.14) & (abs(y - 0.45) < 0.09)) + 0.01,
    ]
)
abundances = fields**2 / (fields**2).sum(axis=0)
pixels = abundances.reshape(4, -1).T
brightness = rng.uniform(0.8, 1.2, (side * side, 1))  # slopes towards and away from the sun
X = np.maximum(brightness * (pixels @ spectra) + 0.005 * rng.standard_normal((side**2, 120)), 0)

# %%
# Unmixing
# --------
#
# A row of ``X`` is a pixel. Pixels are mixtures, which fill the space between the spectra, so they
# do not lie in separate cones, and the cones are not the right init here. But some pixels show one
# material only: the purest ones *are* the spectra. ``init="snpa"`` finds them, and ``solver=None``
# leaves them as they are. The coefficients of all pixels are exact nonnegative least squares.

model = ConeNMF(n_components=4, init="snpa", solver=None)
A = model.fit_transform(X)
noise = 0.005 * np.sqrt(X.size) / np.linalg.norm(X)
print(f"relative error {model.relative_error_:.4f}, noise alone {noise:.4f}")

# %%
# Components come in any order and at any scale. ``match_components`` finds the partner of each
# true spectrum by the cosine between them. Scaled like the true ones, coefficients become shares.


def compare(model, A):
    order, cosines = match_components(spectra.T, model.components_.T)
    found = model.components_[order]
    scale = spectra.sum(axis=1) / found.sum(axis=1)
    shares = A[:, order] / scale
    return found * scale[:, None], shares / shares.sum(axis=1, keepdims=True), cosines


found, shares, cosines = compare(model, A)
print("cosines", np.round(cosines, 4))
print(f"mean difference of shares {abs(shares - pixels).mean():.4f}")

# %%
# Spectra and maps
# ----------------

figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
for k, name in enumerate(materials):
    ax.plot(wavelength, spectra[k], color=f"C{k}", linewidth=6, alpha=0.25)
    ax.plot(wavelength, found[k], color=f"C{k}", linewidth=1.2, label=name)
ax.set(xlabel="wavelength, micrometres", ylabel="reflectance", title="Broad: true. Thin: found.")
ax.set_ylim(0, 0.9)
ax.legend(ncols=4, loc="upper right")
plt.show()

# %%
# And the maps, true and found:

figure, axes = plt.subplots(2, 4, figsize=(9, 4.6), layout="constrained")
for k, name in enumerate(materials):
    for ax, share in zip(axes[:, k], (pixels, shares), strict=True):
        image = ax.imshow(share[:, k].reshape(side, side), vmin=0, vmax=1, cmap="viridis")
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    axes[0, k].set_title(name)
axes[0, 0].set_ylabel("true share")
axes[1, 0].set_ylabel("found share")
figure.colorbar(image, ax=axes, shrink=0.7, label="share of the pixel")
plt.show()

# %%
# A smaller error is not a truer answer
# -------------------------------------
#
# A solver that continues from there lowers the error, but mixtures of overlapping spectra can be
# written in many ways, and nothing keeps it near the pure pixels. The error is smaller, the spectra
# are worse. Without pure pixels this could not be seen.

solved = ConeNMF(n_components=4, init="snpa", max_iter=500).fit(X)
_, shares_solved, cosines_solved = compare(solved, solved.transform(X))
print(f"{'':12} error    smallest cosine   mean difference of shares")
for name, fit, cos, share in (
    ("pure pixels", model, cosines, shares),
    ("and solver", solved, cosines_solved, shares_solved),
):
    difference = abs(share - pixels).mean()
    print(f"{name:12} {fit.relative_error_:.4f}   {cos.min():.4f}            {difference:.4f}")

# sphinx_gallery_thumbnail_number = 2
