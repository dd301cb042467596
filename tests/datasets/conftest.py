"""Datasets in folders of the same layout as the real ones, and on a server on this machine."""

import hashlib
import threading
import warnings
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from conenmf.datasets import DATASETS, load
from conenmf.errors import InputWarning


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """No test sees the folders of the user."""
    folder = tmp_path / "cache"
    monkeypatch.setattr("conenmf.datasets.cache_folder", lambda: folder)
    monkeypatch.delenv("CONENMF_DATA", raising=False)
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that CONENMF_DATA names."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("CONENMF_DATA", str(folder))
    return folder


@pytest.fixture
def small(monkeypatch):
    """Change the description of a dataset, for one that is smaller than the real one."""

    def change(name, **changes):
        monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], **changes))

    return change


@pytest.fixture
def warned():
    """The warnings of `load`."""

    def messages(name, **options):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            load(name, **options)
        for warning in caught:
            assert warning.category is InputWarning
            assert warning.filename == __file__
        return [str(warning.message) for warning in caught]

    return messages


# --- official files -----------------------------------------------------------------------------


class _Answers(BaseHTTPRequestHandler):
    """Answers with what the server has."""

    def do_GET(self):
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as here:
        here.files, here.asked = {}, []
        here.url = f"http://127.0.0.1:{here.server_port}"
        thread = threading.Thread(target=here.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield here
        here.shutdown()
        thread.join()


@pytest.fixture
def offer(server, small):
    """Let a dataset be at this server; the checksums of its files may be known."""

    def add(name, files, known=False, **changes):
        server.files.update({f"/{file}": content for file, content in files.items()})
        addresses = tuple(f"{server.url}/{file}" for file in files)
        if known:
            (content,) = files.values()
            changes["download_sha256"] = hashlib.sha256(content).hexdigest()
        small(name, downloads=addresses, **changes)

    return add
