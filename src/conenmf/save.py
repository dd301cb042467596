"""Saved factorisations: one ``.npz`` file of plain arrays, written and read without pickle.

The fields are described in `result`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .arguments import Arrays
from .data.prepare import Preparation, Vocabulary
from .judge.certificate import certificate_of_numbers, numbers_of_certificate
from .judge.choose_k import Selection
from .judge.diagnosis import Diagnosis
from .judge.uniqueness import Uniqueness
from .scale.archive import arrays_of_names, names_of_arrays, reading, write_arrays
from .solve.race import Race
from .solve.run import History, StopReason
from .text import Facts, PathLike

_FORMAT = "conenmf-factorization-6"
_TEXT_FIELDS = ("stop_reason", "K_decided_by", "init_used", "loss")
_NUMBER_FIELDS = ("objective", "relative_error", "passes")
_HISTORY_FIELDS = ("relative_error", "elapsed", "passes")
_DIAGNOSIS_PREFIX, _UNIQUENESS_PREFIX = "diagnosis_", "uniqueness_"


def write_factorization(path: PathLike, fields: Facts) -> None:
    """Write the fields of a `Factorization`, except its data, to a file that appears complete."""
    names, shapes = arrays_of_names(fields["names"])
    facts = {name: fields[name] for name in (*_TEXT_FIELDS, *_NUMBER_FIELDS)} | {
        "format": _FORMAT,
        "seconds": dict(fields["seconds"]),
        "settings": dict(fields["settings"]),
        "race": fields["race"] and fields["race"].plain(),
        "selection": fields["selection"] and fields["selection"].plain(),
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
    if certificate is not None:
        arrays["certificate"] = numbers_of_certificate(certificate)
    if (known := fields["known_uniqueness"]) is not None:
        arrays |= {_UNIQUENESS_PREFIX + key: array for key, array in known.arrays().items()}
    if fields["first_certificate"] is not None:
        arrays["first_certificate"] = numbers_of_certificate(fields["first_certificate"])
    write_arrays(path, arrays, facts)


@contextmanager
def saved_factorization(path: PathLike) -> Iterator[Facts]:
    """Read the fields of a `Factorization` that `write_factorization` wrote.

    A file that is damaged, was changed or is something else is refused with `FileFormatError`,
    also if that is noticed only when a `Factorization` is made of its fields.
    """
    with reading(path, _FORMAT, "a factorisation") as (facts, arrays):
        yield _read_fields(facts, arrays)


def _read_fields(facts: Facts, arrays: Arrays) -> Facts:
    names = names_of_arrays(arrays, facts)
    certificates = {
        name: certificate_of_numbers(arrays[name], facts["loss"]) if name in arrays else None
        for name in ("certificate", "first_certificate")
    }
    diagnosis, uniqueness, preparation, vocabulary = None, None, None, None
    if parts := _with_prefix(arrays, _DIAGNOSIS_PREFIX):
        diagnosis = Diagnosis.from_arrays(parts)
    if parts := _with_prefix(arrays, _UNIQUENESS_PREFIX):
        uniqueness = Uniqueness.from_arrays(parts)
    if facts["preparation"] is not None:
        preparation = Preparation(idf=arrays.get("feature_weights"), **facts["preparation"])
    if facts["vocabulary"] is not None:  # the words of texts are the names of the features
        vocabulary = Vocabulary(names.feature_names or (), arrays["idf"], facts["vocabulary"])
    return {
        **{name: arrays[name] for name in ("W", "H", "labels")},
        **{name: str(facts[name]) for name in _TEXT_FIELDS},
        **{name: float(facts[name]) for name in _NUMBER_FIELDS},
        "stop_reason": StopReason(facts["stop_reason"]),
        "history": History(*(arrays[f"history_{name}"] for name in _HISTORY_FIELDS)),
        "seconds": facts["seconds"],
        "settings": facts["settings"],
        "shares": arrays.get("shares"),
        "race": Race.of_plain(facts["race"]),
        "selection": Selection.of_plain(facts.get("selection")),
        "preparation": preparation,
        **certificates,
        "diagnosis": diagnosis,
        "known_uniqueness": uniqueness,
        "names": names,
        "vocabulary": vocabulary,
    }


def _with_prefix(arrays: Arrays, prefix: str) -> Arrays:
    return {
        key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)
    }
