"""Files that hold a pickle: none may ever be loaded, whatever the file is called."""

import io
import json
import os
import pickle
import zipfile
from functools import partial

import numpy as np
import pytest

import conenmf
from conenmf.errors import ConeNMFError
from conenmf.scale.checkpoint import Checkpoint

SUFFIXES = (".npy", ".npz", ".csv", ".mtx", ".mat", ".h5", ".h5ad", ".parquet", ".arrow", ".pkl")
X = np.random.default_rng(0).random((12, 5))


class Bomb:
    """It makes a folder when it is unpickled."""

    def __init__(self, trace):
        self.trace = str(trace)

    def __reduce__(self):
        return os.makedirs, (self.trace, 0o700, True)


def zarr(folder, bomb, dtype="|O"):
    settings = {"zarr_format": 2, "shape": [1, 1], "chunks": [1, 1], "order": "C", "dtype": dtype}
    settings |= {"fill_value": None, "compressor": None, "filters": [{"id": "pickle"}]}
    (folder / "x.zarr").mkdir()
    (folder / "x.zarr" / ".zarray").write_text(json.dumps(settings))
    (folder / "x.zarr" / "0.0").write_bytes(pickle.dumps(np.array([[bomb]], object)))
    conenmf.open_data(folder / "x.zarr")


def result(folder, bomb):
    fitted = conenmf.factorize(conenmf.from_rows(X, n_threads=1), 2, max_iter=3)
    fitted.save(folder / "x.npz")
    exchange(folder / "x.npz", bomb)
    conenmf.Factorization.load(folder / "x.npz")


def checkpoint(folder, bomb):
    V, saved = conenmf.from_rows(X, n_threads=1), Checkpoint(folder / "run", every=0)
    options = {"init": "cr1", "tol": 0.0, "max_iter": 6, "checkpoint": saved}
    conenmf.factorize(V, 2, callback=lambda now: now.iteration == 3, **options)
    (state,) = (folder / "run").rglob("state.npz")
    exchange(state, bomb)
    (state.parent / "H-000000000000000.npy").write_bytes(of_objects(bomb))
    conenmf.factorize(V, 2, **options)


def of_objects(bomb):
    stream = io.BytesIO()
    np.save(stream, np.array([[bomb]], object), allow_pickle=True)
    return stream.getvalue()


def exchange(path, bomb):
    """Put a pickle in place of every array of an archive but the texts, which say what it is."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content if b"'<U" in content[:128] else of_objects(bomb))


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "unpickled"


def test_the_bomb_goes_off(trace):
    """So that the tests below would notice."""
    pickle.loads(pickle.dumps(Bomb(trace)))
    assert trace.exists()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pickled", [pickle.dumps, of_objects])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_pickle_is_loaded_from_a_file_of_any_name(pickled, suffix, tmp_path, trace, refuses):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(pickled(Bomb(trace)))
    refuses(ConeNMFError, None, conenmf.open_data, path)
    assert not trace.exists()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", [zarr, partial(zarr, dtype="<f8"), result, checkpoint])
def test_no_pickle_is_loaded_from_our_own_kinds_of_files(way, tmp_path, trace, refuses):
    refuses(ConeNMFError, None, way, tmp_path, Bomb(trace))
    assert not trace.exists()
