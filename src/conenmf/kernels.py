"""Compiled twins of the innermost loops; the only place that imports numba.

Each kernel works on raw arrays, row by row, without the interpreter lock, and has a NumPy twin
in the module that calls it. The NumPy twin is the explanation and the fallback; the kernel is
here because a benchmark showed it at least twice as fast. Without numba, `AVAILABLE` is False.

Importing numba takes longer than importing the rest of this library. It is imported only when
`AVAILABLE` is read for the first time, or a kernel is called. What it compiles is kept on disk, so
that only the first fit on a machine waits for it; `compiling` knows how long both took, so that a
fit need not count it, and says so on a terminal.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np

__all__ = [
    "AVAILABLE",
    "HALS_BATCH_BYTES",
    "HALS_BATCH_ROWS",
    "HALS_LANES",
    "SMALLEST_SQUARE",
    "compiling",
    "cone_products_columns",
    "cone_products_rows",
    "cone_products_sparse",
    "entry_products",
    "extrapolate_rows",
    "hals_own_rows",
    "hals_packed_rows",
    "hals_rows",
    "mask_row_sums",
    "mask_sums",
    "multiplied_rows",
    "newton_from_sums",
    "nnls_memory",
    "nnls_one_by_one",
    "nnls_own_rows",
    "nnls_rows",
    "poisson_rows",
    "sparse_products",
    "sparse_sums",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])

HALS_BATCH_ROWS = 128  # rows that `hals_rows` updates at a time
HALS_BATCH_BYTES = 1 << 16  # half as many, if they would take more than this
CACHED_ENTRIES = 3072  # of float64, that stay in the nearest cache beside other things
HALS_LANES = 32  # of which it updates a multiple when fewer are left
PACKED_LANES = 16  # rows that `hals_packed_rows` updates side by side
SMALLEST_SQUARE = 1e-290  # a smaller one has lost digits: its component counts as zero

AVAILABLE: bool  # decided when it is first read, and a plain attribute from then on

_plain: dict[str, Callable[..., Any]] = {}  # the kernels before they are compiled
_in_order: set[str] = set()  # kernels whose operations keep the order of their source
_replacing = threading.Lock()


class Compiling:
    """How long numba was imported and kernels of this module compiled, in this process.

    Attributes
    ----------
    seconds : float
    is_announced : bool
        Whether the first time is announced on standard error, if that is a terminal.
    in_words : str
        What a display says meanwhile.
    """

    in_words = "compiling (first time only)"

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_announced = True
        self._began: list[float] = []  # of a kernel, and of those it calls: numba compiles one

    @property
    def is_running(self) -> bool:
        """Whether a kernel is being compiled now."""
        return bool(self._began)

    def begin(self) -> None:
        """Count from now on; announce it, if it is the first time."""
        if not self._began and self.is_announced and sys.stderr.isatty():
            self.is_announced = False
            print(f"conenmf: {self.in_words}", file=sys.stderr)
        self._began.append(time.perf_counter())

    def end(self) -> None:
        """Add what was counted, unless a kernel is still compiled that calls this one."""
        began = self._began.pop()
        if not self._began:
            self.seconds += time.perf_counter() - began


def _listen(events: Any) -> None:
    """Register for what numba compiles; a kernel that is loaded from its cache does not count."""

    class Listener(events.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            if _is_ours(event):
                compiling.begin()

        def on_end(self, event: Any) -> None:
            if _is_ours(event):
                compiling.end()

    events.register("numba:compile", Listener())


def _is_ours(event: Any) -> bool:
    return bool(event.data["dispatcher"].py_func.__module__ == __name__)


compiling = Compiling()


def __getattr__(name: str) -> bool:
    if name != "AVAILABLE":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _load()
    return bool(globals()[name])


def _compiled(function: _Function) -> _Function:
    """Compile at the first call; sums may be reassociated, NaN and infinity keep their meaning."""
    _plain[function.__name__] = function

    @functools.wraps(function)
    def first_call(*arguments: Any) -> Any:
        _load()
        return globals()[function.__name__](*arguments)

    return first_call  # type: ignore[return-value]


def _compiled_in_order(function: _Function) -> _Function:
    """Compile at the first call, with every operation in the order of the source.

    The compiler keeps a second form of a loop that stores, for arrays that lie close together.
    If sums may be reassociated, both forms round differently, and where memory was allocated
    decides between them. So a loop that both sums and stores is in one of these kernels; loops that
    only sum are in functions that they call.
    """
    _in_order.add(function.__name__)
    return _compiled(function)


def _load() -> None:
    """Replace all kernels by their compiled form, on a thread that Ctrl-C does not reach.

    Interrupted in the main thread, numba would be imported by half, and not a second time.
    """
    if _plain:
        began = time.perf_counter()
        failure: SimpleQueue[BaseException | None] = SimpleQueue()
        threading.Thread(target=_replace_kernels, args=(failure.put,), daemon=True).start()
        problem = failure.get()
        compiling.seconds += time.perf_counter() - began
        if problem is not None:
            raise problem


def _replace_kernels(answer: Callable[[BaseException | None], None]) -> None:
    """Replace all kernels at once: some call others."""
    try:
        with _replacing:
            if _plain:
                kernels, available = dict(_plain), False
                if os.environ.get("CONENMF_NUMBA", "1") != "0":
                    try:
                        import numba
                    except ImportError:  # not installed, or too old for this NumPy
                        pass
                    else:
                        available = True
                        _listen(numba.core.event)
                        kernels = {name: _jit(numba, plain) for name, plain in _plain.items()}
                globals().update(kernels)
                globals().setdefault("AVAILABLE", available)
                _plain.clear()
    except BaseException as problem:
        answer(problem)
    else:
        answer(None)


def _jit(numba: Any, function: Callable[..., Any]) -> Any:
    options = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": function.__name__ not in _in_order and {"reassoc", "contract", "nsz"},
    }
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # nowhere to write the cache: a read-only installation
        return numba.njit(function, **options)


@_compiled
def cone_products_rows(rows: Any, order: Any, cones: Any, Q: Any, h: Any, S: Any) -> None:
    """h[n] = <rows[n], Q[cone]> and S[cone] += h[n] rows[n]; Q and S have one row per cone.

    Samples are taken in the given order. Here and below `cones` is unsigned, so that no index
    counts from the end; h is zero at first; an S without cones is not computed.
    """
    for n in order:
        k = cones[n]
        row, direction = rows[n], Q[k]
        product = 0.0
        for f in range(row.shape[0]):
            product += row[f] * direction[f]
        h[n] = product
        if S.shape[0] > 0:
            total = S[k]
            for f in range(row.shape[0]):
                total[f] += product * row[f]


@_compiled
def cone_products_columns(columns: Any, cones: Any, Q: Any, h: Any, S: Any) -> None:
    """The same for samples in columns; Q and S have one column per cone."""
    for f in range(columns.shape[0]):
        for n in range(columns.shape[1]):
            h[n] += columns[f, n] * Q[f, cones[n]]
    if S.shape[1] > 0:
        for f in range(columns.shape[0]):
            for n in range(columns.shape[1]):
                S[f, cones[n]] += h[n] * columns[f, n]


@_compiled
def cone_products_sparse(
    data: Any, indices: Any, indptr: Any, cones: Any, Q: Any, h: Any, S: Any
) -> None:
    """The same for compressed sparse rows; Q and S have one row per cone."""
    for n in range(cones.shape[0]):
        k = cones[n]
        product = 0.0
        for position in range(indptr[n], indptr[n + 1]):
            product += data[position] * Q[k, indices[position]]
        h[n] = product
        if S.shape[0] > 0:
            for position in range(indptr[n], indptr[n + 1]):
                S[k, indices[position]] += product * data[position]


def nnls_memory(K: int) -> tuple[Any, ...]:
    """What `nnls_rows` works in. Made here, since numba takes long to compile ``np.zeros``."""
    return np.zeros((4, K), np.intp), np.zeros((K, K)), np.zeros(K)


@_compiled
def _sweep_lanes(
    G: Any, inverse: Any, c: Any, y: Any, floor: Any, lanes: int, gradient: Any, distance: Any
) -> None:
    """One sweep over rows that stand side by side in y (K, lanes), and how far each moved."""
    K = G.shape[0]
    fours = K - K % 4
    for t in range(lanes):
        distance[t] = 0.0
    for k in range(K):
        if inverse[k] == 0.0:
            continue
        for t in range(lanes):
            gradient[t] = -c[k, t]
        for j in range(0, fours, 4):  # four at a time save most loads of the gradient
            g0, g1, g2, g3 = G[k, j], G[k, j + 1], G[k, j + 2], G[k, j + 3]
            y0, y1, y2, y3 = y[j], y[j + 1], y[j + 2], y[j + 3]
            for t in range(lanes):
                gradient[t] += g0 * y0[t] + g1 * y1[t] + g2 * y2[t] + g3 * y3[t]
        for j in range(fours, K):
            g0, y0 = G[k, j], y[j]
            for t in range(lanes):
                gradient[t] += g0 * y0[t]
        entries, scale, weight = y[k], inverse[k], G[k, k]
        for t in range(lanes):
            new = max(entries[t] - gradient[t] * scale, floor)
            step = new - entries[t]
            entries[t] = new
            distance[t] += weight * step * step


@_compiled
def hals_rows(G: Any, C: Any, Y: Any, floor: Any, sweeps: int, stall_ratio_sq: float) -> None:
    """Sweeps of coordinate descent over each row of Y, in place (see `solvers.hals`).

    Several rows are updated side by side, transposed so that the innermost loop runs over rows
    and everything stays in the cache from sweep to sweep. A row is done when it moves by no more
    than `stall_ratio_sq` of its first move, both squared and weighted by the diagonal of G; the
    next row then takes its place. Each row is updated independently of the others.
    """
    K = G.shape[0]
    batch = HALS_BATCH_ROWS
    if 2 * K * batch * Y.itemsize > HALS_BATCH_BYTES:
        batch //= 2
    # Made here: memory that is given could be anywhere, and loops over it were a third slower.
    y = np.zeros((K, batch), Y.dtype)
    c = np.zeros((K, batch), Y.dtype)
    gradient = np.zeros(batch, Y.dtype)
    moved = np.zeros(batch, Y.dtype)
    first = np.zeros(batch, Y.dtype)  # what a row moved in its first sweep
    row = np.zeros(batch, np.intp)
    counts = np.zeros(batch, np.intp)  # sweeps over a row so far
    inverse = np.zeros(K, Y.dtype)
    for k in range(K):
        if G[k, k] > SMALLEST_SQUARE:
            inverse[k] = 1.0 / G[k, k]
    width = 0
    next_row = 0
    while True:
        while width < batch and next_row < Y.shape[0]:
            for k in range(K):
                y[k, width] = Y[next_row, k]
                c[k, width] = C[next_row, k]
            row[width] = next_row
            counts[width] = 0
            width += 1
            next_row += 1
        if width == 0:
            return
        lanes = min(batch, width + (-width) % HALS_LANES)  # whole vectors
        _sweep_lanes(G, inverse, c, y, floor, lanes, gradient, moved)
        t = 0
        while t < width:
            if counts[t] == 0:
                first[t] = moved[t]
            counts[t] += 1
            if counts[t] < sweeps and moved[t] > stall_ratio_sq * first[t]:
                t += 1
                continue
            width -= 1  # this row is done, and the last one takes its place
            for k in range(K):
                Y[row[t], k] = y[k, t]
                y[k, t] = y[k, width]
                c[k, t] = c[k, width]
            row[t], counts[t] = row[width], counts[width]
            first[t], moved[t] = first[width], moved[width]


@_compiled
def hals_own_rows(G: Any, C: Any, Y: Any, floor: Any, sweeps: int, stall_ratio_sq: float) -> None:
    """The same with a Gram matrix for each row, G (n, K, K)."""
    for n in range(Y.shape[0]):
        gram, c, y = G[n], C[n], Y[n]
        first = 0.0
        for number in range(sweeps):
            moved = 0.0
            for k in range(y.shape[0]):
                weight = gram[k, k]
                if weight > SMALLEST_SQUARE:
                    gradient = -c[k]
                    for j in range(y.shape[0]):
                        gradient += gram[k, j] * y[j]
                    new = max(y[k] - gradient / weight, floor)
                    moved += weight * (new - y[k]) ** 2
                    y[k] = new
            if number == 0:
                first = moved
            if moved <= stall_ratio_sq * first:
                break


@_compiled
def hals_packed_rows(
    G: Any, C: Any, Y: Any, floor: float, sweeps: int, stall_ratio_sq: float
) -> None:
    """The same with the upper half of a Gram matrix for each row, G (n, K (K + 1) / 2).

    As in `hals_rows`, several rows are updated side by side, and the next one takes the place of
    one that is done. All in float64.
    """
    N, K = Y.shape
    lanes, size = PACKED_LANES, G.shape[1]
    g, inverse = np.zeros((size, lanes)), np.zeros((K, lanes))
    y, c = np.zeros((K, lanes)), np.zeros((K, lanes))
    gradient, moved, first = np.zeros(lanes), np.zeros(lanes), np.zeros(lanes)
    row, counts = np.full(lanes, -1), np.full(lanes, sweeps)
    next_row, left = 0, N
    while left > 0:
        for t in range(lanes):
            if row[t] >= 0 and counts[t] < sweeps and moved[t] > stall_ratio_sq * first[t]:
                continue
            if row[t] >= 0:
                for k in range(K):
                    Y[row[t], k] = y[k, t]
                row[t] = -1
                left -= 1
            if next_row < N:
                row[t], counts[t] = next_row, 0
                for p in range(size):
                    g[p, t] = G[next_row, p]
                diagonal = 0
                for k in range(K):
                    y[k, t], c[k, t] = Y[next_row, k], C[next_row, k]
                    square = g[diagonal, t]
                    inverse[k, t] = 1.0 / square if square > SMALLEST_SQUARE else 0.0
                    diagonal += K - k
                next_row += 1
        if left > 0:
            _sweep_packed(g, inverse, c, y, floor, gradient, moved)
        for t in range(lanes):
            if counts[t] == 0:
                first[t] = moved[t]
            counts[t] += 1


@_compiled
def _sweep_packed(
    g: Any, inverse: Any, c: Any, y: Any, floor: float, gradient: Any, moved: Any
) -> None:
    """One sweep over rows side by side, each with the upper half of its Gram matrix."""
    K, lanes = y.shape
    for t in range(lanes):
        moved[t] = 0.0
    diagonal = 0
    for k in range(K):
        own, ck = y[k], c[k]
        for t in range(lanes):
            gradient[t] = -ck[t]
        place = k
        for j in range(k):
            gj, yj = g[place], y[j]
            for t in range(lanes):
                gradient[t] += gj[t] * yj[t]
            place += K - j - 1
        for j in range(k, K):
            gj, yj = g[diagonal + j - k], y[j]
            for t in range(lanes):
                gradient[t] += gj[t] * yj[t]
        square, weight = g[diagonal], inverse[k]
        for t in range(lanes):
            new = max(own[t] - gradient[t] * weight[t], floor)
            step = new - own[t] if weight[t] > 0.0 else 0.0
            own[t] += step
            moved[t] += square[t] * step * step
        diagonal += K - k


@_compiled
def mask_row_sums(codes: Any, X: Any, S: Any) -> None:
    """S[n] = sum of X[f] over the features that a mask has of row n.

    `codes` (n, F / 8) has eight features in a byte, the first one lowest. For each group of eight
    features the sums of all its subsets are made first: then a row takes one of them for each
    group, instead of a product for each feature. Two groups at a time, so that rows are loaded half
    as often.
    """
    F, size = X.shape
    tables = np.zeros((2, 256, size))
    S[:] = 0.0
    for first in range(0, codes.shape[1], 2):
        for side in range(2):
            for bit in range(8):
                f = 8 * (first + side) + bit
                for code in range(1 << bit):
                    source, target = tables[side, code], tables[side, code + (1 << bit)]
                    if f < F:
                        x = X[f]
                        for p in range(size):
                            target[p] = source[p] + x[p]
        is_last = first + 1 == codes.shape[1]
        for n in range(S.shape[0]):
            a = tables[0, codes[n, first]]
            b = tables[1, 0 if is_last else codes[n, first + 1]]
            row = S[n]
            for p in range(size):
                row[p] += a[p] + b[p]


@_compiled
def mask_sums(codes: Any, X: Any, S: Any) -> None:
    """S[f] = sum of X[n] over the rows n in which a mask has feature f; see `mask_row_sums`.

    Rows with the same features of a group are added up first.
    """
    F, size = S.shape
    tables = np.empty((2, 256, size))
    S[:] = 0.0
    for first in range(0, codes.shape[1], 2):
        tables[:] = 0.0
        is_last = first + 1 == codes.shape[1]
        for n in range(X.shape[0]):
            a = tables[0, codes[n, first]]
            b = tables[1, 0 if is_last else codes[n, first + 1]]
            x = X[n]
            for p in range(size):
                a[p] += x[p]
                b[p] += x[p]
        for side in range(2):
            for bit in range(7, -1, -1):
                f = 8 * (first + side) + bit
                for code in range(1 << bit):
                    source, target = tables[side, code + (1 << bit)], tables[side, code]
                    if f < F:
                        row = S[f]
                        for p in range(size):
                            row[p] += source[p]
                    for p in range(size):
                        target[p] += source[p]


@_compiled
def sparse_products(data: Any, indices: Any, indptr: Any, W: Any, C: Any) -> None:
    """C[n] = sum of v W[f] over the entries v of every row n of compressed sparse rows.

    Four entries at a time: the row of C is loaded and stored a quarter as often.
    """
    for n in range(C.shape[0]):
        row = C[n]
        for k in range(row.shape[0]):
            row[k] = 0.0
        position, stop = indptr[n], indptr[n + 1]
        while position + 3 < stop:
            v0, v1 = data[position], data[position + 1]
            v2, v3 = data[position + 2], data[position + 3]
            w0, w1 = W[indices[position]], W[indices[position + 1]]
            w2, w3 = W[indices[position + 2]], W[indices[position + 3]]
            for k in range(row.shape[0]):
                row[k] += v0 * w0[k] + v1 * w1[k] + v2 * w2[k] + v3 * w3[k]
            position += 4
        while position < stop:
            v0, w0 = data[position], W[indices[position]]
            for k in range(row.shape[0]):
                row[k] += v0 * w0[k]
            position += 1


@_compiled
def entry_products(features: Any, samples: Any, left: Any, right: Any, products: Any) -> None:
    """products[e] = <left[features[e]], right[samples[e]]>, without gathered copies."""
    for e in range(products.shape[0]):
        a, b = left[features[e]], right[samples[e]]
        total = 0.0
        for k in range(a.shape[0]):
            total += a[k] * b[k]
        products[e] = total


@_compiled
def extrapolate_rows(Y: Any, before: Any, share: Any, floor: Any, out: Any) -> None:
    """Write max(Y + share (Y - before), floor), in one go and without temporary arrays."""
    for n in range(Y.shape[0]):
        y, old, new = Y[n], before[n], out[n]
        for k in range(y.shape[0]):
            new[k] = max(y[k] + share * (y[k] - old[k]), floor)


@_compiled
def sparse_sums(data: Any, indices: Any, indptr: Any, H: Any, S: Any) -> None:
    """S[f] += v H[n] for the entries v of every row n of compressed sparse rows."""
    for n in range(H.shape[0]):
        row = H[n]
        for position in range(indptr[n], indptr[n + 1]):
            value, total = data[position], S[indices[position]]
            for k in range(row.shape[0]):
                total[k] += value * row[k]


@_compiled
def _dot(a: Any, b: Any) -> float:
    """The product a'b."""
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@_compiled
def _bend(A: Any, z: Any) -> float:
    """The product z'Az of the first rows and columns of A."""
    total = 0.0
    for k in range(z.shape[0]):
        row, product = A[k], 0.0
        for j in range(z.shape[0]):
            product += row[j] * z[j]
        total += z[k] * product
    return total


