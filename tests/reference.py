"""What a fit minimises and reports, in plain NumPy, as the documentation defines it.

Samples are rows: X (N, F), coefficients A (N, K), components C (K, F). P has the weight of each
entry, 0 where it is hidden, s that of each sample. Nothing of the library is used here.
"""

import numpy as np


class Reference:
    """The problem of one fit: its data, what is known of them, and its penalties."""

    def __init__(self, X, P, s, loss="frobenius", alpha_W=0.0, alpha_H=0.0, l1_ratio=0.0, **more):
        self.X, self.P, self.s, self.Q = np.where(P > 0, X, 0.0).astype(float), P, s, P * s[:, None]
        l1, a, c = l1_ratio, alpha_W * X.shape[1], alpha_H * s.sum()
        pairs, is_simplex = more.get("orthogonality", 0.0), more.get("sum_to_one", False)
        self.on_A, self.on_C = (a * l1, a * (1 - l1), pairs, is_simplex), (c * l1, c * (1 - l1))
        self.unit, self.volume = 2 if loss == "frobenius" else 1, more.get("min_volume", 0.0)
        self.is_spectral = loss == "itakura-saito"
        self.is_unit = not (a * c or is_simplex) and a + c + pairs + self.volume > 0

    def value(self, A, C):
        """Return the loss without penalties."""
        X, R = self.X, A @ C
        if self.unit == 2:
            return float((self.Q * (X - R) ** 2).sum())
        if self.is_spectral:
            return float((self.Q * (X / R - np.log(X / R) - 1)).sum())
        logs = np.log(np.divide(X, R, out=np.ones_like(X), where=(X > 0) & (self.Q > 0)))
        return float((self.Q * (X * logs - X + R)).sum())

    def objective(self, A, C):
        """Return the loss and the penalties."""
        terms = self.s @ _penalties(A, *self.on_A[:3]) + _penalties(C, *self.on_C).sum()
        shift = 0.01 * (1.0 if self.is_unit else (self.s @ self.X**2).sum() / self.s.sum())
        weight = self.volume * (self.s @ self.X**2).sum()
        volume = weight * np.linalg.slogdet(C @ C.T / shift + np.eye(len(C)))[1]
        return float(self.value(A, C) + self.unit * terms + volume)

    def relative_error(self, A, C):
        """Return the root of the share of squares left; of counts, of what one component leaves.

        Of spectra it is the share of what their mean leaves.
        """
        if self.unit == 2:
            return np.sqrt(self.value(A, C) / self.value(0 * A, C))
        if self.is_spectral:
            mean = self.s @ self.X / self.s.sum()
            one = self.value(np.ones((len(A), 1)), mean[None])
            return self.value(A, C) / (one if one > 1e-12 else self.X.size)
        c = np.ones((1, C.shape[1]))
        for _ in range(500):  # the best single component: both sides scaled in turn
            a = (self.Q * self.X).sum(axis=1, keepdims=True) / np.maximum(self.Q @ c.T, 1e-300)
            c = (self.Q * self.X).sum(axis=0, keepdims=True) / np.maximum(a.T @ self.Q, 1e-300)
        one, total = self.value(a, c), float((self.Q * self.X).sum())
        return self.value(A, C) / (one if one > 1e-12 * total else total)

    def excess_A(self, A, C):
        """Return how far the objective is above that of the best coefficients, or a bound."""
        return self.unit * float(self.s @ _excess(self, self.X, self.P, A, C, *self.on_A))

    def excess_C(self, A, C, n):
        """Return the same for the components; the first n are given."""
        R, free, H = (A[:, :n] @ C[:n]).T, C[n:].T, A.T[n:]
        return self.unit * float(_excess(self, self.X.T, self.Q.T, free, H, *self.on_C, R=R).sum())

    def rise(self, history):
        """Return the most by which errors rise from one iteration to the next."""
        return float(np.max(np.diff(np.asarray(history) ** self.unit), initial=0.0))


def _penalties(Y, l1, l2, pairs=0.0):
    return l1 * Y.sum(1) + (pairs * Y.sum(1) ** 2 + (l2 - pairs) * (Y**2).sum(1)) / 2


def _of_sum_one(G, c):
    """Return the best points that sum to one on each face of the simplex; outside, a corner."""
    points, sizes = [], np.einsum("nkk->k", G)
    for face in np.ndindex(*[2] * len(sizes)):
        S = np.flatnonzero(face)
        if S.size == 0:
            continue
        last = S[sizes[S].argmin()]  # one minus the others
        corner, S = np.eye(len(sizes))[last], S[S != last]
        T = np.eye(len(sizes))[S] - corner
        gram = T @ G @ T.T
        d = np.sqrt(np.maximum(np.einsum("nii->ni", gram), 1e-300))
        unit = np.linalg.pinv(gram / (d[:, :, None] * d[:, None, :]), hermitian=True)
        u = (unit @ ((c - G @ corner) @ T.T / d)[:, :, None])[:, :, 0] / d
        Z = corner + u @ T
        points.append(np.where((Z >= 0).all(axis=1, keepdims=True), Z, corner))
    return points


def _excess(of, X, P, Y, C, l1, l2, pairs=0.0, is_simplex=False, R=0.0):
    G = np.einsum("nf,kf,jf->nkj", P, C, C) + l2 * np.eye(len(C)) + pairs * (1 - np.eye(len(C)))
    c, mass = (P * (X - R)) @ C.T - l1, np.maximum(P @ C.T + l1, 1e-300)
    g, most = (G @ Y[:, :, None])[:, :, 0] - c, np.maximum(c, 0) / np.einsum("nkk->nk", G + 1e-300)
    if of.unit == 1:
        ratio = np.divide(X, Y @ C + R, out=np.zeros_like(X), where=Y @ C + R > 0)
        g, most = mass - (P * ratio) @ C.T + l2 * Y, (P * X).sum(axis=1)[:, None] / mass
    if is_simplex and of.unit == 1:  # f(y) - f(z) <= g'(y - z), which is largest at a corner z
        return (Y * g).sum(axis=1) - g.min(axis=1)
    if of.unit == 1 or pairs:  # the same with 0 <= z <= most
        return np.abs(Y * g).sum(axis=1) + (np.maximum(-g, 0) * most).sum(axis=1)
    least, half = 0.0, lambda Y: np.einsum("nk,nkj,nj->n", Y, G, Y) / 2 - (c * Y).sum(axis=1)
    if is_simplex:
        return half(Y) - np.min([half(Z) for Z in _of_sum_one(G, c)], axis=0)
    for face in np.ndindex(*[2] * len(C)):  # some face has the minimum inside
        S, Z = np.flatnonzero(face), np.zeros_like(c)
        Z[:, S] = (np.linalg.pinv(G[:, S][:, :, S]) @ c[:, S, None])[:, :, 0]
        least = np.minimum(least, np.where((Z >= 0).all(axis=1), half(Z), 0.0))
    return half(Y) - least
