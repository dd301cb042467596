"""Saved factorisations: one ``.npz`` file of plain arrays, written and read without pickle.

A saved file may be untrusted. Reading refuses what writing cannot have produced: compressed members
(a small file could claim a huge array), pickled objects, numbers of another kind, NaN, labels and
diagnoses that do not fit the factors. The fields are described in `result`.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields as fields_of
from operator import index
from typing import Any

import numpy as np

from .arguments import path as checked_path
from .cones.certificate import Certificate
from .data.aligned import write_array
from .data.blocks import Array
from .data.files.atomic import output_file, writing, written_whole
from .data.preparation import Preparation
from .data.vocabulary import Vocabulary
from .errors import FileFormatError
from .judge.certifying import AnyCertificate
from .judge.count_certificate import CountCertificate
from .judge.diagnosis import Diagnosis
from .names import Names
from .solve.prospect import Prospect
from .solve.race import Race
from .solve.stopping import History, StopReason

__all__ = ["saved_factorization", "write_factorization"]

_FORMAT = "conenmf-factorization-4"
_TEXT_FIELDS = ("stop_reason", "K_decided_by", "init_used", "loss")
_NUMBER_FIELDS = ("objective", "relative_error", "passes")
_HISTORY_FIELDS = ("relative_error", "elapsed", "passes")
_DIAGNOSIS_PREFIX = "diagnosis_"


def write_factorization(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Write the fields of a `Factorization`, except its data, to a file that appears complete."""
    target = output_file(checked_path("path", path))
    names: Names = fields["names"]
    metadata = {name: fields[name] for name in (*_TEXT_FIELDS, *_NUMBER_FIELDS)} | {
        "format": _FORMAT,
        "seconds": dict(fields["seconds"]),
        "settings": dict(fields["settings"]),
        "image_shape": names.image_shape,
        "race": fields["race"] and fields["race"].plain(),
        "prospect": fields["prospect"],
        "pixels_shape": names.pixels_shape,
        "vocabulary": fields["vocabulary"] and dict(fields["vocabulary"].settings),
        "preparation": fields["preparation"] and fields["preparation"].plain(),
    }
    arrays = {name: fields[name] for name in ("W", "H", "labels")}
    if fields["shares"] is not None:
        arrays["shares"] = fields["shares"]
    arrays |= {f"history_{name}": getattr(fields["history"], name) for name in _HISTORY_FIELDS}
    preparation = fields["preparation"]
    if preparation is not None and preparation.idf is not None:
        arrays["feature_weights"] = preparation.idf
    arrays["facts"] = np.array(json.dumps(metadata))
    if fields["vocabulary"] is not None:
        arrays["idf"] = fields["vocabulary"].idf
    for name in ("sample_names", "feature_names"):
        if (lines := getattr(names, name)) is not None:
            text = "\n".join(lines).encode("utf-8", "surrogateescape")
            arrays[name] = np.frombuffer(text, np.uint8)
    diagnosis, certificate = fields["diagnosis"], fields["certificate"]
    if diagnosis is not None:
        arrays |= {_DIAGNOSIS_PREFIX + key: array for key, array in diagnosis.arrays().items()}
    elif certificate is not None:
        arrays["certificate"] = _plain_certificate(certificate)
    if fields["first_certificate"] is not None:
        arrays["first_certificate"] = _plain_certificate(fields["first_certificate"])
    with writing(target), written_whole(target) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_array(member, array)


