"""The walks of docs/flow.md are the order in which functions run."""

import re
from pathlib import Path

import pytest

from tests.docs.tracer import WALKS, first_missing, trace

PAGE = (Path(__file__).parents[2] / "docs/flow.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^### (?P<title>.+)\n(?P<text>(?:(?!^#).*\n)*)", re.MULTILINE)
STEP = re.compile(r"^\d+\. `([\w/]+\.py:[\w.]+)`", re.MULTILINE)
LISTED = {section["title"]: STEP.findall(section["text"]) for section in SECTION.finditer(PAGE)}


def test_the_page_describes_every_walk() -> None:
    assert LISTED.keys() == WALKS.keys()
    assert all(len(steps) >= 10 for steps in LISTED.values())


@pytest.mark.parametrize("walk", WALKS)
def test_the_functions_of_a_walk_run_in_the_listed_order(walk: str) -> None:
    assert first_missing(LISTED[walk], trace(walk)) is None
