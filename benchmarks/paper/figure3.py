"""Figure 3: the estimated number of cones under noise, against N (alpha = 0.3, true K = 40).

V = [cones + delta E]_+ with standard normal E and delta = 0.1 or 0.5; K is searched from 11 to 200.
"""

from __future__ import annotations

import numpy as np
from protocol import Experiment, experiment

from conenmf import estimate_rank, from_columns, make_cones

SIZES = {  # F, K, search range, values of N, matrices
    "tiny": (200, 5, (3, 20), (60, 200), 1),
    "quick": (1600, 40, (11, 200), (500, 2000, 5000, 10000), 2),
    "full": (1600, 40, (11, 200), tuple(np.unique(np.geomspace(3e2, 1e4, 30).astype(int))), 1000),
}


def run(rows: Experiment) -> None:
    F, K, (low, high), sizes, matrices = SIZES[rows.scale]
    for delta in (0.1, 0.5):
        for N in sizes:
            for matrix in range(matrices):

                def estimate(N: int = N, delta: float = delta, matrix: int = matrix):
                    rng = rows.rng(N=N, delta=delta, matrix=matrix)
                    model = make_cones(F, K, 0.3, n_samples=N, noise=delta, rng=rng)
                    V = from_columns(model.V)
                    found = estimate_rank(V, low, min(high, min(V.shape) - 1))
                    return {"K": found.K, "true": K, "margin": found.margin}

                rows.row(estimate, delta=delta, N=N, matrix=matrix)


if __name__ == "__main__":
    run(experiment("figure3", __doc__ or ""))
