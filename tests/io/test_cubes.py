"""Arrays of three axes: from every format the same pixels by bands, row by row."""

import warnings

import h5py
import numpy as np
import pytest
import scipy.io
import zarr
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.entries import entries

from conenmf import factorize, from_rows, open_data
from conenmf.errors import (
    InputWarning,
)
from conenmf.names import Names
from conenmf.scale.disk import DiskMatrix


def _hdf5(path, cube, chunks=None):
    chunks = None if chunks is None else tuple(map(min, chunks, cube.shape))
    with h5py.File(path, "w") as file:
        file.create_dataset("cube", data=cube, chunks=chunks)


def _mat_7_3(path, cube):
    with h5py.File(path, "w", userblock_size=512) as file:
        file["scene"] = cube.T  # as MATLAB stores it
        file["scene"].attrs["MATLAB_class"] = np.bytes_("double")


def _zarr(path, cube):
    zarr.create_array(str(path), data=cube, chunks=tuple(min(side, 4) for side in cube.shape))


WRITERS = {
    "a.npy": np.save,
    "f.npy": lambda path, cube: np.save(path, np.asfortranarray(cube)),
    "a.npz": np.savez,
    "f.npz": lambda path, cube: np.savez(path, np.asfortranarray(cube)),
    "compressed.npz": np.savez_compressed,
    "a.h5": _hdf5,
    "chunked.h5": lambda path, cube: _hdf5(path, cube, (2, 2, 2)),
    "a.zarr": _zarr,
    "5.mat": lambda path, cube: scipy.io.savemat(path, {"scene": cube, "fps": 3.0}),
    "7.3.mat": _mat_7_3,
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("samples_in", ["rows", "columns"])
def test_pixels_by_bands(tmp_path, name, samples_in):
    cube = np.random.default_rng(0).random((5, 7, 4))
    WRITERS[name](tmp_path / name, cube if samples_in == "rows" else np.moveaxis(cube, 2, 0))
    V = open_data(tmp_path / name, samples_in=samples_in)
    X = cube.reshape(35, 4)
    np.testing.assert_array_equal(entries(V).T, X)
    assert V.names == Names(pixels_shape=(5, 7))
    order = "5 x 7 x 4 was read as rows x columns x bands"
    if samples_in == "columns":
        order = "4 x 5 x 7 was read as bands x rows x columns"
    assert V.remarks == (f"a cube of {order}: each pixel is a sample, each band a feature",)
    np.testing.assert_array_equal(V.columns([3, 4, 5, 6, 20, 34]).T, X[[3, 4, 5, 6, 20, 34]])
    result, expected = factorize(V, 2), factorize(from_rows(X), 2)
    assert result.relative_error == pytest.approx(expected.relative_error, rel=1e-12)


@pytest.mark.parametrize("name", ["a.npy", "f.npy", "chunked.h5", "a.zarr", "7.3.mat"])
def test_blocks_that_end_within_a_row_of_pixels(tmp_path, name):
    cube = np.random.default_rng(0).random((6, 9, 3))
    WRITERS[name](tmp_path / name, cube)
    V = open_data(tmp_path / name, block_samples=4)
    assert isinstance(V, DiskMatrix)
    np.testing.assert_allclose(V.norms_squared, (cube.reshape(54, 3) ** 2).sum(axis=1))
    assert V.nonzero == 54


@settings(max_examples=15, deadline=None)
@given(st.tuples(*[st.integers(1, 5)] * 3), st.sampled_from(sorted(WRITERS)), st.booleans())
def test_any_cube_comes_back(tmp_path_factory, shape, name, bands_first):
    path = tmp_path_factory.mktemp("cube") / name
    cube = 1.0 + np.arange(np.prod(shape)).reshape(shape)
    stored = np.moveaxis(cube, 2, 0) if bands_first else cube
    assume(name != "5.mat" or stored.shape[2] > 1)  # MATLAB forgets a last axis of length 1
    WRITERS[name](path, stored)
    dataset, samples_in = "scene" if name == "5.mat" else None, "columns" if bands_first else "rows"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        V = open_data(path, dataset=dataset, samples_in=samples_in, block_samples=3)
    image = entries(V).T.reshape(*V.names.pixels_shape, -1)
    np.testing.assert_array_equal(image, cube)


def test_names_of_bands_and_the_shape_are_kept(tmp_path, reloaded):
    cube = np.random.default_rng(0).random((5, 4, 3))
    np.savez(tmp_path / "a.npz", cube=cube, feature_names=["red", "green", "blue"])
    result = factorize(open_data(tmp_path / "a.npz"), 2)
    names = reloaded(result).names
    assert names == Names(None, ("red", "green", "blue"), pixels_shape=(5, 4))
    assert result.H.reshape(2, *names.pixels_shape).shape == (2, 5, 4)
