"""Files have at most 400 lines."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_LINES = 400
FOLDERS = ("src", "tests", "benchmarks", "docs", "examples")
FILES = sorted(path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_file_exceeds_the_maximum_length(path: Path) -> None:
    lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{path} has {lines} lines, more than {MAX_LINES}: split it"