@_compiled
def _total(v: Any, begin: int, end: int) -> float:
    """Sum of v from one place to another."""
    total = 0.0
    for i in range(begin, end):
        total += v[i]
    return total


@_compiled_in_order
def multiplied_rows(data: Any, indices: Any, indptr: Any, W: Any, S: Any, Y: Any) -> None:
    """y_k <- y_k sum_f (v_f / x_f) W[f, k] / s_k for each row of Y, in place.

    Rates are products of y with rows of W, at the entries of compressed sparse rows. `S` holds the
    s of each row, or one for all.
    """
    K = W.shape[1]
    c = np.empty(K)
    for n in range(Y.shape[0]):
        y, s = Y[n], S[n if S.shape[0] > 1 else 0]
        for k in range(K):
            c[k] = 0.0
        for position in range(indptr[n], indptr[n + 1]):
            row = W[indices[position]]
            ratio = data[position] / _dot(row, y)
            for k in range(K):
                c[k] += ratio * row[k]
        for k in range(K):
            y[k] = y[k] * (c[k] / s[k]) if s[k] > 0.0 else 0.0


@_compiled
def _factor(G: Any, members: Any, size: Any, L: Any) -> None:
    """Cholesky factor L of G[members, members]."""
    for i in range(size):
        for j in range(i + 1):
            value = G[members[i], members[j]]
            for m in range(j):
                value -= L[i, m] * L[j, m]
            if i == j:
                L[i, i] = np.sqrt(max(value, 1e-300))
            else:
                L[i, j] = value / L[j, j]


