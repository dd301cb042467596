"""
Counts of cells, and their noise
================================

Counts of genes in cells are Poisson, or nearly so: large counts vary more than small ones. Least
squares treats an error of ten alike wherever it is; the Poisson loss knows that it is much for a
count of three and nothing for one of three thousand. This example fits both losses to the same raw
counts, looks at the residuals, and asks how much of them is noise.
"""

# %%
# Counts
# ------
#
# Five types of cells. Each has a program of its own on top of genes that all cells express, some of
# them hundreds of times as much as others. Cells differ in how many molecules were caught.

import matplotlib.pyplot as plt
import numpy as np

from conenmf import factorize, from_rows, select_k
from conenmf.judge.metrics import match_components, purity

rng = np.random.default_rng(0)
n_cells, n_genes, K = 500, 400, 5
shared = rng.lognormal(0, 2, n_genes)
programs = shared * rng.lognormal(0, 1, (K, n_genes))
programs /= programs.sum(axis=1, keepdims=True)
kind = rng.integers(K, size=n_cells)
use = 0.9 * np.eye(K)[kind] + 0.1 * rng.dirichlet(np.ones(K), n_cells)
depth = rng.lognormal(np.log(1000), 0.6, n_cells)
counts = rng.poisson(depth[:, None] * (use @ programs))
print(f"{(counts == 0).mean():.0%} zeros, largest count {counts.max()}")

# %%
# Two losses
# ----------
#
# Nothing is scaled and no logarithm is taken.

V = from_rows(counts)
fits = {loss: factorize(V, K, loss=loss) for loss in ("frobenius", "poisson")}
for loss, fit in fits.items():
    _, cosines = match_components(np.sqrt(programs.T), np.sqrt(fit.W))
    labels = fit.labels
    print(f"{loss:9}: types found again {purity(kind, labels):.2f}, programs {cosines.min():.3f}")

# %%
# Residuals against fitted values
# -------------------------------
#
# Each residual is divided by the root of its rate, the standard deviation of a Poisson count; if
# the rates are right, such residuals have a mean of 0 and a variance of 1 everywhere. Least squares
# fits the large counts and misses the small ones, with rates far too high or too low. With the
# Poisson loss the band is as wide at 0.01 as at 100.

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained", sharey=True)
edges = np.geomspace(0.02, 200, 14)
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
    ax.set(xscale="log", xlim=(0.01, 300), ylim=(-5, 8), xlabel="fitted value", title=loss)
axes[0].set_ylabel("residual / root of fitted value")
axes[1].legend(loc="upper right")
plt.show()

# %%
# How much is noise?
# ------------------
#
# The certificate of counts has a scale that least squares does not have: the noise floor, the
# divergence that counts drawn at the fitted rates leave when they are fitted again. It is an
# estimate, and holds if counts are Poisson.

certificate = fits["poisson"].certify()
print(f"divergence {certificate.divergence:.0f}, of which nothing but noise would leave")
print(f"{certificate.noise_floor:.0f} +- {certificate.floor_spread:.0f}: the fit is")
print(certificate.floor_in_words())

# %%
# With a component too few it is far above the floor, and says so:

print(factorize(V, K - 1, loss="poisson").certify().floor_in_words())

# %%
# How many programs?
# ------------------
#
# Counts can be split at random into two parts that are independent of each other. Components that
# are fitted to most of the counts are judged by how well they predict the others.

selection = select_k(V, range(1, 10), methods=["thinning"])
selection.plot()
plt.show()
print(selection)

# sphinx_gallery_thumbnail_number = 1
