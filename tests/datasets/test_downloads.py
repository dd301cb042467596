"""Fetching and unpacking, from a server on this machine; also on a terminal."""

import errno
import gzip
import hashlib
import http.client
import os
import signal
import subprocess
import sys
import tarfile
import tracemalloc
import urllib.request
import zipfile

import pytest

from conenmf.datasets import Download, fingerprint
from conenmf.datasets.downloads import fetch, show_progress, unpack
from conenmf.errors import DatasetError, DiskFullError

try:
    import pty
except ImportError:  # Windows
    pty = None


def test_a_file_with_another_checksum_is_not_kept(server, tmp_path):
    server.files["/file"] = b"content"
    right = hashlib.sha256(b"content").hexdigest()
    path = fetch(Download(f"{server.url}/file", 100, right), tmp_path)
    assert path.read_bytes() == b"content"
    path.unlink()
    with pytest.raises(DatasetError, match=f"has the checksum {right}, expected 0000"):
        fetch(Download(f"{server.url}/file", 100, "0" * 64), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_the_web_is_asked(tmp_path):
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(DatasetError, match="not a web address"):
        fetch(Download((tmp_path / "secret").as_uri(), 100), tmp_path)


def test_an_archive_whose_members_collide(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", "a file")
        archive.writestr("a/b", "in a folder of its name")
    with pytest.raises(DatasetError, match="cannot be unpacked into"):
        unpack(tmp_path / "a.zip", tmp_path / "in", lambda member: True)


def test_a_disk_that_is_full_while_unpacking(tmp_path, monkeypatch, tar):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("conenmf.datasets.downloads._copy_bytes", full)
    (tmp_path / "a.tar.gz").write_bytes(tar({"a": b"content"}))
    with pytest.raises(DiskFullError, match=r"not enough disk space to unpack a\.tar\.gz"):
        unpack(tmp_path / "a.tar.gz", tmp_path, lambda member: True)


def test_a_server_that_does_not_answer(tmp_path):
    with pytest.raises(DatasetError, match="could not be fetched"):
        fetch(Download("http://127.0.0.1:1/file", 100), tmp_path)


@pytest.mark.parametrize(
    "name", ["../a.png", "/a.png", "x/../../a.png", "..\\a.png", "c:/a.png", "C:a.png", "a/C:b.png"]
)
def test_no_member_of_an_archive_leads_out_of_it(tmp_path, name, tar):
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, "content")
    (tmp_path / "a.tar.gz").write_bytes(tar({name: b"content"}))
    for archive in ("a.zip", "a.tar.gz"):
        with pytest.raises(DatasetError, match="leads out of it"):
            unpack(tmp_path / archive, tmp_path / "in", lambda member: True)
    assert list((tmp_path / "in").iterdir()) == []


def test_an_archive_that_unpacks_to_too_much(tmp_path, tar):
    (tmp_path / "a.tar.gz").write_bytes(tar({"a": bytes(60), "b": bytes(60)}))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(101))
    for archive in ("a.zip", "a.tar.gz"):
        with pytest.raises(DatasetError, match="unpacks to more than 100 bytes"):
            unpack(tmp_path / archive, tmp_path, lambda member: False, max_bytes=100)


def test_a_damaged_archive(tmp_path, tar):
    whole = tar({"a": " ".join(map(str, range(9000))).encode()})
    for damaged in (whole[:-2000], b"\xff" * 20 + whole[20:]):
        (tmp_path / "a.tar.gz").write_bytes(damaged)
        with pytest.raises(DatasetError, match="not an archive"):
            unpack(tmp_path / "a.tar.gz", tmp_path, lambda member: True)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_headers_that_claim_much(tmp_path, kind):
    """A name of 1 GB in 979 kB of an archive took 1.17 GB; here it is of 64 MB."""
    with gzip.open(tmp_path / "a.tar.gz", "wb", compresslevel=1) as archive:
        info = tarfile.TarInfo("././@LongLink")
        info.type, info.size = kind, 64 << 20
        archive.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(64):
            archive.write(b"x" * (1 << 20))
    tracemalloc.start()
    with pytest.raises(DatasetError, match="headers that are too large"):
        unpack(tmp_path / "a.tar.gz", tmp_path, lambda member: True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_headers_without_end(tmp_path):
    """The map of a file with holes continues in every block."""
    info = tarfile.TarInfo("a")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1
    header[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(header))[0]
    more = bytearray(512)
    more[504] = 1
    with gzip.open(tmp_path / "a.tar.gz", "wb", compresslevel=1) as archive:
        archive.write(bytes(header))
        for _ in range(20):
            archive.write(bytes(more) * 2048)
    with pytest.raises(DatasetError, match="headers that are too large"):
        unpack(tmp_path / "a.tar.gz", tmp_path, lambda member: True)


@pytest.mark.parametrize(("kind", "size"), [(tarfile.REGTYPE, -512), (tarfile.GNUTYPE_SPARSE, 5)])
def test_members_of_no_size_and_with_holes(tmp_path, kind, size):
    """A negative size led the library back to the same header, for ever."""
    info = tarfile.TarInfo("a.png")
    info.type = kind
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)
    header[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(header))[0]
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(bytes(header) + bytes(1024)))
    with pytest.raises(DatasetError, match=r"with holes, or of negative size|invalid offset"):
        unpack(tmp_path / "a.tar.gz", tmp_path, lambda member: True)