@_compiled
def _substitute(L: Any, members: Any, size: Any, c: Any, x: Any) -> None:
    """Solve L L' x = c[members]."""
    for i in range(size):
        value = c[members[i]]
        for m in range(i):
            value -= L[i, m] * x[m]
        x[i] = value / L[i, i]
    for i in range(size - 1, -1, -1):
        value = x[i]
        for m in range(i + 1, size):
            value -= L[m, i] * x[m]
        x[i] = value / L[i, i]


@_compiled
def nnls_rows(
    G: Any, C: Any, Y: Any, tolerance: float, max_pivots: int, places: Any, L: Any, x: Any
) -> int:
    """Block principal pivoting for each row of C, in place in Y (see `nnls.nnls`).

    The passive set of a row is at first that of the positive entries of Y. Returns how many rows
    did not finish within `max_pivots`; their rows of Y are set to NaN. `places`, L and x are
    those of `nnls_memory`.
    """
    K = G.shape[0]
    passive, factored, members, wrong = places[0], places[1], places[2], places[3]
    any_factored = False
    unfinished = 0
    for n in range(C.shape[0]):
        scale = 0.0
        for k in range(K):
            scale = max(scale, abs(C[n, k]))
            passive[k] = 1 if Y[n, k] > 0.0 else 0
        fewest = K + 1
        retries = 3
        finished = False
        size = np.intp(0)  # a plain 0 would be compiled twice
        for _ in range(max_pivots):
            same = any_factored
            size = np.intp(0)
            for k in range(K):
                if passive[k] != factored[k]:
                    same = False
                    factored[k] = passive[k]
                if passive[k]:
                    members[size] = k
                    size += 1
            if not same:
                _factor(G, members, size, L)
                any_factored = True
            _substitute(L, members, size, C[n], x)
            n_wrong = 0
            position = 0
            for k in range(K):
                if passive[k]:
                    if x[position] < 0.0:
                        wrong[n_wrong] = k
                        n_wrong += 1
                    position += 1
                else:
                    gradient = -C[n, k]
                    for i in range(size):
                        gradient += G[k, members[i]] * x[i]
                    if gradient < -tolerance * scale:
                        wrong[n_wrong] = k
                        n_wrong += 1
            if n_wrong == 0:
                finished = True
                break
            if n_wrong < fewest:
                fewest = n_wrong
                retries = 3
            elif retries > 0:
                retries -= 1
            else:  # the backup rule: only the last wrong index changes side
                wrong[0] = wrong[n_wrong - 1]
                n_wrong = 1
            for i in range(n_wrong):
                passive[wrong[i]] = 1 - passive[wrong[i]]
        for k in range(K):
            Y[n, k] = 0.0 if finished else np.nan
        if finished:
            for i in range(size):
                Y[n, members[i]] = x[i]
        else:
            unfinished += 1
    return unfinished


