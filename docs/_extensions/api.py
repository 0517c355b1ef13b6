"""Directive `api`: the public names of a module, from signatures and Markdown docstrings.

The source is read and not imported, so that no page depends on what is installed.
"""

import re
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from see_also import see_also
from source import Definition, Module, load_module
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)
CODE = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)")
EXPORTED = re.compile(r"^softlook\.(?=(?:bias|masks|positions|scores)\b)")  # modules of softlook.ops


def to_myst(docstring: str, known: set[str], fence: str = "```") -> str:
    """Convert a docstring to MyST: examples become code blocks, and known names in backticks become links."""

    def link(match: re.Match[str]) -> str:
        name = match[1]
        is_known = name in known or name.startswith("softlook.")
        return f"{{py:obj}}`{name} <{EXPORTED.sub('softlook.ops.', name)}>`" if is_known else match[0]

    parts, end = [], 0
    for example in EXAMPLE.finditer(docstring):
        code = f"{example[1]}{fence}pycon\n{example[0]}\n{example[1]}{fence}"
        parts += [CODE.sub(link, docstring[end : example.start()]), code]
        end = example.end()
    return "".join([*parts, CODE.sub(link, docstring[end:])])


def describe(kind: str, definition: Definition, known: set[str], colons: int = 8, footer: str = "") -> Iterator[str]:
    """Yield the lines of the directive that describes a definition, its members included."""
    fence = ":" * colons
    yield f"{fence}{{py:{kind}}} {definition.name}{definition.signature}"
    yield from (f":{option}:" for option in definition.options)
    if definition.annotation:
        yield f":type: {definition.annotation}"
    yield ""
    yield from to_myst(definition.docstring, known - definition.parameters).splitlines()
    yield ""
    for member in definition.members:
        yield from describe(member.kind, member, known, colons - 2)
    yield from (footer, "")
    yield fence


def page(module: Module) -> Iterator[str]:
    """Yield the lines of a page: what the module is, a table of its names, then each name."""
    found = {name: module.definition(name) for name in module.public_names()}
    known = set(found)
    yield f"::::{{py:module}} {module.name}\n::::"
    yield ""
    yield from to_myst(module.docstring, known).splitlines()
    yield from ("", "| name | |", "|---|---|")
    for name, definition in found.items():
        summary = (definition.docstring.splitlines() or [""])[0].replace("|", "\\|")
        target = definition.name if definition.kind == "module" else name
        yield f"| {{py:obj}}`{name} <{target}>` | {to_myst(summary, known - definition.parameters)} |"
    for name, definition in found.items():
        if definition.kind != "module":
            yield ""
            yield from describe(definition.kind, definition, known, footer=see_also(name, found))


class Api(SphinxDirective):
    """```{api} softlook.lens``` describes every public name of `softlook.lens`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = load_module(self.arguments[0])
        self.env.note_dependency(str(module.path))
        lines = [line for text in page(module) for line in text.split("\n")]
        container = nodes.Element()
        container.document = self.state.document
        self.state.nested_parse(StringList(lines, source=str(module.path)), 0, container)
        return container.children


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("api", Api)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
