"""How the documentation is built: ``make docs``, without the internet."""

import functools
import importlib
import inspect
import re
import sys
import tomllib
import warnings
from pathlib import Path
from urllib.parse import urlsplit

import matplotlib.pyplot as plt

import conenmf

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))
ADDRESS = PROJECT["tool"]["conenmf"]["documentation"]  # empty until the owners fill it in

project = "conenmf"
author = "The conenmf developers"
copyright = "the conenmf developers"
version = release = conenmf.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "dataset_tables",
    "mathml",
    "notfound.extension",
    "related",
]
if ADDRESS:
    extensions.append("sphinx_sitemap")
html_baseurl = ADDRESS
sitemap_url_scheme = "{link}"
notfound_urls_prefix = urlsplit(ADDRESS).path or "/"
exclude_patterns = [
    "_build",
    "auto_examples/**/*.ipynb",
    "auto_examples/**/*.py",
    "reproduction/page.md",  # part of reproduction.md
    "reproduction/open_noise.md",  # part of open_problems.md
]
templates_path = ["_templates"]
nitpicky = True
toc_object_entries_show_parents = "hide"

# --- pages ------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
copybutton_exclude = ".linenos, .gp, .go"


def _rendered_examples(app, docname, source):
    """A link to an example leads to its program on a code host, and to its page here."""
    source[0] = re.sub(
        r"\]\(\.\./examples/(\w+/plot_\w+)\.py\)", r"](auto_examples/\1.rst)", source[0]
    )


suppress_warnings = ["config.cache"]  # the gallery is configured with functions

# --- the reference ----------------------------------------------------------------------------

autodoc_typehints = "none"  # numpydoc's sections say it, with shapes
autosummary_generate = True
autosummary_ignore_module_all = False
numpydoc_show_class_members = False  # the templates list them
numpydoc_xref_param_type = False
default_role = "py:obj"


def _properties(module, name):
    """The properties of a class that are its own."""
    kinds = (property, functools.cached_property)
    members = vars(getattr(importlib.import_module(module), name))
    return [
        member
        for member, value in members.items()
        if isinstance(value, kinds) and inspect.getdoc(value) and not member.startswith("_")
    ]


autosummary_context = {"properties": _properties}


def _readable(app, what, name, obj, options, lines):
    """Let formulas such as ||V - W* H|| stand in docstrings as they are."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "...")):
            continue
        parts = re.split(r"(``.+?``|`[^`]+`)", line)
        for place in range(0, len(parts), 2):
            parts[place] = re.sub(r"\|", r"\\|", parts[place])
            parts[place] = re.sub(r"(?<=\b[A-Z])\*", r"\\*", parts[place])
            parts[place] = re.sub(r"(?<=[A-Za-z])_(?=[\s,.;:)]|$)", r"\\_", parts[place])
        lines[number] = "".join(parts)


def _plain_words(app, env, node, contnode):
    """What is in single backticks need not be a name that the reference knows."""
    return contnode if node.get("reftype") == "obj" else None


# --- the gallery ------------------------------------------------------------------------------


def _style(gallery_conf, fname):
    """Pictures that go with the pages."""
    plt.rcdefaults()
    plt.rcParams.update(
        {
            "axes.grid": False,
            "axes.prop_cycle": plt.cycler(
                color=[
                    *("#2563a8", "#e07b39", "#3d9970", "#c0504d", "#7a5ba6"),
                    *("#c9a227", "#4bacc6", "#d16ba5", "#6b7280", "#8b5e3c"),
                ]
            ),
            "axes.spines.right": False,
            "axes.spines.top": False,
            "axes.titlesize": "medium",
            "axes.titleweight": "bold",
            "figure.dpi": 100,
            "figure.figsize": (7.0, 4.2),
            "font.size": 10.5,
            "image.interpolation": "nearest",
            "legend.frameon": False,
            "savefig.dpi": 160,
        }
    )


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"[\\/]plot_",
    "ignore_pattern": r"demo\.py$",
    "subsection_order": [
        f"../examples/{name}" for name in ("data", "known", "judging", "large", "tools")
    ],
    "within_subsection_order": "FileNameSortKey",
    "doc_module": ("conenmf",),
    "backreferences_dir": "generated/backreferences",
    "reference_url": {"conenmf": None},
    "reset_modules": (_style,),
    "image_srcset": [],
    "min_reported_time": 1e9,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "write_computation_times": False,
    "remove_config_comments": True,
    "capture_repr": ("_repr_html_", "__repr__"),
    "abort_on_example_error": False,
    "thumbnail_size": (400, 280),
    "notebook_images": False,
}
warnings.filterwarnings("ignore", message=".*Agg, which is a non-GUI backend.*")

# --- how it looks -----------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "conenmf"
html_logo = "_static/logo.svg"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "conenmf"},
    "navbar_center": [],
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"**": ["all_pages"]}


def setup(app):
    """Connect what is above."""
    app.connect("autodoc-process-docstring", _readable, priority=400)
    app.connect("missing-reference", _plain_words)
    app.connect("source-read", _rendered_examples)