@_compiled
def nnls_own_rows(
    G: Any, C: Any, Y: Any, tolerance: float, max_pivots: int, places: Any, L: Any, x: Any
) -> None:
    """The same with a Gram matrix for each row, G (n, K, K); NaN where it did not finish."""
    for n in range(C.shape[0]):
        nnls_rows(G[n], C[n : n + 1], Y[n : n + 1], tolerance, max_pivots, places, L, x)


@_compiled
def nnls_one_by_one(G: Any, C: Any, Y: Any, tolerance: float, max_steps: int) -> None:
    """Lawson and Hanson's method for each row of C, into Y (see `nnls.lawson_hanson`)."""
    K = G.shape[0]
    members = np.zeros(K, dtype=np.intp)
    passive = np.zeros(K, dtype=np.bool_)
    refused = np.zeros(K, dtype=np.bool_)
    L = np.zeros((K, K))
    x = np.zeros(K)
    for n in range(C.shape[0]):
        y = Y[n]
        scale = 0.0
        for k in range(K):
            y[k] = 0.0
            passive[k] = False
            refused[k] = False
            scale = max(scale, abs(C[n, k]))
        for _ in range(max_steps):
            enter = -1
            steepest = -tolerance * scale
            for k in range(K):
                if not passive[k] and not refused[k]:
                    gradient = -C[n, k]
                    for j in range(K):
                        gradient += G[k, j] * y[j]
                    if gradient < steepest:
                        steepest = gradient
                        enter = k
            if enter < 0:
                break
            passive[enter] = True
            first = True
            while True:
                size = 0
                for k in range(K):
                    if passive[k]:
                        members[size] = k
                        size += 1
                _factor(G, members, size, L)
                _substitute(L, members, size, C[n], x)
                share = 1.0
                blocking = -1
                for i in range(size):
                    k = members[i]
                    if first and k == enter and not x[i] > 0.0:
                        refused[k] = True
                    if x[i] <= 0.0:
                        reached = y[k] / (y[k] - x[i]) if y[k] > 0.0 else 0.0
                        if blocking < 0 or reached < share:
                            share = reached
                            blocking = k
                if first and refused[enter]:
                    passive[enter] = False
                    break
                if first:
                    first = False
                    for k in range(K):
                        refused[k] = False
                if blocking < 0:
                    for i in range(size):
                        y[members[i]] = x[i]
                    break
                largest = 0.0
                for i in range(size):
                    k = members[i]
                    y[k] += share * (x[i] - y[k])
                    largest = max(largest, y[k])
                y[blocking] = 0.0
                passive[blocking] = False
                for i in range(size):
                    k = members[i]
                    if y[k] <= 1e-15 * largest:
                        passive[k] = False
                        y[k] = 0.0


