"""What a matrix holds, however it is held."""

import numpy as np
import scipy.sparse as sp


def entries(V, samples=None):
    """The columns of these samples as an array, by default of all."""
    block = V.columns(np.arange(V.shape[1]) if samples is None else samples)
    return block.toarray() if sp.issparse(block) else np.asarray(block)
