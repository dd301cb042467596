"""
Groups of nodes in a graph
==========================

A social network has groups whose members are friends, and a marketplace has sellers and buyers,
who deal with each other but not among themselves. ``symmetric=True`` finds both kinds of groups:
X ~ W S W'.
"""

# %%
# A graph of friends, sellers and buyers
# --------------------------------------
#
# Two groups have links inside. The other two have links between them.

import matplotlib.pyplot as plt
import numpy as np

from conenmf import ConeNMF

rng = np.random.default_rng(0)
chances = np.full((4, 4), 0.04)
chances[0, 0] = chances[1, 1] = chances[2, 3] = chances[3, 2] = 0.4
groups = rng.permutation(np.repeat(np.arange(4), 40))
upper = np.triu(rng.random((160, 160)) < chances[groups][:, groups], 1)
edges = (upper | upper.T).astype(float)

model = ConeNMF(4, symmetric=True).fit(edges)
for sentence in model.result_.summary():
    print(sentence)

# %%
# The nodes, sorted by their groups
# ---------------------------------
#
# S says which groups are linked: on the diagonal a group with itself, beside it two groups with
# each other.

order = np.argsort(model.labels_, kind="stable")
figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
axes[0].imshow(edges, cmap="Greys")
axes[0].set(title="edges as given", xlabel="node", ylabel="node")
axes[1].imshow(edges[order][:, order], cmap="Greys")
axes[1].set(title="nodes sorted by group", xlabel="node")
axes[2].imshow(model.result_.affinities, cmap="Blues")
axes[2].set(title="affinities S", xlabel="group", ylabel="group", xticks=range(4), yticks=range(4))
plt.show()
