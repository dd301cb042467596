"""Fetching and unpacking, from a server on this machine; also on a terminal."""

import errno
import hashlib
import os
import signal
import subprocess
import sys
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

    monkeypatch.setattr("shutil.copyfileobj", full)
    (tmp_path / "a.tar.gz").write_bytes(tar({"a": b"content"}))
    with pytest.raises(DiskFullError, match=r"not enough disk space to unpack a\.tar\.gz"):
        unpack(tmp_path / "a.tar.gz", tmp_path, lambda member: True)


def test_a_server_that_does_not_answer(tmp_path):
    with pytest.raises(DatasetError, match="could not be fetched"):
        fetch(Download("http://127.0.0.1:1/file", 100), tmp_path)


@pytest.mark.parametrize("name", ["../a.png", "/a.png", "x/../../a.png", "..\\a.png", "c:/a.png"])
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
