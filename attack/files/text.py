"""Tables written as text, and Matrix Market, plain and compressed.

The reader of tables is Python's `csv`, strict, line by line, and `float`: what a quoted field may
hold, and that every line is a row, follows from docs/files.md and not from the code that is tested.
"""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from ..mutations import Rng, mutated
from .formats import Document, Format, RefusedError, only, pick, small_matrix

DELIMITERS = {",": "csv", "\t": "tsv", ";": "csv", " ": "txt", "|": "csv"}
FIELDS = (
    *('"', '""', '"3"4', '"3"', "'3'", '3"', '"3', '"a,b"', '"a\tb"', '"1\r2"', '"1\n2"', '"x""y"'),
    *("", " ", "NA", "nan", "NaN", "null", "inf", "-inf", "-1", "-0", "-1e-12", "1e400", "1e-400"),
    *("1e308", "1e999999999", "0x10", "1_000", "1,5", "1.5.2", "1d3", "1e", "e5", ".", "+3", "--3"),
    *("1 2", "\u0663", "\uff11", "\u00a03", "TRUE", "2024-01-31", "=1+1", "#5", "x" * 300),
    *(
        "9" * 400,
        "1" * 20000 + "x",
        "0." + "3" * 500,
        "1\r7",
        "\r",
        "3\r",
        "\x00",
        "3\x00",
        "\\",
        "\\n",
    ),
    *("\ufeff3", "\x1a", "\x0b3", "\x0c", "\x85", "\u2028", "\ud7ff", "1\x1f2"),
)


def _make_table(rng: Rng) -> tuple[str, Document]:
    X = rng.random((int(rng.integers(2, 120)), int(rng.integers(1, 10))))
    if rng.random() < 0.25:  # more columns than are parsed one by one
        X = rng.random((int(rng.integers(2, 30)), int(rng.integers(201, 240))))
        if rng.random() < 0.3:  # as many lines behind the first 20 as there are columns
            X = np.round(rng.random((221, 201)), 2)
    if rng.random() < 0.3:
        X = np.floor(X * 10)
    delimiter = pick(rng, list(DELIMITERS))
    comma = delimiter == ";" and rng.random() < 0.5
    rows = [[repr(float(x)).replace(".", "," if comma else ".") for x in row] for row in X]
    titled, named = rng.random() < 0.6, rng.random() < 0.5
    if named:
        rows = [[f"s{n}", *row] for n, row in enumerate(rows)]
    if titled:
        rows.insert(0, [*(["name"] if named else []), *(f"f{f}" for f in range(X.shape[1]))])
    if rng.random() < 0.2:
        rows = [[f'"{field}"' for field in row] for row in rows]
    end = "\r\n" if rng.random() < 0.2 else "\n"
    text = end.join(map(delimiter.join, rows)) + (end if rng.random() < 0.9 else "")
    mark = b"\xef\xbb\xbf" if rng.random() < 0.1 else b""
    name = f"x.{DELIMITERS[delimiter]}"
    return name, {name: mark + text.encode()}


def mutated_table(data: bytes, rng: Rng) -> bytes:
    """Change a field, a line, the quotes, the ends of lines, or any byte."""
    lines = data.split(b"\n")
    at = int(rng.integers(len(lines)))
    if rng.random() < 0.6 and len(lines) > 22:  # behind what the dialect is guessed from
        at = int(rng.integers(20, len(lines)))
    what, line = rng.random(), lines[at]
    if max(map(line.count, (b",", b";", b"\t", b" ", b"|"))) > 200 and rng.random() < 0.3:
        for row in rng.integers(at, len(lines), int(rng.integers(1, 4))):  # a bare carriage return
            cut = int(rng.integers(len(lines[row]) + 1))
            lines[row] = lines[row][:cut] + b"\r" + lines[row][cut + int(rng.integers(2)) :]
        return b"\n".join(lines)
    present = [d for d in DELIMITERS if d.encode() in line] or [","]
    sign = pick(rng, present).encode()
    fields = line.split(sign)
    place = int(rng.integers(len(fields)))
    field = pick(rng, FIELDS).encode("utf-8", "replace")
    if what < 0.35:
        fields[place] = field
        lines[at] = sign.join(fields)
    elif what < 0.45:  # a stray quote, sometimes two
        for row in {at, int(rng.integers(len(lines)))}:
            cut = int(rng.integers(len(lines[row]) + 1)) if rng.random() < 0.5 else 0
            lines[row] = lines[row][:cut] + b'"' + lines[row][cut:]
    elif what < 0.52:
        fields.insert(place, field)
        lines[at] = sign.join(fields)
    elif what < 0.57:
        del fields[place]
        lines[at] = sign.join(fields)
    elif what < 0.65:
        lines.insert(at, pick(rng, (b"", b" ", b"\r", sign, line, b"#" + line, b'"', field)))
    elif what < 0.70:
        del lines[at]
    elif what < 0.80:  # carriage returns in some lines
        old, new = pick(
            rng, ((sign, b"\r"), (sign, b"\r" + sign), (b"", b"\r"), (sign, b"\r7" + sign))
        )
        at = 20 if rng.random() < 0.4 else at
        for row in range(at, len(lines), int(pick(rng, (1, 1, 2, 3)))):
            lines[row] = lines[row].replace(old, new, 1) if old else lines[row] + new
    elif what < 0.85:
        other = pick(rng, list(DELIMITERS)).encode()
        lines[at] = line.replace(sign, other, int(rng.integers(1, 4)))
    elif what < 0.88:
        return data.decode("utf-8", "replace").encode(
            pick(rng, ("utf-16", "utf-32", "latin1", "cp037", "utf-7")), "replace"
        )
    else:
        return mutated(data, rng)
    return b"\n".join(lines)


