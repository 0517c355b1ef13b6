"""Every guarantee in the documentation names an existing test."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guide/guarantees.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
LINES = PAGE.read_text(encoding="utf-8").splitlines()
ROWS = [line for line in LINES if line.startswith("| ") and "guarantee | test" not in line]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:60])
def test_every_guarantee_names_tests_that_exist(row: str) -> None:
    named = NAMED.findall(row)
    assert named, f"no test: {row}"
    assert row.count("::") == len(named), "a test is named as `tests/FILE.py::NAME`"
    for file, name in named:
        module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in module.body if isinstance(node, ast.FunctionDef)}, f"{file} has no {name}"


def test_the_page_is_in_the_navigation() -> None:
    assert "\nguide/guarantees\n" in (ROOT / "docs/index.md").read_text(encoding="utf-8") and len(ROWS) > 20
