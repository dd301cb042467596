"""
An init for scikit-learn's NMF
==============================

If you want to keep using ``sklearn.decomposition.NMF``, take only the init from this library:
``sklearn_init`` gives the factors of cr1-nmf in scikit-learn's layout.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning

from conenmf import cr1_nmf
from conenmf.cones.simulate import make_cone_data
from conenmf.estimator import sklearn_init

warnings.simplefilter("ignore", ConvergenceWarning)  # few iterations are the point here
X, _ = make_cone_data(800, 150, 15, alpha=0.2, noise=0.01, random_state=0)

W, H = sklearn_init(X, 15)
model = NMF(15, init="custom", max_iter=200)
A = model.fit_transform(X, W=W.copy(), H=H.copy())
print(f"{model.n_iter_} iterations, error {model.reconstruction_err_ / np.linalg.norm(X):.4f}")

# %%
# Against scikit-learn's own inits
# ---------------------------------
#
# The error after each number of iterations of coordinate descent, from each init. The unchanged
# factors of cr1-nmf, with one component for each sample, have the lowest error at first, but
# coordinate descent leaves that point slowly. ``sklearn_init`` replaces their zeros by small
# numbers: the error of the first iterations is higher, and the error of later iterations is lower.

axes, coefficients, _ = cr1_nmf(X, 15)
inits = {
    "random": ("0.75", {}),
    "nndsvd": ("C1", {}),
    "nndsvda": ("C2", {}),
    "cr1_nmf, unchanged": ("C4", {"W": coefficients.T, "H": axes.T}),
    "sklearn_init": ("C0", {"W": W, "H": H}),
}
steps = [1, 2, 4, 8, 16, 32]
figure, ax = plt.subplots(layout="constrained")
for name, (colour, factors) in inits.items():
    errors = []
    for n in steps:
        init = "custom" if factors else name
        nmf = NMF(15, init=init, max_iter=n, tol=0, random_state=0)
        nmf.fit_transform(X, **{key: np.array(f, order="C") for key, f in factors.items()})
        errors.append(nmf.reconstruction_err_ / np.linalg.norm(X))
    ax.plot(steps, errors, marker="o", color=colour, label=name)
ax.set(xlabel="iterations", ylabel="relative error", title="scikit-learn's NMF", xscale="log")
ax.set_xticks(steps, [str(n) for n in steps])
ax.minorticks_off()
ax.legend()
plt.show()

# %%
# For ``solver="mu"``, which cannot leave zeros, use ``sklearn_init(X, k, solver="mu")``: both
# factors are then strictly positive.

W, H = sklearn_init(X, 15, solver="mu")
print(W.min() > 0, H.min() > 0)
