"""What the fork server imports and compiles once for all processes that are killed."""

import numpy as np

import conenmf

conenmf.factorize(conenmf.from_rows(np.random.default_rng(0).random((8, 5)), n_threads=1), 2)
