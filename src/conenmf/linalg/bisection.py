"""Bisection: where a condition on one number ceases to hold."""

from __future__ import annotations

from collections.abc import Callable

from ..arguments import Interval

_HALVINGS = 60


def bisected(is_below: Callable[[float], bool], low: float, high: float) -> Interval:
    """Return the ends of the short interval that holds the number sought.

    Parameters
    ----------
    is_below : callable
        Whether a number is below the one that is sought.
    low, high : float
        Between which it is. The interval becomes 2^60 times shorter.

    Examples
    --------
    >>> low, high = bisected(lambda x: x**2 < 2, 0.0, 2.0)
    >>> low <= 2**0.5 <= high < low + 1e-15
    True
    """
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return low, high
