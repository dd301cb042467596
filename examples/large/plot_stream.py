"""
A stream of samples
===================

Samples arrive in batches that are not kept. ``partial_fit`` learns from each batch in constant
memory, and the model can be used at any time.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import MiniBatchNMF

from conenmf import ConeNMF
from conenmf.cones.simulate import make_cone_data

K = 10
X, _ = make_cone_data(6000, 150, K, alpha=0.2, random_state=0)
test, X = X[:500], X[500:]
batches = np.array_split(X, 30)

# %%
# After every batch we measure the explained share of the squared norm of unseen samples, and
# compare it with a fit of all samples at once.

stream, theirs = ConeNMF(K), MiniBatchNMF(K, batch_size=180, random_state=0)
ours_score, their_score = [], []


def score(A, components):
    return 1 - np.linalg.norm(test - A @ components) ** 2 / np.linalg.norm(test) ** 2


for batch in batches:
    stream.partial_fit(batch)
    theirs.partial_fit(batch)
    ours_score.append(stream.explained_share(test))
    their_score.append(score(theirs.transform(test), theirs.components_))
whole = ConeNMF(K).fit(X).explained_share(test)

seen = np.cumsum([len(batch) for batch in batches])
figure, ax = plt.subplots(layout="constrained")
ax.axhline(1 - whole, color="0.4", linestyle="--", label="all samples at once")
ax.semilogy(seen, 1 - np.array(their_score), color="0.6", label="scikit-learn's MiniBatchNMF")
ax.semilogy(seen, 1 - np.array(ours_score), color="C0", label="ConeNMF.partial_fit")
ax.set(xlabel="samples seen", ylabel="share of squared norm lost", title="Unseen samples")
ax.legend()
plt.show()
print(f"{stream.n_samples_seen_} samples in {stream.n_iter_} batches, score {ours_score[-1]:.4f}")

# %%
# The worst order
# ---------------
#
# Now the samples arrive cone after cone, so the later cones are unknown for a long time. If the
# cones are far enough apart, the stream finds them for every order and every batch size. With
# noise, samples of small norm have random directions. Then there is no guarantee, and the order
# matters: shuffle the samples if you can.


def scores(X, test):
    """The score of all samples at once, and of a stream that is sorted by cones."""
    whole = ConeNMF(K).fit(X)
    stream = ConeNMF(K)
    for batch in np.array_split(X[np.argsort(whole.labels_, kind="stable")], 30):
        stream.partial_fit(batch)
    return whole.explained_share(test), stream.explained_share(test)


noisy, _ = make_cone_data(6000, 150, K, alpha=0.2, noise=0.02, random_state=0)
for name, pair in (("cones", scores(X, test)), ("with noise", scores(noisy[500:], noisy[:500]))):
    print(f"{name:10}  all at once {pair[0]:.4f}, sorted stream {pair[1]:.4f}")
