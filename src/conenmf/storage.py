"""Saved factorisations: one ``.npz`` file of plain arrays, written and read without pickle.

Besides what `data.saving` refuses, so are labels and diagnoses that do not fit the factors. The
fields are described in `result`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .data.blocks import Array
from .data.prepare import Preparation, Vocabulary
from .data.saving import SavedArrays, arrays_of_names, reading, write_arrays
from .errors import FileFormatError
from .judge.certificate import AnyCertificate, certificate_of_numbers, numbers_of_certificate
from .judge.diagnosis import Diagnosis
from .judge.uniqueness import Uniqueness
from .names import Names
from .solve.race import Prospect, Race
from .solve.run import History, StopReason

__all__ = ["saved_factorization", "write_factorization"]

_FORMAT = "conenmf-factorization-4"
_TEXT_FIELDS = ("stop_reason", "K_decided_by", "init_used", "loss")
_NUMBER_FIELDS = ("objective", "relative_error", "passes")
_HISTORY_FIELDS = ("relative_error", "elapsed", "passes")
_DIAGNOSIS_PREFIX, _UNIQUENESS_PREFIX = "diagnosis_", "uniqueness_"


def write_factorization(path: str | os.PathLike[str], fields: Mapping[str, Any]) -> None:
    """Write the fields of a `Factorization`, except its data, to a file that appears complete."""
    names, shapes = arrays_of_names(fields["names"])
    facts = {name: fields[name] for name in (*_TEXT_FIELDS, *_NUMBER_FIELDS)} | {
        "format": _FORMAT,
        "seconds": dict(fields["seconds"]),
        "settings": dict(fields["settings"]),
        "race": fields["race"] and fields["race"].plain(),
        "prospect": fields["prospect"],
        "vocabulary": fields["vocabulary"] and dict(fields["vocabulary"].settings),
        "preparation": fields["preparation"] and fields["preparation"].plain(),
        **shapes,
    }
    arrays = {name: fields[name] for name in ("W", "H", "labels")}
    if fields["shares"] is not None:
        arrays["shares"] = fields["shares"]
    arrays |= {f"history_{name}": getattr(fields["history"], name) for name in _HISTORY_FIELDS}
    preparation = fields["preparation"]
    if preparation is not None and preparation.idf is not None:
        arrays["feature_weights"] = preparation.idf
    if fields["vocabulary"] is not None:
        arrays["idf"] = fields["vocabulary"].idf
    arrays |= names
    diagnosis, certificate = fields["diagnosis"], fields["certificate"]
    if diagnosis is not None:
        arrays |= {_DIAGNOSIS_PREFIX + key: array for key, array in diagnosis.arrays().items()}
    elif certificate is not None:
        arrays["certificate"] = numbers_of_certificate(certificate)
    if (known := fields["known_uniqueness"]) is not None:
        arrays |= {_UNIQUENESS_PREFIX + key: array for key, array in known.arrays().items()}
    if fields["first_certificate"] is not None:
        arrays["first_certificate"] = numbers_of_certificate(fields["first_certificate"])
    write_arrays(path, arrays, facts)


@contextmanager
def saved_factorization(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Read the fields of a `Factorization` that `write_factorization` wrote.

    A file that is damaged, was changed or is something else is refused with `FileFormatError`,
    also if that is noticed only when a `Factorization` is made of its fields.
    """
    with reading(path, _FORMAT, "a factorisation") as saved:
        yield _read_fields(saved)


def _read_fields(saved: SavedArrays) -> dict[str, Any]:
    metadata = saved.facts
    settings, prospect = metadata["settings"], metadata["prospect"]
    if not (isinstance(settings, dict) and all(map(_is_plain, settings.values()))):
        raise FileFormatError("its settings are not plain values")
    W, H = saved.factor("W"), saved.factor("H")
    labels = saved.numbers("labels", "i")
    if labels.size and not -1 <= labels.min() <= labels.max() < W.shape[1]:
        raise FileFormatError("its labels are not those of its components")
    diagnosis = _read_diagnosis(saved)
    names = saved.names_of_data()
    certificate = _read_certificate(saved, "certificate", metadata["loss"])
    if diagnosis is not None:
        certificate = diagnosis.certificate
    return {
        "W": W,
        "H": H,
        "labels": labels,
        **{name: str(metadata[name]) for name in _TEXT_FIELDS},
        **{name: float(metadata[name]) for name in _NUMBER_FIELDS},
        "stop_reason": StopReason(metadata["stop_reason"]),
        "history": History(*(saved.numbers(f"history_{name}") for name in _HISTORY_FIELDS)),
        "seconds": {str(stage): float(took) for stage, took in metadata["seconds"].items()},
        "settings": settings,
        "shares": saved.numbers("shares") if "shares" in saved else None,
        "race": Race.of_plain(metadata["race"]),
        "prospect": None if prospect is None else Prospect(*map(float, prospect)),
        "preparation": _read_preparation(saved, metadata.get("preparation"), len(W)),
        "certificate": certificate,
        "first_certificate": _read_certificate(saved, "first_certificate", metadata["loss"]),
        "diagnosis": diagnosis,
        "known_uniqueness": _read_uniqueness(saved),
        "names": names,
        "vocabulary": _read_vocabulary(saved, metadata.get("vocabulary"), names),
    }


def _is_plain(value: Any) -> bool:
    """Whether this is a text or a number, or a dict of these and of lists of them."""
    plain = str | int | float | None
    parts = value.values() if isinstance(value, dict) else [value]
    lists = [part for part in parts if isinstance(part, list) and isinstance(value, dict)]
    rest = [part for part in parts if not any(part is one for one in lists)]
    return all(isinstance(one, plain) for one in (*rest, *(p for part in lists for p in part)))


def _read_vocabulary(saved: SavedArrays, settings: Any, names: Names) -> Vocabulary | None:
    """The words of texts are the names of the features."""
    if settings is None:
        return None
    return Vocabulary(names.feature_names or (), saved.numbers("idf"), dict(settings))


def _read_preparation(saved: SavedArrays, plain: Any, F: int) -> Preparation | None:
    if plain is None:
        return None
    weights = saved.numbers("feature_weights") if "feature_weights" in saved else None
    if weights is not None and weights.shape != (F,):
        raise FileFormatError(f"its weights of features have shape {weights.shape}, not ({F},)")
    return Preparation(idf=weights, **plain)


def _read_certificate(saved: SavedArrays, name: str, loss: Any) -> AnyCertificate | None:
    return certificate_of_numbers(saved.numbers(name), loss) if name in saved else None


def _read_diagnosis(saved: SavedArrays) -> Diagnosis | None:
    arrays = _with_prefix(saved, _DIAGNOSIS_PREFIX)
    return Diagnosis.from_arrays(arrays) if arrays else None


def _read_uniqueness(saved: SavedArrays) -> Uniqueness | None:
    arrays = _with_prefix(saved, _UNIQUENESS_PREFIX)
    return Uniqueness.from_arrays(arrays) if arrays else None


def _with_prefix(saved: SavedArrays, prefix: str) -> dict[str, Array]:
    return {
        key.removeprefix(prefix): saved.numbers(key, "fiub")
        for key in saved.names
        if key.startswith(prefix)
    }
