"""The report: one HTML page that describes a result and needs no other file.

`page` writes it, `sections` collects what each section shows, `charts` and `sample_map` compute
places for drawings, and `page.html` is the template.
"""

from .context import VIEWS, check_view
from .page import render, write_report

__all__ = ["VIEWS", "check_view", "render", "write_report"]
