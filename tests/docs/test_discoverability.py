"""Any part of the code is found with at most two searches for standard terms."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/softlook"
TEXTS = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
QUESTIONS = tomllib.loads((ROOT / "tests/docs/discoverability.toml").read_text(encoding="utf-8"))["question"]
DEFINITION = re.compile(r"^\s*(?:class|def|async def) (\w+)", re.MULTILINE)


def normalize(text: str) -> str:
    """Split names into words, so that `CheckpointManager` equals `checkpoint_manager`."""
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


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["text"])
def test_two_searches_lead_to_the_file(question: dict[str, Any]) -> None:
    searches = question["searches"]
    assert len(searches) <= 2
    found = [path for query in searches for path in search(query)[:5]]
    assert question["file"] in found, f"{question['text']} {searches} found {found}"
