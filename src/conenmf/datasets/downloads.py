"""Fetching official files: into a given folder, limited in size, then unpacked.

Nothing is fetched unless it was asked for. What begins as https never continues as http. Nothing is
unpickled, and of an archive only selected members are unpacked, never outside the folder. What it
unpacks to, its members and their headers are limited.

pooch could keep the cache and the checksums, but would do little here: its downloaders have no
limit of bytes, its processors no limit of what an archive unpacks to and no choice of members by a
function, and its cache is filled before the numbers have been checked. A version with this module's
downloader below pooch was 5 lines shorter and needed 8 more packages.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, TypeAlias, cast

from ..data.files.atomic import written_whole
from ..errors import DatasetError, DiskFullError, is_disk_full
from ..text import excerpt, visible

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import HTTPRedirectHandler, Request

__all__ = ["Download", "ProgressCallback", "fetch", "show_progress", "unpack"]

ProgressCallback: TypeAlias = Callable[[str, int, int | None], object]
_Select: TypeAlias = Callable[[PurePosixPath], bool]

_CHUNK_BYTES = 1 << 16
_TIMEOUT_SECONDS = 60  # without a byte
_MAX_UNPACKED_BYTES = 1 << 30
_MAX_MEMBERS = 10_000
_MAX_TAR_READ = 2048  # bytes of a header with a long name; the library needs their square in time
_MAX_TAR_HEADERS = 8 << 20  # bytes, of all headers
_MAX_ZIP_READ = 4 << 20  # bytes of the list of members, which is read as a whole
_MAX_LENGTH_DIGITS = 18
_ZIP_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
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
        opener = urllib.request.build_opener(_redirects(urllib.request.HTTPRedirectHandler))
        with (
            opener.open(request, timeout=_TIMEOUT_SECONDS) as answer,
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


def _redirects(base: type[HTTPRedirectHandler]) -> type[HTTPRedirectHandler]:
    """Follow a redirect to the web only, and from https only to https."""

    class Redirects(base):  # type: ignore[misc, valid-type]
        def redirect_request(self, request: Request, *args: Any) -> Request | None:
            target = args[-1]
            allowed = ("https://",) if request.type == "https" else ("https://", "http://")
            if not target.lower().startswith(allowed):
                raise DatasetError(
                    f"{request.full_url} leads to {visible(target)}, which is not {allowed[0]}: "
                    "refused, since it could be replaced on its way; get the file another way"
                )
            new: Request | None = super().redirect_request(request, *args)
            return new

    return Redirects


def _length(answer: HTTPResponse, url: str) -> int | None:
    """The number of bytes that an answer claims, if it says so."""
    length = answer.headers.get("Content-Length")
    if length is None:
        return None
    if not (length.isascii() and length.isdigit() and len(length) <= _MAX_LENGTH_DIGITS):
        raise DatasetError(
            f"{url} claims to have {excerpt(length)} bytes: try again later, or get the file "
            "another way; nothing was kept"
        )
    return int(length)


def _copy(
    answer: HTTPResponse,
    file: IO[bytes],
    download: Download,
    progress: ProgressCallback | None,
) -> str:
    """Copy an answer to a file; return its checksum."""
    total = _length(answer, download.url)
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
    with cast("IO[bytes]", gzip.open(archive)) as content:
        headers = _LimitedReads(content, _MAX_TAR_READ, _MAX_TAR_HEADERS)
        with tarfile.open(fileobj=headers, mode="r:") as tar:  # type: ignore[call-overload]
            for count, member in enumerate(tar, 1):
                tar.members = []  # it keeps them all
                if member.size < 0 or member.issparse():
                    raise DatasetError(
                        f"{archive.name} has a member of {member.size} bytes with holes, or of "
                        "negative size: nothing was kept"
                    )
                n_bytes += member.size
                _check_size(archive, count, n_bytes, max_bytes)
                if member.isreg() and select(PurePosixPath(member.name)):
                    content.seek(member.offset_data)
                    with open(_member_path(member.name, folder), "wb") as file:
                        _copy_bytes(content, file, member.size)


def _unpack_zip(archive: Path, folder: Path, select: _Select, max_bytes: int) -> None:
    n_bytes = 0
    with open(archive, "rb") as content:
        limited = _LimitedReads(content, _MAX_ZIP_READ)
        with zipfile.ZipFile(limited) as packed:
            for count, member in enumerate(packed.infolist(), 1):
                n_bytes += member.file_size
                _check_size(archive, count, n_bytes, max_bytes)
                if not member.is_dir() and select(PurePosixPath(member.filename)):
                    if member.compress_type not in _ZIP_COMPRESSIONS:  # they may take gigabytes
                        raise DatasetError(
                            f"{archive.name} has a member in an unusual compression: nothing was "
                            "kept"
                        )
                    with (
                        packed.open(member) as stream,
                        open(_member_path(member.filename, folder), "wb") as file,
                    ):
                        _copy_bytes(stream, file, member.file_size)


class _LimitedReads:
    """A file of which a library may read so much at once, and in all.

    What a header claims, such as a name of a gigabyte, is read at once by these libraries.
    """

    def __init__(self, file: IO[bytes], at_once: int, in_all: float = math.inf) -> None:
        self._file, self._at_once, self._left = file, at_once, in_all
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Read so many bytes, or all."""
        content = self._file.read(size if 0 <= size <= self._at_once else self._at_once + 1)
        self._left -= len(content)
        if len(content) > self._at_once or self._left < 0:
            raise DatasetError("the archive has headers that are too large: nothing was kept")
        return content


def _copy_bytes(stream: IO[bytes], file: IO[bytes], size: int) -> None:
    """Copy so many bytes, of which none may be missing."""
    while size > 0:
        chunk = stream.read(min(size, _CHUNK_BYTES))
        if not chunk:
            raise EOFError("a member is truncated")
        file.write(chunk)
        size -= len(chunk)


def _check_size(archive: Path, n_members: int, n_bytes: int, max_bytes: int) -> None:
    if n_members > _MAX_MEMBERS:
        raise DatasetError(f"{archive.name} has more than {_MAX_MEMBERS} members: nothing was kept")
    if n_bytes > max_bytes:
        raise DatasetError(
            f"{archive.name} unpacks to more than {max_bytes} bytes: nothing was kept"
        )


def _member_path(name: str, folder: Path) -> Path:
    """The path of a member, always below the folder."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    # On Windows "C:a.png" is in another folder, and "a.png:b" is inside of another file.
    if not parts or parts[0].endswith("/") or ".." in parts or ":" in name:
        raise DatasetError(
            f"the archive has a member that leads out of it, {visible(name)}: nothing was kept"
        )
    path = folder.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
