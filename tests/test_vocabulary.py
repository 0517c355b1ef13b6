"""softlook uses the field's terms: every class has its own name, and no retired term is used."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/softlook"
FILES = sorted(SOURCE.rglob("*.py"))
SCRIPTS = sorted(path for folder in ("benchmarks", "examples") for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
RECORDS = re.compile(r"docs/benchmarks/\d")  # recorded output of earlier versions
PAGES = sorted(
    path
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    if not RECORDS.match(path.relative_to(ROOT).as_posix())
)
VOCABULARY = tomllib.loads((ROOT / "tests/vocabulary.toml").read_text(encoding="utf-8"))
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of every class, function, parameter, variable and attribute that a module defines."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


def public_classes() -> list[tuple[str, str]]:
    """Return the name and the file of every class at module level whose name does not begin with an underscore."""
    found = []
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.append((node.name, path.relative_to(SOURCE).as_posix()))
    return found


def test_no_two_public_classes_share_a_name() -> None:
    classes = public_classes()
    shared = {name for name, count in Counter(name for name, _ in classes).items() if count > 1}
    unexplained = {name: [file for other, file in classes if other == name] for name in shared}
    for name in VOCABULARY["shared_class_names"]:
        assert unexplained.pop(name, None), f"{name} is no longer shared: remove it from tests/vocabulary.toml"
    assert unexplained == {}


@pytest.mark.parametrize("path", [*FILES, *SCRIPTS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_identifier_uses_a_retired_word(path: Path) -> None:
    retired = VOCABULARY["identifiers"]
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}: use {retired[word.lower()]}"
        for line, name in identifiers(ast.parse(path.read_text(encoding="utf-8")))
        for word in WORDS.findall(name)
        if word.lower() in retired
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", [*FILES, *SCRIPTS, *TESTS, *PAGES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_text_uses_a_retired_phrase(path: Path) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()!r}: write {replacement}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for phrase, replacement in VOCABULARY["phrases"].items()
        if re.search(phrase, line, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)