@_compiled
def _gathered(features: Any, W: Any, B: Any) -> None:
    """Write rows of W into the columns of B; loops over parts of arrays would be slow."""
    i, m = 0, features.shape[0]
    while i + 3 < m:
        w0, w1 = W[features[i]], W[features[i + 1]]
        w2, w3 = W[features[i + 2]], W[features[i + 3]]
        for k in range(W.shape[1]):
            own = B[k]
            own[i], own[i + 1], own[i + 2], own[i + 3] = w0[k], w1[k], w2[k], w3[k]
        i += 4
    while i < m:
        w0 = W[features[i]]
        for k in range(W.shape[1]):
            B[k, i] = w0[k]
        i += 1


@_compiled_in_order
def _combined(B: Any, y: Any, x: Any) -> None:
    """X = B'y, four rows at a time; the rows of B beyond those of y are left out."""
    K, k, m = y.shape[0], 0, x.shape[0]
    if K % 4 == 0:
        for i in range(m):
            x[i] = 0.0
    elif K % 4 == 1:
        b0, y0 = B[0], y[0]
        for i in range(m):
            x[i] = y0 * b0[i]
        k = 1
    elif K % 4 == 2:
        b0, b1, y0, y1 = B[0], B[1], y[0], y[1]
        for i in range(m):
            x[i] = y0 * b0[i] + y1 * b1[i]
        k = 2
    else:
        b0, b1, b2, y0, y1, y2 = B[0], B[1], B[2], y[0], y[1], y[2]
        for i in range(m):
            x[i] = y0 * b0[i] + y1 * b1[i] + y2 * b2[i]
        k = 3
    while k < K:
        b0, b1, b2, b3 = B[k], B[k + 1], B[k + 2], B[k + 3]
        y0, y1, y2, y3 = y[k], y[k + 1], y[k + 2], y[k + 3]
        for i in range(m):
            x[i] += y0 * b0[i] + y1 * b1[i] + y2 * b2[i] + y3 * b3[i]
        k += 4


