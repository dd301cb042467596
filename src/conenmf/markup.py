"""HTML that is escaped by construction.

Pages are built of elements. A plain string inside an element or an attribute is text, and only
what `element` returned is HTML. So no untrusted name, title or setting can become markup because
escaping it was forgotten.
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
_SCRIPT_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


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


def style(**rules: str) -> str:
    """Return the value of a style attribute with custom properties: ``style(share="5%")``."""
    return ";".join(f"--{name.replace('_', '-')}:{value}" for name, value in rules.items())


def script_json(value: Any) -> Html:
    r"""Return JSON for the inside of a script element: nothing in it can end that element.

    >>> script_json("</script>")
    '"\\u003c/script\\u003e"'
    """
    plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Html(plain.translate(_SCRIPT_ESCAPES))


def data_uri(kind: str, content: bytes) -> str:
    """Return a file as a URL that contains it."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")
