"""Where else a name of the reference occurs: the code of guides and chapters, and the signatures of its module."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from source import Definition

DOCS = Path(__file__).parents[1]
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w+")
MAX_PAGES, MAX_NAMES = 4, 6


def used_names(code: str) -> Iterator[str]:
    """Names that code imports from softlook, and attributes of such names.

    >>> sorted(used_names("from softlook import masks\\nfrom math import pi\\nmasks.causal()"))
    ['causal', 'masks']
    """
    imported: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "softlook":
            imported |= {alias.asname or alias.name for alias in node.names}
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
            yield node.attr


@cache
def pages_by_name() -> dict[str, list[str]]:
    """Links to the guides and chapters whose code uses a name, guides first."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in [*sorted(DOCS.glob("guide/*.md")), *sorted(DOCS.glob("book/[0-9]*.md"))]:
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        code = "\n".join(CODE.findall(text))
        for name in set(used_names(code)):
            found[name].append(f"[{title}](/{path.relative_to(DOCS).as_posix()})")
    return found


def related_names(name: str, definitions: Mapping[str, Definition]) -> list[str]:
    """Other names of a module whose signature or members have this one as a type, and the types of its own."""
    words = {other: set(WORD.findall(types(one))) for other, one in definitions.items()}
    return [other for other in words if other != name and (name in words[other] or other in words[name])][:MAX_NAMES]


def types(definition: Definition) -> str:
    """All annotations of a definition."""
    parts = [
        definition.signature,
        definition.annotation,
        *(f"{one.signature} {one.annotation}" for one in definition.members),
    ]
    return " ".join(parts)


def see_also(name: str, definitions: Mapping[str, Definition]) -> str:
    """A line of Markdown, empty if nothing is related."""
    names = [f"{{py:obj}}`{other}`" for other in related_names(name, definitions)]
    found = [*names, *pages_by_name().get(name, [])[:MAX_PAGES]]
    return f"**See also:** {', '.join(found)}" if found else ""