@_compiled
def _add_gram(B: Any, m: int, A: Any) -> None:
    """Add the lower triangle of B B' of m columns to A.

    Two rows with two others at a time: entries are loaded half as often.
    """
    K = A.shape[0]
    for k in range(0, K - 1, 2):
        p, q = B[k], B[k + 1]
        for j in range(0, k + 1, 2):
            r, s = B[j], B[j + 1]
            pr = ps = qr = qs = 0.0
            for i in range(m):
                pr += p[i] * r[i]
                ps += p[i] * s[i]
                qr += q[i] * r[i]
                qs += q[i] * s[i]
            A[k, j] += pr
            A[k, j + 1] += ps
            A[k + 1, j] += qr
            A[k + 1, j + 1] += qs
    if K % 2:
        p = B[K - 1]
        for j in range(K):
            r = B[j]
            pr = 0.0
            for i in range(m):
                pr += p[i] * r[i]
            A[K - 1, j] += pr


@_compiled_in_order
def _quadratic_minimum(
    A: Any, g: Any, y: Any, z: Any, gradient: Any, sweeps: int, stall: float, n_fixed: int
) -> None:
    """Coordinate descent from y for g'(z - y) + (z - y)'A(z - y) / 2 over z >= 0.

    The first `n_fixed` entries stay.
    """
    K = y.shape[0]
    for k in range(K):
        z[k] = y[k]
        gradient[k] = g[k]
    first = 0.0
    for number in range(sweeps):
        moved = 0.0
        for k in range(n_fixed, K):
            weight = A[k, k]
            if weight > SMALLEST_SQUARE:
                new = max(z[k] - gradient[k] / weight, 0.0)
            elif gradient[k] > 0.0:
                new = 0.0
            else:
                new = z[k]
            step = new - z[k]
            if step != 0.0:
                z[k] = new
                moved += weight * step * step
                row = A[k]
                for j in range(K):
                    gradient[j] += step * row[j]
        if number == 0:
            first = moved
        if moved <= stall * first:
            break


@_compiled
def _slope(v: Any, u: Any, m: int, length: float) -> float:
    """Sum of v u / (1 + t u)."""
    total = 0.0
    for i in range(m):
        total += v[i] * u[i] / (1.0 + length * u[i])
    return total


