"""The demo runs anywhere, and the README shows what it really says."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def said(folder: Path) -> str:
    """What the demo says where there is no terminal, no colour, and no letter beyond ASCII."""
    command = [sys.executable, str(ROOT / "examples/first_look.py")]
    plain = os.environ | {"NO_COLOR": "1", "PYTHONIOENCODING": "ascii"}
    demo = subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, check=False)
    assert demo.returncode == 0, demo.stderr
    return demo.stdout


def test_the_demo_fits_a_terminal_of_80_columns_and_needs_no_colour(said: str) -> None:
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= 80


def test_the_demo_says_where_its_picture_is_and_the_picture_is_there(said: str, folder: Path) -> None:
    assert "first_look.svg" in said
    ElementTree.parse(folder / "first_look.svg")


def test_order_makes_no_difference_until_positions_are_added(said: str) -> None:
    apart = {line.split(",")[0].strip(): line.split()[-2] for line in said.splitlines() if line.endswith(" apart")}
    assert float(apart["without positions"]) == 0 < float(apart["with positions"])


def test_the_readme_shows_what_the_demo_says(said: str) -> None:
    shown = (ROOT / "README.md").read_text(encoding="utf-8").split("```text\n")[1].split("```")[0].rstrip()
    lines = [line.rstrip() for line in said.splitlines()]
    start = lines.index(shown.splitlines()[0])
    assert "\n".join(lines[start : start + len(shown.splitlines())]) == shown