def test_many_members(tmp_path, monkeypatch, tar):
    monkeypatch.setattr("conenmf.datasets.downloads._MAX_MEMBERS", 100)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(101):
            archive.writestr(str(number), b"")
    (tmp_path / "a.tar.gz").write_bytes(tar(dict.fromkeys(map(str, range(101)), b"")))
    for archive in ("a.zip", "a.tar.gz"):
        with pytest.raises(DatasetError, match="has more than 100 members"):
            unpack(tmp_path / archive, tmp_path, lambda member: False)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        for number in range(100):
            archive.writestr(f"{number:0200}", b"")
    monkeypatch.setattr("conenmf.datasets.downloads._MAX_ZIP_READ", 20_000)
    with pytest.raises(DatasetError, match="headers that are too large"):
        unpack(tmp_path / "b.zip", tmp_path, lambda member: False)


def test_long_names_and_large_members_are_unpacked(tmp_path, tar):
    content = os.urandom(300_000)
    name = "/".join(["f" * 200] * 5)
    (tmp_path / "a.tar.gz").write_bytes(tar({name: content, "b": b"x", "ü": content[:1000]}))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in ((name, content), ("b", b"x"), ("ü", content[:1000])):
            archive.writestr(member, text)
    for number, archive in enumerate(("a.tar.gz", "a.zip")):
        folder = tmp_path / str(number)
        unpack(tmp_path / archive, folder, lambda member: True)
        assert (folder / name).read_bytes() == content
        assert (folder / "b").read_bytes() == b"x"
        assert (folder / "ü").read_bytes() == content[:1000]


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unusual_compressions(tmp_path, compression):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", compression) as archive:
        archive.writestr("a", bytes(1000))
    with pytest.raises(DatasetError, match="in an unusual compression"):
        unpack(tmp_path / "a.zip", tmp_path / "in", lambda member: True)


