import pytest

from conenmf.errors import FileFormatError
from conenmf.io.limits import check_expansion, check_sides


@pytest.mark.parametrize(
    ("rows", "columns", "entries"),
    [(1 << 20, 1 << 20, 2), (2, 1 << 20, 0), (16_000_000, 100, 1_000_000)],
)
def test_sides_that_are_harmless_or_in_proportion(rows, columns, entries):
    check_sides("a.npz", rows, columns, entries)
    check_sides("a.npz", columns, rows, entries)


@pytest.mark.parametrize(
    ("rows", "columns", "entries", "message"),
    [
        (370_000_000, 2, 2, "with 2 entries .* remove its empty rows"),
        (2, (1 << 20) + 1, 65_536, "with 65536 entries"),
        (-1, 2, 2, "-1 x 2"),
    ],
)
def test_sides_that_are_not(rows, columns, entries, message, refuses):
    refuses(FileFormatError, message, lambda: check_sides("a.npz", rows, columns, entries))


def test_what_few_bytes_can_hold(refuses):
    check_expansion("a.npz", 1 << 20, 1100 << 20)
    for stored, claimed in ((500, 1 << 30), (1 << 20, 1101 << 20)):
        refuses(FileFormatError, "limit: 1100x", check_expansion, "a.npz", stored, claimed)
