"""A newcomer finds things with at most two searches for the field's words."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/softlook"
TEXTS = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
ERRANDS = tomllib.loads((ROOT / "tests/docs/errands.toml").read_text(encoding="utf-8"))["errand"]
DEFINITION = re.compile(r"^\s*(?:class|def|async def) (\w+)", re.MULTILINE)


def normalize(text: str) -> str:
    """Split names into words: `CheckpointManager` and `checkpoint_manager` read alike."""
    return re.sub(r"[\W_]+", " ", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)).lower()


def search(query: str) -> list[str]:
    """Rank the files of the package: by file name, then definitions, then the module docstring, then mentions."""
    words = normalize(query).strip()

    def score(path: str) -> tuple[bool, int, bool, int]:
        text = TEXTS[path]
        definitions = sum(words in normalize(name) for name in DEFINITION.findall(text))
        return words in normalize(path), definitions, words in normalize(text[:400]), normalize(text).count(words)

    hits = [path for path in TEXTS if any(score(path))]
    return sorted(hits, key=score, reverse=True)


@pytest.mark.parametrize("errand", ERRANDS, ids=lambda errand: errand["question"])
def test_a_newcomer_finds_the_file(errand: dict[str, str]) -> None:
    searches = errand["searches"]
    assert len(searches) <= 2
    found = [path for query in searches for path in search(query)[:5]]
    assert errand["file"] in found, f"{errand['question']} {searches} found {found}"
