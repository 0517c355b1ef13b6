"""The book has a chapter for every idea, and the map names chapters and tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "docs/book"
CHAPTERS = sorted(path.name for path in BOOK.glob("[0-9][0-9]-*.md"))
TEXT = (BOOK / "map.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if re.match(r"\| \d+\. ", line)]
CHAPTER = re.compile(r"\]\((\d\d)-[\w-]+\.md\)")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
SECTIONS = ("In code", "The picture", "An experiment", "What it costs", "Origins", "Exercises")


def test_the_map_has_one_row_per_idea() -> None:
    assert [int(row[2:].split(".")[0]) for row in ROWS] == list(range(1, 29))


def test_every_chapter_is_in_the_map_and_every_chapter_of_the_map_exists() -> None:
    linked = re.findall(r"\]\((\d\d-[\w-]+\.md)\)", TEXT)
    assert sorted(set(linked)) == CHAPTERS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:40])
def test_every_idea_names_its_chapter_and_tests_that_exist(row: str) -> None:
    assert [int(number) for number in CHAPTER.findall(row)] == [int(row[2:].split(".")[0])]
    named = TEST.findall(row)
    assert named and row.count("::") == len(named), "a test is named as `tests/FILE.py::NAME`"
    for file, name in named:
        module = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in module.body if isinstance(node, ast.FunctionDef)}, f"{file} has no {name}"


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_has_code_a_picture_an_experiment_and_exercises_with_answers(name: str) -> None:
    chapter = (BOOK / name).read_text(encoding="utf-8")
    headings = re.findall(r"^## ([^:\n]+)", chapter, re.MULTILINE)
    assert tuple(dict.fromkeys(headings)) == SECTIONS
    assert chapter.startswith(f"# {int(name[:2])}. ")
    assert "**Answers.**" in chapter.split("## Exercises")[1]
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", chapter)
    assert pictures and all((BOOK / picture).exists() for picture in pictures)


@pytest.mark.parametrize("name", CHAPTERS)
def test_links_between_pages_lead_to_files(name: str) -> None:
    links = re.findall(r"(?<!!)\[[^\]]+\]\(([^)#]+\.md)", (BOOK / name).read_text(encoding="utf-8"))
    assert [link for link in links if not link.startswith("http") and not (BOOK / link).exists()] == []
