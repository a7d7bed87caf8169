"""The site: sphinx-build -W docs docs/_build/html. The build reads no network, and neither do the pages."""

import os
import re
from importlib import metadata
from pathlib import Path

import typer
from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.addnodes import download_reference
from sphinx.util.docutils import SphinxDirective

from regard.cli.main import app as regard

LESSON_SECONDS = 120  # what docs/lessons/index.md promises, on a quiet machine

# Lessons run on one thread and offline, on every machine.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "HF_HUB_OFFLINE"), "1")
os.environ["COLUMNS"] = "100"  # the width of the help of commands

project = "Regard"
author = "The authors of Regard"
copyright = "the authors of Regard"
release = version = metadata.version("regard")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
# A reader's notebooks lie beside the lessons that they were made from.
exclude_patterns = ["_build", "**/.ipynb_checkpoints", "lessons/*.ipynb"]

html_theme = "furo"
html_title = "Regard"
html_math_renderer = "mathml"
html_show_sourcelink = False

default_role = "code"  # docstrings are written with single backticks
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # torch's words on forward say nothing of ours
autodoc_default_options = {"exclude-members": "extra_repr"}
maximum_signature_line_length = 88
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_timeout = 600  # seconds for a cell: it ends a cell that hangs
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True
nb_ipywidgets_js = {}  # its default loads widgets from another site


def add_download(app, doctree):
    """Offer a lesson as a notebook, with its results, below its title."""
    if re.match(r"lessons/\d\d-", app.env.docname):
        notebook = Path(app.env.mystnb_config.output_folder, f"{app.env.docname}.ipynb")
        link = download_reference("", reftarget="/" + os.path.relpath(notebook, app.srcdir))
        link += nodes.Text("Download this lesson as a notebook")
        doctree.next_node(nodes.title).parent.insert(1, nodes.paragraph("", "", link))


def spread(app, env, pages):
    """Reorder the pages, of which each process reads about a quarter at a time: the lessons take all the time."""
    pages[:] = [page for start in range(4) for page in pages[start::4]]


def tell_times(app, env):
    """Print how long each lesson ran. A busy machine is slow, so the time alone fails no build."""
    for page, about in sorted(env.nb_metadata.items()):
        if seconds := (about.get("exec_data") or {}).get("runtime"):
            over = f", more than {LESSON_SECONDS} s" if seconds > LESSON_SECONDS else ""
            print(f"{page} ran for {seconds:.0f} s{over}")


def escape(app, what, name, found, options, lines):
    """Shapes and norms in docstrings, (*batch, queries) and |q|, are no markup."""
    example = False
    for at, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            lines[at] = re.sub(
                r"`+[^`]*`+|[*|]", lambda m: m[0] if m[0][0] == "`" else f"\\{m[0]}", line
            )


class Commands(SphinxDirective):
    """The help of every command, as the program prints it."""

    def run(self):
        return list(self._sections(typer.main.get_command(regard), "regard"))

    def _sections(self, command, name):
        context = command.make_context(name, [], resilient_parsing=True)
        section = nodes.section(ids=[nodes.make_id(name)], names=[name])
        text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        section += [nodes.title(text=name), nodes.literal_block(text, text, language="text")]
        yield section
        for below, one in getattr(command, "commands", {}).items():
            yield from self._sections(one, f"{name} {below}")


APPLIED = "<mo>&ApplyFunction;</mo>"  # between a function such as ln and its argument
THIN_SPACE = '<mspace width="0.1667em"></mspace>'


def spaced(formula):
    """MathML with the thin spaces that TeX sets around functions: none before a parenthesis or after an operator."""
    formula = re.sub(rf"({APPLIED})(?!\s*<mo[^>]*>\()", rf"\1{THIN_SPACE}", formula)
    before = r"(</m(?:i|n|text|sub|sup|subsup)>|\)</mo>)"
    return re.sub(rf"{before}(?=\s*<mi>\w+</mi>\s*{APPLIED})", rf"\1{THIN_SPACE}", formula)


def write_math(self, node):
    """MathML is in every browser: a formula needs neither a script nor a font from elsewhere."""
    block = isinstance(node, nodes.math_block)
    formula = spaced(tex2mathml(node.astext(), as_block=block))
    # The theme cuts a displayed formula off at its box, and fractions reach beyond it.
    self.body.append(f'<div style="padding: 0.6em 0">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.add_directive("commands", Commands)
    app.connect("doctree-read", add_download, priority=400)  # before Sphinx collects downloads
    app.connect("autodoc-process-docstring", escape, priority=400)  # before napoleon adds markup
    app.connect("env-before-read-docs", spread)
    app.connect("env-check-consistency", tell_times)
