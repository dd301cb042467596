"""Whether a first line of numbers over a table of numbers holds titles, judged by evidence.

Wavelengths, years and the counting of `pandas.DataFrame.to_csv` make headers of numbers, which are
easily taken for a sample. The numbers of the first line are compared with the rows below it, and
each sign that they are titles counts as bits: minus the binary logarithm of about how often a
sample would show it. A sign that rows show too is worth no more than their number allows: in a
table of sorted rows, a first line that rises is a sample.

Titles differ from each other, but for a few that are rounded: any other line in which numbers are
repeated is a sample. If rows come in any order, a row that is the only one of its kind among 20 is
the first one by chance in one of 20 files; so there are caps, and a verdict that rests on few signs
is not certain.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from ..data.blocks import Array

__all__ = ["Verdict", "judge_first_line"]

# Chosen on the kinds of tables that tests/io/test_headers.py lists as such.
_TITLE_BITS = 7.0  # titles from here on ...
_SURE_BITS = 11.0  # ... and beyond doubt from here on
_DOUBT_BITS = 4.0  # a sample, but with a doubt, from here on
_COLUMN_BITS = 3.5  # at most in all, for each column: few columns always leave a doubt
_ORDER_BITS = 7.0  # at most, for numbers that rise or fall
_STEP_BITS = 2.0  # for each step that equals the one before it
_STEPS_BITS = 10.0  # at most, for equal steps
_KIND_BITS = 8.0  # at most, for integers over decimals and decimals over integers
_FAR_BITS = {10: 9.0, 1: 4.0}  # for rising numbers, by how far they are from those below them
_YEAR_BITS = 4.0
_ROUNDING = 0.02  # by which equal steps may differ, since titles are rounded
_FAR_ORDER = 0.9  # times the bits of orders, at most: a sample of few numbers may be far
_FAR_SHARE = 0.9  # of the numbers, which are that far
_TIES = 0.02  # of the numbers of a first line may equal others
_FAR_ROWS = 4  # with fewer rows, far is not known
_YEARS = (1800, 2100)
_INTEGER = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)


class Verdict(NamedTuple):
    """What a first line of numbers was taken for.

    Attributes
    ----------
    is_header : bool
    is_certain : bool
    signs : str
        The signs that its numbers are titles; empty if there are none.
    """

    is_header: bool
    is_certain: bool
    signs: str


def judge_first_line(first: list[str], rows: list[list[str]]) -> Verdict:
    """Judge a first line by the rows below it; numbers are texts with a decimal point.

    >>> judge_first_line(["0", "1", "2", "3"], [["0.5", "2.5", "1.5", "0.1"], 4 * ["0.5"]])
    Verdict(is_header=True, is_certain=True, signs='count from 0 and are integers over decimals')
    >>> judge_first_line(["1", "2", "2"], [["0.5", "0.25", "1.5"]])
    Verdict(is_header=False, is_certain=True, signs='')
    """
    rows = [row for row in rows if len(row) == len(first)]
    line, body = _numbers([first])[0], _numbers(rows)
    n_different = np.unique(line).size
    if not rows or not np.isfinite(line).all() or n_different < max(2, (1 - _TIES) * line.size):
        return Verdict(False, True, "")
    signs = {**_order_signs(line, body), **_kind_sign(first, rows)}
    signs = {sign: bits for sign, bits in signs.items() if bits > 0}
    bits = min(sum(signs.values()), _COLUMN_BITS * line.size)
    is_certain = bits < _DOUBT_BITS or bits >= _SURE_BITS
    return Verdict(bits >= _TITLE_BITS, is_certain, _in_words(list(signs)))


def _in_words(signs: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(signs[:-1]), *signs[-1:]]))


def _order_signs(line: Array, body: Array) -> dict[str, float]:
    """Bits for numbers in order, for their steps, and for where they lie."""
    direction = np.sign(line[-1] - line[0])
    steps, steps_below = np.diff(line), np.diff(body, axis=1) * direction
    if not _are_in_order(steps * direction):
        return {}
    alike = int(_are_in_order(steps_below).sum())
    sign, bits = "rise" if direction > 0 else "fall", _order_bits(steps_below > 0, alike)
    if line[0] in (0, 1) and (steps == 1).all():
        sign, bits = f"count from {line[0]:g}", bits + _counting_bits(line, body)
    elif steps.size > 1 and _are_equal(steps):
        most = min(_STEP_BITS * (line.size - 2), _STEPS_BITS)
        sign, bits = f"{sign} in equal steps", bits + _at_most(most, _equal_rows(body), len(body))
    signs = {sign: bits}
    if len(body) >= max(_FAR_ROWS, 2 * alike):  # if all rows rise, the first may be an outlier
        far = min(_far_bits(line, body), _FAR_ORDER * _bits_of_orders(line.size))
        signs["are far from those below them"] = far
    if _are_years(line).all() and not _are_years(body).mean() > 0.5:
        signs["look like years"] = _YEAR_BITS
    return signs


def _are_in_order(steps: Array) -> Array:
    """Whether no step goes back, and nearly all go ahead."""
    in_order: Array = (steps >= 0).all(axis=-1) & ((steps == 0).mean(axis=-1) <= _TIES)
    return in_order


def _order_bits(along: Array, alike: int) -> float:
    """For a line all whose steps go one way; `along` says which steps of the rows do.

    There are F! orders of F numbers, and two of them rise or fall; but rows that are smooth rise
    and fall more often, so the shares of their steps are taken for normally distributed. The only
    row of its kind is the first one in one of so many files as there are rows.
    """
    n_rows, n_steps = along.shape
    shares = along.mean(axis=1)
    deviation = max(float(shares.std()), 0.5 / n_steps)
    unusual = 0.5 * ((1 - float(shares.mean())) / deviation) ** 2 / math.log(2)
    unusual = max(unusual, math.log2(n_rows + 1))
    orders = _bits_of_orders(n_steps + 1)
    return _at_most(min(orders, unusual, _ORDER_BITS, _few_rows(n_rows)), alike, n_rows)


def _bits_of_orders(count: int) -> float:
    """The binary logarithm of count! / 2."""
    return math.lgamma(count + 1) / math.log(2) - 1


def _counting_bits(line: Array, body: Array) -> float:
    """For 0, 1, 2, ... or 1, 2, 3, ...: how seldom rows hold just these numbers."""
    values, counts = np.unique(body, return_counts=True)
    place = np.searchsorted(values, line).clip(max=values.size - 1)
    seen = np.where(values[place] == line, counts[place], 0)
    seldom = float(-np.log2((seen + 1) / (body.size + 1)).sum())
    most = min(_STEPS_BITS, 3 * line.size, 2 * math.log2(body.size + 1))
    alike = max(_equal_rows(body), int((np.sort(body, axis=1) == line).all(axis=1).sum()))
    return _at_most(min(seldom, most), alike, len(body))


def _kind_sign(first: list[str], rows: list[list[str]]) -> dict[str, float]:
    """Bits for integers over decimals, or decimals over integers."""
    whole = np.array([[_INTEGER.fullmatch(field) is not None for field in row] for row in rows])
    count = sum(_INTEGER.fullmatch(field) is not None for field in first)
    sign, same = "are integers over decimals", whole
    if count < len(first):
        sign, same, count = "are decimals over integers", ~whole, len(first) - count
    share = (same.sum() + 0.5) / (same.size + 1)
    bits = min(-count * math.log2(share), _KIND_BITS, _few_rows(len(rows)))
    return {sign: _at_most(bits, (same.sum(axis=1) >= count).sum(), len(rows))}


def _few_rows(n_rows: int) -> float:
    """Bits that so many rows can give."""
    return 2 + 2 * math.log2(n_rows + 1)


def _at_most(bits: float, alike: int, n_rows: int) -> float:
    """No more than what the number of rows with the same sign allows, if there are any."""
    return min(bits, math.log2((n_rows + 1) / (alike + 1))) if alike else bits


def _are_equal(steps: Array) -> bool:
    """Whether steps are equal but for the rounding of numbers with some digits."""
    mean = abs(steps.mean())
    return bool(mean > 0 and np.abs(steps - steps.mean()).max() <= _ROUNDING * mean)


def _equal_rows(body: Array) -> int:
    """How many rows have equal steps; a single step equals those that count."""
    steps = np.diff(body, axis=1)
    if steps.shape[1] == 1:
        return int((steps == 1).sum())
    return sum(map(_are_equal, steps))


def _far_bits(line: Array, body: Array) -> float:
    """For numbers that are far from those below them, compared with how far these are apart."""
    low, high = body.min(axis=0), body.max(axis=0)
    beyond = np.maximum(low - line, line - high)
    for times, bits in _FAR_BITS.items():
        if (beyond > times * (high - low)).mean() >= _FAR_SHARE:
            return bits
    return 0.0


def _are_years(numbers: Array) -> Array:
    years: Array = (numbers >= _YEARS[0]) & (numbers <= _YEARS[1]) & (numbers % 1 == 0)
    return years


def _numbers(rows: list[list[str]]) -> Array:
    """Rows of texts as numbers; NaN where there is none."""
    return np.array([[_number(field) for field in row] for row in rows])


def _number(field: str) -> float:
    try:
        return float(field)
    except ValueError:
        return math.nan
