"""The section on how a result came about: settings, time, versions, and how to run it again."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any

from ..solve.inits import INITS
from ..solve.solvers import SOLVERS
from ..text import visible
from .markup import Html, element, style
from .subject import Section, Subject, table

__all__ = ["settings"]

_PACKAGES = ("conenmf", "numpy", "scipy", "scikit-learn")


def settings(subject: Subject, source: str | None, extra: dict[str, object]) -> Section:
    """What was asked for, how long it took, and how to have it again."""
    result = subject.result
    asked_for = dict(result.settings)
    command = extra.pop("command", asked_for.pop("command", None))
    stages = {name: took for name, took in result.seconds.items() if took > 0}
    slowest = max(stages.values(), default=1.0)
    of = {"sketch": "sketch (part of solve)"}
    seconds = element(
        "ol",
        *(
            element(
                "li",
                element("span", of.get(name, visible(name)), class_="of"),
                element("span", f"{took:.3g} s" if took >= 1e-3 else "< 1 ms", class_="value"),
                style=style(share=f"{100 * took / slowest:.1f}%"),
            )
            for name, took in stages.items()
        ),
        class_="bars",
    )
    asked = {name: _plain(value) for name, value in asked_for.items()}
    decided = {"K_decided_by": result.K_decided_by, "init_used": result.init_used}
    asked |= {name: visible(value) for name, value in decided.items()}
    asked |= {"passes over the data": f"{result.passes:.4g}"}
    asked |= {str(name): visible(value) for name, value in extra.items()}
    return Section.of(
        "settings",
        "Settings",
        "Settings, time and how to run it again",
        element(
            "div",
            element("div", element("h3", "Settings"), table(asked)),
            element(
                "div",
                element("h3", "Time"),
                seconds,
                element("h3", "Versions"),
                table(_versions()),
            ),
            class_="two columns",
        ),
        element("h3", "Run it again"),
        _code(visible(command)) if command is not None else None,
        _code(_program(result.settings, source)),
    )


def _plain(value: object) -> str:
    return visible("none" if value is None else value)


def _code(text: str) -> Html:
    button = element("button", "Copy", type="button", class_="copy controls")
    return element(
        "div", element("pre", element("code", text), tabindex="0"), button, class_="code"
    )


def _versions() -> dict[str, str]:
    """Of what wrote the page; nothing that names the machine."""
    found = {"python": platform.python_version(), "system": platform.system()}
    return {name: importlib.metadata.version(name) for name in _PACKAGES} | found


def _program(settings: Mapping[str, Any], source: str | None) -> str:
    """The lines of Python that do it again."""
    turned = settings.get("samples_in") == "columns"
    door = "from_columns" if turned else "from_rows"
    data = f"{door}(X)  # your samples, one in each {'column' if turned else 'row'}"
    if source is not None:
        reading = {name: settings.get(name) for name in ("samples_in", "dataset", "negative")}
        usual = (None, "rows", "raise")
        chosen = [f"{name}={value!r}" for name, value in reading.items() if value not in usual]
        door = "open_data"
        data = f"open_data({', '.join(map(visible, [repr(source), *chosen]))})"
    options, own = [], []
    known = {"init": INITS.keys() | {"auto"}, "solver": SOLVERS.keys()}
    for name in ("init", "solver", "max_iter", "tol", "max_time", "sketch"):
        value = settings.get(name)
        if value is None and name != "solver":
            continue
        if name in known and value is not None and value not in known[name]:
            own.append(name)
        elif isinstance(value, str | int | float | None):
            options.append(f"{name}={value!r}")
    if isinstance(seed := settings.get("seed"), int):
        options.append(f"rng=np.random.default_rng({seed})")
    K = settings.get("K", "auto")
    arguments = ["V", visible(repr(K)), *map(visible, options)]
    comment = f"  # {' and '.join(own)}: your own" if own else ""
    numpy = "import numpy as np\n" if seed is not None else ""
    return (
        f"{numpy}from conenmf import factorize, {door}, write_report\n\n"
        f"V = {data}\n"
        f"result = factorize({', '.join(arguments)}){comment}\n"
        'write_report(result, "report.html")\n'
    )
