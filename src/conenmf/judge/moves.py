"""Moves: which other places of a component are worth a trial, judged from the factors alone.

Component l is moved to w_l + sum_k t_k w_k, and h_k to h_k - t_k h_l, with zeros for what would be
negative. Within the limits of `uniqueness` nothing changes; beyond them W H changes by what was set
to zero. Its square, in units of what the error may grow by, is the cost of a move. It is estimated
from some of the samples, without reading V; a refit of the other components can make it much
smaller. Of each component the moves with the farthest angles that probably cost little are
proposed, or else the cheapest. Rates of counts count relative to their margins, as in the chi
squared statistic.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..data.blocks import Array
from .metrics import unit_columns

__all__ = ["Move", "all_moves", "moved_component", "proposed_moves", "slide"]

_ANGLES = tuple(math.radians(degrees) for degrees in (5.1, 7.5, 11.0, 16.0, 24.0, 36.0))
_SLIDE_STEPS = 20  # until an angle is reached in spite of zeros
_MIN_ANGLE = math.radians(5.05)  # after what is negative was set to zero


class Move(NamedTuple):
    """A place for a component: to w_l + sum_k t_k w_k, with zeros for what would be negative.

    Attributes
    ----------
    component : int
    t : array (K,)
    angle : float
        By which it moves the component, in radians.
    cost : float
        What it adds to the loss at most, in units of what may be added; an estimate.
    shift : array (F,) or None
        Added to the component too, if it leaves the span of the components.
    """

    component: int
    t: Array
    angle: float
    cost: float
    shift: Array | None = None


def moved_component(W: Array, move: Move) -> Array:
    """Return the component (F,) where a move brings it."""
    moved: Array = W[:, move.component] + W @ move.t
    return np.maximum(moved if move.shift is None else moved + move.shift, 0)


def proposed_moves(
    W: Array, H: Array, exchange: Array, allowed: float, *, counts: bool
) -> list[list[Move]]:
    """Return moves for each component, the most promising first.

    Parameters
    ----------
    W : array (F, K)
    H : array (K, n)
        Coefficients of some samples.
    exchange : array (K, K)
        The exact turns of `Freedom`, in units of norm 1.
    allowed : float
        How much the loss of these samples may grow.
    counts : bool
        Whether the loss is that of counts.
    """
    norms = np.linalg.norm(W, axis=0)
    if counts:
        W_seen, H_seen = _relative_to_margins(W, H)
        allowed = 2 * allowed  # the divergence is half the square
    else:
        W_seen, H_seen = W, H
    judge = _Judge(W, W_seen, H_seen, max(allowed, np.finfo(float).tiny))
    return [
        judge.moves(l, exchange[:, l] * norms[l]) if norms[l] > 0 else [] for l in range(norms.size)
    ]


def all_moves(
    W: Array, proposed: list[Move], l: int, beyond: Array, n_moves: int, rng: np.random.Generator
) -> list[Move]:
    """Return `n_moves` moves of component l in different directions, each by about 5 degrees.

    First those that were proposed, towards and away from each other component; then along the
    directions `beyond` (F, r) and against them, which leave the span of the components; then along
    random ones, in the span and beyond it in turn.
    """
    U, norm, zero = unit_columns(W), float(np.linalg.norm(W[:, l])), np.zeros(W.shape[1])
    sizes = np.linalg.norm(W, axis=0)
    moves = list({(move.t.tobytes()): move for move in proposed}.values())[:n_moves]
    for direction in (sign * d for d in beyond.T for sign in (1.0, -1.0)):
        step = _step_of(U[:, l], direction)
        if step and len(moves) < n_moves:
            moves.append(Move(l, zero, _ANGLES[0], math.nan, step * norm * direction))
    for trial in range(20 * n_moves):
        if len(moves) >= n_moves:
            break
        mix = rng.standard_normal(W.shape[1]) * (sizes > 0)
        own = rng.standard_normal(len(W)) * (U[:, l] if trial % 4 == 1 else U.mean(axis=1))
        direction = own if trial % 2 else U @ mix
        step = _step_of(U[:, l], direction)
        if step and trial % 2:
            moves.append(Move(l, zero, _ANGLES[0], math.nan, step * norm * direction))
        elif step:
            t = np.divide(step * norm * mix, sizes, where=sizes > 0, out=np.zeros_like(sizes))
            moves.append(Move(l, t, _ANGLES[0], math.nan))
    return moves


def _step_of(u: Array, direction: Array) -> float:
    """How far u goes in a direction until it has turned by the least angle; 0 if it never does."""
    low, high = 0.0, 0.01 / (float(np.linalg.norm(direction)) or 1.0)
    while _turned(u, high * direction) < _ANGLES[0]:
        low, high = high, 2 * high
        if high * float(np.abs(direction).max(initial=0)) > 1e3 or not direction.any():
            return 0.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _turned(u, middle * direction) < _ANGLES[0] else (low, middle)
    return high


def slide(
    W: Array, VH: Array, HH: Array, l: int, w: Array, angle: float, step: float
) -> Move | None:
    """Return a move of component l of W to where the error is less, at least an angle from w.

    With a step of 1 that is the best place for the coefficients H of W, given as VH' (F, K) and HH'
    (K, K), or what is nearly the nearest to it at this angle; None if there is none.
    """
    if not HH[l, l] > 0:
        return None
    fall = step * (VH[:, l] - W @ HH[l]) / HH[l, l]
    u, best = w / np.linalg.norm(w), np.maximum(W[:, l] + fall, 0)
    for _ in range(_SLIDE_STEPS):
        across = best - (best @ u) * u
        if not across.any():
            return None
        if (turned := _turned(u, best - u)) >= angle - 1e-9:
            return Move(l, np.zeros(W.shape[1]), turned, math.nan, best - W[:, l])
        there = math.cos(angle) * u + math.sin(angle) * across / np.linalg.norm(across)
        best = np.maximum(np.linalg.norm(best) * there, 0)  # zeros may bring it nearer again
    return None


def _turned(u: Array, step: Array) -> float:
    moved = np.maximum(u + step, 0)
    norm = float(np.linalg.norm(moved))
    return float(np.arccos(np.clip(u @ moved / norm, -1, 1))) if norm > 1e-6 else 0.0


class _Judge:
    """The cost of moves."""

    def __init__(self, W: Array, W_seen: Array, H_seen: Array, allowed: float) -> None:
        self.W, self.W_seen, self.H = W, W_seen, H_seen
        self.U, self.norms, self.allowed = unit_columns(W), np.linalg.norm(W, axis=0), allowed
        self.between = np.arccos(np.clip(self.U.T @ self.U, -1, 1))
        self.squares, self.H_squares = (W_seen**2).sum(axis=0), (H_seen**2).sum(axis=1)

    def moves(self, l: int, turn: Array) -> list[Move]:
        """Return the farthest move that is allowed, if one is, and others by their cost."""
        K = self.norms.size
        ways = [(k, sign) for k in range(K) if k != l and self.norms[k] > 0 for sign in (1, -1)]
        found = [self._along(l, *way) for way in ways]
        turns = self._turns(l, np.divide(turn, self.norms, where=self.norms > 0, out=0 * turn))
        nearest = [turns, *(moves[:1] for moves in found)]
        cheapest = sorted((move for moves in nearest for move in moves), key=_by_cost)
        allowed = [moves[-1] for moves in found if moves and moves[-1].cost <= 1]
        return [*sorted(allowed, key=_by_angle)[:1], *cheapest]

    def _along(self, l: int, k: int, sign: int) -> list[Move]:
        """The nearest move towards or away from component k, and the farthest that is allowed."""
        found: list[Move] = []
        for angle in _ANGLES:
            left = self.between[l, k] - sign * angle
            if left <= 0 or left >= math.pi:
                break
            t = np.zeros(self.norms.size)
            t[k] = sign * math.sin(angle) / math.sin(left) * self.norms[l] / self.norms[k]
            reached = angle
            if sign < 0:  # what would be negative is zero, so that it turns less
                reached = self._angle(l, self.W[:, l] + t[k] * self.W[:, k])
            move = Move(l, t, reached, self._cost_along(l, k, t[k]) / self.allowed)
            if move.angle < _MIN_ANGLE:
                continue
            if found and move.cost > 1:
                break
            found = [*found[:1], move]
        return found

    def _cost_along(self, l: int, k: int, t: float) -> float:
        if t > 0:
            lost = np.maximum(t * self.H[l] - self.H[k], 0)
            return float(self.squares[k] * (lost @ lost))
        below = np.maximum(-t * self.W_seen[:, k] - self.W_seen[:, l], 0)
        return float(self.H_squares[l] * (below @ below))

    def _turns(self, l: int, turn: Array) -> list[Move]:
        """An exact turn that is too small to be seen, continued."""
        angle = self._angle(l, self.W[:, l] + self.W @ turn) if turn.any() else 0.0
        if angle < math.radians(0.5) or angle >= _ANGLES[0]:
            return []
        t = turn * (math.tan(_ANGLES[0]) / math.tan(angle))
        lost = np.maximum(np.outer(t, self.H[l]) - self.H, 0) * (t > 0)[:, None]
        changed = self.W_seen @ lost
        below = np.maximum(-(self.W_seen[:, l] + self.W_seen @ t), 0)
        cost = float((changed**2).sum() + self.H_squares[l] * (below @ below))
        reached = self._angle(l, self.W[:, l] + self.W @ t)
        return [Move(l, t, reached, cost / self.allowed)] if reached >= _MIN_ANGLE else []

    def _angle(self, l: int, w: Array) -> float:
        """The angle between a component and its new place, without what is negative there."""
        moved = np.maximum(w, 0)
        norm = float(np.linalg.norm(moved))
        if norm <= 1e-6 * self.norms[l]:
            return 0.0
        return float(np.arccos(np.clip(self.U[:, l] @ moved / norm, -1, 1)))


def _by_cost(move: Move) -> float:
    return move.cost


def _by_angle(move: Move) -> float:
    return -move.angle


def _relative_to_margins(W: Array, H: Array) -> tuple[Array, Array]:
    """Scale rates so that their squares are relative to the product of the margins."""
    features, samples = W @ H.sum(axis=1), W.sum(axis=0) @ H
    total = float(samples.sum()) or 1.0
    rows = np.sqrt(np.where(features > 0, features, 1) / total)
    columns = np.sqrt(np.where(samples > 0, samples, 1))
    return W / rows[:, None], H / columns
