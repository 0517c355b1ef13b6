"""Navigation of page titles: Sphinx copies every heading and name of the reference for each page, to drop them."""

from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def title_only(contents: nodes.bullet_list) -> nodes.bullet_list:
    """A page's table of contents without its sections; pages below it stay."""
    copy = contents.deepcopy()
    for page in copy.children:
        if isinstance(page, nodes.list_item) and len(page.children) > 1:
            pages = list(page.findall(addnodes.toctree))
            page[1:] = [nodes.bullet_list("", *pages)] if pages else []
    return copy


class Navigation:
    """Builds the table of contents of the site from titles alone."""

    def __init__(self) -> None:
        self.titles: dict[str, nodes.bullet_list] = {}

    def find_titles(self, app: Sphinx, env: BuildEnvironment) -> None:
        self.titles = {name: title_only(contents) for name, contents in env.tocs.items()}

    def replace(self, app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
        """Replace the function by which a theme gets the table of contents."""
        toctree = context["toctree"]

        def build(**options: Any) -> str:
            whole, app.env.tocs = app.env.tocs, self.titles
            try:
                return toctree(**options)
            finally:
                app.env.tocs = whole

        context["toctree"] = build


def setup(app: Sphinx) -> dict[str, Any]:
    navigation = Navigation()
    app.connect("env-check-consistency", navigation.find_titles)
    app.connect("html-page-context", navigation.replace, priority=400)  # before Furo's
    return {"parallel_read_safe": True, "parallel_write_safe": True}
