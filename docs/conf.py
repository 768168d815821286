"""Sphinx configuration. `make docs` builds the site into docs/_build/html."""

import importlib.util
import re
import sys
from pathlib import Path

from docutils import nodes

sys.path.insert(0, str(Path(__file__).parent))

import generate

from statewise.version import __version__

project = "statewise"
author = "the statewise contributors"
release = version = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build", "make_pictures.py", "generate.py"]

html_theme = "furo"
html_title = f"statewise {release}"
html_static_path: list[str] = []
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}

# Docstrings are written in plain text with single backticks for code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # the notebook is stored with its outputs; a test runs it
suppress_warnings = ["mystnb.unknown_mime_type"]


# Formulas are part of the page as MathML, which browsers draw without a network. MathJax, the default
# of Sphinx, is loaded from the web.
html_math_renderer = "mathml" if importlib.util.find_spec("latex2mathml") else "mathjax"


def draw_formula(display):
    """A visitor that writes a formula as MathML."""

    def visit(translator, node):
        from latex2mathml.converter import convert

        formula = convert(node.astext(), display="block" if display else "inline")
        scrolling = '<div style="overflow-x: auto; overflow-y: hidden">{}</div>'  # on a phone
        translator.body.append(scrolling.format(formula) if display else formula)
        raise nodes.SkipNode

    return visit


def list_parameters(app, what, name, obj, options, lines):
    """Show the lines `name: meaning` of a docstring as a list."""
    shown, listing = [], False
    for line in lines:
        parameter = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if parameter:
            shown += ([] if listing else [""]) + [f"- `{parameter[1]}`: {parameter[2]}"]
            listing = True
        elif listing and line.startswith("    "):
            shown.append(f"  {line.strip()}")
        else:
            shown += [""] if listing and line else []
            shown.append(line)
            listing = False
    lines[:] = shown


def setup(app):
    app.connect("autodoc-process-docstring", list_parameters)
    app.add_html_math_renderer("mathml", (draw_formula(False), None), (draw_formula(True), None))
    app.connect("builder-inited", lambda _: generate.write_all(Path(app.srcdir) / "reference"))
