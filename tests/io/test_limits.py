from conenmf.errors import FileFormatError
from conenmf.io.limits import check_expansion


def test_what_few_bytes_can_hold(refuses):
    check_expansion("a.npz", 1 << 20, 1100 << 20)
    for stored, claimed in ((500, 1 << 30), (1 << 20, 1101 << 20)):
        refuses(FileFormatError, "limit: 1100x", check_expansion, "a.npz", stored, claimed)