def test_a_zip_that_lies_about_a_member(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", b"content")
    whole = bytearray((tmp_path / "a.zip").read_bytes())
    whole[whole.index(b"content")] ^= 1
    (tmp_path / "a.zip").write_bytes(whole)
    with pytest.raises(DatasetError, match="Bad CRC-32"):
        unpack(tmp_path / "a.zip", tmp_path / "in", lambda member: True)


# --- the web ------------------------------------------------------------------------------------


@pytest.fixture
def https(monkeypatch):
    """Let https be answered by the server on this machine, which does not know it."""

    def open_plainly(self, request):
        return self.do_open(http.client.HTTPConnection, request)

    monkeypatch.setattr(urllib.request.HTTPSHandler, "https_open", open_plainly)


def test_redirects(server, https, tmp_path):
    server.files["/file"] = b"content"
    plain, secure = server.url, server.url.replace("http:", "https:")
    server.redirects = {"/down": f"{plain}/file", "/up": f"{secure}/file", "/same": "/file"}
    server.redirects |= {"/ftp": "ftp://127.0.0.1/file", "/circle": "/circle", "/DOWN": "HTTP://x/"}
    for url in (f"{secure}/up", f"{secure}/same", f"{plain}/up", f"{plain}/same", f"{plain}/down"):
        assert fetch(Download(url, 100), tmp_path).read_bytes() == b"content"
    for url in (f"{secure}/down", f"{secure}/DOWN", f"{secure}/ftp", f"{plain}/ftp"):
        with pytest.raises(DatasetError, match="refused, since it could be replaced on its way"):
            fetch(Download(url, 100), tmp_path)
    with pytest.raises(DatasetError, match="could not be fetched"):
        fetch(Download(f"{secure}/circle", 100), tmp_path)
    server.redirects = {"/first": f"{secure}/second", "/second": f"{plain}/file"}
    server.asked.clear()
    with pytest.raises(DatasetError, match=r"https://.*/second leads to http://.*/file, which is"):
        fetch(Download(f"{plain}/first", 100), tmp_path)
    assert server.asked == ["/first", "/second"]


@pytest.mark.parametrize("length", ["-5", "+5", "0x5", "1" * 5000, "5 5", ""])
def test_a_length_that_is_none(server, tmp_path, length):
    server.files["/file"], server.length = b"content", length
    with pytest.raises(DatasetError, match=r"claims to have .* bytes: try again later") as caught:
        fetch(Download(f"{server.url}/file", 100), tmp_path)
    assert len(str(caught.value)) < 200
    assert list(tmp_path.iterdir()) == []


# --- terminals ----------------------------------------------------------------------------------


def test_a_bar_is_drawn_on_terminals_only(capsys, monkeypatch):
    show_progress("file", 5, 10)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    show_progress("file", 5_000_000, 10_000_000)
    show_progress("file", 10_000_000, 10_000_000)
    show_progress("file", 2_000_000, None)
    shown = capsys.readouterr().err
    assert f"\rfile [{'#' * 15}{'.' * 15}] 5.0 MB of 10.0 MB\rfile" in shown
    assert shown.endswith("\n\rfile 2.0 MB")


def test_the_bar_fits_the_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for columns in (200, 40, 24, 5):
        monkeypatch.setenv("COLUMNS", str(columns))
        show_progress("file", 5_000_000, 10_000_000)
        shown = capsys.readouterr().err.lstrip("\r")
        assert len(shown) < max(columns, len("file 5.0 MB of 10.0 MB") + 1)
        assert ("#" in shown) == (columns > 25)
    monkeypatch.setattr("sys.stderr", None)
    show_progress("file", 5_000_000, 10_000_000)


# A process of its own on a terminal of its own, which fetches a dataset from a server.
_FETCHING = """
import signal
import sys
from dataclasses import replace
from conenmf.datasets import DATASETS, Download, load

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
url, sha256 = sys.argv[1:]
DATASETS["tr11"] = replace(DATASETS["tr11"], downloads=(Download(url, 10**7),), sha256=sha256)
print("verified", load("tr11", download=True).verified)
"""


class _OnTerminal:
    """Fetch on a terminal; what is shown there."""

    def __init__(self, url, sha256, cache):
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _FETCHING, url, sha256],
            env={**os.environ, "XDG_CACHE_HOME": str(cache), "COLUMNS": "100"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def read(self, until=None):
        """Read to the end, or until something is shown."""
        while until is None or until not in self.shown:
            try:
                more = os.read(self._ours, 4096)
            except OSError:  # how a terminal ends
                more = b""
            if not more:
                break
            self.shown += more.decode()
        if until is None:
            os.close(self._ours)
            self.process.wait(60)
        return self.shown


needs_terminals = pytest.mark.skipif(pty is None, reason="there are no terminals here")


@needs_terminals
@pytest.mark.parametrize("file", ["d.tar.gz", "endless.tar.gz"])
def test_a_download_on_a_terminal(server, tmp_path, rng, file, counts, cluto_archive):
    X, labels = counts(rng)
    server.files[f"/{file}"] = content = cluto_archive(X, labels)
    terminal = _OnTerminal(f"{server.url}/{file}", fingerprint(X, labels), tmp_path)
    lines = terminal.read().splitlines()
    assert terminal.process.returncode == 0, terminal.shown
    assert lines[-1] == "verified True"
    size = f"{len(content) / 1e6:.1f} MB"
    assert f"\r{file} [{'#' * 30}] {size} of {size}\r\nverified True" in terminal.shown


@needs_terminals
def test_ctrl_c_on_a_terminal(server, tmp_path):
    server.files["/stalls.tar.gz"] = b"x" * 300_000
    terminal = _OnTerminal(f"{server.url}/stalls.tar.gz", "0" * 64, tmp_path)
    terminal.read(until="0.3 MB of")
    os.kill(terminal.process.pid, signal.SIGINT)
    shown = terminal.read()
    server.stalled.set()
    assert terminal.process.returncode != 0
    assert shown.splitlines()[-1] == "KeyboardInterrupt"
    assert "MB\r\nTraceback" in shown  # not behind the bar
    assert list((tmp_path / "conenmf" / "datasets").glob("*")) == []


@needs_terminals
def test_a_download_that_is_cut_off_on_a_terminal(server, tmp_path):
    server.files["/cut.tar.gz"] = b"x" * 300_000
    terminal = _OnTerminal(f"{server.url}/cut.tar.gz", "0" * 64, tmp_path)
    shown = terminal.read()
    assert "MB\r\nTraceback" in shown
    assert "DatasetError" in shown
    assert list((tmp_path / "conenmf" / "datasets").glob("*")) == []
