"""Text from untrusted files and from callers, made safe for display.

Names and messages are shown on terminals and in pages, so control and formatting characters are
replaced by visible escapes.
"""

from __future__ import annotations

import reprlib
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

TYPE_CHECKING = False  # as in `typing`; types import NumPy, and help for the command line does not
if TYPE_CHECKING:
    pass

_MAX_NAME_CHARS = 200
_MAX_EXCERPT_CHARS = 40
_MAX_VALUE_CHARS = 100
_BRIEF = reprlib.Repr()  # limits texts, numbers and other objects to so many characters
_BRIEF.maxstring = _BRIEF.maxlong = _BRIEF.maxother = 53


def visible(text: object, max_chars: int | None = _MAX_NAME_CHARS) -> str:
    r"""Return a text on one line with visible escapes for control and formatting characters.

    >>> visible("a\x1b[31mb\n")
    'a\\x1b[31mb\\x0a'
    """
    plain = str(text)
    if max_chars is not None and len(plain) > max_chars:
        plain = plain[: max_chars - 1] + "…"
    if plain.isprintable():
        return plain
    return "".join(_spell(sign) for sign in plain)


def excerpt(text: object) -> str:
    """Return the beginning of a text, for a message that quotes from a file.

    >>> len(excerpt(4000 * "9")), excerpt("a name")
    (40, 'a name')
    """
    return visible(text, _MAX_EXCERPT_CHARS)


def counted(count: int, thing: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "sample"), counted(0, "sample"), counted(12345, "sample")
    ('1 sample', '0 samples', '12,345 samples')
    """
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def listed(texts: Sequence[str], most: int) -> str:
    """Return the first texts, and how many more there are.

    >>> listed(["oak", "elm", "fir"], 2)
    'oak, elm and 1 more'
    """
    first = ", ".join(texts[:most])
    rest = len(texts) - most
    return f"{first} and {rest} more" if rest > 0 else first


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a question for the nearest known word, for the end of a message; "" without one.

    >>> suggestion("oka", ["oak", "elm"])
    ': did you mean oak?'
    """
    near = get_close_matches(word, known, 1)
    return f": did you mean {near[0]}?" if near else ""


def decoded(text: object) -> str:
    r"""Return a text that a library gives as bytes or as a string.

    >>> decoded(b"csr"), decoded("csr"), decoded(b"\xff")
    ('csr', 'csr', '\ufffd')
    """
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def function_name(function: object) -> str:
    """Return the name of a function that a user gave, or "custom" if it has no name."""
    return str(getattr(function, "__name__", "custom"))


class Shown(str):
    """A value as a message shows it; its repr is the same text."""

    def __repr__(self) -> str:
        return str(self)


def shown(value: object) -> Shown:
    """Return a value in Python's notation, on one line and short.

    >>> print(shown("a" * 100), shown(float("nan")), shown([[0.5] * 1000]))
    'aaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaa' nan [[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ...]]
    """
    if isinstance(value, Shown):
        return value
    shape = getattr(value, "shape", ())
    if shape == () or isinstance(value, type):
        return Shown(visible(_BRIEF.repr(value), _MAX_VALUE_CHARS))
    kind = type(value).__name__
    dtype = getattr(value, "dtype", None)
    return Shown(visible(f"<{kind} of shape {shape} and type {dtype}>"))


def _spell(sign: str) -> str:
    if sign.isprintable() or unicodedata.category(sign) == "Zs":
        return sign
    return f"\\x{ord(sign):02x}"
