"""Saved factorizations: one ``.npz`` file of plain arrays, written and read without pickle.

The fields are described in `result`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from .arguments import Arrays
from .data.prepare import Preparation, Vocabulary
from .judge.certificate import kind_of_certificate
from .judge.choose_k import Selection
from .judge.diagnosis import Diagnosis
from .judge.uniqueness import Uniqueness
from .scale.checkpoint import (
    arrays_of,
    arrays_of_names,
    names_of_arrays,
    part_of,
    reading,
    write_arrays,
)
from .solve.race import Race
from .solve.run import History, StopReason
from .text import Facts, PathLike

_FORMAT = "conenmf-factorization-7"
_ARRAY_FIELDS = ("W", "H", "labels", "shares")
_TEXT_FIELDS = ("stop_reason", "K_decided_by", "init_used", "loss")
_NUMBER_FIELDS = ("objective", "relative_error", "passes")
_HISTORY_FIELDS = ("relative_error", "elapsed", "passes")
# The fields that are objects of their own, and their classes by the name of the loss.
_PARTS: dict[str, Callable[[str], type]] = {
    "certificate": kind_of_certificate,
    "first_certificate": kind_of_certificate,
    "diagnosis": lambda loss: Diagnosis,
    "known_uniqueness": lambda loss: Uniqueness,
}


def write_factorization(path: PathLike, fields: Facts) -> None:
    """Write the fields of a `Factorization`, except its data, to a file that appears complete."""
    names, shapes = arrays_of_names(fields["names"])
    facts = {name: fields[name] for name in (*_TEXT_FIELDS, *_NUMBER_FIELDS)} | {
        "format": _FORMAT,
        "seconds": dict(fields["seconds"]),
        "settings": dict(fields["settings"]),
        "race": fields["race"] and fields["race"].plain(),
        "selection": fields["selection"] and asdict(fields["selection"]),
        "vocabulary": fields["vocabulary"] and dict(fields["vocabulary"].settings),
        "preparation": fields["preparation"] and fields["preparation"].plain(),
        **shapes,
    }
    arrays = {name: fields[name] for name in _ARRAY_FIELDS}
    arrays |= {f"history_{name}": getattr(fields["history"], name) for name in _HISTORY_FIELDS}
    preparation = fields["preparation"]
    if preparation is not None and preparation.idf is not None:
        arrays["feature_weights"] = preparation.idf
    if fields["vocabulary"] is not None:
        arrays["idf"] = fields["vocabulary"].idf
    arrays |= names
    for name in _PARTS:
        if fields[name] is not None:
            arrays |= arrays_of(fields[name], f"{name}_")
    write_arrays(path, arrays, facts)


@contextmanager
def saved_factorization(path: PathLike) -> Iterator[Facts]:
    """Read the fields of a `Factorization` that `write_factorization` wrote.

    A file that is damaged, was changed or is something else is refused with `FileFormatError`,
    also if that is noticed only when a `Factorization` is made of its fields.
    """
    with reading(path, _FORMAT, "a factorization") as (facts, arrays):
        yield _read_fields(facts, arrays)


def _read_fields(facts: Facts, arrays: Arrays) -> Facts:
    names = names_of_arrays(arrays, facts)
    preparation = None
    vocabulary = None
    if facts["preparation"] is not None:
        preparation = Preparation(idf=arrays.get("feature_weights"), **facts["preparation"])
    if facts["vocabulary"] is not None:  # the words of texts are the names of the features
        vocabulary = Vocabulary(names.feature_names or (), arrays["idf"], facts["vocabulary"])
    return {
        **{name: arrays[name] for name in _ARRAY_FIELDS},
        **{name: str(facts[name]) for name in _TEXT_FIELDS},
        **{name: float(facts[name]) for name in _NUMBER_FIELDS},
        "stop_reason": StopReason(facts["stop_reason"]),
        "history": History(*(arrays[f"history_{name}"] for name in _HISTORY_FIELDS)),
        "seconds": facts["seconds"],
        "settings": facts["settings"],
        "race": Race.of_plain(facts["race"]),
        "selection": Selection.of_plain(facts.get("selection")),
        "preparation": preparation,
        **{name: part_of(kind(facts["loss"]), f"{name}_", arrays) for name, kind in _PARTS.items()},
        "names": names,
        "vocabulary": vocabulary,
    }
