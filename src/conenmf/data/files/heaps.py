"""Texts of HDF5, which are kept apart from their dataset: how long they are, before they are read.

A dataset holds a length and a place for each text, and many may name the same place: a file of
a megabyte can hold three thousand texts of a megabyte each. The library has no way to ask for the
lengths, so the dataset is read as it is stored; chunks are decoded by the library, from a copy in
memory whose type is bytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import FileFormatError
from ...text import decoded

__all__ = ["text_lengths"]

_FILTERS_OF_BYTES = (1, 3)  # deflate and a checksum; others depend on the type of the numbers
_FIRST_FOREIGN_FILTER = 256


def text_lengths(dataset: Any) -> Iterator[int]:
    """How many bytes the texts of a dataset have, for some of them after the other."""
    creation = dataset.file.id.get_create_plist()
    size = 8 + creation.get_sizes()[0]  # the length, a place, a number
    kind = np.dtype([("length", "<u4"), ("place", f"V{size - 4}")])
    if dataset.chunks is not None:
        for content in _chunks(dataset, size):
            yield _total(np.frombuffer(content, kind))
    elif (place := dataset.id.get_offset()) is not None:
        with open(dataset.file.filename, "rb") as stream:
            stream.seek(place)
            content = stream.read(size * dataset.shape[0])
        if len(content) < size * dataset.shape[0]:
            raise FileFormatError(
                f"{dataset.file.filename} is truncated; copy or download it again"
            )
        yield _total(np.frombuffer(content, kind))
    else:  # few, beside the header of the dataset, or none
        for index in range(dataset.shape[0]):
            yield len(dataset[index])


def _total(descriptions: Any) -> int:
    return int(descriptions["length"].sum(dtype=np.int64))


def _chunks(dataset: Any, size: int) -> Iterator[bytes]:
    """The chunks of a dataset, decoded, as bytes."""
    h5py = importlib.import_module("h5py")
    space = h5py.h5s.create_simple(dataset.chunks)
    opaque = h5py.h5t.create(h5py.h5t.OPAQUE, size)
    for number in range(dataset.id.get_num_chunks()):
        place = dataset.id.get_chunk_info(number).chunk_offset
        mask, content = dataset.id.read_direct_chunk(place)
        creation = _decoding(h5py, dataset, mask)
        with h5py.File("copy", "w", driver="core", backing_store=False) as file:
            copy = h5py.h5d.create(file.id, b"copy", opaque, space, creation)
            copy.write_direct_chunk((0,), content)
            numbers = np.empty(dataset.chunks, f"V{size}")
            copy.read(h5py.h5s.ALL, h5py.h5s.ALL, numbers)
        yield numbers.tobytes()


def _decoding(h5py: Any, dataset: Any, mask: int) -> Any:
    """The filters of a chunk, those left out that were not applied to it."""
    stored = dataset.id.get_create_plist()
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_chunk(dataset.chunks)
    for number in range(stored.get_nfilters()):
        code, flags, values, name = stored.get_filter(number)
        if mask >> number & 1:
            continue
        if code not in _FILTERS_OF_BYTES and code < _FIRST_FOREIGN_FILTER:
            raise FileFormatError(
                f"{dataset.file.filename}: texts cannot be encoded with {decoded(name)}"
            )
        creation.set_filter(code, flags, values)
    return creation
