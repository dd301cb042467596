"""How often the ratio of singular values finds K under noise (Figure 3 of the paper).

F = 1600, K = 40, alpha = 0.3, search range 11..200; noise 0.1 with N = 2000, and noise 0.5 with
N = 10^4, where the weakest cones are barely above the noise, and with N = 1.4 * 10^4. Also the
time of the smallest enclosing cones at that size.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from conenmf import estimate_rank, from_columns, make_cones
from conenmf.cones.geometry import cone_geometry, enclosing_cones


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrices", type=int, default=20)
    options = parser.parse_args()
    for noise, n_samples in ((0.1, 2000), (0.5, 10_000), (0.5, 14_000)):
        found, seconds, margins = [], [], []
        for seed in range(options.matrices):
            rng = np.random.default_rng(seed)
            V = from_columns(make_cones(1600, 40, 0.3, n_samples=n_samples, noise=noise, rng=rng).V)
            began = time.perf_counter()
            estimate = estimate_rank(V, 11, 200)
            seconds.append(time.perf_counter() - began)
            found.append(estimate.K)
            margins.append(estimate.margin)
        right = sum(K == 40 for K in found)
        print(
            f"noise {noise}, N = {n_samples}: K = 40 in {right} of {len(found)} matrices, "
            f"smallest margin {min(margins):.3f}, median {statistics.median(seconds):.2f} s"
        )

    rng = np.random.default_rng(0)
    V = from_columns(make_cones(1600, 1, 0.3, n_samples=2000, rng=rng).V)
    began = time.perf_counter()
    enclosing_cones(V, np.zeros(2000, int))
    one = time.perf_counter() - began
    model = make_cones(1600, 40, 0.3, n_samples=10_000, rng=rng)
    V = from_columns(model.V)
    began = time.perf_counter()
    geometry = cone_geometry(V, model.labels)
    print(
        f"enclosing cone of 2000 samples in 1600 dimensions: {one:.3f} s; geometry of 40 cones, "
        f"10^4 samples: {time.perf_counter() - began:.2f} s, margin {geometry.margin:.3f} rad"
    )


if __name__ == "__main__":
    main()
