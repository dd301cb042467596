"""Reports: the page of a result, from its sections and the template.

Everything is drawn from the diagnosis, so the data are not read, and the page can be read without
scripts and printed. Its script adds choosing, pointing and finding. Long curves, many samples and
large maps are thinned, so that a page stays small. Names, titles and settings may come from anyone:
the template escapes them, and the content security policy of a page allows no request.
"""

from __future__ import annotations

import hashlib
import os
import platform
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..arguments import instance, optional, text
from ..arguments import path as checked_path
from ..atomic import output_file, written_whole
from ..errors import NotAvailableError
from ..judge.diagnosis import NO_GUARANTEE, error_in_words
from ..judge.stability import Stability
from ..names import Names
from ..result import Factorization
from ..text import counted, visible
from . import sections
from .charts import colour, outline
from .context import Context

_PACKAGES = ("conenmf", "numpy", "scipy", "scikit-learn")


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
        Where the data came from, such as the path of their file; by default the source in the
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
        The result of `stability` for the same data and number of components: the page shows how
        often each component returns, and draws the limits of its entries.
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
    optional(instance, "stability", stability, Stability, "stability(V, K)")
    title, source = optional(text, "title", title), optional(text, "source", source)
    facts = dict(optional(instance, "extra", extra, Mapping) or {})
    template = _template()
    shapes = Names(image_shape=image_shape, pixels_shape=pixels_shape)
    context = Context.of(result, view, shapes, classes, coordinates, texts, stability)
    source = source or result.settings.get("source")
    components = counted(context.K, "component")
    name = title or (Path(source).name if source else None) or components
    command = facts.pop("command", result.settings.get("command"))
    shown: dict[str, Any] = {
        "verdict": sections.verdict(context),
        "components": sections.components(context),
        "maps": sections.maps(context),
        "samples": sections.samples(context),
        "error": sections.errors(context),
        "reconstruction": sections.reconstructions(context),
        "spectrum": sections.spectrum(context),
    }
    script = _resource("page.js")
    alone = replace(result, data=None, spectrum=None)  # a template would keep their file open
    return template.render(
        shown,
        context=replace(context, result=alone),
        title=visible(name),
        subtitle=_subtitle(context, "" if name == components else f"{components} · "),
        source=None if source is None else visible(source),
        downloads=sections.downloads(context),
        command=None if command is None else visible(command),
        program=sections.program(result.settings, source, result.preparation),
        extra={visible(name): visible(value) for name, value in facts.items()},
        versions={name: version(name) for name in _PACKAGES} | _system(),
        css=_resource("page.css"),
        script=script,
        digest=b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        no_guarantee=NO_GUARANTEE,
        data={"charts": _pointed(shown), "samples": shown["samples"]["data"]},
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
    for function in (sections.sentence, sections.percent, sections.degrees, counted, visible):
        environment.filters[function.__name__] = function
    environment.globals |= {"colour": colour, "outline": outline, "angles": sections.angles}
    return environment.from_string(_resource("page.html"))


def _system() -> dict[str, str]:
    return {"python": platform.python_version(), "system": platform.system()}


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _pointed(shown: Mapping[str, Any]) -> dict[str, Any]:
    """What the script shows where charts are pointed at, by their ids."""
    components = shown["components"]
    drawn = [card.get("chart") for card in components["cards"]]
    drawn += [components["endmembers"], shown["samples"]["contributions"]]
    drawn += [shown["error"].get("chart"), *shown["spectrum"]["charts"]]
    return {chart.id: chart.data() for chart in drawn if chart is not None}


def _subtitle(context: Context, before: str) -> str:
    result, shape = context.result, context.names.pixels_shape
    samples = counted(result.H.shape[1], "sample")
    if shape is not None:
        samples = f"a scene of {shape[0]} x {shape[1]} pixels"
    features = counted(len(context.W), "feature")
    known = result.settings.get("observed")
    error = error_in_words(result.loss, result.relative_error, result.objective, known)
    return f"{before}{samples} \N{MULTIPLICATION SIGN} {features} · {error}"
