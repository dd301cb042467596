"""Files and folders that appear complete or not at all.

They are written under a temporary name in the folder of their target, so that moving them into
place is one operation of the file system. A reader never sees half of a file, and a failure leaves
what was there before.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import DiskFullError, is_disk_full

__all__ = ["folder_written_whole", "temporary_name", "written_whole"]


def temporary_name(target: Path) -> Path:
    """Return a hidden name in the folder of the target that no other writer uses."""
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}")


@contextmanager
def written_whole(target: Path) -> Iterator[Any]:
    """Open a temporary binary file for writing; move it to the target if no error was raised."""
    temporary = temporary_name(target)
    try:
        with _named_if_full(target):
            with open(temporary, "xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(target: Path) -> Iterator[Path]:
    """Make a temporary folder; move it to the target if no error was raised.

    If the target is a folder already, the temporary one is made inside it and its files are moved
    up one by one: each replaces a file of the same name, all others stay.
    """
    exists = target.is_dir()
    temporary = temporary_name(target / "new" if exists else target)
    try:
        with _named_if_full(target):
            temporary.mkdir()
            yield temporary
            if exists:
                for path in temporary.iterdir():
                    os.replace(path, target / path.name)
            else:
                os.rename(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _named_if_full(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if not is_disk_full(problem):
            raise
        raise DiskFullError(
            f"not enough disk space to write {target}: free some and try again "
            "(an earlier one is intact)"
        ) from problem
