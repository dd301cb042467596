"""How much a file may expand, and how much of memory it may take."""

from pathlib import Path

import pytest

from conenmf.errors import FileFormatError
from conenmf.io.limits import check_expansion, check_fits, only_matrix


def test_small_files_cannot_claim_large_data(refuses):
    check_expansion("a.npz", 1 << 20, 1100 << 20)
    for stored, claimed in ((500, 1 << 30), (1 << 20, 1101 << 20)):
        refuses(FileFormatError, "limit: 1100x", check_expansion, "a.npz", stored, claimed)


def test_files_read_as_a_whole_take_at_most_a_quarter_of_the_memory(refuses):
    check_fits("a.mat", 1 << 20, 4 << 20)
    message = "a.mat takes 1048577 bytes .* a quarter of the 4194304 bytes"
    refuses(FileFormatError, message, check_fits, "a.mat", (1 << 20) + 1, 4 << 20)


@pytest.mark.parametrize("vector", [(1, 4), (4, 1), (1, 40), (40, 1), (40,)])
def test_a_vector_along_either_side_belongs_to_the_matrix(vector):
    shapes = {"A": (4, 40), "along": vector, "one": (1, 1)}
    assert only_matrix(Path("a.mat"), shapes) == ("A", ())


def test_other_vectors_and_matrices_are_a_choice(refuses):
    for other in ((1, 7), (3, 3)):
        refuses(
            FileFormatError, "name one of them", only_matrix, Path("a"), {"A": (4, 4), "b": other}
        )
