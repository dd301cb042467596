"""
Larger than memory
==================

The library reads a large file block by block, once per iteration, and never holds all of it in
memory. The factors are the same as if the data had been in memory.
"""

# %%
# A file
# ------
#
# To keep this example short the file has only 48 MB, and the memory that may be used is set to
# match. With a file of 48 GB the lines below would be the same.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from conenmf import factorize, from_rows, make_cones, open_data
from conenmf.scale.checkpoint import Checkpoint

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "counts.npy"
model = make_cones(300, 10, 0.2, n_samples=40_000, rng=np.random.default_rng(0))
np.save(path, model.V.T.astype(np.float32))
print(f"{path.name}: {path.stat().st_size / 1e6:.0f} MB")

# %%
# ``open_data`` reads the file once, checks every entry and keeps only the norm of each sample.
# ``max_memory`` is the memory that the whole process may use.

V = open_data(path, max_memory="200MB")
result = factorize(V, 10, max_iter=20)
print(result)

# %%
# What it cost
# ------------
#
# An iteration is one pass over the file. Passes are counted; multiplied by the size of the file,
# they give the number of bytes read.

print(f"{V.passes:.1f} passes, {V.passes * path.stat().st_size / 1e6:.0f} MB read")

figure, ax = plt.subplots(layout="constrained")
result.plot_history(ax, against="passes")
ax.set_title("Error after each pass over the file")
plt.show()

# %%
# The same as in memory
# ---------------------

in_memory = factorize(from_rows(np.load(path)), 10, max_iter=20)
print("same labels:", np.array_equal(result.labels, in_memory.labels))
print(f"largest difference of the components: {np.abs(result.W - in_memory.W).max():.1e}")

# %%
# If it is killed
# ---------------
#
# With ``checkpoint`` the run is saved at regular intervals. Here a run is stopped after eight
# iterations. The same call then resumes from there, and gives exactly the result of an
# uninterrupted run.

saves = Checkpoint(Path(folder.name) / "run", every=0)
factorize(V, 10, max_iter=8, tol=0, checkpoint=saves)
resumed = factorize(V, 10, max_iter=20, tol=0, checkpoint=saves)
whole = factorize(V, 10, max_iter=20, tol=0)
print("same bits:", np.array_equal(resumed.W, whole.W))
folder.cleanup()
