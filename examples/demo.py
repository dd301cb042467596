"""Factor handwritten digits and judge the components; then the paper's cones and their bound."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from conenmf import ConeNMF, cr1_nmf, from_columns, make_cones, write_report
from conenmf.cones.bounds import deterministic_bound
from conenmf.cones.rank_one import cr1_error

PICTURE, REPORT = Path("demo.png"), Path("demo.html")


def digits() -> None:
    """Factor 1797 images of 8 x 8 pixels; write a picture and a report."""
    data = load_digits()
    model = ConeNMF(n_components=16).fit(data.data)
    print(f"Handwritten digits: {len(data.data)} images of 8 x 8 pixels, 16 components\n")
    print(model.diagnose())
    print(f"\n  time of the fit      {model.result_.total_seconds:.2f} s")
    axes = model.result_.plot_components(image_shape=(8, 8))
    axes[0].figure.savefig(PICTURE, dpi=120)
    plt.close(axes[0].figure)
    options = {"title": "Handwritten digits", "image_shape": (8, 8), "classes": data.target}
    write_report(model.result_, REPORT, **options)
    print(f"  the components       {PICTURE.resolve()}")
    print(f"  the report           {REPORT.resolve()} (open it in a browser)\n")


def cones() -> None:
    """One rank-one factor for each cone: the error of cr1-nmf is below its proven bound."""
    drawn = make_cones(400, 9, 0.2, n_samples=3000, rng=np.random.default_rng(7))
    V = from_columns(drawn.V)
    W, H, found = cr1_nmf(V, 9)
    error, bound = cr1_error(V, W, H), deterministic_bound(V, W, found.labels)
    print("Samples in nine cones, factored by cr1-nmf alone (no iterations)")
    print(f"  relative error       {error:.4f}, proven to be at most {bound:.4f}")


if __name__ == "__main__":
    digits()
    cones()