@_compiled_in_order
def newton_from_sums(
    R: Any,
    A: Any,
    S: Any,
    totals: Any,
    W: Any,
    sweeps: int,
    stall: float,
    l2: float,
    n_fixed: int,
) -> None:
    """Step of Newton's method for each row of W, in place, from its sums (`poisson_regression`).

    The curvature A has `l2` on its diagonal; `S`, `l2` and `n_fixed` are as in `poisson_rows`.
    """
    K = W.shape[1]
    g, z, gradient = np.empty(K), np.empty(K), np.empty(K)
    for f in range(W.shape[0]):
        w, s = W[f], S[f if S.shape[0] > 1 else 0]
        for k in range(K):
            g[k] = s[k] + l2 * w[k] - R[f, k]
        _quadratic_minimum(A[f], g, w, z, gradient, sweeps, stall, n_fixed)
        fall, deepest = 0.0, 0.0
        for k in range(K):
            z[k] -= w[k]
            fall -= g[k] * z[k]
            if z[k] < 0.0:
                deepest = max(deepest, -z[k] / w[k])
        if fall > 0.0:
            length = min(fall / (_bend(A[f], z) + fall * deepest), 1.0)
            for k in range(K):
                w[k] = max(w[k] + length * z[k], 0.0)
        _scale_to(totals[f], s, w, l2, n_fixed)


@_compiled
def _step_length(
    v: Any, u: Any, m: int, lowest: float, mass: float, stiff: float, fall: float, bend: float
) -> float:
    """How far to go along a direction in which the rates change by the shares u, at most 1.

    Along it the objective is convex, with the slope ``mass + stiff t - sum v u / (1 + t u)``. All
    of the way is right if it still falls there. ``fall / (bend - fall lowest)`` lowers it surely;
    from there to the end a secant leads further.
    """
    end = np.inf
    if lowest > -0.5 and (min(lowest, 0.0) ** 2 + 1.0) * bend <= 1.5 * fall:
        return 1.0  # -log(1 + u) <= -u + 0.62 (1 + u^2) u^2 there: 7 % of `fall` are certain
    if lowest > -0.999:
        end = mass + stiff - _slope(v, u, m, 1.0)
        if end <= 0.0:
            return 1.0
    safe = min(fall / (bend - fall * min(lowest, 0.0)), 1.0)
    further = 0.5 * (1.0 + safe)
    if end < np.inf:
        there = mass + stiff * safe - _slope(v, u, m, safe)
        if there < 0.0:
            further = safe - there * (1.0 - safe) / (end - there)
    is_inside = 1.0 + further * lowest > 0.001
    if is_inside and mass + stiff * further - _slope(v, u, m, further) <= 0.0:
        return further
    return safe


