"""A file that does not fit in the head is two files."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LONGEST = 400
PLACES = ("src", "tests", "benchmarks", "examples")
FILES = sorted(path.relative_to(ROOT) for place in PLACES for path in (ROOT / place).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_file_is_too_long(path: Path) -> None:
    lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{path} has {lines} lines, more than {LONGEST}: find the two ideas in it and part them"
