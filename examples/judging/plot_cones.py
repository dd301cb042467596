"""
Samples in cones
================

The method of this library is geometric: samples are vectors, and samples of one kind point in about
the same direction, so they form cones. This example draws cones in three dimensions.
"""

# %%
# Three cones
# -----------
#
# Samples with three features are drawn from three cones. Only the direction of a sample matters, so
# each one is drawn where its line meets the plane x + y + z = 1: a triangle, whose corners are the
# three features.

import matplotlib.pyplot as plt
import numpy as np

from conenmf import cluster_cones, cr1_nmf, from_rows
from conenmf.cones.bounds import deterministic_bound
from conenmf.cones.geometry import cone_geometry

rng = np.random.default_rng(2)
axes = np.array([[0.86, 0.16, 0.14], [0.15, 0.84, 0.17], [0.15, 0.19, 0.85]])
axes /= np.linalg.norm(axes, axis=1, keepdims=True)
true = rng.integers(3, size=400)
angle = 0.12 * rng.random(400)
aside = rng.standard_normal((400, 3))
aside -= (aside * axes[true]).sum(axis=1, keepdims=True) * axes[true]
aside /= np.linalg.norm(aside, axis=1, keepdims=True)
directions = np.cos(angle)[:, None] * axes[true] + np.sin(angle)[:, None] * aside
X = directions * rng.exponential(1.0, (400, 1)) ** 0.5
assert X.min() >= 0

V = from_rows(X)
cones = cluster_cones(V, 3)
W, H, _ = cr1_nmf(V, 3)
geometry = cone_geometry(V, cones.labels)

# %%
# Algorithm 1 takes the sample with the largest norm as its first centre (a cross), then the
# sample whose direction is farthest from it, then the one farthest from both. Every sample belongs
# to the nearest centre. Algorithm 2 replaces each centre by the best single direction of its cone
# (a star). The circles are the smallest cones that hold all samples of a cluster.

corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])


def in_triangle(points):
    return points / points.sum(axis=-1, keepdims=True) @ corners


def rim(axis, size):
    """Directions at that angle round an axis."""
    first = np.cross(axis, [0.0, 0.0, 1.0])
    first /= np.linalg.norm(first)
    second = np.cross(axis, first)
    turn = np.linspace(0, 2 * np.pi, 200)[:, None]
    return np.cos(size) * axis + np.sin(size) * (np.cos(turn) * first + np.sin(turn) * second)


figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.4), layout="constrained", width_ratios=[1.15, 1]
)
left.fill(*corners.T, color="0.96", zorder=0)
left.plot(*corners[[0, 1, 2, 0]].T, color="0.6", linewidth=1)
for k in range(3):
    mine = cones.labels == k
    left.scatter(*in_triangle(X[mine]).T, s=9, color=f"C{k}", alpha=0.6, linewidth=0)
    left.plot(*in_triangle(rim(geometry.axes[:, k], geometry.angles[k])).T, color=f"C{k}")
left.plot(*in_triangle(X[cones.centres]).T, "x", color="black", markersize=8, label="centres")
left.plot(*in_triangle(W.T).T, "*", color="black", markersize=11, label="components of cr1-nmf")
for corner, name, place in zip(corners, "xyz", ("right", "left", "center"), strict=True):
    at = "bottom" if place == "center" else "top"
    left.annotate(f"only {name}", corner, ha=place, va=at, color="0.4")
left.set(title="Directions of the samples", aspect="equal")
left.set_axis_off()
left.set_xlim(-0.32, 1.12)
left.legend(loc="upper left")

order = np.argsort(cones.labels, kind="stable")
unit = X / np.linalg.norm(X, axis=1, keepdims=True)
degrees = np.degrees(np.arccos(np.clip(unit[order] @ W, -1, 1)))
for k in range(3):
    right.plot(degrees[:, k], ".", markersize=3.5, color=f"C{k}", label=f"to component {k}")
right.axhline(np.degrees(geometry.angles.max()), color="0.4", linestyle="--", linewidth=1)
right.set(xlabel="samples, cone by cone", ylabel="angle to a component, degrees")
right.set_xlim(0, 399)
right.legend(loc="center left", markerscale=2.5)
plt.show()

# %%
# What follows from the picture
# -----------------------------
#
# If cones are narrow and far enough apart, the clusters are exactly the cones (Lemma 1 of the
# paper). For any data, a sample's error is its norm times the sine of its angle to the
# component, so the error of cr1-nmf is at most the largest such sine (Theorem 4).

error = np.linalg.norm(X - (W @ H).T) / np.linalg.norm(X)
print(f"size angles             {np.round(geometry.angles, 3)} rad")
print(f"the assumption          {geometry.verdict}, margin {geometry.margin:.3f} rad")
print(f"pairwise separation     {geometry.pairwise.value:.3f} rad")
print(f"groups are the cones    {len(set(zip(true, cones.labels, strict=True))) == 3}")
print(f"relative error          {error:.4f}")
print(f"at most                 {deterministic_bound(V, W, cones.labels):.4f}")
