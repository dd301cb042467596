"""
Single-cell counts
==================

This example factors counts of genes in cells, in an ``AnnData`` object. The coefficients become an
embedding of the cells in ``adata.obsm["X_nmf"]``, the components become gene programs in
``adata.varm["NMF"]``, and the usual tools (neighbours, UMAP, clusters) continue from there.
"""

# %%
# Counts
# ------
#
# Six types of cells, each with a program of marker genes on top of what every cell expresses.
# Cells differ in how many molecules were caught, some lie between two types, and counts are
# Poisson.

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.manifold import TSNE

from conenmf import ConeNMF
from conenmf.judge.matching import match_components
from conenmf.judge.scores import scores

rng = np.random.default_rng(0)
n_cells, n_genes = 1000, 800
types = np.array(["T cell", "B cell", "NK cell", "Monocyte", "Dendritic", "Platelet"])

housekeeping = rng.gamma(0.4, 1.0, n_genes)
markers = np.zeros((6, n_genes))
for k in range(6):
    markers[k, 60 * k : 60 * k + 60] = rng.gamma(2.0, 3.0, 60)
programs = 1.5 * housekeeping + markers
programs /= programs.sum(axis=1, keepdims=True)

kind = rng.choice(6, n_cells, p=[0.3, 0.2, 0.15, 0.2, 0.1, 0.05])
mixture = np.eye(6)[kind]
between = rng.random(n_cells) < 0.1  # cells on their way from one type to another
mixture[between] = rng.dirichlet(np.full(6, 0.4), between.sum())
depth = rng.lognormal(np.log(1500), 0.5, n_cells)
counts = sp.csr_matrix(rng.poisson(depth[:, None] * (mixture @ programs)).astype(np.float32))

adata = anndata.AnnData(
    counts,
    obs=pd.DataFrame({"type": types[kind]}, index=[f"cell {i}" for i in range(n_cells)]),
    var=pd.DataFrame(index=[f"gene {i}" for i in range(n_genes)]),
)
print(adata)

# %%
# Before the factorization
# ------------------------
#
# Scale every cell to the same total and take the logarithm of one plus that, as is usual. Zeros
# stay zeros, so the matrix stays sparse and nonnegative, as required. (Do not centre or scale genes
# to unit variance with a shift: that makes entries negative.)

adata.layers["counts"] = adata.X.copy()
total = np.asarray(adata.X.sum(axis=1))
adata.X = sp.csr_matrix(sp.diags_array(1e4 / total.ravel()) @ adata.X).astype(np.float32)
adata.X.data = np.log1p(adata.X.data)

# %%
# The factorization
# -----------------
#
# We use one component more than there are types, for the expression that all cells share.

model = ConeNMF(n_components=7).fit(adata.X)
adata.obsm["X_nmf"] = model.transform(adata.X)
adata.varm["NMF"] = model.components_.T
adata.obs["program"] = pd.Categorical(model.labels_)
adata.uns["nmf"] = {"relative_error": model.relative_error_}
print(f"relative error {model.relative_error_:.3f} in {model.n_iter_} iterations")

# %%
# Programs and cells
# ------------------
#
# Left: how much each type uses each program. Right: the embedding, drawn in the plane by t-SNE.

share = adata.obsm["X_nmf"] * np.linalg.norm(model.components_, axis=1)
share /= share.sum(axis=1, keepdims=True)
use = np.stack([share[adata.obs["type"] == name].mean(axis=0) for name in types])
order = np.argsort(use.argmax(axis=0), kind="stable")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
image = left.imshow(use[:, order], cmap="viridis", vmin=0, aspect="auto")
left.set_yticks(range(6), types)
left.set(xlabel="program", title="Share of each program")
left.set_xticks(range(7), [str(k) for k in order])
left.spines[:].set_visible(False)
figure.colorbar(image, ax=left)

plane = TSNE(perplexity=30, random_state=0, max_iter=500).fit_transform(share)
for k, name in enumerate(types):
    mine = (adata.obs["type"] == name).to_numpy()
    right.scatter(*plane[mine].T, s=8, alpha=0.75, linewidth=0, color=f"C{k}", label=name)
right.set(title="Cells by their programs", xticks=[], yticks=[])
right.legend(markerscale=2.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
plt.show()

# %%
# How close are they to the true programs? The component that all cells share is left out.

expected = np.log1p(1e4 * programs) * (markers > 0)
_, cosines = match_components(expected.T, adata.varm["NMF"])
print("cosines to the true markers:", np.round(cosines, 2))
pure = ~between
print(f"purity of the labels: {scores(kind[pure], model.labels_[pure])['purity']:.2f}")

# %%
# In a scanpy workflow
# --------------------
#
# With scanpy, the workflow is as follows; all steps after ``X_nmf`` are the same as after a PCA.
#
# .. code-block:: python
#
#     import scanpy as sc
#     from conenmf import ConeNMF
#
#     sc.pp.normalize_total(adata, target_sum=1e4)
#     sc.pp.log1p(adata)
#     sc.pp.highly_variable_genes(adata, n_top_genes=2000)
#     chosen = adata[:, adata.var["highly_variable"]]
#
#     model = ConeNMF(n_components=20).fit(chosen.X)
#     adata.obsm["X_nmf"] = model.transform(chosen.X)
#     adata.uns["nmf_programs"] = model.components_
#
#     sc.pp.neighbors(adata, use_rep="X_nmf")
#     sc.tl.umap(adata)
#     sc.tl.leiden(adata)
#
# ``conenmf.tl.nmf(adata, 20)`` does the factorization in one line, and stores the results under its
# own names. A file that does not fit in memory stays on disk: ``factorize(open_data("cells.h5ad"),
# 20)``.
