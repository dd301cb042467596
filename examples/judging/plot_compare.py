"""
Inits and solvers side by side
==============================

Which init, which solver? ``compare`` runs them on your data and reports error, time and, if
you know classes, how well the components match them.
"""

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import load_digits

from conenmf import compare

X, y = load_digits(return_X_y=True)
found = compare(X[:800], 10, inits=["cr1", "random", "nndsvd", "spkm"], labels=y[:800])
pd.DataFrame(found.rows()).round(4)

# %%
# The same comparison as curves: the error against the time in seconds, including the init.

figure, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
found.plot(ax)
plt.show()

# %%
# The final errors differ by a few percent; the times differ more. The lowest error and the best
# agreement with classes need not coincide: a factorization does not know the classes.
