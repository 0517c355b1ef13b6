"""Text of figures is escaped, measured, and compared by its boxes."""

from xml.etree import ElementTree

import pytest

from softlook.lens.figures.color import role
from softlook.lens.figures.shapes import Circle, Path, Rect, Text, overlap
from softlook.lens.figures.text import shorten_label, text_width, visible_label, visible_text, wrap

HOSTILE = [
    "<script>alert(1)</script>",
    '"/><g onload="alert(1)"/>',
    "\x00\x1b[31m",
    "a\u202eb\u2066c",
    "]]>&lt;",
    "\ud800",
]


@pytest.mark.parametrize("words", HOSTILE)
def test_text_and_tooltips_are_escaped(words: str) -> None:
    for shape in (
        Text(x=0, y=0, words=words, sup=words, fill=role("ink")),
        Rect(x=0, y=0, width=1, height=1, tooltip=words),
        Circle(x=0, y=0, r=1, tooltip=words),
        Path(commands=(("M", (0.0, 0.0)),), tooltip=words),
    ):
        svg = shape.svg("auto")
        root = ElementTree.fromstring(svg)
        assert {element.tag for element in root.iter()} <= {"text", "tspan", "rect", "circle", "path", "title"}
        assert visible_text(words) in "".join(root.itertext())
        assert svg.isprintable()


def test_the_width_of_wide_characters_counts_twice_and_of_accents_not_at_all() -> None:
    assert text_width("注意", 10, mono=True) == 20
    assert text_width("e\u0301", 10) == text_width("e", 10)
    assert text_width("😀", 10) >= 12
    assert text_width("שלום", 10) > text_width("של", 10)


def test_a_shortened_label_takes_at_most_its_cells() -> None:
    for label in ("a" * 40, "注" * 40, "😀" * 40, "ab" * 8):
        assert text_width(shorten_label(label), 10, mono=True) <= text_width("M" * 16, 10, mono=True) + 30
    assert shorten_label("sixteen letters.") == "sixteen letters."


def test_wrapping_keeps_all_words_in_order() -> None:
    words = "rows are queries and columns are keys in every figure"
    lines = wrap(words, 90, 12)
    assert " ".join(lines) == words and all(text_width(line, 12) <= 90 for line in lines)


def test_control_characters_are_visible_and_spaces_at_the_ends_too() -> None:
    assert visible_label(" a b ") == "␣a b␣"
    assert visible_text("a\u202eb\t") == "a\\u202eb\\t"


def test_texts_overlap_by_their_rotated_boxes() -> None:
    def text(x: float, y: float, angle: float = 0.0) -> Text:
        return Text(x=x, y=y, words="animal", size=10, angle=angle)

    assert (
        overlap(text(0, 0), text(5, 3))
        and not overlap(text(0, 0), text(0, 12))
        and not overlap(text(0, 0), text(60, 0))
    )
    assert overlap(text(0, 0), text(16, 0))
    assert not overlap(text(0, 0, -45), text(16, 0, -45))  # slanted labels fit where flat ones do not
    assert overlap(text(0, 0, -45), text(4, 0, -45))
