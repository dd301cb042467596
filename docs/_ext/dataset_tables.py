"""The tables of the page on datasets, made from the catalogue.

The directive ``{datasets} images`` becomes a table of all datasets of that kind. What is written
inside the directive is for readers of the bare Markdown.
"""

import re

from sphinx.util.docutils import SphinxDirective

from conenmf.datasets import DATASETS

_HEADER = (
    "| Name | Samples | Features | K | Fetched | Checked | What `load` does | Source | Terms |"
)


def table(kind):
    """Return the table of a kind of datasets, as Markdown."""
    rows, previous = [_HEADER, re.sub(r"[^|]+", "---", _HEADER)], None
    for name, description in DATASETS.items():
        if description.kind != kind:
            continue
        texts = (description.preprocessing, description.source, description.licence)
        cells = ["as above"] * 3 if texts == previous else map(_with_links, texts)
        sizes = (f"{description.shape[0]:,}", f"{description.shape[1]:,}", str(description.K))
        fetched = "yes" if description.downloads else "no"
        checked = _checked(description)
        rows.append(f"| {' | '.join((f'`{name}`', *sizes, fetched, checked, *cells))} |")
        previous = texts
    return "\n".join(rows)


def _checked(description):
    """What of a dataset has a checksum in the catalogue."""
    if description.download_sha256:
        return "files"
    if description.sha256 is None:
        return "size"
    return "numbers" if description.exact else "numbers, else size"


def _with_links(text):
    return re.sub(r"(https?://(?:www\.)?([^\s),;/]+)[^\s),;]*)", r"[\2](\1)", text)


class _Datasets(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        (kind,) = self.arguments
        if kind not in {description.kind for description in DATASETS.values()}:
            raise self.error(f"there are no datasets of the kind {kind!r}")
        return self.parse_text_to_nodes(table(kind))


def setup(app):
    """Offer the directive."""
    app.add_directive("datasets", _Datasets)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
