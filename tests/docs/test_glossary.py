"""Every file and name of docs/glossary.md exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/softlook"
ENTRY = re.compile(r"^\| (?P<term>.+?) \| .+ \| `(?P<file>[\w/]+\.py)(?::(?P<name>\w+))?` \|$")
ROWS = [
    line
    for line in (ROOT / "docs/glossary.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| term ")
]


def defined_names(path: Path) -> set[str]:
    """Return the names that a module defines at its top level."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.Assign():
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return names


@pytest.mark.parametrize("row", ROWS)
def test_every_entry_names_something_that_exists(row: str) -> None:
    entry = ENTRY.match(row)
    assert entry, f"expected | term | meaning | `file.py:name` |, got {row}"
    path = SOURCE / entry["file"]
    assert path.exists(), f"{entry['file']} does not exist"
    assert not entry["name"] or entry["name"] in defined_names(path), f"{entry['file']} defines no {entry['name']}"


def test_terms_are_unique() -> None:
    terms = [term for row in ROWS if (entry := ENTRY.match(row)) for term in entry["term"].split(", ")]
    assert len(terms) == len(set(terms)) > 60