@_compiled_in_order
def poisson_rows(
    data: Any,
    indices: Any,
    indptr: Any,
    W: Any,
    S: Any,
    Y: Any,
    steps: int,
    sweeps: int,
    stall: float,
    gap: float,
    divergences: Any,
    gaps: Any,
    l2: float,
    n_fixed: int,
) -> None:
    """Newton's method for each row of Y, in place.

    It minimises s'y + l2 ||y||^2 / 2 - sum v log(w_f'y) over y >= 0, of which the first `n_fixed`
    entries stay. Rows are samples in compressed sparse rows; `S` holds the s of each, or one for
    all: the sums of the columns of W. A row is done after so many steps, or when its duality gap is
    at most `gap` times its total. The sum of v log(v / x) for each, and its gap as a share of its
    total, are written unless the arrays for them are empty. See `solve.poisson_regression`.
    """
    K, longest = W.shape[1], 1
    for n in range(Y.shape[0]):
        longest = max(longest, indptr[n + 1] - indptr[n])
    chunk = max(CACHED_ENTRIES // (K + 1), 16)
    # Columns of B are w_f sqrt(v) / x, with sqrt(v) below: B B' holds the curvature and V'W / x.
    # It is divided into parts that stay in the cache; loops over parts of rows would be slow.
    B, A = np.empty((-(-longest // chunk), K + 1, chunk)), np.empty((K + 1, K + 1))
    v, x, u, root = np.empty(longest), np.empty(longest), np.empty(longest), np.empty(longest)
    g, z, gradient, y = np.empty(K), np.empty(K), np.empty(K), np.empty(K)
    whole = np.empty(longest, np.int64)
    for n in range(Y.shape[0]):
        begin, s = indptr[n], S[n if S.shape[0] > 1 else 0]
        m = indptr[n + 1] - begin
        total, lowest = _total(data, begin, begin + m), 0.0
        for i in range(m):
            v[i] = data[begin + i]
            root[i] = np.sqrt(v[i])
        for k in range(K):
            y[k] = Y[n, k] if s[k] > 0.0 or k < n_fixed else 0.0
            if total == 0.0 and k >= n_fixed:
                y[k] = 0.0
        for _ in range(2):  # from the given row, or if that has no rate for some entry, from equal
            _scale_to(total, s, y, l2, n_fixed)
            A[:] = 0.0
            lowest = np.inf
            for p in range(-(-m // chunk)):
                low, high = p * chunk, min(p * chunk + chunk, m)
                rates, part = x[low:high], B[p]
                _gathered(indices[begin + low : begin + high], W, part)
                _combined(part, y, rates)
                for i in range(high - low):
                    lowest = min(lowest, rates[i])
                if lowest > 0.0:
                    _weigh(part, root[low:high], rates)
                    _add_gram(part, high - low, A)
            if lowest > 0.0:
                break
            for k in range(n_fixed, K):
                y[k] = 1.0 / s[k] if s[k] > 0.0 else 0.0
                if n_fixed > 0:
                    y[k] *= total / K
        number, excess = 0, 1.0 if lowest > 0.0 else np.inf
        while total > 0.0 and lowest > 0.0:
            excess = 0.0
            for k in range(K):
                slope = s[k] + l2 * y[k]
                g[k] = slope - A[K, k]
                if slope > 0.0 and k >= n_fixed:
                    excess = max(excess, A[K, k] / slope)
            if n_fixed > 0:
                excess = _excess_beside(total, s, y, A[K], l2, n_fixed, excess)
            if number == steps or excess <= 1.0 + gap:
                break
            number += 1
            for k in range(K):
                for j in range(k):
                    A[j, k] = A[k, j]
                A[k, k] += l2
            _quadratic_minimum(A, g, y, z, gradient, sweeps, stall, n_fixed)
            fall, mass, stiff = 0.0, 0.0, 0.0
            for k in range(K):
                z[k] -= y[k]
                fall -= g[k] * z[k]
                mass += (s[k] + l2 * y[k]) * z[k]
                stiff += l2 * z[k] * z[k]
            if not fall > 0.0:
                break
            lowest = np.inf
            for p in range(-(-m // chunk)):
                low, high = p * chunk, min(p * chunk + chunk, m)
                _combined(B[p], z, u[low:high])
            for i in range(m):
                u[i] /= root[i]
                lowest = min(lowest, u[i])
            length = _step_length(v, u, m, lowest, mass, stiff, fall, _bend(A, z))
            for k in range(K):
                y[k] = max(y[k] + length * z[k], 0.0)
            scale = _scale_to(total, s, y, l2, n_fixed)
            lowest = np.inf
            for i in range(m):
                u[i] = (1.0 + length * u[i]) * scale
                x[i] *= u[i]
                lowest = min(lowest, x[i])
            if number == steps and gaps.shape[0] == 0:
                break
            A[:] = 0.0
            for p in range(-(-m // chunk)):
                low, high = p * chunk, min(p * chunk + chunk, m)
                shares, part = u[low:high], B[p]
                for i in range(high - low):
                    shares[i] = 1.0 / shares[i]
                for k in range(K):
                    own = part[k]
                    for i in range(high - low):
                        own[i] *= shares[i]
                _add_gram(part, high - low, A)
        for k in range(K):
            Y[n, k] = y[k]
        if gaps.shape[0] > 0:
            gaps[n] = np.log(max(excess, 1.0))
        if divergences.shape[0] > 0:
            for i in range(m):
                x[i] = v[i] / x[i]
            divergences[n] = _sum_of_logs(v[:m], x[:m], whole[:m])


@_compiled
def _excess_beside(
    total: float, s: Any, y: Any, c: Any, l2: float, n_fixed: int, excess: float
) -> float:
    """The duality gap of a row of which some entries stay, as exp(gap / total).

    The total is not met by scaling there: see `dual_gaps` of `solve.poisson_regression`.
    """
    excess = max(excess, 1.0)
    short = np.log(excess) - 1.0
    for k in range(y.shape[0]):
        part = c[k] / excess if k < n_fixed else s[k] + l2 * y[k]
        short += part * y[k] / total
    return float(np.exp(max(short, 0.0)))


@_compiled
def _sum_of_logs(v: Any, x: Any, whole: Any) -> float:
    """Sum of v log(x); x and `whole` are overwritten.

    A call of log for every entry would take longer than all else. Numbers are taken apart into
    2^e m with m between sqrt(1/2) and sqrt(2), and log(m) = 2 artanh((m - 1) / (m + 1)) is summed
    as a series, to less than one unit in the last place.
    """
    bits = x.view(np.int64)
    for i in range(x.shape[0]):
        whole[i] = (bits[i] - 0x3FE6A09E667F3BCD) >> 52
        bits[i] -= whole[i] << 52
    total = 0.0
    for i in range(x.shape[0]):
        s = (x[i] - 1.0) / (x[i] + 1.0)
        z = s * s
        series = 1.0 / 21.0
        series = series * z + 1.0 / 19.0
        series = series * z + 1.0 / 17.0
        series = series * z + 1.0 / 15.0
        series = series * z + 1.0 / 13.0
        series = series * z + 1.0 / 11.0
        series = series * z + 1.0 / 9.0
        series = series * z + 1.0 / 7.0
        series = series * z + 1.0 / 5.0
        series = series * z + 1.0 / 3.0
        log = whole[i] * 0.6931471805599453 + 2.0 * (s + s * z * series)
        total += v[i] * log
    return total


@_compiled
def _scale_to(total: float, s: Any, y: Any, l2: float, n_fixed: int) -> float:
    """Scale y to the best of its multiples, where s'y + l2 ||y||^2 is the total; return the factor.

    Nothing is scaled where some entries stay.
    """
    if n_fixed > 0:
        return 1.0
    mass, squares = 0.0, 0.0
    for k in range(y.shape[0]):
        mass += s[k] * y[k]
        squares += y[k] * y[k]
    factor = total / mass if mass > 0.0 else 0.0
    if l2 > 0.0 and mass > 0.0:
        factor = 2.0 * total / (mass + np.sqrt(mass * mass + 4.0 * l2 * squares * total))
    for k in range(y.shape[0]):
        y[k] *= factor
    return factor


@_compiled_in_order
def _weigh(B: Any, root: Any, x: Any) -> None:
    """Multiply columns of B with sqrt(v) / x, and write sqrt(v) below them."""
    K, m = B.shape[0] - 1, x.shape[0]
    last = B[K]
    for i in range(m):
        last[i] = root[i] / x[i]
    for k in range(K):
        own = B[k]
        for i in range(m):
            own[i] *= last[i]
    for i in range(m):
        last[i] = root[i]
