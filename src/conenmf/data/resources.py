"""How much memory this process may use, within the limits of its container.

A container sees all memory of its host, but may be allowed less: its control group (cgroup) says.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..errors import ConeNMFError, Message, Option, OptionError

_DEFAULT_BYTES = 8 << 30  # where the size of the memory cannot be known
_SIZE = re.compile(r"(\d+(?:\.\d+(?=\s*[kmgt]))?)\s*([kmgt]?)(i?)b?")


@cache
def available_memory(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory of the machine in bytes, or the limit of the container if that is less.

    `root` is where the container's control group is mounted; both versions are read.
    """
    limits = [_DEFAULT_BYTES]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no container; no limit, "max"
            limits.append(int((root / file).read_text()))
    return min(limits)


def memory_budget(max_memory: int | str | None) -> int:
    """Return a budget in bytes; by default half of the available memory.

    >>> memory_budget("1GB"), memory_budget("512 MiB"), memory_budget(4096)
    (1000000000, 536870912, 4096)
    """
    if max_memory is None:
        return available_memory() // 2
    match = _SIZE.fullmatch(str(max_memory).strip().lower())
    budget = 0.0
    if match is not None:
        number, unit, is_binary = match.groups()
        base = 1024 if is_binary else 1000
        budget = float(number) * base ** ["", *"kmgt"].index(unit)
    if not 1 <= budget < 2**62:
        raise OptionError(
            Message(
                Option("max_memory", max_memory),
                ", expected a number of bytes or a text such as '1GB'",
            )
        )
    return int(budget)


def require_memory(
    name: str, value: int, n_bytes: int, error: type[ConeNMFError] = OptionError
) -> None:
    """Refuse an argument for which arrays would take more memory than there is."""
    if n_bytes > available_memory():
        needed, there = n_bytes / 1e9, available_memory() / 1e9
        problem = f" needs arrays of {needed:.3g} GB, and there are {there:.3g} GB of memory"
        raise error(Message(Option(name, value), f"{problem}: give less"))
