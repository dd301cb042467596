"""
Signatures of mutations
=======================

Counts of mutations by type are sums of a few processes. Fits of resampled counts show how many
processes there are, and how precisely their signatures are known.
"""

import numpy as np

from conenmf import from_columns
from conenmf.judge.matching import match_components
from conenmf.judge.stability import stability_over

# %%
# We simulate a catalogue of 48 types in 120 samples from four signatures.
rng = np.random.default_rng(3)
signatures = rng.dirichlet(np.full(48, 0.15), 4).T
activities = rng.gamma(0.5, 800, (4, 120))
catalogue = rng.poisson(signatures @ activities).astype(float)

# %%
# How many signatures are there? Each component must explain more than noise would.
found = stability_over(from_columns(catalogue), range(2, 7), 8, loss="poisson", resample="counts")
print(found)
found.plot()

# %%
# The figure shows the consensus, with limits for every entry, and the true signatures.
consensus = found.found[found.K]
print(consensus)
consensus.plot()
order, cosines = match_components(signatures, consensus.W)
print(cosines.round(3))
