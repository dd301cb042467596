"""Saved factorizations: one ``.npz`` file of plain arrays, written and read without pickle.

The fields are described in `result`. For files of skops, `TRUSTED_TYPES` lists the types of a
fitted model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from .data.groups import Groups
from .data.prepare import Preparation, Vocabulary
from .judge.certificate import kind_of_certificate
from .judge.choose_k import Selection
from .judge.diagnosis import Diagnosis
from .judge.uniqueness import Uniqueness
from .names import Names
from .scale.checkpoint import (
    arrays_of,
    part_of,
    reading,
    write_arrays,
)
from .solve.problem import Problem
from .solve.race import Race
from .solve.run import History, StopReason
from .types import Facts, PathLike

# The types of a fitted ConeNMF, for `skops.io.load(path, trusted=TRUSTED_TYPES)`. They hold arrays,
# numbers and texts; loading them calls no other code.
TRUSTED_TYPES = (
    "conenmf.cones.counting.RankEstimate",
    "conenmf.cones.geometry.ConeGeometry",
    "conenmf.cones.geometry.Separation",
    "conenmf.cones.streams.StreamCones",
    "conenmf.data.groups.Groups",
    "conenmf.data.prepare.Preparation",
    "conenmf.data.prepare.Vocabulary",
    "conenmf.estimator.ConeNMF",
    "conenmf.judge.choose_k.Evidence",
    "conenmf.judge.choose_k.Selection",
    "conenmf.judge.details.ConeDiagnosis",
    "conenmf.judge.details.Details",
    "conenmf.judge.details.InspectedSamples",
    "conenmf.judge.diagnosis.Diagnosis",
    "conenmf.judge.diagnosis.Row",
    "conenmf.judge.uniqueness.Uniqueness",
    "conenmf.names.Names",
    "conenmf.result.Factorization",
    "conenmf.scale.checkpoint.Checkpoint",
    "conenmf.solve.certificate.Certificate",
    "conenmf.solve.constraints.Fixed",
    "conenmf.solve.constraints.Penalties",
    "conenmf.solve.losses.count_bounds.CountCertificate",
    "conenmf.solve.online.ConeStream",
    "conenmf.solve.online._Factors",
    "conenmf.solve.problem.Entries",
    "conenmf.solve.problem.Problem",
    "conenmf.solve.race.Entrant",
    "conenmf.solve.race.Race",
    "conenmf.solve.run.History",
)

_FORMAT = "conenmf-factorization-12"
_OF_GROUPS = "groups_"  # begins the names of arrays
_ARRAY_FIELDS = ("W", "H", "labels", "shares")
_OPTIONAL_ARRAYS = ("affinities", "sample_weights")
_PLAIN_FIELDS = ("K_decided_by", "init_used", "objective", "relative_error", "passes")
# The fields that are objects, and their classes.
_PARTS: dict[str, type | None] = {
    "history": History,
    "certificate": None,  # one of several, by the names of its fields
    "first_certificate": None,
    "diagnosis": Diagnosis,
    "known_uniqueness": Uniqueness,
    "preparation": Preparation,
}


def write_factorization(path: PathLike, fields: Facts, model: Facts | None = None) -> None:
    """Write the fields of a `Factorization`, except its data, to a file written atomically.

    `model` has the plain values of the fitted estimator, if the file is to hold it too.
    """
    facts = {name: fields[name] for name in (*_PLAIN_FIELDS, "stop_reason")} | {
        "format": _FORMAT,
        "seconds": fields["seconds"],
        "settings": fields["settings"],
        "problem": fields["problem"].plain(),
        "race": fields["race"] and fields["race"].plain(),
        "selection": fields["selection"] and asdict(fields["selection"]),
        "vocabulary": fields["vocabulary"] and dict(fields["vocabulary"].settings),
        "names": vars(fields["names"]),
        "model": model,
    }
    arrays = {name: fields[name] for name in _ARRAY_FIELDS}
    arrays |= {name: fields[name] for name in _OPTIONAL_ARRAYS if fields[name] is not None}
    if fields["problem"].groups is not None:
        arrays |= arrays_of(fields["problem"].groups, _OF_GROUPS)
    if fields["vocabulary"] is not None:
        arrays["idf"] = fields["vocabulary"].idf
    for name in _PARTS:
        if fields[name] is not None:
            arrays |= arrays_of(fields[name], f"{name}_")
    write_arrays(path, arrays, facts)


@contextmanager
def saved_factorization(path: PathLike) -> Iterator[tuple[Facts, Facts | None]]:
    """Read the fields of a `Factorization`, and the model, that `write_factorization` wrote.

    A file that is damaged or has another format raises `FileFormatError`.
    """
    with reading(path, _FORMAT, "a factorization") as (facts, arrays):
        fields = {name: facts[name] for name in (*_PLAIN_FIELDS, "seconds", "settings")}
        fields |= {name: arrays[name] for name in _ARRAY_FIELDS}
        fields |= {name: arrays.get(name) for name in _OPTIONAL_ARRAYS}
        for name, kind in _PARTS.items():
            prefix = f"{name}_"
            own = [key.removeprefix(prefix) for key in arrays if key.startswith(prefix)]
            fields[name] = (
                part_of(kind or kind_of_certificate(own), prefix, arrays) if own else None
            )
        names = fields["names"] = Names.of(**facts["names"])
        groups = part_of(Groups, _OF_GROUPS, arrays)
        known = names.feature_names
        fields["problem"] = Problem.of_plain(facts["problem"], fields["W"], known, groups)
        if facts["vocabulary"] is not None:  # the words are the names of the features
            words = names.feature_names or ()
            fields["vocabulary"] = Vocabulary(words, arrays["idf"], facts["vocabulary"])
        fields["stop_reason"] = StopReason(facts["stop_reason"])
        fields["race"] = Race.of_plain(facts["race"])
        fields["selection"] = Selection.of_plain(facts["selection"])
        yield fields, facts.get("model")
