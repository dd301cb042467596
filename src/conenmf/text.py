"""Text from untrusted files and from callers, made safe to show.

Names and messages are shown on terminals and in pages: control and formatting characters are
replaced by visible escapes.
"""

from __future__ import annotations

import unicodedata

__all__ = ["decoded", "excerpt", "function_name", "visible"]

_MAX_NAME_CHARS = 200
_MAX_EXCERPT_CHARS = 40


def visible(text: object, max_chars: int | None = _MAX_NAME_CHARS) -> str:
    r"""Return a text on one line, in which control and formatting characters are spelled out.

    >>> visible("a\x1b[31mb\n")
    'a\\x1b[31mb\\x0a'
    """
    plain = str(text)
    if max_chars is not None and len(plain) > max_chars:
        plain = plain[: max_chars - 1] + "…"
    if plain.isprintable():
        return plain
    return "".join(_spelled(sign) for sign in plain)


def excerpt(text: object) -> str:
    """Return the beginning of a text, for a message that quotes from a file.

    >>> len(excerpt(4000 * "9")), excerpt("a name")
    (40, 'a name')
    """
    return visible(text, _MAX_EXCERPT_CHARS)


def decoded(text: object) -> str:
    r"""Return a text that a library gives as bytes or as a string.

    >>> decoded(b"csr"), decoded("csr"), decoded(b"\xff")
    ('csr', 'csr', '\ufffd')
    """
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def function_name(function: object) -> str:
    """Return the name of a function that a user gave, "custom" for anything without a name."""
    return str(getattr(function, "__name__", "custom"))


def _spelled(sign: str) -> str:
    if sign.isprintable() or unicodedata.category(sign) == "Zs":
        return sign
    return f"\\x{ord(sign):02x}"
