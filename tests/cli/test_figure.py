"""`softlook figure` lists and draws the gallery, and figures of a model for a text."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from softlook.recipes.inference.figures import GALLERY
from tests.cli.conftest import RunCommand

SVG = "{http://www.w3.org/2000/svg}"


def test_the_list_names_every_picture_with_what_it_shows(command: RunCommand) -> None:
    lines = command("figure", "--list").lines
    assert [line.split()[0] for line in lines] == list(GALLERY)
    assert all(len(line.split()) > 3 for line in lines)
    assert [one["name"] for one in command("--json", "figure", "--list").objects] == list(GALLERY)


def test_a_picture_is_written_to_a_new_file_only(command: RunCommand, tmp_path: Path) -> None:
    completed = command("figure", "dot_product")
    assert completed.code == 0 and completed.lines == ["dot_product.svg"]
    ElementTree.parse(tmp_path / "dot_product.svg")
    again = command("figure", "dot_product")
    assert again.code == 74 and "already exists" in again.err


def test_the_suffix_of_the_file_is_the_format(command: RunCommand, tmp_path: Path) -> None:
    assert command("figure", "notation", "--out", "page.html").code == 0
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")
    refused = command("figure", "notation", "--out", "notation.gif")
    assert refused.code == 65 and ".svg, .png, .html; got notation.gif" in refused.err


def test_a_hyphen_writes_the_svg_to_stdout(command: RunCommand) -> None:
    out = command("figure", "notation", "--out", "-").out
    assert ElementTree.fromstring(out).findtext(f"{SVG}title") == "Notation"
    assert "prefers-color-scheme" not in command("figure", "notation", "--out", "-", "--theme", "dark").out


@pytest.mark.parametrize("kind", ["heads", "rollout", "statistics", "alignment", "beams"])
def test_a_model_and_a_text_make_a_figure(command: RunCommand, tmp_path: Path, kind: str) -> None:
    assert command("figure", "dates", "3 mars 2022", "--kind", kind).lines == [f"{kind}.svg"]
    assert ElementTree.parse(tmp_path / f"{kind}.svg").getroot().findtext(f"{SVG}desc")


def test_a_hostile_text_is_escaped(command: RunCommand, tmp_path: Path) -> None:
    text = "<script>alert(1)</script>\u202e 3 mars 2022"
    for kind in ("heads", "alignment", "beams"):
        assert command("figure", "dates", text, "--kind", kind, "--out", f"{kind}.html").code == 0
        page = (tmp_path / f"{kind}.html").read_text("utf-8")
        assert "<script" not in page and "\u202e" not in page


def test_unknown_names_are_answered_with_the_way_to_the_list(command: RunCommand) -> None:
    for arguments in (("figure",), ("figure", "no_such_picture")):
        completed = command(*arguments)
        assert completed.code == 65 and "softlook figure --list" in completed.err + completed.out
