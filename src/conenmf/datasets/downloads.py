"""Fetching official files: into a given folder, limited in size, then unpacked.

Nothing is fetched unless it was asked for. Nothing is unpickled, and of an archive only selected
members are unpacked, never outside the folder.

pooch could keep the cache and the checksums, but would do little here: its downloaders have no
limit of bytes, its processors no limit of what an archive unpacks to and no choice of members by a
function, and its cache is filled before the numbers have been checked. A version with this module's
downloader below pooch was 5 lines shorter and needed 8 more packages.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, TypeAlias

from ..data.files.atomic import written_whole
from ..errors import DatasetError, DiskFullError, is_disk_full
from ..text import visible

if TYPE_CHECKING:
    from http.client import HTTPResponse

__all__ = ["Download", "ProgressCallback", "fetch", "show_progress", "unpack"]

ProgressCallback: TypeAlias = Callable[[str, int, int | None], object]
_Select: TypeAlias = Callable[[PurePosixPath], bool]

_CHUNK_BYTES = 1 << 16
_TIMEOUT_SECONDS = 60  # without a byte
_MAX_UNPACKED_BYTES = 1 << 30
_DAMAGE_ERRORS = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, ValueError),
    RuntimeError,  # a member is encrypted, or its compression is unknown
)


@dataclass(frozen=True)
class Download:
    """An official file.

    Attributes
    ----------
    url : str
        Its address.
    max_bytes : int
        A larger file is refused.
    sha256 : str or None
        Its checksum, if it is known; the numbers read from it are checked in any case.
    """

    url: str
    max_bytes: int
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The name of the file."""
        return PurePosixPath(self.url).name


def show_progress(name: str, n_bytes: int, total: int | None) -> None:
    """Draw a bar on the terminal, if there is one."""
    if not _on_terminal():
        return
    share = f"{n_bytes / 1e6:.1f} MB"
    if total:
        share += f" of {total / 1e6:.1f} MB"
        width = min(30, shutil.get_terminal_size().columns - len(f"{name} [] {share}") - 1)
        if width > 0:
            filled = width * min(n_bytes, total) // total
            share = f"[{'#' * filled}{'.' * (width - filled)}] {share}"
    end = "\n" if n_bytes == total else ""
    print(f"\r{name} {share}", end=end, file=sys.stderr, flush=True)


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def fetch(download: Download, folder: Path, progress: ProgressCallback | None = None) -> Path:
    """Fetch a file into a folder, where only a complete file gets its name."""
    import http.client  # slow to import, and seldom needed
    import urllib.error
    import urllib.request

    path = folder / download.name
    try:
        if not download.url.startswith(("https://", "http://")):
            raise DatasetError(f"{download.url} is not a web address: it needs http:// or https://")
        request = urllib.request.Request(download.url, headers={"User-Agent": "conenmf"})
        with (
            urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer,
            written_whole(path) as file,
        ):
            digest = _copy(answer, file, download, progress)
            if download.sha256 not in (None, digest):
                raise DatasetError(
                    f"{download.url} has the checksum {digest}, expected {download.sha256}: the "
                    "file is damaged or was replaced; nothing was kept"
                )
    except (DatasetError, DiskFullError):
        raise
    except (OSError, http.client.HTTPException) as problem:
        if isinstance(problem, urllib.error.HTTPError):
            problem.close()  # it holds the connection
        raise DatasetError(
            f"{download.url} could not be fetched: {visible(problem)}; try again later, or get "
            "the file another way"
        ) from problem
    return path


def _copy(
    answer: HTTPResponse,
    file: IO[bytes],
    download: Download,
    progress: ProgressCallback | None,
) -> str:
    """Copy an answer to a file; return its checksum."""
    length = answer.headers.get("Content-Length")
    total = int(length) if length is not None and length.isdecimal() else None
    digest, n_bytes = hashlib.sha256(), 0
    try:
        while True:
            if max(n_bytes, total or 0) > download.max_bytes:
                raise DatasetError(
                    f"{download.url} has more than the expected {download.max_bytes} "
                    "bytes; nothing was kept"
                )
            if not (chunk := answer.read(_CHUNK_BYTES)):
                break
            digest.update(chunk)
            file.write(chunk)
            n_bytes += len(chunk)
            if progress is not None:
                progress(download.name, n_bytes, total)
        if total is not None and n_bytes != total:
            raise DatasetError(
                f"{download.url} was truncated after {n_bytes} of {total} bytes: try again; "
                "nothing was kept"
            )
    except BaseException:
        if progress is show_progress and n_bytes and _on_terminal():
            print(file=sys.stderr)  # the message that follows begins on a line of its own
        raise
    if total is None and progress is not None:
        progress(download.name, n_bytes, n_bytes)
    return digest.hexdigest()


def unpack(
    archive: Path, folder: Path, select: _Select, max_bytes: int = _MAX_UNPACKED_BYTES
) -> None:
    """Unpack the selected members of a ``.tar.gz`` or ``.zip`` file below a folder.

    An archive of more than `max_bytes`, unpacked, is refused.
    """
    try:
        if archive.suffix == ".zip":
            _unpack_zip(archive, folder, select, max_bytes)
        else:
            _unpack_tar(archive, folder, select, max_bytes)
    except _DAMAGE_ERRORS as problem:
        raise DatasetError(
            f"{archive.name} is not an archive that can be unpacked: {visible(problem)}"
        ) from problem
    except DatasetError:
        raise
    except OSError as problem:
        if is_disk_full(problem):
            raise DiskFullError(
                f"not enough disk space to unpack {archive.name} in {folder}: free some"
            ) from problem
        raise DatasetError(
            f"{archive.name} cannot be unpacked into {folder}: {visible(problem)}"
        ) from problem


def _unpack_tar(archive: Path, folder: Path, select: _Select, max_bytes: int) -> None:
    n_bytes = 0
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            n_bytes += member.size
            _check_size(archive, n_bytes, max_bytes)
            if member.isreg() and select(PurePosixPath(member.name)):
                stream = tar.extractfile(member)
                assert stream is not None  # a regular file has content
                with stream, open(_member_path(member.name, folder), "wb") as file:
                    shutil.copyfileobj(stream, file)


def _unpack_zip(archive: Path, folder: Path, select: _Select, max_bytes: int) -> None:
    n_bytes = 0
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            n_bytes += member.file_size
            _check_size(archive, n_bytes, max_bytes)
            if not member.is_dir() and select(PurePosixPath(member.filename)):
                with (
                    packed.open(member) as stream,
                    open(_member_path(member.filename, folder), "wb") as file,
                ):
                    shutil.copyfileobj(stream, file)


def _check_size(archive: Path, n_bytes: int, max_bytes: int) -> None:
    if n_bytes > max_bytes:
        raise DatasetError(
            f"{archive.name} unpacks to more than {max_bytes} bytes: nothing was kept"
        )


def _member_path(name: str, folder: Path) -> Path:
    """The path of a member, always below the folder."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or parts[0].endswith((":", "/")) or ".." in parts:
        raise DatasetError(
            f"the archive has a member that leads out of it, {visible(name)}: nothing was kept"
        )
    path = folder.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
