"""The gallery in the documentation holds every picture, as the code draws it."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from softlook.recipes.inference.figures import GALLERY

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/figures/gallery"
PAGE = (ROOT / "docs/guide/figures.md").read_text(encoding="utf-8")
SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_shows_every_picture_once() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(GALLERY)
    assert all(PAGE.count(f"../figures/gallery/{name}.svg") == 1 for name in GALLERY)


@pytest.mark.parametrize("name", GALLERY)
def test_a_picture_is_up_to_date(name: str) -> None:
    """Its shapes and its words; numbers may differ in their last digits on another machine."""
    drawn, stored = (
        ElementTree.fromstring(svg) for svg in (GALLERY[name]().svg(), (FOLDER / f"{name}.svg").read_text("utf-8"))
    )
    assert [one.tag for one in drawn.iter()] == [one.tag for one in stored.iter()], (
        "run: softlook figure --all docs/figures/gallery"
    )
    words = [
        [text.text for text in root.iter(f"{SVG}text") if not any(c.isdigit() for c in text.text or "")]
        for root in (drawn, stored)
    ]
    assert words[0] == words[1]
    assert f"### {drawn.findtext(f'{SVG}title')}\n" in PAGE
