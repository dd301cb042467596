"""Factor a matrix of samples in cones, say how good the answer is, and draw it to demo.png."""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from conenmf import ConeNMF, cr1_nmf, deterministic_bound, from_rows, lower_bound, make_cones

PICTURE = Path("demo.png")


def main() -> None:
    model = make_cones(400, 9, 0.2, n_samples=3000, rng=np.random.default_rng(7))
    X = np.ascontiguousarray(model.V.T)
    print(f"Data: {X.shape[0]} samples, {X.shape[1]} features, drawn from 9 cones.\n")

    began = time.perf_counter()
    fit = ConeNMF().fit(X)
    seconds = time.perf_counter() - began

    V = from_rows(X)
    W, H, cones = cr1_nmf(V, fit.n_components_)
    cr1_error = float(np.sqrt(max(1 - (H**2).sum() / V.norm**2, 0)))
    bound = deterministic_bound(V, W, cones.labels)
    below = lower_bound(V, fit.n_components_)
    print(f"components found (K)     {fit.n_components_}")
    print(f"relative error           {fit.relative_error_:.4f}")
    print(f"  of cr1-nmf alone       {cr1_error:.4f}, proven to be at most {bound:.4f}")
    print(f"no K components beat     {below:.4f}")
    print(f"gap to that lower bound  {fit.relative_error_ - below:.4f}")
    print(
        f"time                     {seconds:.2f} s, {fit.n_iter_} iterations ({fit.stop_reason_})"
    )

    draw(X, fit, model.axes, below)
    print(f"\nA picture is in {PICTURE.resolve()}")


def draw(X: np.ndarray, fit: ConeNMF, axes: np.ndarray, below: float) -> None:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    left.plot(fit.history_.elapsed * 1e3, fit.history_.relative_error, marker=".", label="hals")
    left.axhline(below, color="black", linestyle="--", label="no 9 components are below")
    left.set(title="Error while solving", xlabel="milliseconds", ylabel="relative error")
    left.legend()

    components = fit.components_ / np.linalg.norm(fit.components_, axis=1, keepdims=True)
    cosines = components @ axes
    order = np.argsort(cosines.argmax(axis=1))
    image = middle.imshow(cosines[order], vmin=0, vmax=1, cmap="viridis")
    middle.set(title="Cosine: component found, true axis", xlabel="true cone", ylabel="component")
    figure.colorbar(image, ax=middle, shrink=0.8)

    position = np.argsort(order)
    sorted_samples = np.argsort(position[fit.labels_], kind="stable")
    closeness = (X / np.linalg.norm(X, axis=1, keepdims=True)) @ components[order].T
    right.imshow(closeness[sorted_samples], vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    right.set(title="Cosine: sample, component", xlabel="component", ylabel="samples by cone")
    figure.savefig(PICTURE, dpi=120)


if __name__ == "__main__":
    main()
