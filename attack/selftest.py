"""Cases that fail on purpose: the attack has to notice every one of them."""

from __future__ import annotations

import ctypes
import time

from .cases import Case, Ending, Kind


def _good(case: Case) -> Ending:
    return Ending("accepted", past_header=True)


def _hangs(case: Case) -> Ending:
    while True:
        time.monotonic()


def _segfaults(case: Case) -> Ending:
    return Ending(str(ctypes.string_at(0)))


def _reader_segfaults(case: Case) -> Ending:
    case.report(Ending("accepted", "by the library"))
    return _segfaults(case)


def _raises(case: Case) -> Ending:
    raise RuntimeError("an error of the attack")


def _takes_memory(case: Case) -> Ending:
    return Ending("accepted", str(len(bytearray(300 << 20))))


def _leaves_a_file(case: Case) -> Ending:
    (case.folder.parent / "tmp" / "left").write_text("x")
    return Ending("accepted")


_CASES = (_good, _hangs, _good, _segfaults, _reader_segfaults, _raises, _takes_memory)
_CASES += (_leaves_a_file, _good)
EXPECTED = (
    *("accepted", "hang", "accepted", "crash", "accepted", "broken", "memory", "leftover"),
    "accepted",
)


def _run(case: Case) -> Ending:
    return _CASES[case.number % len(_CASES)](case)


KINDS = (
    Kind("selftest", "selftest", _run, seconds=1.0, batch=len(_CASES), extra_memory=200 << 20),
)
