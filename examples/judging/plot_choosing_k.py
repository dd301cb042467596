"""
Choosing the number of components
=================================

``n_components="auto"`` chooses the number, and says whether it is proved, supported by evidence, or
a guess. This example shows the evidence for samples in cones, and for samples that lie in none.
"""

# %%
# Samples in cones
# ----------------
#
# The samples lie in seven cones, with noise. Without noise the clusters would be apart, and their
# number would be proved. Noise changes the directions of short samples, but seven singular values
# are above the edge of the noise, and the ratio of neighbouring singular values, which the paper
# uses (Theorem 9), is largest at the seventh.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from conenmf import ConeNMF, select_k
from conenmf.cones.simulate import make_cone_data

X, _ = make_cone_data(800, 200, 7, alpha=0.2, noise=0.02, random_state=0)
model = ConeNMF().fit(X)
print(model.result_.K_decided_by)

ax = model.result_.plot_spectrum()
ax.set_xlim(0, 20.5)
plt.show()

# %%
# Samples that are mixtures
# -------------------------
#
# Handwritten digits share strokes, so the singular values fall gradually, and the remaining ones do
# not look like noise. So ``select_k`` calls its number a guess, and gives an interval.

digits = load_digits().data[:800]
selection = select_k(digits)
print(selection)

# %%
# Each piece of evidence has a score for every number; the interval is grey:

selection.plot()
plt.show()

# %%
# More components always mean less error
# --------------------------------------
#
# So the error cannot choose the number. Together with its lower bound for K components, it shows
# how much the next component could gain.

ks = [2, 4, 7, 10, 15, 20]
fits = [ConeNMF(k, tol=1e-3).fit(digits) for k in ks]
figure, ax = plt.subplots(layout="constrained")
ax.plot(ks, [fit.relative_error_ for fit in fits], marker="o", label="error of the fit")
below = [fit.certify().lower_bound for fit in fits]
ax.plot(ks, below, linestyle="--", color="0.4", label="no fit can be below")
ax.fill_between(ks, 0, below, color="0.93")
ax.set(xlabel="number of components K", ylabel="relative error", title="Digits", ylim=(0, None))
ax.legend()
plt.show()
print(f"largest gap to the lower bound: {max(np.round(f.certify().gap, 3) for f in fits)}")
