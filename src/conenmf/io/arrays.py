"""Arrays in NumPy's ``.npy`` and ``.npz``, MATLAB's ``.mat`` and Matrix Market files.

NumPy maps ``.npy`` files into memory, and reads ``.npz`` files as a whole. SciPy reads Matrix
Market files and MATLAB's files of version 5 to 7 as a whole. MATLAB 7.3 writes HDF5.
"""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import scipy.sparse as sp
from scipy import io as scipy_io

from ..errors import FileFormatError
from ..names import Names
from ..scale.disk import Stamp
from ..text import decoded
from ..types import Facts, Lengths
from .hdf5 import open_hdf5, open_matlab_variable
from .limits import (
    MAX_EXPANSION_RATIO,
    check_expansion,
    check_fits,
    choose_member,
    largest_matrix,
    layout_of,
    require_package,
)
from .source import ArraySource, NamedMatrix, Reading, Remarks
from .spectral import band_names

_NAMES = ("sample_names", "feature_names")
_HEADERS = {  # readers of headers, by the version of the format
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_HDF5_SIGNATURE = b"\x89HDF"  # at the beginning, or after MATLAB's header


def open_npy(path: Path, reading: Reading) -> NamedMatrix:
    """Open an ``.npy`` file by mapping it into memory."""
    stamp = Stamp([path])
    array = np.lib.format.open_memmap(path, mode="r")  # rejects Python objects
    return NamedMatrix(ArraySource(np.asarray(array), str(path), path, stamp))


def open_npz(path: Path, reading: Reading) -> NamedMatrix:
    """Open an archive of arrays: one matrix, or the parts of a sparse one as SciPy saves them."""
    remarks: Remarks = ()
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        is_sparse = {"data", "shape"} < set(archive.files)
        wanted = {f"{name}.npy" for name in archive.files}
        if not is_sparse:
            others = set(archive.files) - set(_NAMES)
            if reading.dataset is None and len(others) > 1:
                shapes = {name: _shape(archive.zip, name) for name in others}
                dataset, remarks = largest_matrix(path, shapes)
            else:
                dataset = choose_member(path, reading.dataset, others)
            wanted = {f"{dataset}.npy"}
        infos = [info for info in archive.zip.infolist() if info.filename in wanted]
        size = sum(info.file_size for info in infos)
        check_expansion(path, sum(info.compress_size for info in infos), size)
        check_fits(path, size, reading.budget)
        texts: Facts = {}
        for name in set(_NAMES) & set(archive.files):
            texts[name] = map(decoded, np.atleast_1d(archive[name]).tolist())
        names = Names.of(**texts)
        matrix = _checked(sp.load_npz(path)) if is_sparse else archive[dataset]
    return NamedMatrix(matrix, names, remarks, roles_stored=True)


def _shape(archive: ZipFile, name: str) -> Lengths:
    """Return the shape of an array of numbers in an archive, by its header; () for others."""
    with archive.open(f"{name}.npy") as stream:
        read = _HEADERS.get(np.lib.format.read_magic(stream))
        shape, _, dtype = ((), None, np.dtype(object)) if read is None else read(stream)
    return shape if dtype.kind in "biufc" else ()


def _checked(matrix: Any) -> Any:
    """Return a sparse matrix in memory after checking that its parts fit together."""
    if hasattr(matrix, "check_format"):
        matrix.check_format()
    return matrix


def open_matlab(path: Path, reading: Reading) -> NamedMatrix:
    """Open a ``.mat`` file: the named variable, or its only or by far largest matrix."""
    with open(path, "rb") as stream:
        head = stream.read(516)
    if _HDF5_SIGNATURE in (head[:4], head[512:]):
        return open_hdf5(path, reading, open_matlab_variable)
    dataset = reading.dataset and reading.dataset.strip("/")
    wanted = []
    with suppress(TypeError):  # SciPy cannot list some classes that it can load, such as tables
        for name, shape, kind in scipy_io.whosmat(path):
            if dataset not in (None, name) and 1 not in shape:  # a vector may contain wavelengths
                continue
            wanted.append(name)
            if kind != "sparse":
                claimed = math.prod(shape)  # at least one byte for each number
                check_expansion(f"{path}: {name!r}", path.stat().st_size, claimed)
                check_fits(f"{path}: {name!r}", claimed, reading.budget)
    found = scipy_io.loadmat(path, spmatrix=False, variable_names=wanted or dataset)
    numeric = {name: array for name, array in found.items() if _is_numeric(array)}
    layout = None
    if dataset is None:
        layout = layout_of(path, {name: array.shape for name, array in numeric.items()})
        dataset = layout.dataset
    matrix = numeric.pop(choose_member(path, dataset, numeric))
    names = band_names(matrix.shape, (one for one in numeric.values() if 1 in one.shape))
    if sp.issparse(matrix):
        matrix = _checked(matrix)
    return NamedMatrix(matrix, names).laid_out(layout)


def array_names(path: Path) -> list[str | None]:
    """Return the names of the arrays in a file of NumPy or MATLAB; [None] for other files."""
    kind = path.suffix.lower()
    if kind == ".npz":
        with np.load(path) as archive:
            return list(archive.files)
    if kind == ".mat":
        with suppress(NotImplementedError):  # MATLAB 7.3
            return [name for name, *_ in scipy_io.whosmat(path)]
        return list(require_package("h5py", path).File(path))
    return [None]


def _is_numeric(variable: Any) -> bool:
    return getattr(variable, "ndim", 0) >= 2 and variable.dtype.kind in "biufc"


def open_matrix_market(path: Path, reading: Reading) -> NamedMatrix:
    """Open an ``.mtx`` file, dense or sparse; with the ending ``.gz``, a compressed one."""
    rows, columns, entries, form, _, _ = scipy_io.mminfo(path)
    stored = path.stat().st_size
    most = stored * (MAX_EXPANSION_RATIO if path.suffix.lower() == ".gz" else 1)
    if (2 if form == "array" else 4) * entries > most:
        raise FileFormatError(
            f"{path} is truncated: its header claims {entries} numbers, which its {stored} bytes "
            "cannot hold; copy or download it again"
        )
    check_fits(path, 24 * entries + 8 * max(rows, columns), reading.budget)
    return NamedMatrix(scipy_io.mmread(path, spmatrix=False))
