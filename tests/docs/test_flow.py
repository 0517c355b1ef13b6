"""The walkthroughs of docs/flow.md list functions in the order in which they run."""

import re
from pathlib import Path

import pytest

from tests.docs.tracer import WALKTHROUGHS, first_missing, trace

PAGE = (Path(__file__).parents[2] / "docs/flow.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^### (?P<title>.+)\n(?P<text>(?:(?!^#).*\n)*)", re.MULTILINE)
STEP = re.compile(r"^\d+\. `([\w/]+\.py:[\w.]+)`", re.MULTILINE)
LISTED = {section["title"]: STEP.findall(section["text"]) for section in SECTION.finditer(PAGE)}


def test_the_page_describes_every_walkthrough() -> None:
    assert LISTED.keys() == WALKTHROUGHS.keys()
    assert all(len(steps) >= 10 for steps in LISTED.values())


@pytest.mark.parametrize("walkthrough", WALKTHROUGHS)
def test_the_functions_of_a_walkthrough_run_in_the_listed_order(walkthrough: str) -> None:
    assert first_missing(LISTED[walkthrough], trace(walkthrough)) is None
