"""
On a cluster
============

Dask workers factor a Dask array. Samples and their coefficients stay on the workers, and only small
sums are sent. Here the cluster consists of two workers on this machine; for a real cluster, only
the first line differs.
"""

# %%
# A cluster and data on it
# ------------------------
#
# Chunks hold whole samples. One or two chunks for each thread of a worker are best.

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from conenmf import ConeNMF
from conenmf.cones.simulate import make_cone_data

cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None)
client = Client(cluster)

rows, true = make_cone_data(6000, 200, 8, alpha=0.15, random_state=0)
X = da.from_array(rows, chunks=(1500, 200))
X

# %%
# The fit
# -------
#
# Nothing else changes. Results with one row per sample are Dask arrays; the components, which are
# small, are a NumPy array.

model = ConeNMF(n_components=8)
A = model.fit_transform(X)
print(type(A).__module__, A.shape, "and", type(model.components_).__module__)
print(f"relative error {model.relative_error_:.4f}")
labels = model.labels_.compute()

# %%
# What is sent
# ------------
#
# The client sends the components; the workers return sums of the size of the components. That is
# the same for six thousand samples and for six billion. For an iteration with float64 data:

F, K, chunks = 200, 8, X.numblocks[0]
ns = np.logspace(3, 9, 7)
figure, ax = plt.subplots(layout="constrained")
ax.loglog(ns, 8 * F * ns, marker="o", color="0.6", label="the data, which stay")
ax.loglog(ns, 8 * K * ns, marker="o", color="C1", label="the coefficients, which stay")
travelling = 8 * (F * K + K * K) * (1 + chunks)
ax.axhline(travelling, color="C0", label="what travels in an iteration")
ax.set(xlabel="samples", ylabel="bytes", title="F = 200 features, K = 8 components, 4 chunks")
ax.legend()
plt.show()

# %%
# The same on one machine
# -----------------------
#
# Sums are added in an order that depends only on the chunks, so the result does not depend on the
# number of workers. Data in memory are divided into other blocks, so the last digits may differ.

here = ConeNMF(n_components=8).fit(rows)
print("same labels:", np.array_equal(labels, here.labels_))
print(f"largest difference: {np.abs(model.components_ - here.components_).max():.1e}")

client.close()
cluster.close()
