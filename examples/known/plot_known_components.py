"""
Known components
================

Two materials of a scene are in a library, and a third one is not. The fit does not change the known
spectra, and its free component finds the third one.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from conenmf import ConeNMF

# %%
# A scene, and a library without one of its materials
# ---------------------------------------------------

rng = np.random.default_rng(0)
wavelengths = np.linspace(400, 1000, 60)
centres, widths = np.array([[480], [600], [850]]), np.array([[90], [120], [80]])
spectra = 0.2 + np.exp(-(((wavelengths - centres) / widths) ** 2))
rows, columns = np.mgrid[0:30, 0:40]
maps = np.stack(
    [
        np.clip(1 - columns / 25, 0, 1),
        np.clip(rows / 30, 0, 1) * (columns > 10),
        np.exp(-((rows - 10) ** 2 + (columns - 28) ** 2) / 40),
    ]
)
abundances = (maps / (maps.sum(axis=0) + 0.05)).reshape(3, -1).T
X = abundances @ spectra + 0.02 * rng.random((1200, 60))
library = pd.DataFrame(spectra[:2], index=["soil", "grass"], columns=wavelengths)

model = ConeNMF(3, fixed=library, max_iter=1000)
found = model.fit_transform(pd.DataFrame(X, columns=wavelengths))
print(model.result_.component_names)

# %%
# The free component, and where it is
# -----------------------------------

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained", width_ratios=[2, 1, 1])
axes[0].plot(wavelengths, spectra[2], color="0.7", linewidth=4, label="truth")
axes[0].plot(wavelengths, library.T, color="0.3", linestyle=":", label=["soil", "grass"])
scale = spectra[2].max() / model.components_[2].max()
axes[0].plot(wavelengths, scale * model.components_[2], label="found")
axes[0].set(xlabel="nm", title="spectra")
axes[0].legend()
for ax, title, values in (
    (axes[1], "its map", found[:, 2] / scale),
    (axes[2], "the truth", abundances[:, 2]),
):
    ax.imshow(values.reshape(30, 40), vmin=0, vmax=1)
    ax.set(title=title, xticks=[], yticks=[])
plt.show()

# %%
# If all components are known, ``fit`` only computes coefficients, by exact nonnegative least
# squares.

every = ConeNMF(3, fixed=spectra).fit(X)
print(f"{every.n_iter_} iterations, relative error {every.relative_error_:.4f}")
