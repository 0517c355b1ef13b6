"""The examples of `make demo` and `make look` run anywhere, and the README shows the output of the demo."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


def run_in_plain_terminal(folder: Path, *command: str, encoding: str) -> subprocess.CompletedProcess[str]:
    """Run Python without a terminal and without colors."""
    environ = os.environ | {"NO_COLOR": "1", "PYTHONIOENCODING": encoding}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        encoding=encoding,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def output(folder: Path) -> str:
    """The output of examples/first_look.py on a terminal that supports ASCII only."""
    example = run_in_plain_terminal(folder, str(ROOT / "examples/first_look.py"), encoding="ascii")
    assert example.returncode == 0, example.stderr
    return example.stdout


def test_first_look_fits_a_terminal_of_80_columns_and_needs_no_color(output: str) -> None:
    assert "\x1b" not in output
    assert max(map(len, output.splitlines())) <= 80


def test_first_look_prints_the_name_of_its_figure_and_writes_it(output: str, folder: Path) -> None:
    assert "first_look.svg" in output
    ElementTree.parse(folder / "first_look.svg")


def test_order_makes_no_difference_until_positions_are_added(output: str) -> None:
    apart = {line.split(",")[0].strip(): line.split()[-2] for line in output.splitlines() if line.endswith(" apart")}
    assert float(apart["without positions"]) == 0 < float(apart["with positions"])


def test_the_readme_shows_the_output_of_the_demo(folder: Path) -> None:
    demo = run_in_plain_terminal(folder, "-m", "softlook", "demo", "--pretrained", encoding="utf-8")
    assert demo.returncode == 0, demo.stderr
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.split("```text\n")[1].split("```")[0].rstrip().splitlines()
    lines = [line.rstrip() for line in demo.stderr.splitlines()]
    start = lines.index(shown[0])
    assert lines[start : start + len(shown)] == shown
