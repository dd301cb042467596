"""The report: one HTML page that describes a result and needs no other file.

`page` writes it, `sections` collects what each section shows, `charts` computes places for
drawings, and `page.html` is the template.
"""

from .page import render, write_report
from .sections import VIEWS, check_view

__all__ = ["VIEWS", "check_view", "render", "write_report"]