def _mutate_table(document: Document, rng: Rng) -> Document:
    name, data = only(document)
    return {name: mutated_table(data, rng)}


def _text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")


def _table_header(path: Path) -> None:
    """The first 20 lines are a table for some delimiter: as many fields on each."""
    text = _text_beginning(path)
    lines = [line.rstrip("\r") for line in text.split("\n") if line.strip()][:20]
    if not lines or "\x00" in text:
        raise RefusedError("no lines")
    for delimiter in DELIMITERS:
        widths = [len(next(csv.reader([line], delimiter=delimiter), [])) for line in lines]
        if len(set(widths[1:])) <= 1 and widths[0] in (widths[-1], widths[-1] - 1):
            return
    raise RefusedError("the first lines differ in length")


def _text_beginning(path: Path) -> str:
    """The beginning of a text, which is not damaged if only what follows is."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as stream:
        head = b"".join(stream.readline(1 << 20) for _ in range(21))
    return head.decode("utf-8-sig")


def _read_table(path: Path, V: Any) -> Any:
    F, N = V.shape
    lines = [line.removesuffix("\r") for line in _text(path).split("\n")]
    while lines and not lines[0].strip():  # before the first row there may be anything blank
        del lines[0]
    lines = [line for line in lines if line]
    titled, named = V.names.feature_names is not None, V.names.sample_names is not None
    if len(lines) - titled != N:  # every line, with any fields, is a row
        return np.empty((len(lines) - titled, F))
    problem: Exception = RefusedError("no delimiter suits")
    found = None
    for delimiter in DELIMITERS:
        try:
            rows = [next(csv.reader([ln], delimiter=delimiter, strict=True)) for ln in lines]
            body = [row[named:] for row in rows[titled:]]
            matrix = np.array([[_number(field, delimiter) for field in row] for row in body])
        except (ValueError, csv.Error, StopIteration) as refusal:
            problem = refusal
            continue
        if matrix.shape == (N, F):
            return matrix
        if matrix.ndim == 2 and matrix.shape[1]:  # else it is the wrong delimiter
            found = matrix
    if found is None:
        raise problem
    return found


def _number(field: str, delimiter: str) -> float:
    text = field.strip(" \t")
    if not text.isascii() or "_" in text:
        raise RefusedError(f"{text!r} is not a number")
    return float(text.replace(",", ".") if delimiter == ";" else text)


# --- compressed ---------------------------------------------------------------------------------


def compressed(format_: Format, name: str) -> Format:
    """The same format in gzip: the text changed and packed again, or the packed bytes changed."""

    def make(rng: Rng) -> tuple[str, Document]:
        plain, document = format_.make(rng)
        return f"{plain}.gz", {f"{plain}.gz": gzip.compress(document[plain], mtime=0)}

    def mutate(document: Document, rng: Rng) -> Document:
        path, data = only(document)
        try:
            text = gzip.decompress(data)
        except Exception:
            return {path: mutated(data, rng)}
        if rng.random() < 0.25:
            return {path: mutated(data, rng)}
        plain = path.removesuffix(".gz")
        changed = format_.mutate({plain: text}, rng)[plain]
        if rng.random() < 0.1:
            half = len(changed) // 2  # two members, as cat of two files makes them
            return {path: gzip.compress(changed[:half]) + gzip.compress(changed[half:])}
        return {path: gzip.compress(changed, 1, mtime=0)}

    return Format(name, make, mutate, format_.read_header, format_.read)


# --- Matrix Market ------------------------------------------------------------------------------

_WORDS = (
    *(b"real", b"integer", b"pattern", b"complex", b"general", b"symmetric", b"skew-symmetric"),
    *(b"hermitian", b"array", b"coordinate", b"banana", b"matrix", b"%%MatrixMarket", b"vector"),
)
_NUMBERS = (
    *(b"0", b"-1", b"1", b"2", b"1.5", b"nan", b"inf", b"1e400", b"-1e-9", b"1e5", b"x", b"", b"%"),
    *(b"370000000", b"2147483648", b"9223372036854775808", b"1e3", b"0x2", b"1_0", b"+1", b"1,5"),
    *(b"9" * 300, b"1.0.0", b"1 1", b"\r", b"\x00"),
)


def _make_market(rng: Rng) -> tuple[str, Document]:
    X = small_matrix(rng, pick(rng, ("f8", "f8", "i4")))
    field = None
    if rng.random() < 0.2:
        X, field = (X > 1).astype("f8"), "pattern"
        X[0, 0] = 1
    if rng.random() < 0.2:
        X = X.T @ X
    matrix = sp.coo_array(X) if field or rng.random() < 0.6 else X
    stream = io.BytesIO()
    symmetric = bool(X.shape[0] == X.shape[1] and np.array_equal(X, X.T))
    symmetry = "symmetric" if symmetric and rng.random() < 0.7 else "general"
    scipy.io.mmwrite(stream, matrix, comment="made", field=field, symmetry=symmetry)
    return "x.mtx", {"x.mtx": stream.getvalue()}


def _mutate_market(document: Document, rng: Rng) -> Document:
    name, data = only(document)
    lines = data.split(b"\n")
    what, at = rng.random(), int(rng.integers(min(3, len(lines)), len(lines) + 1))
    if what < 0.15:
        return {name: mutated(data, rng)}
    if what < 0.25:
        words = lines[0].split()
        if words:
            words[int(rng.integers(len(words)))] = pick(rng, _WORDS)
        lines[0] = b" ".join(words)
    elif what < 0.45:  # the line with the sizes
        row = next((n for n, ln in enumerate(lines) if ln.strip() and ln[:1] != b"%"), 0)
        words = lines[row].split() or [b""]
        words[int(rng.integers(len(words)))] = pick(rng, _NUMBERS)
        lines[row] = b" ".join(words)
    elif what < 0.8 and at < len(lines):
        words = lines[at].split() or [b""]
        words[int(rng.integers(len(words)))] = pick(rng, _NUMBERS)
        lines[at] = b" ".join(words)
    elif what < 0.9:
        extra = pick(rng, (b"", b"%", b"% x", b" ", b"1 1 1", b"1", b"\r", lines[min(at, 3) - 1]))
        lines.insert(at, extra)
    elif at < len(lines):
        del lines[at]
    return {name: b"\n".join(lines)}


def _market_lines(path: Path) -> tuple[list[str], list[int], list[str]]:
    """The banner, the sizes, and the lines with entries."""
    lines = _text(path).split("\n")
    banner = lines[0].lower().split()
    if len(banner) != 5 or banner[:2] != ["%%matrixmarket", "matrix"]:
        raise RefusedError("no banner")
    rest = [line for line in lines[1:] if line.strip() and not line.startswith("%")]
    known = (("array", "coordinate"), ("real", "integer", "pattern"), ("general", "symmetric"))
    if any(word not in words for word, words in zip(banner[2:], known, strict=True)) or not rest:
        raise RefusedError(f"unknown {banner}")
    return banner, [_integer(word) for word in rest[0].split()], rest[1:]


def _integer(text: str) -> int:
    if not text.lstrip("+-").isdigit():
        raise RefusedError(f"{text!r} is not an integer")
    return int(text)


def _market_header(path: Path) -> Any:
    banner, sizes, _ = _market_lines(path)
    if len(sizes) != (3 if banner[2] == "coordinate" else 2):
        raise RefusedError("no sizes")
    return banner, sizes


def _read_market(path: Path, V: Any) -> Any:
    """Written from the definition of the format: SciPy reads 1e5 among integers as 1."""
    banner, (rows, columns, *_), lines = _market_lines(path)
    number = _integer if banner[3] == "integer" else _plain_number
    symmetric = banner[4] == "symmetric"
    if banner[2] == "array":
        values = [number(line.strip()) for line in lines]
        if not symmetric:
            return np.array(values, float).reshape((rows, columns), order="F")
        matrix = np.zeros((rows, columns))
        column, row = np.triu_indices(rows)
        matrix[row, column] = matrix[column, row] = values
        return matrix
    if len(lines) != _market_header(path)[1][2]:
        raise RefusedError("another number of entries")
    matrix = np.zeros((rows, columns))
    for line in lines:
        row, column, *rest = line.split()
        value = number(*rest) if banner[3] != "pattern" else 1.0 / (not rest)
        places = {(_integer(row) - 1, _integer(column) - 1)}
        for place in places | ({(c, r) for r, c in places} if symmetric else set()):
            if min(place) < 0:
                raise RefusedError(f"entry at {place}")
            matrix[place] += value
    return matrix


def _plain_number(text: str) -> float:
    return _number(text, " ")


_TABLE = Format("csv", _make_table, _mutate_table, _table_header, _read_table)
_MARKET = Format("mtx", _make_market, _mutate_market, _market_header, _read_market)
FORMATS = (
    _TABLE.kind(12000),
    compressed(_TABLE, "csv.gz").kind(5000),
    _MARKET.kind(8000),
    compressed(_MARKET, "mtx.gz").kind(5000),
)
