"""Bisection: find where a condition on one number changes."""

from __future__ import annotations

from collections.abc import Callable

from ..types import Interval

_HALVINGS = 60


def bisect(is_below: Callable[[float], bool], low: float, high: float) -> Interval:
    """Return the ends of a short interval that contains the number.

    Parameters
    ----------
    is_below : callable
        Whether a number is below the one to find.
    low, high : float
        The first interval. It is shortened by a factor of 2^60.

    Examples
    --------
    >>> low, high = bisect(lambda x: x**2 < 2, 0.0, 2.0)
    >>> low <= 2**0.5 <= high < low + 1e-15
    True
    """
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low, high
