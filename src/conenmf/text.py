"""Text from outside, made safe to show.

Names and messages come from untrusted files and end up on terminals and in pages: control and
formatting characters are replaced by visible escapes.
"""

from __future__ import annotations

import unicodedata

__all__ = ["visible"]

_MAX_NAME_CHARS = 200


def visible(text: object, longest: int | None = _MAX_NAME_CHARS) -> str:
    r"""Return a text on one line, in which control and formatting characters are spelled out.

    >>> visible("a\x1b[31mb\n")
    'a\\x1b[31mb\\x0a'
    """
    plain = str(text)
    if longest is not None and len(plain) > longest:
        plain = plain[: longest - 1] + "…"
    if plain.isprintable():
        return plain
    return "".join(_spelled(sign) for sign in plain)


def _spelled(sign: str) -> str:
    if sign.isprintable() or unicodedata.category(sign) == "Zs":
        return sign
    return f"\\x{ord(sign):02x}"
