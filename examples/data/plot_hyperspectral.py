"""
Hyperspectral unmixing
======================

A hyperspectral camera records a scene at many wavelengths. Most pixels show several materials at
once. The components are the spectra of the materials, and the coefficients are maps of their
abundances.
"""

# %%
# A scene
# -------
#
# Four materials, with spectra made of a few smooth bands, cover a scene of 60 x 60 pixels. Their
# shares sum to one in every pixel and change gradually; some pixels are pure. A little noise is
# added, and negative entries are set to zero.

import matplotlib.pyplot as plt
import numpy as np

from conenmf import ConeNMF
from conenmf.judge.matching import match_spectra

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
# A row of ``X`` is a pixel. ``ConeNMF.for_scenes`` finds a small simplex that contains the pixels
# up to their noise. Its corners are the spectra, even if no pixel is pure. The coefficients are
# shares that sum to one in every pixel.

model = ConeNMF.for_scenes(4)
A = model.fit_transform(X)

# %%
# Components come in any order. ``match_spectra`` finds the partner of each true spectrum by the
# angle between them.


def compare(spectra_found, A):
    match = match_spectra(spectra, spectra_found, library_abundances=pixels, abundances=A)
    return match, spectra_found[match.order], A[:, match.order]


match, found, shares = compare(model.components_, A)
print("degrees to the true spectra:", match.angles.round(1))
print(f"RMSE of the shares: {match.rmse:.3f}")

# %%
# Spectra and maps
# ----------------

figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
for k, name in enumerate(materials):
    ax.plot(wavelength, spectra[k], color=f"C{k}", linewidth=6, alpha=0.25)
    ax.plot(wavelength, found[k], color=f"C{k}", linewidth=1.2, label=name)
ax.set(xlabel="wavelength, micrometres", ylabel="reflectance", title="True (broad) and estimated")
ax.set_ylim(0, 0.9)
ax.legend(ncols=4, loc="upper right")
plt.show()

# %%
# The maps: true abundances and estimated ones.

figure, axes = plt.subplots(2, 4, figsize=(9, 4.6), layout="constrained")
for k, name in enumerate(materials):
    for ax, share in zip(axes[:, k], (pixels, shares), strict=True):
        image = ax.imshow(share[:, k].reshape(side, side), vmin=0, vmax=1, cmap="viridis")
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    axes[0, k].set_title(name)
axes[0, 0].set_ylabel("true share")
axes[1, 0].set_ylabel("estimated share")
figure.colorbar(image, ax=axes, shrink=0.7, label="share of the pixel")
plt.show()

# %%
# A smaller error is not a truer answer
# -------------------------------------
#
# A plain fit has the smallest error. But mixtures of overlapping spectra have many factorizations,
# and nothing keeps the fit close to the true one. Here its coefficients are divided by their sums.

plain = ConeNMF(4, max_iter=500).fit(X)
scale = plain.components_.max(axis=1)
coefficients = plain.transform(X) * scale
coefficients /= coefficients.sum(axis=1, keepdims=True)
plain_match, _, _ = compare(plain.components_, coefficients)
print(f"{'':12} error    largest angle   RMSE of the shares")
for name, fit, one in (("for_scenes", model, match), ("plain fit", plain, plain_match)):
    print(
        f"{name:12} {fit.relative_error_:.4f}   {one.angles.max():4.1f}            {one.rmse:.3f}"
    )

# sphinx_gallery_thumbnail_number = 2
