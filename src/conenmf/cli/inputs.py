"""What a command reads: the data, and further files that options name."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np

from ..components import matched_rows
from ..data.blocks import Block, dense
from ..data.known import weigh_samples
from ..data.matrix import DataMatrix, PerSample
from ..data.prepare import Vocabulary, Words
from ..data.resources import memory_budget
from ..data.validate import SamplesIn
from ..data.views import dense_samples
from ..errors import ConeNMFError, DataError, Message, Option, OptionError
from ..io.arrays import array_names
from ..io.hdf5 import read_annotation, read_observations
from ..io.limits import named_damage
from ..io.open import open_data, prepare, split_member
from ..io.source import Reading
from ..io.text import TABLE_SUFFIXES, open_text_column, open_texts, read_names, read_rows
from ..judge.association import likely_classes
from ..names import Labelled, Names, are_types, check_count, in_order
from ..solve.constraints import FIXED_TABLE, Fixed, Penalties
from ..solve.losses import get_loss
from ..solve.problem import Problem
from ..text import visible
from ..types import Array, Facts, Texts
from .options import LABELS, OPENING, PREPARING, TERMS, WORDS
from .request import Request

_MAX_CHARS = 1000  # of a text; the report shows its beginning

# --- the data ---------------------------------------------------------------------------------


def open_input(request: Request, vocabulary: Vocabulary | None = None) -> DataMatrix:
    """Open the data; texts with the words that the options select, or with a vocabulary.

    If all rows of a table are types of mutations, its samples are in the columns.
    """
    V = _open(request, vocabulary)
    is_guessed = "samples_in" not in request.given and request.samples_in == "rows"
    if is_guessed and are_types(V.names.sample_names):
        request.samples_in = "columns"
        V = _open(request, vocabulary)
        remark = f"rows are the {V.n_features} types of mutations, so columns are samples"
        V.remarks += (remark,)
    return V


def _open(request: Request, vocabulary: Vocabulary | None) -> DataMatrix:
    """Open the data with the options of the request."""
    with request.display.working(f"reading {request.data}"):
        samples = _names(request, request.sample_names)
        features = _names(request, request.feature_names)
        names = Names.of(samples, features, request.image_shape, request.pixels_shape)
        words = vocabulary or Words(**request.chosen(WORDS))
        reading = request.chosen((*OPENING, "dataset", "missing", "n_threads", "max_memory"))
        V = open_data(request.data, words=words, names=names, **reading, **read_entries(request))
        steps = request.chosen(PREPARING)
        V = prepare(V, **steps) if any(steps.values()) else V
        return request.species.apply(V)


def _names(request: Request, file: str | None) -> list[str] | None:
    return None if file is None else read_names(file, memory_budget(request.max_memory))


# --- matrices ---------------------------------------------------------------------------------


def read_entries(request: Request) -> Facts:
    """Read masks, weights and uncertainties as tables in the orientation of the data."""
    entries: Facts = {}
    for option, path in request.chosen(("mask", "weights", "sigma")).items():
        M = _open_table(request, option, path, request.samples_in)
        rows = np.asarray(M.sweep(_rows)[0])
        if M.observed is not None:
            rows = np.where(np.asarray(M.observed.weights) > 0, rows, np.nan)
        if option == "mask":
            rows = rows != 0
        if option == "weights" and M.n_samples == 1:  # one weight for each feature
            entries[option] = Labelled(rows[0], M.names.turned())
        elif request.samples_in == "rows":
            entries[option] = Labelled(rows, M.names)
        else:
            entries[option] = Labelled(rows.T, M.names.turned())
    return entries


def read_problem(request: Request, V: DataMatrix) -> Problem:
    """Return what a fit of V minimises: the loss, penalties, and known components from a file."""
    n_counted = V.n_samples if V.unweighed is None else V.unweighed.n_counted
    penalties = Penalties.as_in_sklearn((V.n_features, n_counted), **request.chosen(TERMS))
    return Problem(request.loss, penalties, _read_fixed(request, V))


def _read_fixed(request: Request, V: DataMatrix) -> Fixed | None:
    """Read components, one per row, in the order of the features of V; None without a file."""
    if request.fixed is None:
        return None
    M = _open_table(request, "fixed", request.fixed, "rows")
    return Fixed(_in_order_of(M, V, FIXED_TABLE), M.names.sample_names)


def read_reference(request: Request, V: DataMatrix) -> tuple[Array, Texts] | None:
    """Read known components (F, n), in rows or columns, and their names; None without a file."""
    if request.reference is None:
        return None
    M = _open_table(request, "reference", request.reference, "columns")
    if {*(V.names.feature_names or ())} & {*(M.names.sample_names or ())}:
        M = _open_table(request, "reference", request.reference, "rows")
    names = tuple(M.names.sample(n) for n in range(M.n_samples))
    return _in_order_of(M, V, "--reference"), names


def read_scene_reference(request: Request, V: DataMatrix) -> tuple[Array, list[Array]] | None:
    """Read the spectra (n, F) and the abundances (N, n) of a reference; None without a file.

    Each array of the file may be either, by its shape. Abundances of an image are returned in both
    orders of its pixels.
    """
    if request.reference is None:
        return None
    file, member = split_member(request.reference)
    F, N = V.shape
    spectra = None
    found: list[Array] = []
    for name in [member] if member else array_names(Path(file)):
        with suppress(ConeNMFError) if member is None else nullcontext():
            M = open_data(file, dataset=name, negative="keep", max_memory=request.max_memory)
            rows = dense_samples(M).T
            for one in (rows, rows.T):
                if one.shape[1] == F and len(one) < N and spectra is None:
                    spectra = one
                elif len(one) == N and one.shape[1] < F:
                    found.append(one)
            if M.names.pixels_shape and len(rows) == N:
                cube = rows.reshape(*M.names.pixels_shape, -1)
                found.append(cube.swapaxes(0, 1).reshape(N, -1))
    if spectra is None:
        raise DataError(
            Option("reference", request.reference),
            f" has no spectra of {F} bands, one for each material",
        )
    return spectra, [one for one in found if one.shape[1] == len(spectra)]


def _in_order_of(M: DataMatrix, V: DataMatrix, owner: str) -> Array:
    """Return the columns of M, with features in the order of the features of V."""
    W = dense_samples(M)
    return matched_rows(W, M.names, V, owner)


def with_sample_weights(request: Request, V: DataMatrix, loss: str) -> DataMatrix:
    """Return V, or a view with the weights of samples from a file."""
    path = request.sample_weight
    if path is None:
        return V
    read = np.load if path.endswith(".npy") else np.loadtxt
    with named_damage(path):  # np.loadtxt reports the line
        weights = np.ravel(read(path))
    return weigh_samples(V, weights, get_loss(loss).degree)


def _open_table(request: Request, option: str, path: str, samples_in: SamplesIn) -> DataMatrix:
    """Open the matrix of an option, in whose name its errors speak."""
    reading = request.chosen(("header", "n_threads", "max_memory"))
    try:
        M = open_data(path, negative="keep", missing="nan", samples_in=samples_in, **reading)
    except ConeNMFError as error:
        message = error.args[0]
        parts = message.parts if isinstance(message, Message) else (message,)
        raise type(error)(Message(Option(option), ": ", *parts)) from error
    if M.observed is not None and option != "sigma":
        share = f"{M.observed.missing:.2g} of its entries are NaN: expected numbers"
        raise DataError(Option(option, path), ": ", share)
    return M


def _rows(block: Block) -> PerSample:
    return np.ascontiguousarray(dense(block).T), None


# --- samples ----------------------------------------------------------------------------------


_SINGULAR = {"classes": "class", "groups": "group"}  # what files have, which have no names


def drop_label_columns(request: Request) -> None:
    """Do not read columns of classes and groups as features."""
    for given in request.chosen(LABELS).values():
        if request.suffix in TABLE_SUFFIXES and not Path(given).is_file():
            request.drop = (*request.drop, given)


def labels_of(request: Request, N: int, names: Names) -> Facts:
    """Read the classes and the groups of the N samples, those that are given."""
    labels: Facts = {}
    for option, given in request.chosen(LABELS).items():
        title = _SINGULAR[option] if Path(given).is_file() else given
        labels[option] = {title: _labels(request, option, given, N, names)}
    return labels


def classes_of(request: Request, V: DataMatrix) -> Facts | None:
    """Read the given classes, or else the columns of obs of an .h5ad file that may be classes."""
    if request.classes is not None:
        labels: Facts = labels_of(request, V.n_samples, V.names)["classes"]
        return labels
    if request.suffix != ".h5ad":
        return None
    table = read_observations(request.path)
    return (likely_classes(table) or None) if len(table) == V.n_samples else None


def about_samples(request: Request, N: int) -> Facts:
    """Read the texts of the N samples, for the report."""
    about: Facts = {}
    if not request.data:
        return about
    texts: list[str] = []
    if request.text_column is not None:
        texts = _column(request, request.text_column)
    elif request.path.is_dir() and any(request.path.rglob("*.txt")):
        texts = open_texts(request.path, Reading(memory_budget(request.max_memory))).matrix
    if len(texts) == N:
        about["texts"] = [text[:_MAX_CHARS] for text in texts]
    return about


def _column(request: Request, column: str) -> list[str]:
    budget = memory_budget(request.max_memory)
    reading = Reading(budget, header=request.header, text_column=column)
    return list(open_text_column(request.path, reading).matrix)


def _labels(request: Request, option: str, given: str, N: int, names: Names) -> Array:
    """Return the class or group of each sample, from a file or from a column of the data."""
    if Path(given).is_file():
        return read_labels(given, N, names)
    if request.suffix == ".h5ad":
        missing = "" if option == "groups" else "missing"  # a model rejects samples without a group
        return np.array(read_annotation(request.path, given, missing))
    if request.suffix in TABLE_SUFFIXES:
        return np.array(_column(request, given))
    raise OptionError(
        f"--{option} {visible(given)} is not a file: name one, or a column of DATA, if that is "
        "a .csv, .tsv or .h5ad file"
    )


def read_labels(path: str, N: int, names: Names) -> Array:
    """Read one class per sample, in the order of the samples or by their names.

    The last column contains the classes. If there are more columns, the first one contains the
    names. The first row may be a header.
    """
    rows = read_rows(path)
    if len(rows) == N + 1:
        del rows[0]  # the header
    check_count(len(rows), f"labels in {path}", N)
    classes = np.array([row[-1] for row in rows])
    if len(rows[0]) == 1:
        return classes
    samples = Names.of([row[0] for row in rows])
    return np.asarray(in_order(names, "labels", Labelled(classes, samples), "sample"))
