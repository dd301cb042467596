"""The section on components that are found again in other runs, if the report has them."""

from __future__ import annotations

import numpy as np

from ..judge.stability import Stability
from ..markup import Html, element
from . import charts
from .context import ReportContext
from .found_again import FoundAgain
from .page import Section, number, sentence, tiles

__all__ = ["stability"]


def stability(context: ReportContext) -> Section | None:
    """Return the section on stability: in how many runs each component is, and how closely."""
    again = context.found_again
    if again is None:
        return None
    first, *more = again.stability.in_sentences()
    return Section.of(
        "stability",
        "Stability",
        "Would they be found again?",
        element("p", f"{sentence(first)}.", class_="lead"),
        tiles(_facts(again.stability)),
        _table(context, again),
        element("p", ". ".join(map(sentence, more)) + ".", class_="hint"),
    )


def _facts(found: Stability) -> list[tuple[str, str, str]]:
    n_stable, least = int(found.is_stable.sum()), float(found.found_in.min())
    named = "relative divergence" if found.loss == "poisson" else "relative error"
    facts = [
        (
            "Stable components",
            f"{n_stable} of {found.K}",
            "Found in most runs, by components that are nearer to each other than to others.",
        ),
        ("Least found", f"{least:.0%}", f"Of {found.n_runs} runs, {found.difference}."),
        (
            "Distinct minima",
            f"{found.n_minima} in {found.n_runs}",
            "Runs of which a component differs; on data that are drawn again, all may.",
        ),
    ]
    if found.problem:
        return [
            *facts,
            ("No consensus", number(found.best_relative_error), sentence(found.problem)),
        ]
    error = (
        f"{sentence(named)} of the consensus; the best run has {number(found.best_relative_error)}."
    )
    return [*facts, ("Consensus", number(found.relative_error), error)]


def _table(context: ReportContext, again: FoundAgain) -> Html:
    titles = ("component", "found in", "cosine, 5% to 95%", "silhouette", "stable", "can move")
    head = element("tr", *(element("th", title, scope="col") for title in titles))
    rows = (_row(context, again, k) for k in range(context.K))
    return element(
        "table", element("thead", head), element("tbody", *rows), class_="again", id="again"
    )


def _row(context: ReportContext, again: FoundAgain, k: int) -> Html:
    own, found = int(again.partners[k]), again.stability
    low, high = found.cosine_limits[:, own]
    middle, silhouette = float(np.median(found.cosines[:, own])), float(found.silhouettes[own])
    link = element("a", charts.glyph(k), f" {context.component_name(k)}", href=f"#component-{k}")
    cells = (
        f"{found.found_in[own]:.0%}",
        f"{middle:.3f} [{low:.3f}, {high:.3f}]",
        f"{silhouette:.2f}" if np.isfinite(silhouette) else "none",
        "yes" if found.is_stable[own] else "no",
        found.move_in_words(own),
    )
    return element(
        "tr",
        element("th", link, scope="row", data_k=k),
        *(element("td", text) for text in cells),
        style=charts.colour(k),
    )
