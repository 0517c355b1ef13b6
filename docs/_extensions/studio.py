"""Chapters of the studio as live panels of a page: one file, at different addresses."""

from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.util.osutil import relative_uri
from sphinx.writers.html5 import HTML5Translator

from softlook.studio.export import save_page
from softlook.studio.recordings import load_example

FILE = "_static/studio.html"


class Panel(nodes.General, nodes.Element):
    """A chapter of the studio; its children are shown below it, and alone in other formats."""


class StudioDirective(Directive):
    """A live panel: the name of a chapter, and a text below it."""

    required_arguments, has_content = 1, True

    def run(self) -> list[nodes.Node]:
        node = Panel(chapter=self.arguments[0])
        self.state.nested_parse(self.content, self.content_offset, node)
        return [node]


def visit(translator: HTML5Translator, node: Panel) -> None:
    page = translator.builder.get_target_uri(translator.builder.current_docname)
    address = escape(f"{relative_uri(page, FILE)}#/chapter/{node['chapter']}?t=1")
    title = escape(f"Chapter {node['chapter']} of the studio")
    translator.body.append(f'<div class="studio"><iframe src="{address}" title="{title}" loading="lazy"></iframe>\n')


def depart(translator: HTML5Translator, node: Panel) -> None:
    translator.body.append("</div>\n")


def skip(translator: Any, node: Panel) -> None:
    """Other formats show the text alone."""


def write_file(app: Sphinx, error: Exception | None) -> None:
    """Write the file that all panels show."""
    path = Path(app.outdir) / FILE
    if error is None and app.builder.format == "html":
        path.unlink(missing_ok=True)
        save_page(load_example(), path)


def setup(app: Sphinx) -> dict[str, Any]:
    others = dict.fromkeys(("latex", "text", "man", "texinfo"), (skip, skip))
    app.add_node(Panel, html=(visit, depart), **others)
    app.add_directive("studio", StudioDirective)
    app.connect("build-finished", write_file)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
