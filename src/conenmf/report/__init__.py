"""The report of a result: one HTML page that needs no other file.

Everything is drawn here from the diagnosis, so the page can be read without scripts and printed;
the script of the page adds choosing, pointing, zooming and downloads. The data are not read, and
long curves, many samples and large maps are thinned, so that a page stays small for data of any
size; only factors that are small are embedded as a whole. Names, titles and settings are untrusted:
pages are made of `markup`, and their content security policy allows no request.

What was found comes first: components, maps, samples; then how good it is; then cones and details.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy.typing as npt

from ..arguments import instance, optional, text
from ..arguments import path as checked_path
from ..atomic import output_file, written_whole
from ..judge.diagnosis import error_in_words
from ..judge.stability import Stability
from ..markup import Html, element, join, script_json
from ..result import Factorization
from ..text import counted, visible
from . import certainty, cones, gallery, maps, origin, quality, samples
from .context import VIEWS, ReportContext, check_view
from .page import Section, sentence

__all__ = ["VIEWS", "check_view", "render", "write_report"]


def render(
    result: Factorization,
    *,
    title: str | None = None,
    source: str | None = None,
    view: str = "auto",
    image_shape: tuple[int, int] | None = None,
    pixels_shape: tuple[int, int] | None = None,
    classes: npt.ArrayLike | None = None,
    coordinates: npt.ArrayLike | None = None,
    texts: Sequence[str] | None = None,
    stability: Stability | None = None,
    extra: Mapping[str, object] | None = None,
) -> str:
    """Return the report of a result as an HTML page.

    Parameters
    ----------
    result : Factorization
        With its data, or with the diagnosis that was saved with it.
    title : str, optional
        By default the name of the source, or the number of components.
    source : str, optional
        Where the data came from, such as the path of their file; by default that of the
        settings of the result.
    view : {"auto", "images", "curves", "terms"}
        How components are drawn; "auto" draws images if there is an image shape, curves if
        features have no names or their names are numbers, such as wavelengths, and otherwise
        the names of the features with the largest values.
    image_shape : (rows, columns), optional
        If features are the pixels of images and the names of the result have no image shape.
    pixels_shape : (rows, columns), optional
        If samples are the pixels of an image, row by row, and the names of the result do not say
        so: the page has a map of each component.
    classes : array (N,), optional
        Known classes of the samples, of any type: they colour the map of samples.
    coordinates : array (N, 2), optional
        Known places of the samples, such as ``adata.obsm["X_umap"]``: the map of samples is drawn
        there, and not between the components.
    texts : list of N str, optional
        The samples, if they are texts: the beginnings of those that are typical of a component are
        shown with it.
    stability : Stability, optional
        What `stability` found of the same data with as many components: the page says how often
        each component is found again, and draws the limits of its entries.
    extra : mapping, optional
        Further facts to show with the settings; "command" is the shell command that repeats it.

    Examples
    --------
    >>> from conenmf import factorize, from_rows
    >>> from conenmf.cones.simulate import make_cone_data
    >>> X, _ = make_cone_data(200, 80, 3, random_state=0)
    >>> page = render(factorize(from_rows(X), 3), title="Cones & more")
    >>> "<title>Cones &amp; more</title>" in page
    True
    """
    instance("result", result, Factorization)
    title, source = optional(text, "title", title), optional(text, "source", source)
    extra = optional(instance, "extra", extra, Mapping)
    shapes, known = (image_shape, pixels_shape), (classes, coordinates, texts, stability)
    context = ReportContext.of(result, view, *shapes, *known)
    source = source or result.settings.get("source")
    every = (
        gallery.components(context),
        maps.maps(context),
        samples.samples(context),
        certainty.stability(context),
        quality.summary(context),
        quality.errors(context),
        gallery.reconstructions(context),
        quality.spectrum(context),
        cones.cones(context),
        origin.settings(context, source, dict(extra or {})),
    )
    sections = [section for section in every if section is not None]
    name = title or (Path(source).name if source else None) or sentence(context.K_components)
    script = _resource("page.js")
    return Template(_resource("page.html")).substitute(
        policy=_policy(script),
        title=element("title", visible(name)),
        css=_resource("page.css"),
        heading=element("h1", visible(name)),
        source=_subtitle(context, source, titled=name),
        links=join(_link(section) for section in sections),
        sections=join(section.html for section in sections),
        data=script_json(_script_data(sections)),
        script=script,
    )


def write_report(result: Factorization, path: str | os.PathLike[str], **options: Any) -> None:
    """Write the report of a result; the file appears only when it is complete.

    Parameters
    ----------
    result : Factorization
    path : path
        Of an HTML file; an earlier file of this name is replaced.
    **options
        `title`, `source`, `view`, `image_shape` and others: the arguments of
        `conenmf.report.render`, which returns the page as a string.
    """
    instance("result", result, Factorization)
    target = output_file(checked_path("path", path))
    page = render(result, **options).encode("utf-8", "replace")
    with written_whole(target) as stream:
        stream.write(page)


def _link(section: Section) -> Html:
    return element("li", element("a", section.short, href=f"#{section.id}"))


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _script_data(sections: Iterable[Section]) -> dict[str, Any]:
    data: dict[str, Any] = {"charts": {}}
    for section in sections:
        charts = data["charts"] | section.data.get("charts", {})
        data |= {**section.data, "charts": charts}
    return data


def _policy(script: str) -> str:
    """Return a content security policy: no request, and no script but the page's own."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _subtitle(context: ReportContext, source: str | None, titled: str) -> Html:
    samples, features = counted(context.N, "sample"), counted(context.F, "feature")
    if (shape := context.names.pixels_shape) is not None:
        samples = f"a scene of {shape[0]} x {shape[1]} pixels"
    size = f"{samples} \N{MULTIPLICATION SIGN} {features}"
    if titled != sentence(context.K_components):
        size = f"{context.K_components} · {size}"
    result = context.result
    known = result.settings.get("observed")
    error = error_in_words(result.loss, result.relative_error, result.objective, known)
    size = f"{size} · {error}"
    if source is None:
        return element("p", size, class_="subtitle")
    path = element("span", visible(source), class_="path")
    return element("p", size, " · ", path, class_="subtitle")
