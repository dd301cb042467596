"""Fetching official files: into a folder that nobody looks at, limited in size, then unpacked.

Nothing is fetched unless it was asked for. Nothing is unpickled, and of an archive only the
members that are wanted are unpacked, never outside the folder.
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

from ..errors import DatasetError, DiskFullError, is_disk_full
from ..text import visible

if TYPE_CHECKING:
    from http.client import HTTPResponse

__all__ = ["Download", "Report", "fetch", "show_progress", "unpack"]

Report: TypeAlias = Callable[[str, int, int | None], object]

_CHUNK = 1 << 16
_PATIENCE = 60  # seconds without a byte
_UNPACKED = 1 << 30  # bytes that an archive may unpack to
_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, ValueError),
    RuntimeError,  # a member is encrypted, or packed in a way that is not known
)


@dataclass(frozen=True)
class Download:
    """An official file.

    Attributes
    ----------
    url : str
        Its address.
    largest : int
        Bytes that it may have.
    sha256 : str or None
        Its checksum, where one is known; what is read from it is checked in any case.
    """

    url: str
    largest: int
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The name of the file."""
        return PurePosixPath(self.url).name


def show_progress(name: str, done: int, total: int | None) -> None:
    """Draw a bar on the terminal, if there is one."""
    if not _on_terminal():
        return
    share = f"{done / 1e6:.1f} MB"
    if total:
        share += f" of {total / 1e6:.1f} MB"
        width = min(30, shutil.get_terminal_size().columns - len(f"{name} [] {share}") - 1)
        if width > 0:
            filled = width * min(done, total) // total
            share = f"[{'#' * filled}{'.' * (width - filled)}] {share}"
    end = "\n" if done == total else ""
    print(f"\r{name} {share}", end=end, file=sys.stderr, flush=True)


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def fetch(download: Download, folder: Path, progress: Report | None = None) -> Path:
    """Fetch a file into a folder; whatever happens, nothing half-finished has its name."""
    import http.client  # slow to import, and seldom needed
    import urllib.error
    import urllib.request

    path = folder / download.name
    part = folder / f"{download.name}.part"
    try:
        if not download.url.startswith(("https://", "http://")):
            raise DatasetError(f"{download.url} is not an address of the web")
        request = urllib.request.Request(download.url, headers={"User-Agent": "conenmf"})
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer, open(part, "wb") as file:
            digest = _copy(answer, file, download, progress)
        if download.sha256 not in (None, digest):
            raise DatasetError(
                f"{download.url} has the checksum {digest}, expected {download.sha256}: the file "
                "is damaged or was replaced; nothing was kept"
            )
        return part.replace(path)
    except DatasetError:
        raise
    except (OSError, http.client.HTTPException) as problem:
        if isinstance(problem, urllib.error.HTTPError):
            problem.close()  # it is an answer too
        if isinstance(problem, OSError) and is_disk_full(problem):
            raise DiskFullError(f"no room for {download.name} in {folder}") from problem
        raise DatasetError(
            f"{download.url} could not be fetched: {visible(problem)}; try again later, or get "
            "the file another way"
        ) from problem
    finally:
        part.unlink(missing_ok=True)


def _copy(
    answer: HTTPResponse,
    file: IO[bytes],
    download: Download,
    progress: Report | None,
) -> str:
    """Copy an answer to a file; its checksum."""
    promised = answer.headers.get("Content-Length")
    total = int(promised) if promised is not None and promised.isdecimal() else None
    digest, done = hashlib.sha256(), 0
    try:
        while True:
            if max(done, total or 0) > download.largest:
                raise DatasetError(
                    f"{download.url} has more than the {download.largest} bytes that are "
                    "expected; nothing was kept"
                )
            if not (chunk := answer.read(_CHUNK)):
                break
            digest.update(chunk)
            file.write(chunk)
            done += len(chunk)
            if progress is not None:
                progress(download.name, done, total)
        if total is not None and done != total:
            raise DatasetError(
                f"{download.url} was cut off after {done} of {total} bytes: try again; nothing "
                "was kept"
            )
    except BaseException:
        if progress is show_progress and done and _on_terminal():
            print(file=sys.stderr)  # what is said next does not begin behind the bar
        raise
    if total is None and progress is not None:
        progress(download.name, done, done)
    return digest.hexdigest()


def unpack(archive: Path, folder: Path, wanted: Callable[[PurePosixPath], bool]) -> None:
    """Unpack the wanted members of a ``.tar.gz`` or ``.zip`` file below a folder."""
    try:
        if archive.suffix == ".zip":
            _unpack_zip(archive, folder, wanted)
        else:
            _unpack_tar(archive, folder, wanted)
    except _DAMAGE as problem:
        raise DatasetError(
            f"{archive.name} is not an archive that can be unpacked: {visible(problem)}"
        ) from problem
    except DatasetError:
        raise
    except OSError as problem:
        if is_disk_full(problem):
            raise DiskFullError(f"no room for {archive.name}, unpacked, in {folder}") from problem
        raise DatasetError(
            f"{archive.name} cannot be unpacked into {folder}: {visible(problem)}"
        ) from problem


def _unpack_tar(archive: Path, folder: Path, wanted: Callable[[PurePosixPath], bool]) -> None:
    unpacked = 0
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            unpacked += member.size
            _check_size(archive, unpacked)
            if member.isreg() and wanted(PurePosixPath(member.name)):
                stream = tar.extractfile(member)
                assert stream is not None  # a regular file has content
                with stream, open(_place(member.name, folder), "wb") as file:
                    shutil.copyfileobj(stream, file)


def _unpack_zip(archive: Path, folder: Path, wanted: Callable[[PurePosixPath], bool]) -> None:
    unpacked = 0
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            unpacked += member.file_size
            _check_size(archive, unpacked)
            if not member.is_dir() and wanted(PurePosixPath(member.filename)):
                with (
                    packed.open(member) as stream,
                    open(_place(member.filename, folder), "wb") as file,
                ):
                    shutil.copyfileobj(stream, file)


def _check_size(archive: Path, unpacked: int) -> None:
    if unpacked > _UNPACKED:
        raise DatasetError(f"{archive.name} unpacks to more than {_UNPACKED} bytes")


def _place(name: str, folder: Path) -> Path:
    """Where a member goes: below the folder, whatever it is called."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or parts[0].endswith((":", "/")) or ".." in parts:
        raise DatasetError(f"an archive has a member that leads out of it: {visible(name)}")
    path = folder.joinpath(*parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
