"""Files that appear whole or not at all: written under a temporary name, then moved into place."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import DiskFullError, is_disk_full

__all__ = ["written_whole"]


@contextmanager
def written_whole(target: Path) -> Iterator[Any]:
    """Open a temporary file beside the target; move it into place if all went well."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException as problem:
        temporary.unlink(missing_ok=True)
        if isinstance(problem, OSError) and is_disk_full(problem):
            raise DiskFullError(
                f"no room to write {target}; an earlier file of that name is intact"
            ) from problem
        raise
