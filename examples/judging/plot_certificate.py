"""
Reading the certificate
=======================

A certificate says how large the error of a fit is, how small it could be at best, and whether the
solver could still lower it. This example reads the four numbers of a certificate, for fits of
different quality and for a factorization from another library.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF

from conenmf import ConeNMF, certify, from_rows

X = load_digits().data[:800]
model = ConeNMF(n_components=10, tol=1e-5, max_iter=500).fit(X)
print(model.certify())

# %%
# - ``relative_error`` is the norm of the residual over the norm of the data.
# - ``lower_bound`` is proven: *no* ten nonnegative components, found by any method, have a smaller
#   error. ``eckart_young`` is the bound for components of any sign, from the singular values alone;
#   ``certify(effort=20)`` spends more time to find a higher bound.
# - ``gap`` is their difference. The error is at most this far above the smallest possible one.
# - ``kkt_residual`` is the distance from a stationary point, where no small change lowers the
#   error. It is large if the solver was stopped early.
#
# Early and late
# --------------
#
# From a random init the error falls towards the lower bound and the residual towards zero.

V = from_rows(X)
steps = [1, 2, 4, 8, 16, 32, 64, 128]
options = {"init": "random", "random_state": 0, "tol": 0}
stages = [ConeNMF(10, max_iter=n, **options).fit(X).certify() for n in steps]
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
below = stages[-1].lower_bound
left.semilogx(steps, [s.relative_error for s in stages], marker="o", label="relative error")
left.axhline(below, linestyle="--", color="0.4", label="lower bound")
left.axhspan(below - 0.03, below, color="0.93")
left.set(xlabel="iterations", title="The error falls towards the bound", xticks=steps)
left.set_ylim(below - 0.03, None)
left.set_xticklabels(steps)
left.minorticks_off()
left.legend()
right.loglog(steps, [s.kkt_residual for s in stages], marker="o", color="C1")
right.set(xlabel="iterations", title="Residual of the optimality conditions", xticks=steps)
right.set_xticklabels(steps)
right.minorticks_off()
plt.show()

# %%
# A large gap does not mean that the fit is bad, because the smallest possible error may be larger
# than the bound. For data that do lie in cones the gap is nearly zero, and then the error is proven
# to be nearly the smallest possible. The certificate judges only the error: other components may
# have the same error.
#
# Other libraries
# ---------------
#
# ``certify`` takes any pair of factors, here of scikit-learn's NMF. scikit-learn's W contains the
# coefficients; the paper's W contains the components, as columns.

rows = []
for solver, init in (("cd", "nndsvda"), ("cd", "random"), ("mu", "nndsvda")):
    other = NMF(10, solver=solver, init=init, max_iter=400, random_state=0)
    A = other.fit_transform(X)
    rows.append((f"sklearn {solver}, {init}", certify(V, other.components_.T, A.T)))
rows.append(("ConeNMF", model.certify()))
print(f"{'':22} error     gap       residual")
for name, c in rows:
    print(f"{name:22} {c.relative_error:.5f}   {c.gap:.5f}   {c.kkt_residual:.1e}")

figure, ax = plt.subplots(figsize=(7, 2.4), layout="constrained")
names, certificates = zip(*rows, strict=True)
place = np.arange(len(rows))
ax.barh(place, [below] * len(rows), color="0.85", label="lower bound")
ax.barh(place, [c.gap for c in certificates], left=below, color="C1", label="gap")
ax.set_yticks(place, names)
ax.invert_yaxis()
ax.set(xlabel="relative error")
ax.legend(ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
plt.show()
