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
from .scale.archive import SavedArrays, arrays_of_names, reading, write_arrays
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
    with reading(path, _FORMAT, "a factorisation") as saved:
        yield _read_fields(saved)


def _read_fields(saved: SavedArrays) -> Facts:
    facts, loss = saved.facts, saved.facts["loss"]
    W, H, names = saved.factor("W"), saved.factor("H"), saved.names_of_data()
    certificates = {
        name: certificate_of_numbers(saved.numbers(name), loss) if name in saved else None
        for name in ("certificate", "first_certificate")
    }
    diagnosis, uniqueness, preparation, vocabulary = None, None, None, None
    if arrays := _with_prefix(saved, _DIAGNOSIS_PREFIX):
        diagnosis = Diagnosis.from_arrays(arrays)
    if arrays := _with_prefix(saved, _UNIQUENESS_PREFIX):
        uniqueness = Uniqueness.from_arrays(arrays)
    if facts["preparation"] is not None:
        weights = saved.numbers("feature_weights") if "feature_weights" in saved else None
        preparation = Preparation(idf=weights, **facts["preparation"])
    if facts["vocabulary"] is not None:  # the words of texts are the names of the features
        words = names.feature_names or ()
        vocabulary = Vocabulary(words, saved.numbers("idf"), facts["vocabulary"])
    return {
        "W": W,
        "H": H,
        "labels": saved.numbers("labels", "i"),
        **{name: str(facts[name]) for name in _TEXT_FIELDS},
        **{name: float(facts[name]) for name in _NUMBER_FIELDS},
        "stop_reason": StopReason(facts["stop_reason"]),
        "history": History(*(saved.numbers(f"history_{name}") for name in _HISTORY_FIELDS)),
        "seconds": facts["seconds"],
        "settings": facts["settings"],
        "shares": saved.numbers("shares") if "shares" in saved else None,
        "race": Race.of_plain(facts["race"]),
        "selection": Selection.of_plain(facts.get("selection")),
        "preparation": preparation,
        **certificates,
        "diagnosis": diagnosis,
        "known_uniqueness": uniqueness,
        "names": names,
        "vocabulary": vocabulary,
    }


def _with_prefix(saved: SavedArrays, prefix: str) -> Arrays:
    return {
        key.removeprefix(prefix): saved.numbers(key, "fiub")
        for key in saved.names
        if key.startswith(prefix)
    }
