"""The report: one HTML page that describes a result and needs no other file.

`sections` collects the contents of each section, `charts` computes coordinates for drawings, and
`page.html` is the template. Everything is drawn from the diagnosis, so the data are not read. The
page can be read without scripts and printed; its script adds selection, tooltips and search. Long
curves, many samples and large maps are thinned to keep the page small. Names, titles and settings
may come from untrusted sources: the template escapes them, and the content security policy of the
page blocks all requests.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from dataclasses import replace
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from ..arguments import instance, optional, text
from ..arguments import path as file_path
from ..atomic import output_file, written_whole
from ..errors import NotAvailableError
from ..judge.details import NO_GUARANTEE
from ..judge.stability import Stability
from ..names import Names
from ..result import result_of
from ..text import counted, visible
from ..types import Facts, PathLike, Shape, Titles
from . import sections
from .charts import colour, outline
from .sections import (
    VIEWS,
    Components,
    Context,
    Number,
    Residuals,
    Samples,
    check_view,
    degrees,
    percent,
    sentence,
)

__all__ = ["VIEWS", "check_view", "render", "write_report"]

# Tags, scripts and styles; or the word in a text.
_WORD = re.compile(r"(<(?:script|style)\b.*?</|<[^>]*>)|\b([Cc]omponent)(?=s?\b)", re.DOTALL)
_PACKAGES = ("conenmf", "numpy", "scipy", "scikit-learn")
_SECTIONS = (
    sections.verdict,
    sections.components,
    sections.maps,
    sections.samples,
    sections.residuals,
    sections.reconstructions,
    sections.number,
)


def render(
    result: object,
    *,
    title: str | None = None,
    source: str | None = None,
    view: str = "auto",
    image_shape: Shape | None = None,
    pixels_shape: Shape | None = None,
    classes: ArrayLike | None = None,
    texts: Titles = None,
    stability: Stability | None = None,
) -> str:
    """Return the report of a result as an HTML page.

    Parameters
    ----------
    result : Factorization or fitted ConeNMF
        With its data, or with a saved diagnosis.
    title : str, optional
        By default the name of the source, or the number of components.
    source : str, optional
        The origin of the data, such as the path of the file; by default the source in the settings
        of the result.
    view : {"auto", "images", "curves", "terms"}
        How components are drawn; "auto" draws images if there is an image shape or features look
        like the pixels of square images, curves if features have no names or their names are
        numbers, such as wavelengths, and otherwise the features with the largest values.
    image_shape : (rows, columns), optional
        The shape of images whose pixels are the features, if the names of the result do not have
        it.
    pixels_shape : (rows, columns), optional
        The shape of an image whose pixels are the samples, row by row, if the names of the result
        do not have it; the page then has a map of each component.
    classes : array (N,), optional
        Known classes of the samples, of any type; they colour the map of samples.
    texts : list of N str, optional
        The samples, if they are texts. Each component is shown with the beginnings of its typical
        texts.
    stability : Stability, optional
        The result of `stability` for the same data and number of components. The page then shows
        how often each component recurs, and draws the limits of its entries.

    Examples
    --------
    >>> from conenmf import factorize, from_rows
    >>> from conenmf.cones.simulate import make_cone_data
    >>> X, _ = make_cone_data(200, 80, 3, random_state=0)
    >>> page = render(factorize(from_rows(X), 3), title="Cones & more")
    >>> "<title>Cones &amp; more</title>" in page
    True
    """
    result = result_of(result)
    optional(instance, "stability", stability, Stability, "stability(V, K)")
    title = optional(text, "title", title)
    source = optional(text, "source", source)
    template = _template()
    context = Context(
        result,
        view,
        Names(image_shape=image_shape, pixels_shape=pixels_shape),
        classes=classes,
        texts=texts,
        stability=stability,
    )
    source = source or result.settings.get("source")
    name = title or Path(source or "").name or counted(context.K, "component")
    parts: Facts = {one.__name__: one(context) for one in _SECTIONS}
    script = _resource("page.js")
    context.result = replace(result, data=None, spectrum=None)  # a template keeps its context
    digest = hashlib.sha256(script.encode()).digest()
    page = template.render(
        parts,
        context=context,
        title=visible(name),
        subtitle=_subtitle(context, name),
        source=source and visible(source),
        versions=[(package, version(package)) for package in _PACKAGES],
        css=_resource("page.css"),
        script=script,
        digest=b64encode(digest).decode("ascii"),
        no_guarantee=NO_GUARANTEE,
        charts=_points_of_charts(**parts),
    )
    if context.word == "component":
        return str(page)
    word = escape(context.word)
    own = {"component": word, "Component": sentence(word)}
    return _WORD.sub(lambda found: found[1] or own[found[2]], page)


def write_report(result: object, path: PathLike, **options: Any) -> None:
    """Write the report of a result, one HTML page; the file appears only when it is complete.

    Parameters
    ----------
    result : Factorization or fitted ConeNMF
    path : path
        The HTML file; an existing file is replaced.
    **options
        `title`, `source`, `view`, `image_shape` and others: the arguments of
        `conenmf.report.render`, which returns the page as a string.

    Examples
    --------
    >>> import os, tempfile
    >>> from conenmf import factorize, from_columns
    >>> path = os.path.join(tempfile.mkdtemp(), "report.html")
    >>> write_report(factorize(from_columns([[3.0, 3.0, 0.0], [0.0, 4.0, 5.0]]), 1), path)
    >>> os.path.exists(path)
    True
    """
    target = output_file(file_path("path", path))
    with written_whole(target) as stream:
        stream.write(render(result, **options).encode("utf-8", "replace"))


def _template() -> Any:
    try:
        import PIL  # noqa: F401
        from jinja2 import Environment
    except ImportError:
        raise NotAvailableError(
            "a report needs jinja2 and Pillow: install them with pip install 'conenmf[report]'"
        ) from None
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    for function in (sentence, percent, degrees, counted, visible):
        environment.filters[function.__name__] = function
    environment.globals |= {"colour": colour, "outline": outline}
    return environment.from_string(_resource("page.html"))


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _points_of_charts(
    components: Components,
    samples: Samples,
    residuals: Residuals | None,
    number: Number,
    **_: object,
) -> Facts:
    """Return what the script shows at the pointer, by chart id."""
    drawn = [card.picture.chart for card in components.cards]
    drawn += [components.endmembers, samples.contributions, number.chart, *number.evidence]
    if residuals is not None:
        drawn.append(residuals.chart)
    return {chart.id: chart.data() for chart in drawn if chart is not None}


def _subtitle(context: Context, title: str) -> str:
    samples = counted(context.result.n_samples, "sample")
    features = counted(len(context.W), "feature")
    size = f"{samples} \N{MULTIPLICATION SIGN} {features}"
    components = counted(context.K, "component")
    return size if title == components else f"{components} · {size}"