@contextmanager
def saved_factorization(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Read the fields of a `Factorization` that `write_factorization` wrote.

    A file that is damaged, was changed or is something else is refused with `FileFormatError`,
    also if that is noticed only when a `Factorization` is made of its fields.
    """
    path = checked_path("path", path)
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise FileFormatError("not a zip archive")
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            yield _read_fields(archive)
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except _OtherVersionError as problem:
        raise FileFormatError(f"{path} {problem}") from problem
    except Exception as problem:  # damaged zip files and array headers raise many kinds
        raise FileFormatError(
            f"{path} is not a factorisation saved by conenmf, or is damaged: {problem}"
        ) from problem


class _OtherVersionError(FileFormatError):
    """The file is a factorisation, saved by another version."""


def _read_fields(archive: Any) -> dict[str, Any]:
    for info in archive.zip.infolist():
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise FileFormatError(f"its member {info.filename!r} is compressed")
    if "facts" not in archive:
        raise FileFormatError("no conenmf metadata found")
    metadata = json.loads(str(archive["facts"]))
    if metadata["format"] != _FORMAT:
        raise _OtherVersionError(
            f"has format {metadata['format']!r}, this version reads {_FORMAT!r}: "
            "fit the data again and save the result"
        )
    settings, prospect = metadata["settings"], metadata["prospect"]
    shapes = (metadata.get(name) for name in ("image_shape", "pixels_shape"))
    if not (isinstance(settings, dict) and all(map(_is_plain, settings.values()))):
        raise FileFormatError("its settings are not plain values")
    W, H = _factor(archive, "W"), _factor(archive, "H")
    labels = _numbers(archive, "labels", "i")
    if labels.size and not -1 <= labels.min() <= labels.max() < W.shape[1]:
        raise FileFormatError("its labels are not those of its components")
    diagnosis = _read_diagnosis(archive, W, H)
    names = Names.of(
        _lines(archive, "sample_names"),
        _lines(archive, "feature_names"),
        *(None if shape is None else (index(shape[0]), index(shape[1])) for shape in shapes),
    )
    certificate = _read_certificate(archive, "certificate", metadata["loss"])
    if diagnosis is not None:
        certificate = diagnosis.certificate
    return {
        "W": W,
        "H": H,
        "labels": labels,
        **{name: str(metadata[name]) for name in _TEXT_FIELDS},
        **{name: float(metadata[name]) for name in _NUMBER_FIELDS},
        "stop_reason": StopReason(metadata["stop_reason"]),
        "history": History(*(_numbers(archive, f"history_{name}") for name in _HISTORY_FIELDS)),
        "seconds": {str(stage): float(took) for stage, took in metadata["seconds"].items()},
        "settings": settings,
        "shares": _numbers(archive, "shares") if "shares" in archive else None,
        "race": Race.of_plain(metadata["race"]),
        "prospect": None if prospect is None else Prospect(*map(float, prospect)),
        "preparation": _read_preparation(archive, metadata.get("preparation"), len(W)),
        "certificate": certificate,
        "first_certificate": _read_certificate(archive, "first_certificate", metadata["loss"]),
        "diagnosis": diagnosis,
        "names": names,
        "vocabulary": _read_vocabulary(archive, metadata.get("vocabulary"), names),
    }


def _is_plain(value: Any) -> bool:
    """Whether this is a text or a number, or a dict of these and of lists of them."""
    plain = str | int | float | None
    parts = value.values() if isinstance(value, dict) else [value]
    lists = [part for part in parts if isinstance(part, list) and isinstance(value, dict)]
    rest = [part for part in parts if not any(part is one for one in lists)]
    return all(isinstance(one, plain) for one in (*rest, *(p for part in lists for p in part)))


def _read_vocabulary(archive: Any, settings: Any, names: Names) -> Vocabulary | None:
    """The words of texts are the names of the features."""
    if settings is None:
        return None
    return Vocabulary(names.feature_names or (), _numbers(archive, "idf"), dict(settings))


def _read_preparation(archive: Any, plain: Any, F: int) -> Preparation | None:
    if plain is None:
        return None
    weights = _numbers(archive, "feature_weights") if "feature_weights" in archive else None
    if weights is not None and weights.shape != (F,):
        raise FileFormatError(f"its weights of features have shape {weights.shape}, not ({F},)")
    return Preparation.of_plain(plain, weights)


def _plain_certificate(certificate: AnyCertificate) -> Array:
    return np.array(list(vars(certificate).values()))


def _read_certificate(archive: Any, name: str, loss: Any) -> AnyCertificate | None:
    if name not in archive:
        return None
    numbers = _numbers(archive, name).tolist()
    kind = CountCertificate if loss == "poisson" else Certificate
    values: dict[str, Any] = dict(
        zip((field.name for field in fields_of(kind)), numbers, strict=True)
    )
    for field in fields_of(kind):
        if field.type in ("bool", "int"):
            values[field.name] = {"bool": bool, "int": int}[field.type](values[field.name])
    return kind(**values)


def _read_diagnosis(archive: Any, W: Array, H: Array) -> Diagnosis | None:
    arrays = {
        key.removeprefix(_DIAGNOSIS_PREFIX): _numbers(archive, key, "fiub")
        for key in archive.files
        if key.startswith(_DIAGNOSIS_PREFIX)
    }
    return Diagnosis.from_arrays(arrays, len(W), H.shape[1], W.shape[1]) if arrays else None


def _numbers(archive: Any, name: str, kinds: str = "f") -> Array:
    array: Array = archive[name]
    if array.dtype.kind not in kinds:
        raise FileFormatError(f"{name} holds {array.dtype}, not numbers of the expected kind")
    if np.isnan(array).any():
        raise FileFormatError(f"{name} holds NaN")
    return array


def _factor(archive: Any, name: str) -> Array:
    array = _numbers(archive, name)
    if array.size and not 0 <= array.min() <= array.max() < np.inf:
        raise FileFormatError(f"{name} holds negative or infinite numbers")
    return array


def _lines(archive: Any, name: str) -> list[str] | None:
    if name not in archive:
        return None
    return bytes(archive[name]).decode("utf-8", "replace").split("\n")
