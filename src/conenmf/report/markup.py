"""HTML that is escaped by how it is made.

Pages are built of elements; a plain string inside an element or an attribute is text, and only
what an element returned is HTML. So no name, title or setting can become markup by being forgotten.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from html import escape
from typing import Any, TypeAlias

__all__ = ["Child", "Html", "data_uri", "element", "join", "script_json", "style"]


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = "str | None"

_VOID = frozenset({"img", "input", "br", "meta"})
_TELLING = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def element(tag: str, *children: Child, **attributes: object) -> Html:
    """Make an element; strings are escaped unless they are `Html`, None is left out.

    In the names of attributes ``_`` stands for ``-``, and a ``_`` at the end for nothing.

    >>> element("p", "a < b", element("br"), class_="lead", data_k=3, hidden=True)
    '<p class="lead" data-k="3" hidden>a &lt; b<br></p>'
    """
    written = "".join(
        f" {_attribute(name)}" if value is True else f' {_attribute(name)}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    """Put elements and texts one after the other."""
    return Html(
        "".join(
            child if isinstance(child, Html) else escape(child)
            for child in children
            if child is not None
        )
    )


def style(**rules: str) -> str:
    """The value of a style attribute, with custom properties: ``style(share="5%")``."""
    return ";".join(f"--{name.replace('_', '-')}:{value}" for name, value in rules.items())


def script_json(value: Any) -> Html:
    r"""JSON that can stand inside a script element: nothing in it can end that element.

    >>> script_json("</script>")
    '"\\u003c/script\\u003e"'
    """
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Html(plain.translate(_TELLING))


def data_uri(kind: str, content: bytes) -> str:
    """A file as an address."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")
