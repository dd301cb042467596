"""HTML that is escaped by construction.

Pages are built of elements. A plain string inside an element or an attribute is text, and only
what `element` returned is HTML. So no untrusted name, title or setting can become markup because
escaping it was forgotten.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape
from typing import TypeAlias

__all__ = ["Child", "Html", "data_uri", "element", "join"]


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = "str | None"

_VOID = frozenset({"img", "input", "br", "meta"})


def element(tag: str, *children: Child, **attributes: object) -> Html:
    """Return an element; strings are escaped unless they are `Html`, None is left out.

    In the names of attributes ``_`` becomes ``-``, and a ``_`` at the end is dropped.

    >>> element("p", "a < b", element("br"), class_="lead", data_k=3, hidden=True)
    '<p class="lead" data-k="3" hidden>a &lt; b<br></p>'
    """
    text = "".join(
        f" {_attribute(name)}" if value is True else f' {_attribute(name)}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _VOID:
        return Html(f"<{tag}{text}>")
    return Html(f"<{tag}{text}>{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    """Return elements and texts one after the other."""
    return Html(
        "".join(
            child if isinstance(child, Html) else escape(child)
            for child in children
            if child is not None
        )
    )


def data_uri(kind: str, content: bytes) -> str:
    """Return a file as a URL that contains it."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")
