"""The report of a result: one HTML page that needs nothing else, for people to look at.

Everything is drawn here from the diagnosis, so the page can be read without scripts and printed;
the script of the page adds choosing, pointing and zooming. Neither the data nor H as a whole are
asked for, and what is shown is thinned, so that a page stays small however large the data are. No
name, title or setting is trusted: pages are made of `markup`, and their policy lets in no request.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ..data.files.atomic import written_whole
from ..result import Factorization
from ..text import visible
from . import gallery, origin, quality
from .markup import Html, element, join, script_json
from .subject import VIEWS, Section, Subject, check_view, components_of, sentence

__all__ = ["VIEWS", "check_view", "render", "write_report"]


def render(
    result: Factorization,
    *,
    title: str | None = None,
    source: str | None = None,
    view: str = "auto",
    image_shape: tuple[int, int] | None = None,
    extra: Mapping[str, object] | None = None,
) -> str:
    """Return the report of a result as an HTML page.

    Parameters
    ----------
    result : Factorization
        With its data, or with the diagnosis that was stored with it.
    title : str, optional
    source : str, optional
        Where the data came from, such as the path of their file; by default what the settings
        of the result say.
    view : {"auto", "images", "curves", "terms"}
        How components are drawn; "auto" draws images if an image shape is known, curves if
        features have no names or are called by numbers, such as wavelengths, and else the
        heaviest features by name.
    image_shape : (rows, columns), optional
        If features are the pixels of images and the result does not know it.
    extra : mapping, optional
        Further facts to show with the settings; "command" is how to run it again from a shell.

    Examples
    --------
    >>> from conenmf import factorize, from_rows
    >>> from conenmf.cones.simulate import make_cone_data
    >>> X, _ = make_cone_data(200, 80, 3, random_state=0)
    >>> page = render(factorize(from_rows(X), 3), title="Cones & more")
    >>> "<title>Cones &amp; more</title>" in page
    True
    """
    subject = Subject.of(result, view, image_shape)
    source = source or result.settings.get("source")
    sections = (
        quality.summary(subject),
        quality.errors(subject),
        quality.spectrum(subject),
        quality.cones(subject),
        gallery.components(subject),
        gallery.samples(subject),
        gallery.reconstructions(subject),
        origin.settings(subject, source, dict(extra or {})),
    )
    name = title or (Path(source).name if source else None) or sentence(components_of(subject))
    script = _resource("page.js")
    page = Template(_resource("page.html")).substitute(
        policy=_policy(script),
        title=element("title", visible(name)),
        css=_resource("page.css"),
        heading=element("h1", visible(name)),
        source=_subtitle(subject, source, titled=name),
        links=join(_link(section) for section in sections),
        sections=join(section.html for section in sections),
        data=script_json(_script_data(sections)),
        script=script,
    )
    return page


def write_report(result: Factorization, path: str | os.PathLike[str], **options: Any) -> None:
    """Write the report of a result; the file appears only when it is complete.

    Parameters
    ----------
    result : Factorization
    path : path
        An earlier file of this name is replaced.
    **options
        As in `render`.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: the folder does not exist")
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
    """Nothing is requested, and no script runs but the page's own."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _subtitle(subject: Subject, source: str | None, titled: str) -> Html:
    size = f"{subject.N:,} samples \N{MULTIPLICATION SIGN} {subject.F:,} features"
    what = [components_of(subject)] if titled != sentence(components_of(subject)) else []
    told = " · ".join([*what, size])
    if source is None:
        return element("p", told, class_="subtitle")
    return element(
        "p", told, " · ", element("span", visible(source), class_="path"), class_="subtitle"
    )
