"""The report of a result: one HTML page that needs nothing else, for people to look at.

Everything is drawn here from the diagnosis, so the page can be read without scripts and printed;
the script of the page adds choosing, pointing and zooming. Neither the data nor H as a whole are
asked for, and what is shown is thinned, so that a page stays small however large the data are. No
name, title or setting is trusted: pages are made of `markup`, and their policy lets in no request.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import os
import platform
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from . import drawings as draw
from .data import Array
from .diagnosis import Diagnosis
from .drawings import Axis
from .errors import OptionError
from .geometry import ConeGeometry
from .inits import INITS
from .markup import Html, element, join, script_json, style
from .names import Names, visible
from .result import Factorization, written_whole
from .rules import SOLVERS

__all__ = ["render", "write_report"]

VIEWS = ("auto", "images", "curves", "terms")

_PIXELS = 1_500_000  # of all images together
_POINTS = 400  # of an error curve
_TERMS = 12  # heaviest features of a component
_COMPARED = 8  # features of a sample beside its reconstruction
_STRONGEST = 6  # samples of a component
_SHARES = 4  # components of a sample that are told
_PACKAGES = ("conenmf", "numpy", "scipy", "scikit-learn")


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
        Where the data came from, such as the path of their file.
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
    >>> from conenmf import factorize, from_columns, make_cones
    >>> model = make_cones(80, 3, 0.1, n_samples=200, rng=np.random.default_rng(0))
    >>> page = render(factorize(from_columns(model.V), 3), title="Cones & more")
    >>> "<title>Cones &amp; more</title>" in page
    True
    """
    subject = _Subject.of(result, view, image_shape)
    sections = (
        _summary(subject),
        _errors(subject),
        _spectrum(subject),
        _angles(subject),
        _components(subject),
        _samples(subject),
        _reconstructions(subject),
        _settings(subject, source, dict(extra or {})),
    )
    name = title or (Path(source).name if source else None) or _sentence(_components_of(subject))
    script = _resource("report.js")
    page = Template(_resource("report.html")).substitute(
        policy=_policy(script),
        title=element("title", visible(name)),
        css=_resource("report.css"),
        heading=element("h1", visible(name)),
        source=_subtitle(subject, source, titled=name),
        links=join(_link(section) for section in sections),
        sections=join(section.html for section in sections),
        data=script_json(_page_data(subject)),
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


# --- what it is about -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Subject:
    """A result, how to look at it, and what several sections need."""

    result: Factorization
    diagnosis: Diagnosis
    names: Names
    view: str

    @classmethod
    def of(
        cls, result: Factorization, view: str, image_shape: tuple[int, int] | None
    ) -> _Subject:
        if view not in VIEWS:
            raise OptionError.unknown("view", view, VIEWS)
        names = result.names
        if image_shape is not None:
            rows, columns = image_shape
            names = replace(names, image_shape=(int(rows), int(columns)))
            names.checked(result.H.shape[1], result.W.shape[0])
        if view == "images" and names.image_shape is None:
            raise OptionError("view='images' needs image_shape=(rows, columns)")
        subject = cls(result, result.diagnosis, names, view)
        if view != "auto":
            return subject
        if names.image_shape is not None:
            return replace(subject, view="images")
        numbers = names.features is None or subject.positions is not None
        return replace(subject, view="curves" if numbers else "terms")

    @property
    def K(self) -> int:
        return self.result.K

    @property
    def N(self) -> int:
        return int(self.result.H.shape[1])

    @property
    def F(self) -> int:
        return int(self.result.W.shape[0])

    @cached_property
    def positions(self) -> Array | None:
        """The features' names as numbers, if all of them are."""
        if self.names.features is None:
            return None
        try:
            numbers = np.array([float(name) for name in self.names.features])
        except ValueError:
            return None
        return numbers if np.isfinite(numbers).all() and np.ptp(numbers) > 0 else None

    @cached_property
    def curve(self) -> draw.Curve:
        return draw.Curve.over(np.arange(self.F) if self.positions is None else self.positions)

    @cached_property
    def feature_axis(self) -> Axis:
        x = self.curve.x
        last = float(x[-1]) if self.positions is not None else float(self.F - 1)
        return Axis("feature", float(x[0]), last)

    @cached_property
    def shares(self) -> Array:
        """What part of each sample's contributions comes from each component."""
        found = self.diagnosis.samples.coefficients
        total = found.sum(axis=1, keepdims=True)
        parts: Array = np.divide(found, total, out=np.zeros_like(found), where=total > 0)
        return parts

    @cached_property
    def plane(self) -> tuple[Array, Array]:
        """Places of components and of samples."""
        W = self.result.W.astype(np.float64, copy=False)
        return draw.spread_out(
            self.shares, draw.round_tour(_cosines(W) + _cosines(self.shares))
        )

    @cached_property
    def shrink(self) -> int:
        """By how much images are reduced."""
        count = self.K + 2 * self.diagnosis.samples.examples.size
        return max(1, math.ceil(math.sqrt(count * self.F / _PIXELS)))

    def sample(self, place: int) -> str:
        """What one of the samples that were looked at is called."""
        return self.names.sample(int(self.diagnosis.samples.indices[place]))

    def image(self, vector: Array, top: float, what: str) -> Html:
        assert self.names.image_shape is not None
        pixels = draw.shrunk(np.reshape(vector, self.names.image_shape), self.shrink)
        rows, columns = pixels.shape
        small = "small" if max(rows, columns) <= 64 else None
        address = draw.picture(pixels, top)
        return element(
            "img", src=address, alt=what, width=columns, height=rows, class_=small, decoding="async"
        )


def _cosines(columns: Array) -> Array:
    size = np.linalg.norm(columns, axis=0)
    unit = np.divide(columns, size, out=np.zeros_like(columns), where=size > 0)
    cosines: Array = unit.T @ unit
    return cosines


# --- the page ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Section:
    id: str
    short: str
    html: Html

    @classmethod
    def of(cls, id_: str, short: str, title: str, *children: str | None) -> _Section:
        heading = element("h2", title, id=f"{id_}-title")
        inside = (heading, *children)
        return cls(id_, short, element("section", *inside, id=id_, aria_labelledby=f"{id_}-title"))


def _link(section: _Section) -> Html:
    return element("li", element("a", section.short, href=f"#{section.id}"))


def _resource(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing is requested, and no script runs but the page's own."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _subtitle(subject: _Subject, source: str | None, titled: str) -> Html:
    size = f"{subject.N:,} samples x {subject.F:,} features".replace("x", "×")
    what = [_components_of(subject)] if titled != _sentence(_components_of(subject)) else []
    told = " · ".join([*what, size])
    if source is None:
        return element("p", told, class_="subtitle")
    return element("p", told, " · ", element("span", visible(source), class_="path"), class_="subtitle")


def _components_of(subject: _Subject) -> str:
    return f"{subject.K} component{'s' * (subject.K > 1)}"


def _hint(*texts: str) -> Html:
    return element("p", *texts, class_="hint")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _number(value: float) -> str:
    return f"{value:.4g}"


def _percent(share: float) -> str:
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def _degrees(angle: float) -> str:
    return f"{math.degrees(angle):.1f}°"


# --- sections ---------------------------------------------------------------------------------


def _summary(subject: _Subject) -> _Section:
    certificate, cones = subject.diagnosis.certificate, subject.diagnosis.cones
    error, K = certificate.relative_error, _components_of(subject)
    facts = [
        (
            "Relative error",
            _number(error),
            f"The share of the data that is missed; {_percent(1 - min(error, 1.0) ** 2)} of their "
            "squares are explained.",
        ),
        (
            "Best possible",
            f"≥ {_number(certificate.lower_bound)}",
            f"No factorisation with {K}, however it was found, has a smaller error.",
        ),
        (
            "Gap",
            _number(certificate.gap),
            "The error is at most this far from the best one possible.",
        ),
        (
            "KKT residual",
            f"{certificate.kkt_residual:.2g}",
            "How far from a point that no small change improves; 0 is such a point.",
        ),
    ]
    if cones is not None:
        facts += [
            (
                "Cones alone",
                _number(cones.error),
                "The error of one direction for each cone (cr1), before any solver.",
            ),
            (
                "Proven for cones",
                f"≤ {_number(cones.bound)}",
                "What that error was bound to be at most: the sine of the widest cone's angle.",
            ),
        ]
    tiles = (
        element(
            "div", element("dt", name), element("dd", value, class_="value"), element("dd", why)
        )
        for name, value, why in facts
    )
    start, why = subject.diagnosis.advice
    sentences = subject.result.summary()
    return _Section.of(
        "summary",
        "Summary",
        "Summary",
        element("p", f"{_sentence(sentences[0])}.", class_="lead"),
        *(element("p", f"{_sentence(told)}.", class_="lead more") for told in sentences[1:]),
        element("dl", *tiles, class_="tiles"),
        element(
            "p",
            element("strong", "A start for such data: "),
            element("code", start),
            f", because {why}.",
            class_="advice",
        ),
    )


def _errors(subject: _Subject) -> _Section:
    title = "Error while solving"
    reason = f"Stopped because: {_REASONS.get(subject.result.stop_reason, subject.result.stop_reason)}."
    if not subject.result.history.relative_error.size:
        note = "There was no iteration: what is shown is the start, with exact coefficients."
        return _Section.of("error", "Error", title, element("p", note))
    switch = element(
        "div",
        *(
            element("button", text, type="button", data_shows=f"error-{key}", aria_pressed=on)
            for key, text, on in (
                ("iteration", "by iteration", "true"),
                ("seconds", "by time", "false"),
            )
        ),
        class_="switch controls",
        role="group",
        aria_label="What the error is drawn against",
    )
    return _Section.of(
        "error",
        "Error",
        title,
        element("p", f"{subject.result.n_iter} iterations. {reason}"),
        switch,
        *(element("figure", _error_chart(subject, key), _readout()) for key in ("iteration", "seconds")),
        _legend(("line main", "relative error"), ("line bound", "no error can be below")),
    )


_REASONS = {
    "converged": "the error hardly fell any more",
    "exact": "nothing was left to explain",
    "max_iter": "the largest number of iterations was reached",
    "max_time": "the time was up",
    "callback": "it was told to",
}


def _kept(size: int) -> Array:
    """Which of many points to draw: the first ones, where most happens, and some of the rest."""
    if size <= _POINTS:
        return np.arange(size)
    places: Array = np.unique(np.geomspace(1, size, 2 * _POINTS).astype(np.intp)) - 1
    return places


def _error_points(subject: _Subject, key: str) -> tuple[Array, Array, list[str]]:
    history = subject.result.history
    kept = _kept(history.relative_error.size)
    seconds, errors = history.elapsed[kept], history.relative_error[kept]
    texts = [
        f"iteration {n + 1}, {s:.3g} s: relative error {e:.5g}"
        for n, s, e in zip(kept, seconds, errors, strict=True)
    ]
    return (kept + 1.0 if key == "iteration" else seconds), errors, texts


def _error_axes(subject: _Subject, key: str) -> tuple[Axis, Axis]:
    x, errors, _ = _error_points(subject, key)
    below = subject.diagnosis.certificate.lower_bound
    low, high = min(float(errors.min()), below), max(float(errors.max()), below)
    rim = 0.08 * (high - low) or 0.1 * high or 1.0
    start = 1.0 if key == "iteration" else 0.0
    return Axis(key, start, max(float(x.max()), start)), Axis("relative error", max(low - rim, 0.0), high + rim)


def _error_chart(subject: _Subject, key: str) -> Html:
    x, errors, _ = _error_points(subject, key)
    below = subject.diagnosis.certificate.lower_bound
    across, up = _error_axes(subject, key)
    a, b = across.place(x), up.place(errors)
    bound = float(up.place(np.array(below)))
    inside = join(
        (
            draw.level(bound, "bound"),
            draw.line(a, b, "main"),
            draw.dots(a, b, "main") if a.size <= 60 else None,
        )
    )
    label = (
        f"Relative error by {key}: from {_number(float(errors[0]))} to {_number(float(errors[-1]))}; "
        f"no error can be below {_number(below)}."
    )
    return draw.chart(inside, across, up, label=label, id_=f"error-{key}")


def _spectrum(subject: _Subject) -> _Section:
    rank, K = subject.diagnosis.rank, subject.K
    ratio = f"{rank.ratios[K - 1]:.3g}" if K <= rank.ratios.size else None
    told = (
        "Singular values tell how much each further component could explain at best. A large ratio "
        "of one to the next is where a number of components suggests itself"
    )
    if rank.K == K:
        told += f", and the largest is at K = {K} ({ratio})."
    else:
        told += f": the largest is at {rank.K} ({rank.ratios[rank.K - 1]:.3g}); here K = {K}"
        told += f" ({ratio})." if ratio else "."
    return _Section.of(
        "spectrum",
        "Spectrum",
        "Spectrum and the number of components",
        element("p", told),
        element("figure", _values_chart(subject), _ratios_chart(subject), _readout()),
        _legend(("dot main", "singular value"), ("bar", "ratio to the next"), ("line chosen", "K")),
    )


def _numbers_axis(subject: _Subject) -> Axis:
    return Axis("number of components", 0.0, subject.diagnosis.rank.singular_values.size + 0.5)


def _values_axis(subject: _Subject) -> Axis:
    values = subject.diagnosis.rank.singular_values
    positive = values[values > 1e-8 * values[0]]
    return Axis("singular value", float(positive.min()) / 1.3, float(positive.max()) * 1.3, log=True)


def _values_chart(subject: _Subject) -> Html:
    values = subject.diagnosis.rank.singular_values
    x, y = replace(_numbers_axis(subject), name=""), _values_axis(subject)
    k = np.arange(1, values.size + 1)[values >= y.low]
    a, b = x.place(k), y.place(values[k - 1])
    chosen = float(x.place(np.array(subject.K)))
    inside = (draw.upright(chosen, "chosen"), draw.line(a, b, "thin"), draw.dots(a, b, "main"))
    label = f"The {values.size} largest singular values, from {_number(values[0])} down."
    return element("div", element("h3", "Singular values"), draw.chart(join(inside), x, y, label=label, id_="values"))


def _ratios_top(subject: _Subject) -> float:
    """The first ratio of nonnegative data is always large, and must not flatten the others."""
    ratios = subject.diagnosis.rank.ratios
    return float(ratios[1:].max() if ratios.size > 1 else ratios.max()) * 1.1


def _ratios_chart(subject: _Subject) -> Html:
    ratios, K = subject.diagnosis.rank.ratios, subject.K
    x, y = _numbers_axis(subject), Axis("ratio", 1.0, max(_ratios_top(subject), 1.01))
    k = np.arange(1, ratios.size + 1)
    a, b = x.place(k), np.minimum(y.place(ratios), 1.0)
    width = 0.6 / (ratios.size + 1.5)
    others = k != K
    inside = (
        draw.bars(a[others], b[others], width, "bar"),
        draw.bars(a[~others], b[~others], width, "bar main"),
    )
    label = "Ratio of each singular value to the next."
    return element("div", element("h3", "Ratio of each to the next"), draw.chart(join(inside), x, y, label=label, id_="ratios"))


def _angles(subject: _Subject) -> _Section:
    cones = subject.diagnosis.cones
    title = "Cones and the angles between them"
    if cones is None:
        return _Section.of(
            "cones",
            "Cones",
            title,
            element(
                "p",
                "There are no cones to show: the samples have fewer directions than there are "
                "components.",
            ),
        )
    geometry = cones.geometry
    if subject.K == 1:
        told = f"All samples lie within {_degrees(float(geometry.angles[0]))} of one axis."
        return _Section.of("cones", "Cones", title, element("p", told))
    needed = _threshold(geometry)
    close = int((geometry.between <= needed).sum() - subject.K) // 2
    pairs = subject.K * (subject.K - 1) // 2
    first, other = geometry.closest or (0, 1)
    verdict = (
        "The geometric assumption holds: every angle between two axes is larger."
        if geometry.holds
        else f"The geometric assumption does not hold: {close} of {pairs} pairs of cones are too close."
    )
    largest, second = np.sort(geometry.angles)[::-1][:2]
    told = (
        f"The two widest cones reach {_degrees(largest)} and {_degrees(second)} from their axes, so "
        f"axes have to be more than 3 × {_degrees(largest)} + {_degrees(second)} = {_degrees(needed)} "
        f"apart. {verdict} The closest are {first} and {other}, at "
        f"{_degrees(float(geometry.between[first, other]))}; "
        f"{geometry.ambiguous.size:,} samples lie between cones."
    )
    return _Section.of(
        "cones",
        "Cones",
        title,
        element("p", told),
        element("figure", _angles_map(geometry), _scale(needed), _readout(), class_="cones"),
    )


def _threshold(geometry: ConeGeometry) -> float:
    """What the geometric assumption asks of every angle between two axes."""
    largest, second = np.sort(geometry.angles)[::-1][:2]
    return float(3 * largest + second)


def _angles_map(geometry: ConeGeometry) -> Html:
    K = geometry.angles.size
    step = next(s for s in (1, 2, 5, 10, 20) if K / s <= 24)
    numbers = [
        element("span", str(k), style=style(at=f"{100 * (k + 0.5) / K:.2f}%"))
        for k in range(0, K, step)
    ]
    widest = float(geometry.angles.max()) or 1.0
    widths = (
        element(
            "i",
            style=style(at=f"{100 * k / K:.2f}%", share=f"{100 * float(angle) / widest:.1f}%"),
        )
        for k, angle in enumerate(geometry.angles)
    )
    label = f"Angles between {K} cones; the smallest is between {geometry.closest}."
    return element(
        "div",
        element("div", *numbers, class_="y axis", aria_hidden="true"),
        element("div", draw.heat_map(geometry.between, _threshold(geometry)), class_="area"),
        element(
            "div", *widths, class_="widths", aria_hidden="true", style=style(rows=str(K))
        ),
        element("div", *numbers, class_="x axis", aria_hidden="true"),
        element("div", f"size angle, up to {_degrees(widest)}", class_="width name", aria_hidden="true"),
        class_="heat",
        id="angles",
        role="img",
        aria_label=label,
    )


def _scale(needed: float) -> Html:
    """What the colours mean."""
    steps = [
        element("i", class_=f"swatch {kind} l{step}")
        for kind, order in (("close", range(6, 0, -1)), ("apart", range(1, 7)))
        for step in order
    ]
    return element(
        "p",
        element("span", "too close"),
        element("span", *steps[:6], class_="steps"),
        element("span", _degrees(needed)),
        element("span", *steps[6:], class_="steps"),
        element("span", "far enough"),
        class_="scale",
    )


def _components(subject: _Subject) -> _Section:
    how = {
        "images": "each as an image, from black for nothing to white for its largest entry",
        "curves": "each as a curve over the features",
        "terms": f"each by its {min(_TERMS, subject.F)} heaviest features",
    }[subject.view]
    return _Section.of(
        "components",
        "Components",
        "Components",
        element("p", f"{_sentence(_components_of(subject))}, {how}, numbered from 0."),
        element("div", id="chooser", class_="controls"),
        element(
            "div",
            *(_component(subject, k) for k in range(subject.K)),
            class_=f"components {subject.view}",
        ),
    )


def _component(subject: _Subject, k: int) -> Html:
    w = subject.result.W[:, k].astype(np.float64, copy=False)
    size = int(subject.diagnosis.sizes[k])
    facts = [
        ("Samples", f"{size:,} of {subject.N:,}", "to which it contributes most"),
        ("Contribution", _percent(float(subject.shares[:, k].mean())), "of a sample, on average"),
    ]
    cones = subject.diagnosis.cones
    if cones is not None:
        angle = _degrees(float(cones.geometry.angles[k]))
        facts.append(("Its cone", f"{int(cones.sizes[k]):,} samples", f"within {angle} of its axis"))
    strength = subject.diagnosis.samples.coefficients[:, k]
    strongest = [n for n in np.argsort(-strength, kind="stable")[:_STRONGEST] if strength[n] > 0]
    return element(
        "article",
        element("h3", draw.glyph(k), f" Component {k}"),
        element("div", _component_picture(subject, w, k), class_="picture"),
        element(
            "div",
            element(
                "dl",
                *(
                    element("div", element("dt", name), element("dd", value, " ", element("small", more)))
                    for name, value, more in facts
                ),
            ),
            element("h4", "Strongest samples"),
            element(
                "ol",
                *(
                    element(
                        "li",
                        element("span", subject.sample(n), class_="of"),
                        element("span", _percent(float(subject.shares[n, k])), class_="value"),
                        style=style(share=f"{100 * float(subject.shares[n, k]):.1f}%"),
                    )
                    for n in strongest
                ),
                class_="bars",
            )
            if strongest
            else element("p", "None of the samples that were looked at has any of it."),
            class_="about",
        ),
        class_="component",
        id=f"component-{k}",
        data_k=k,
        style=draw.colour(k),
    )


def _component_picture(subject: _Subject, w: Array, k: int) -> Html:
    if subject.view == "images":
        return subject.image(w, float(w.max()), f"component {k} as an image")
    if subject.view == "curves":
        y = Axis("weight", 0.0, float(w.max()) * 1.05 or 1.0)
        path = subject.curve.path(w, subject.feature_axis, y, "own")
        return draw.chart(path, subject.feature_axis, y, label=f"component {k} as a curve", id_=f"curve-{k}")
    top = float(w.max()) or 1.0
    heaviest = [f for f in np.argsort(-w, kind="stable")[:_TERMS] if w[f] > 0]
    return element("ol", *(_bar(subject, int(f), float(w[f]), top) for f in heaviest), class_="bars terms")


def _bar(subject: _Subject, f: int, weight: float, top: float) -> Html:
    return element(
        "li",
        element("span", subject.names.feature(f), class_="of"),
        element("span", f"{weight:.3g}", class_="value"),
        style=style(share=f"{100 * weight / top:.1f}%"),
    )


def _samples(subject: _Subject) -> _Section:
    samples = subject.diagnosis.samples
    anchors, places = subject.plane
    reach = draw.extent(places)
    numbers = (
        element(
            "span",
            str(k),
            data_k=k,
            class_="anchor",
            style=style(
                x=f"{50 + 50 * x * (reach - 0.09) / reach:.2f}%",
                y=f"{50 + 50 * y * (reach - 0.09) / reach:.2f}%",
            ),
        )
        for k, (x, y) in enumerate(anchors)
    )
    shown = samples.indices.size
    which = "All samples" if shown == subject.N else f"{shown:,} of {subject.N:,} samples, evenly spread,"
    where = "together" if subject.K == 1 else "between the components that they are made of"
    told = (
        f"{which} {where}; the closer to a number, the more of that component. Samples that would "
        "hide each other stand side by side, so a large crowd is many samples."
    )
    controls = element(
        "div",
        element(
            "div",
            *(
                element("button", sign, type="button", data_zoom=zoom, aria_label=label, title=label)
                for sign, zoom, label in (
                    ("+", "in", "Zoom in"),
                    ("\N{MINUS SIGN}", "out", "Zoom out"),
                    ("Reset", "reset", "Show the whole map"),
                )
            ),
            class_="switch",
            role="group",
            aria_label="Zoom",
        ),
        element(
            "label",
            "Find a sample ",
            element("input", type="search", id="find", autocomplete="off", spellcheck="false"),
        ),
        class_="controls row",
    )
    legend = element(
        "ul",
        *(
            element(
                "li",
                element(
                    "button",
                    draw.glyph(k),
                    f" {k}",
                    element("small", f" {int(size):,}"),
                    type="button",
                    data_k=k,
                    aria_pressed="false",
                ),
            )
            for k, size in enumerate(subject.diagnosis.sizes)
        ),
        class_="legend marks",
        aria_label="Components and how many samples belong to each most; choose one to see it alone",
    )
    return _Section.of(
        "samples",
        "Samples",
        "Samples",
        element("p", told),
        controls,
        element(
            "figure",
            element(
                "div",
                draw.sample_map(anchors, places, samples.labels),
                *numbers,
                class_="map",
                id="map",
                role="img",
                aria_label="Map of samples by the components they are made of",
            ),
            _readout(),
            legend,
        ),
    )


def _reconstructions(subject: _Subject) -> _Section:
    samples, W = subject.diagnosis.samples, subject.result.W.astype(np.float64, copy=False)
    lengths = np.linalg.norm(W, axis=0)
    unit = np.divide(W, lengths, out=np.zeros_like(W), where=lengths > 0)
    pairs = [
        (int(n), samples.originals[:, e], unit @ samples.coefficients[n])
        for e, n in enumerate(samples.examples)
    ]
    keys = {
        "images": (),
        "curves": (("line original", "sample"), ("line main", "reconstruction")),
        "terms": (("bar original", "sample"), ("bar main", "reconstruction")),
    }[subject.view]
    return _Section.of(
        "reconstruction",
        "Reconstruction",
        "Samples and their reconstruction",
        element("p", f"{len(pairs)} of the samples, from the best reconstructed to the worst."),
        _legend(*keys) if keys else None,
        element(
            "div",
            *(_pair(subject, n, original, again) for n, original, again in pairs),
            class_=f"pairs {subject.view}",
        ),
    )


def _pair(subject: _Subject, n: int, original: Array, again: Array) -> Html:
    error = float(subject.diagnosis.samples.errors[n])
    return element(
        "figure",
        _compared(subject, original, again),
        element(
            "figcaption",
            element("span", subject.sample(n), class_="of"),
            element("span", f"relative error {_number(error)}", class_="value"),
        ),
    )


def _compared(subject: _Subject, original: Array, again: Array) -> Html:
    top = float(max(original.max(), again.max()))
    if subject.view == "images":
        both = (("sample", original), ("reconstruction", again))
        return element(
            "div",
            *(
                element("div", subject.image(values, top, what), element("small", what))
                for what, values in both
            ),
            class_="both",
        )
    if subject.view == "curves":
        x, y = subject.feature_axis, Axis("value", 0.0, top * 1.05 or 1.0)
        lines = (
            subject.curve.path(original, x, y, "original"),
            subject.curve.path(again, x, y, "main"),
        )
        return draw.chart(join(lines), x, y, label="a sample and its reconstruction")
    heaviest = np.argsort(-np.maximum(original, again), kind="stable")[:_COMPARED]
    rows = (
        element(
            "li",
            element("span", subject.names.feature(int(f)), class_="of"),
            element("span", f"{original[f]:.3g} / {again[f]:.3g}", class_="value"),
            style=style(
                share=f"{100 * float(original[f]) / (top or 1.0):.1f}%",
                again=f"{100 * float(again[f]) / (top or 1.0):.1f}%",
            ),
        )
        for f in heaviest
        if max(original[f], again[f]) > 0
    )
    return element("ol", *rows, class_="bars two")


def _settings(subject: _Subject, source: str | None, extra: dict[str, object]) -> _Section:
    result = subject.result
    command = extra.pop("command", None)
    stages = {name: took for name, took in result.seconds.items() if took > 0}
    slowest = max(stages.values(), default=1.0)
    of = {"sketch": "sketch (part of solve)"}
    seconds = element(
        "ol",
        *(
            element(
                "li",
                element("span", of.get(name, visible(name)), class_="of"),
                element("span", f"{took:.3g} s", class_="value"),
                style=style(share=f"{100 * took / slowest:.1f}%"),
            )
            for name, took in stages.items()
        ),
        class_="bars",
    )
    asked = {name: _plain(value) for name, value in result.settings.items()}
    asked |= {"passes over the data": f"{result.passes:.4g}"}
    asked |= {str(name): visible(value) for name, value in extra.items()}
    return _Section.of(
        "settings",
        "Settings",
        "Settings, time and how to run it again",
        element(
            "div",
            element("div", element("h3", "Settings"), _table(asked)),
            element(
                "div",
                element("h3", "Time"),
                seconds,
                element("h3", "Versions"),
                _table(_versions()),
            ),
            class_="two columns",
        ),
        element("h3", "Run it again"),
        _code(visible(command)) if command is not None else None,
        _code(_program(result.settings, source)),
    )


def _plain(value: object) -> str:
    return visible("none" if value is None else value)


def _table(rows: Mapping[str, str]) -> Html:
    return element(
        "table",
        element(
            "tbody",
            *(
                element("tr", element("th", visible(name), scope="row"), element("td", value))
                for name, value in rows.items()
            ),
        ),
    )


def _code(text: str) -> Html:
    button = element("button", "Copy", type="button", class_="copy controls")
    return element("div", element("pre", element("code", text), tabindex="0"), button, class_="code")


def _versions() -> dict[str, str]:
    """Of what wrote the page; nothing that names the machine."""
    found = {"python": platform.python_version(), "system": platform.system()}
    return {name: importlib.metadata.version(name) for name in _PACKAGES} | found


def _program(settings: Mapping[str, Any], source: str | None) -> str:
    """The lines of Python that do it again."""
    data = "from_rows(X)  # your samples, one in each row"
    door = "from_rows"
    if source is not None:
        data, door = f"open_data({visible(source)!r})", "open_data"
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
    K = settings.get("K", "auto")
    comment = f"  # {' and '.join(own)}: your own" if own else ""
    return (
        f"from conenmf import factorize, {door}\n"
        "from conenmf.report import write_report\n\n"
        f"V = {data}\n"
        f"result = factorize({', '.join(['V', visible(repr(K)), *map(visible, options)])}){comment}\n"
        'write_report(result, "report.html")\n'
    )


def _readout() -> Html:
    return element("output", "\N{NO-BREAK SPACE}", class_="readout controls", aria_live="polite")


def _legend(*entries: tuple[str, str]) -> Html:
    keys = (
        element("li", element("i", class_=f"key {class_}"), text) for class_, text in entries
    )
    return element("ul", *keys, class_="legend")


# --- what the script of the page needs --------------------------------------------------------


def _page_data(subject: _Subject) -> dict[str, Any]:
    """Numbers for pointing at: places between 0 and 1, and what to say there."""
    return {
        "charts": _chart_data(subject),
        "curves": _curve_data(subject) if subject.view == "curves" else None,
        "angles": _angle_data(subject),
        "samples": _sample_data(subject),
    }


def _rounded(values: Array, digits: int = 4) -> list[Any]:
    found: list[Any] = np.round(values, digits).tolist()
    return found


def _chart_data(subject: _Subject) -> dict[str, Any]:
    charts: dict[str, Any] = {}
    for key in ("iteration", "seconds") if subject.result.history.relative_error.size else ():
        x, errors, texts = _error_points(subject, key)
        across, up = _error_axes(subject, key)
        charts[f"error-{key}"] = {
            "x": _rounded(across.place(x)),
            "y": _rounded(up.place(errors)),
            "text": texts,
        }
    rank = subject.diagnosis.rank
    x_axis, y_axis = _numbers_axis(subject), _values_axis(subject)
    values, ratios = rank.singular_values, rank.ratios
    k = np.arange(1, values.size + 1)
    texts = [f"singular value {n}: {value:.5g}" for n, value in zip(k, values, strict=True)]
    charts["values"] = {
        "x": _rounded(x_axis.place(k)),
        "y": _rounded(np.clip(y_axis.place(values), 0, 1)),
        "text": texts,
    }
    top = Axis("", 1.0, max(_ratios_top(subject), 1.01))
    charts["ratios"] = {
        "x": _rounded(x_axis.place(k[:-1])),
        "y": _rounded(np.clip(top.place(ratios), 0, 1)),
        "text": [
            f"singular value {n} is {ratio:.4g} times the next"
            for n, ratio in zip(k[:-1], ratios, strict=True)
        ],
    }
    return charts


def _curve_data(subject: _Subject) -> dict[str, Any]:
    curve, W = subject.curve, subject.result.W.astype(np.float64, copy=False)
    first = [subject.names.feature(int(f)) for f in curve.order[curve.starts]]
    if curve.thinned:
        ends = np.append(curve.starts[1:], curve.order.size) - 1
        last = [subject.names.feature(int(f)) for f in curve.order[ends]]
        first = [f"{a} to {b}" for a, b in zip(first, last, strict=True)]
    highs = [curve.highs(w) for w in W.T]
    tops = [float(w.max()) * 1.05 or 1.0 for w in highs]
    return {
        "x": _rounded(subject.feature_axis.place(curve.x)),
        "names": first,
        "tops": [float(f"{top:.4g}") for top in tops],
        "values": [[float(f"{v:.3g}") for v in w] for w in highs],
    }


def _angle_data(subject: _Subject) -> dict[str, Any] | None:
    cones = subject.diagnosis.cones
    if cones is None or subject.K == 1:
        return None
    geometry = cones.geometry
    return {
        "between": _rounded(np.degrees(geometry.between), 1),
        "sizes": _rounded(np.degrees(geometry.angles), 1),
        "needed": round(math.degrees(_threshold(geometry)), 1),
        "samples": cones.sizes.tolist(),
    }


def _sample_data(subject: _Subject) -> dict[str, Any]:
    samples = subject.diagnosis.samples
    anchors, places = subject.plane
    strongest = np.argsort(-subject.shares, axis=1, kind="stable")[:, :_SHARES]
    return {
        "reach": round(draw.extent(places), 4),
        "anchors": _rounded(anchors),
        "places": _rounded(places),
        "labels": samples.labels.tolist(),
        "names": [subject.sample(n) for n in range(samples.indices.size)],
        "errors": [float(f"{error:.4g}") for error in samples.errors],
        "shares": [
            [[int(k), round(100 * float(of[k]))] for k in ks if of[k] > 0.005]
            for of, ks in zip(subject.shares, strongest, strict=True)
        ],
    }
