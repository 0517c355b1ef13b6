"""Write docs/tree.md: every file of the package with the first line of its docstring.

python -m tests.docs.tree
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/softlook"
PAGE = ROOT / "docs/tree.md"
HEADER = """\
# Package layout

Every file of the package with the first line of its docstring. `python -m tests.docs.tree` writes this page, and a test
keeps it up to date.

```text
src/softlook/
"""


def summary(path: Path) -> str:
    """Return the first line of a module's docstring, without the final period."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].removesuffix(".")


def lines(folder: Path, indent: str = "  ") -> list[str]:
    """Return one line per file and folder below `folder`: files first, then subfolders."""
    result = [
        f"{indent}{path.name:<{34 - len(indent)}}{summary(path)}".rstrip() for path in sorted(folder.glob("*.py"))
    ]
    for child in sorted(path for path in folder.iterdir() if path.is_dir() and any(path.rglob("*.py"))):
        result += [f"{indent}{child.name}/", *lines(child, indent + "  ")]
    return result


def page() -> str:
    """Return the text of docs/tree.md."""
    return HEADER + "\n".join(lines(SOURCE)) + "\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
