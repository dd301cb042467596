import numpy as np
import pytest

from conenmf.data.files.limits import cast_exactly, check_expansion, check_sides
from conenmf.errors import FileFormatError

GIB = 1 << 30


@pytest.mark.parametrize(
    ("rows", "columns", "entries"),
    [(1 << 20, 1 << 20, 2), (2, 1 << 20, 0), (16_000_000, 100, 1_000_000)],
)
def test_sides_that_are_harmless_or_in_proportion(rows, columns, entries):
    check_sides("a.npz", rows, columns, entries, GIB)
    check_sides("a.npz", columns, rows, entries, GIB)


@pytest.mark.parametrize(
    ("rows", "columns", "entries", "message"),
    [
        (370_000_000, 2, 2, "with 2 entries .* remove its empty rows"),
        (2, (1 << 20) + 1, 65_536, "with 65536 entries"),
        (2, 40_000_000, 30_000_000, "does not fit in memory: .* raise max_memory"),
        (-1, 2, 2, "-1 x 2"),
    ],
)
def test_sides_that_are_not(rows, columns, entries, message):
    with pytest.raises(FileFormatError, match=message):
        check_sides("a.npz", rows, columns, entries, GIB)


def test_numbers_that_keep_their_value():
    assert cast_exactly("a", [0.0, 255.0], np.uint8).tolist() == [0, 255]
    assert cast_exactly("a", np.array([1, 2], ">u8"), np.int64).tolist() == [1, 2]
    assert cast_exactly("a", [], np.int64).size == 0
    assert cast_exactly("a", [0.1], np.float32).dtype == np.float32


@pytest.mark.parametrize(
    ("numbers", "dtype"),
    [
        ([-5.0, 1.0], np.uint8),
        ([300.0], np.uint8),
        ([np.nan], np.uint8),
        ([1.7], np.int64),
        ([np.inf], np.int64),
        ([2.0**63], np.int64),
        ([2.0**64], np.uint64),
        (np.array([2**63], np.uint64), np.int64),
        ([10**400], np.int64),
        ([1j], np.int64),
        (["1"], np.int64),
        (np.array(["2020-01-01"], "M8[D]"), np.int64),
        ([[1], [1, 2]], np.int64),
        ([None], np.float64),
    ],
)
def test_numbers_that_would_change(numbers, dtype):
    with pytest.raises(FileFormatError, match=r"expected numbers|are not all of type"):
        cast_exactly("a", numbers, dtype)


def test_what_few_bytes_can_hold():
    check_expansion("a.npz", 1 << 20, 1100 << 20)
    for stored, claimed in ((500, 1 << 30), (1 << 20, 1101 << 20)):
        with pytest.raises(FileFormatError, match="decompression bomb"):
            check_expansion("a.npz", stored, claimed)
