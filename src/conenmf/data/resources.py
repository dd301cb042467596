"""What this process may use: threads and memory, within the limits of its container.

A container sees all processors and all memory of its host, but may be allowed less. On Linux that
limit is a property of its control group (cgroup, version 1 or 2) or of one above it. joblib, which
comes with scikit-learn, reads the limit of processor time; none of our dependencies reads that of
memory, so it is read here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..arguments import integer, path
from ..errors import ConeNMFError, Message, Option, OptionError

__all__ = ["available_memory", "available_threads", "memory_budget", "require_memory"]

_DEFAULT_BYTES = 8 << 30  # where the size of the memory cannot be known
_UNIT_EXPONENTS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def available_threads() -> int:
    """Return OMP_NUM_THREADS where set (joblib sets it in its workers), else the usable cores.

    Cores are usable within the affinity of the process and the processor time of its container.
    """
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdigit() and int(setting) > 0:
        return int(setting)
    from joblib import cpu_count  # a tenth of a second, which a set number of threads saves

    return int(cpu_count())


def available_memory(root: Path = Path("/")) -> int:
    """Return the memory of the machine in bytes, or the limit of the container if that is less.

    `root` is the folder that holds ``proc`` and ``sys``. The limit is read once and kept.
    """
    return _memory_limit(path("root", root))


@cache
def _memory_limit(root: str) -> int:
    machine = _DEFAULT_BYTES
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_cgroup_memory_limits(Path(root))])


def _cgroup_memory_limits(root: Path) -> Iterator[int]:
    """The limits of the cgroups of this process and of all above them, without those not set.

    Inside a container the path of a cgroup may be one of the host, which cannot be seen there;
    what can be seen is the top of the mounted tree, which is the container's own.
    """
    tree = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mounts, name = [tree, tree / "unified"], "memory.max"
        elif "memory" in controllers.split(","):
            mounts, name = [tree / "memory"], "memory.limit_in_bytes"
        else:
            continue
        own = Path(path.lstrip("/"))
        for mount in mounts:
            for group in (own, *own.parents):
                try:
                    limit = (mount / group / name).read_text().strip()
                except OSError:
                    continue
                if limit.isdigit():  # and not "max"
                    yield int(limit)


def memory_budget(max_memory: int | str | None) -> int:
    """Return a budget in bytes; by default half of the available memory.

    >>> memory_budget("1GB"), memory_budget("512 MiB"), memory_budget(4096)
    (1000000000, 536870912, 4096)
    """
    if max_memory is None:
        return available_memory() // 2
    budget = -1.0
    if not isinstance(max_memory, str):
        with suppress(OptionError):
            budget = integer("max_memory", max_memory)
    else:
        text = max_memory.strip().lower().removesuffix("b")
        base = 1000
        if text.endswith("i"):
            text, base = text[:-1], 1024
        unit = text[-1:] if text[-1:] in "kmgt" else ""
        with suppress(ValueError):
            budget = float(text.removesuffix(unit)) * base ** _UNIT_EXPONENTS[unit]
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
