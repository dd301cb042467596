"""
Counts of cells, and their noise
================================

Counts of genes in cells follow a Poisson distribution, or nearly so: large counts vary more than
small ones. For least squares, an error of ten costs the same everywhere. For the Poisson loss it is
large if the count is three, and negligible if the count is three thousand. This example fits both
losses to the same raw counts, and shows how much of the residuals is noise.
"""

# %%
# Counts
# ------
#
# There are five types of cells. Each type has marker genes, of which a cell has one or two
# molecules. All cells express twenty other genes a hundred times as strongly. Cells differ in how
# many molecules were captured.

import matplotlib.pyplot as plt
import numpy as np

from conenmf import factorize, from_rows, select_k
from conenmf.judge.matching import match_components
from conenmf.judge.scores import scores

rng = np.random.default_rng(0)
n_cells, n_genes, K = 500, 300, 5
programs = 0.1 * rng.lognormal(0, 0.5, (K, n_genes))
programs[:, :20] = rng.lognormal(5, 1, 20)
for k in range(K):
    programs[k, 20 + 56 * k : 76 + 56 * k] = rng.gamma(2.0, 0.6, 56)
kind = rng.integers(K, size=n_cells)
use = 0.9 * np.eye(K)[kind] + 0.1 * rng.dirichlet(np.ones(K), n_cells)
depth = rng.lognormal(0, 0.4, n_cells)
counts = rng.poisson(depth[:, None] * (use @ programs))
print(f"{(counts == 0).mean():.0%} zeros, largest count {counts.max()}")

# %%
# Two losses
# ----------
#
# The counts are neither scaled nor transformed. The noise of the large counts is far larger than
# the differences between types, so least squares fits this noise and does not find the types at
# all.

V = from_rows(counts)
fits = {loss: factorize(V, K, loss=loss) for loss in ("frobenius", "poisson")}
for loss, fit in fits.items():
    _, cosines = match_components(programs[:, 20:].T, fit.W[20:])
    print(f"{loss:9}: purity of the types {scores(kind, fit.labels)['purity']:.2f}, ", end="")
    print("cosines to the markers", np.round(cosines, 2))

# %%
# Residuals against fitted values
# -------------------------------
#
# Each residual is divided by the square root of its rate, the standard deviation of a Poisson
# count; if the rates are right, such residuals have a mean of 0 and a variance of 1 everywhere.
# Least squares fits the noise of the large counts, whose residuals are too small, and misses the
# markers, whose residuals are too large. With the Poisson loss the spread is the same at 0.1 and at
# 1000.

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained", sharey=True)
edges = np.geomspace(0.05, 2000, 14)
for ax, (loss, fit) in zip(axes, fits.items(), strict=True):
    rates = (fit.W @ fit.H).T
    residuals = (counts - rates) / np.sqrt(np.maximum(rates, 1e-3))
    some = rng.choice(counts.size, 6000, replace=False)
    ax.scatter(rates.ravel()[some], residuals.ravel()[some], s=2, alpha=0.25, color="0.5")
    bins = np.digitize(rates.ravel(), edges)
    inside = [residuals.ravel()[bins == b] for b in range(1, edges.size)]
    spread = [np.sqrt((part**2).mean()) if part.size > 20 else np.nan for part in inside]
    middle = np.sqrt(edges[1:] * edges[:-1])
    ax.plot(middle, spread, marker="o", label="root of the mean square")
    ax.axhline(1, linestyle="--", color="C1", label="counting noise")
    ax.set(xscale="log", xlim=(0.03, 3000), ylim=(-5, 8), xlabel="fitted value", title=loss)
axes[0].set_ylabel("residual / root of fitted value")
axes[1].legend(loc="upper right")
plt.show()

# %%
# How much is noise?
# ------------------
#
# For counts, the certificate has the noise floor: the divergence that remains if counts simulated
# at the fitted rates are fitted again. It is an estimate, and valid if counts are Poisson.

certificate = fits["poisson"].certify()
print(f"divergence {certificate.divergence:.0f}, of which nothing but noise would leave")
print(f"{certificate.noise_floor:.0f} +- {certificate.floor_spread:.0f}: the fit is")
print(certificate.floor_in_words())

# %%
# With too few components the fit is farther above the floor, and the sentence gives possible
# reasons:

for fewer in (K - 1, K - 3):
    print(fewer, factorize(V, fewer, loss="poisson").certify().floor_in_words())

# %%
# How many programs?
# ------------------
#
# Every additional component fits some noise, and theory predicts how much. The best number is the
# one after which components explain only noise. Its residuals look like noise.

selection = select_k(V, loss="poisson")
selection.plot()
plt.show()
print(selection)

# sphinx_gallery_thumbnail_number = 1
