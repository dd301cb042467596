"""Formulas as MathML, which browsers draw by themselves: no scripts, no internet."""

from html import escape
from xml.etree import ElementTree as ET

from docutils import nodes
from latex2mathml.converter import convert

_FUNCTIONS = {"sin", "cos", "arccos", "arcsin", "exp"}
_LIMITS = {"max", "min", "arg max", "arg min"}


def formula(latex, display):
    """Return MathML for a formula, with the spaces and limits that LaTeX would set."""
    for name in ("max", "min"):
        latex = latex.replace(rf"\arg\{name}", rf"\text{{arg {name}}}")
    tree = ET.fromstring(convert(latex, display=display))
    namespace = tree.tag.partition("}")[0] + "}"
    for parent in list(tree.iter()):
        for place, child in reversed(list(enumerate(parent))):
            first = child[0] if len(child) else child
            name = "".join(first.itertext()).replace("\xa0", " ").strip()
            if child.tag == namespace + "msub" and name in _LIMITS and display == "block":
                child.tag = namespace + "munder"
            follower = parent[place + 1] if place + 1 < len(parent) else None
            if parent.tag == namespace + "mrow" and follower is not None:
                spaced = name in _FUNCTIONS and follower.text not in ("(", "\u2061")
                if spaced or name in _LIMITS:
                    parent.insert(place + 1, ET.Element(namespace + "mspace", width="0.2em"))
    ET.register_namespace("", namespace[1:-1])
    return ET.tostring(tree, encoding="unicode")


def _inline(writer, node):
    writer.body.append(formula(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(writer, node):
    identity = f' id="{escape(node["ids"][0])}"' if node.get("ids") else ""
    drawn = formula(node.astext(), "block")
    writer.body.append(f'<div class="math-block"{identity}>{drawn}</div>\n')
    raise nodes.SkipNode


def setup(app):
    """Offer the renderer and choose it."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
