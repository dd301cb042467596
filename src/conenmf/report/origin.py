"""The section on how a result came about: settings, time, versions, and how to run it again."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from typing import Any

from ..data.prepare import Preparation
from ..markup import Html, element
from ..solve.inits import INITS
from ..solve.losses.poisson import POISSON_SOLVERS
from ..solve.solvers import SOLVERS
from ..text import visible
from .context import ReportContext
from .page import Section, bar, table

__all__ = ["settings"]

_PACKAGES = ("conenmf", "numpy", "scipy", "scikit-learn")


def settings(context: ReportContext, source: str | None, extra: dict[str, object]) -> Section:
    """Return the section on what was asked for and decided, how long it took, how to repeat it."""
    result = context.result
    options = dict(result.settings)
    command = extra.pop("command", options.pop("command", None))
    if known := options.pop("observed", None):
        options["missing entries"] = f"{known['missing']:.1%}"
        options["weighted entries"] = "yes" if known["weighted"] else "no"
    rows = {name: _plain(value) for name, value in options.items()}
    decisions = {"K_decided_by": result.K_decided_by, "init_used": result.init_used}
    rows |= {name: visible(value) for name, value in decisions.items()}
    rows |= {"passes over the data": f"{result.passes:.4g}"}
    rows |= {str(name): visible(value) for name, value in extra.items()}
    return Section.of(
        "settings",
        "Settings",
        "Settings, time and how to run it again",
        element(
            "div",
            element("div", element("h3", "Settings"), table(rows)),
            element(
                "div",
                element("h3", "Time"),
                _seconds(result.seconds),
                element("h3", "Versions"),
                table(_versions()),
            ),
            class_="two columns",
        ),
        element("h3", "Run it again"),
        _code(visible(command)) if command is not None else None,
        _code(_program(result.settings, source, result.preparation)),
    )


def _seconds(seconds: Mapping[str, float]) -> Html:
    stages = {name: took for name, took in seconds.items() if took > 0}
    slowest = max(stages.values(), default=1.0)
    names = {"sketch": "sketch (part of solve)"}
    bars = (
        bar(
            names.get(name, visible(name)),
            f"{took:.3g} s" if took >= 1e-3 else "< 1 ms",
            share=took / slowest,
        )
        for name, took in stages.items()
    )
    return element("ol", *bars, class_="bars")


def _plain(value: object) -> str:
    return visible("none" if value is None else value)


def _code(text: str) -> Html:
    button = element("button", "Copy", type="button", class_="copy controls")
    return element(
        "div", element("pre", element("code", text), tabindex="0"), button, class_="code"
    )


def _versions() -> dict[str, str]:
    """Return the versions of what wrote the page; nothing that identifies the machine."""
    system = {"python": platform.python_version(), "system": platform.system()}
    return {name: importlib.metadata.version(name) for name in _PACKAGES} | system


def _program(
    settings: Mapping[str, Any], source: str | None, preparation: Preparation | None
) -> str:
    """Return a Python program that repeats the fit."""
    in_columns = settings.get("samples_in") == "columns"
    door = "from_columns" if in_columns else "from_rows"
    data = f"{door}(X)  # your samples, one in each {'column' if in_columns else 'row'}"
    if source is not None:
        reading = {name: settings.get(name) for name in ("samples_in", "dataset", "negative")}
        defaults = (None, "rows", "raise")
        changed = [f"{name}={value!r}" for name, value in reading.items() if value not in defaults]
        door = "open_data"
        data = f"open_data({', '.join(map(visible, [repr(source), *changed]))})"
    if preparation is not None:
        steps = {
            "normalize_total": preparation.total,
            "log1p": preparation.log1p,
            "tfidf": preparation.idf is not None,
            "normalize": preparation.normalize and preparation.idf is None,
        }
        asked = ", ".join(f"{name}={value!r}" for name, value in steps.items() if value)
        data, door = f"{data}\nV = prepare(V, {asked})", f"{door}, prepare"
    if settings.get("observed"):
        data += "  # and what said which entries are missing, or their weights"
    options, own = [], []
    by_name = {"init": INITS.keys() | {"auto"}, "solver": SOLVERS.keys() | POISSON_SOLVERS.keys()}
    for name in ("loss", "init", "solver", "max_iter", "tol", "max_time", "sketch"):
        value = settings.get(name)
        if (name, value) == ("loss", "frobenius"):
            continue
        if value is None and name != "solver":
            continue
        if name in by_name and value is not None and value not in by_name[name]:
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
