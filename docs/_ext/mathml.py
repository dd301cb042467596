"""Formulas as MathML, which browsers draw by themselves: no scripts, no internet."""

from html import escape

from docutils import nodes
from latex2mathml.converter import convert


def _inline(writer, node):
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(writer, node):
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    identity = f' id="{escape(node["ids"][0])}"' if node.get("ids") else ""
    formula = convert(node.astext(), display="block")
    writer.body.append(f'<div class="math-block"{identity}>{number}{formula}</div>\n')
    raise nodes.SkipNode


def setup(app):
    """Offer the renderer and choose it."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
