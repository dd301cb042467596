"""Factor samples in cones, print how good the fit is, write a picture and a report."""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from conenmf import ConeNMF, cr1_nmf, from_rows, make_cones, write_report
from conenmf.cones.bounds import deterministic_bound
from conenmf.cones.geometry import cone_geometry
from conenmf.cones.rank_one import cr1_error

PICTURE, REPORT = Path("demo.png"), Path("demo.html")


def main() -> None:
    model = make_cones(400, 9, 0.2, n_samples=3000, rng=np.random.default_rng(7))
    X = np.ascontiguousarray(model.V.T)
    print(f"Data: {X.shape[0]} samples, {X.shape[1]} features, drawn from 9 cones.\n")

    began = time.perf_counter()
    fit = ConeNMF().fit(X)
    seconds = time.perf_counter() - began
    certificate = fit.certify()

    V = from_rows(X)
    W, H, cones = cr1_nmf(V, fit.n_components_)
    error = cr1_error(V, W, H)
    bound = deterministic_bound(V, W, cones.labels)
    geometry = cone_geometry(V, cones.labels)
    decided_by = fit.result_.K_decided_by
    print(f"components found (K)     {fit.n_components_}, by the estimator {decided_by!r}")
    print(f"relative error           {fit.relative_error_:.5f}")
    print(f"no K components beat     {certificate.lower_bound:.5f}")
    print(f"gap to that lower bound  {certificate.gap:.5f}")
    print(
        f"time                     {seconds:.2f} s, {fit.n_iter_} iterations ({fit.stop_reason_})"
    )
    print(f"cr1-nmf alone            {error:.5f}, proven to be at most {bound:.5f}")
    print(f"geometric assumption     {geometry.verdict}, margin {geometry.margin:.3f} rad")

    draw(X, fit, model.axes, certificate.lower_bound)
    print(f"\nA picture is in {PICTURE.resolve()}")
    write_report(fit.result_, REPORT, title="Nine cones")
    print(f"The report, for a browser, is in {REPORT.resolve()}")


def draw(X: np.ndarray, fit: ConeNMF, axes: np.ndarray, below: float) -> None:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    left.plot(fit.history_.elapsed * 1e3, fit.history_.relative_error, marker=".", label="hals")
    left.axhline(below, color="black", linestyle="--", label="smallest possible")
    left.set(title="Error while solving", xlabel="milliseconds", ylabel="relative error")
    left.legend()

    components = fit.components_ / np.linalg.norm(fit.components_, axis=1, keepdims=True)
    cosines = components @ axes
    order = np.argsort(cosines.argmax(axis=1))
    image = middle.imshow(cosines[order], vmin=0, vmax=1, cmap="viridis")
    middle.set(title="Cosine: component found, true axis", xlabel="true cone", ylabel="component")

    position = np.argsort(order)
    sorted_samples = np.argsort(position[fit.labels_], kind="stable")
    closeness = (X / np.linalg.norm(X, axis=1, keepdims=True)) @ components[order].T
    right.imshow(closeness[sorted_samples], vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    right.set(title="Cosine: sample, component", xlabel="component", ylabel="samples by cone")
    figure.colorbar(image, ax=[middle, right], shrink=0.8, label="cosine")
    figure.savefig(PICTURE, dpi=120)


if __name__ == "__main__":
    main()
