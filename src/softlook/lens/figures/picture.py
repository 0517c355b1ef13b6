"""Pictures: shapes with a common origin and a size, placed in rows, in columns and over one another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from softlook.lens.figures.color import Color, role
from softlook.lens.figures.shapes import ASCENT, Mark, Text
from softlook.lens.figures.text import text_width, wrap
from softlook.lens.figures.tokens import SIZES

Align = Literal["start", "middle", "end"]
GAP = SIZES["gap"]
FRACTION = {"start": 0.0, "middle": 0.5, "end": 1.0}
LINE = 1.45
"""Height of a line, as a multiple of the font size."""


@dataclass(frozen=True)
class Scale:
    """The magnitude of the strongest color of a matrix."""

    color: str
    maximum: float
    name: str = ""
    sup: str = ""


@dataclass(frozen=True)
class Picture:
    """Shapes in a box of a known size, whose origin is its upper left corner."""

    width: float
    height: float
    marks: tuple[Mark, ...] = ()
    scales: tuple[Scale, ...] = ()
    """The scales of its matrices, which a figure prints."""

    def at(self, x: float, y: float) -> "Picture":
        """The picture moved by (x, y), in a box that is as much larger."""
        return Picture(x + self.width, y + self.height, tuple(mark.moved(x, y) for mark in self.marks), self.scales)

    def sized(self, width: float, height: float) -> "Picture":
        """The picture in a box of another size."""
        return replace(self, width=width, height=height)

    def pad(self, left: float = 0, top: float = 0, right: float = 0, bottom: float = 0) -> "Picture":
        """The picture with space around it."""
        moved = self.at(left, top)
        return moved.sized(moved.width + right, moved.height + bottom)

    @property
    def texts(self) -> list[Text]:
        return [mark for mark in self.marks if isinstance(mark, Text)]


def overlay(*pictures: Picture) -> Picture:
    """Pictures over one another, with a common origin."""
    width, height = (max((getattr(one, side) for one in pictures), default=0) for side in ("width", "height"))
    scales = dict.fromkeys(scale for one in pictures for scale in one.scales)
    return Picture(width, height, tuple(mark for one in pictures for mark in one.marks), tuple(scales))


def row(*pictures: Picture, gap: float = GAP, align: Align = "middle") -> Picture:
    """Pictures side by side."""
    height, x, placed = max((one.height for one in pictures), default=0), 0.0, []
    for one in pictures:
        placed.append(one.at(x, (height - one.height) * FRACTION[align]))
        x += one.width + gap
    return overlay(*placed).sized(max(x - gap, 0), height)


def column(*pictures: Picture, gap: float = GAP, align: Align = "start") -> Picture:
    """Pictures below one another."""
    width, y, placed = max((one.width for one in pictures), default=0), 0.0, []
    for one in pictures:
        placed.append(one.at((width - one.width) * FRACTION[align], y))
        y += one.height + gap
    return overlay(*placed).sized(width, max(y - gap, 0))


def grid(pictures: Sequence[Picture], columns: int, *, gap: float = GAP, align: Align = "start") -> Picture:
    """Pictures in rows of equal columns."""
    width = max((one.width for one in pictures), default=0)
    even = [one.pad(right=width - one.width) for one in pictures]
    rows = [row(*even[n : n + columns], gap=gap, align=align) for n in range(0, len(even), columns)]
    return column(*rows, gap=gap)


def label(
    words: str,
    color: Color | str = "ink",
    *,
    size: float = SIZES["text"],
    bold: bool = False,
    italic: bool = False,
    mono: bool = False,
    sup: str = "",
) -> Picture:
    """One line of text in a box of its size, with an optional superscript."""
    fill = role(color) if isinstance(color, str) else color
    y = (LINE - 1) / 2 * size + ASCENT * size
    text = Text(x=0, y=y, words=words, size=size, fill=fill, bold=bold, italic=italic, mono=mono, sup=sup)
    return Picture(text.width, LINE * size, (text,))


def paragraph(
    words: str, width: float, color: Color | str = "soft", *, size: float = SIZES["text"], align: Align = "start"
) -> Picture:
    """Text in lines of at most this width."""
    lines = [label(line, color, size=size) for line in wrap(words, width, size)]
    return column(*lines, gap=0, align=align)


def under(picture: Picture, words: str, color: Color | str = "soft", *, size: float = SIZES["small"]) -> Picture:
    """A picture with a line of text below it."""
    return column(picture, label(words, color, size=size), gap=4, align="middle")


def over(picture: Picture, words: str, color: Color | str = "ink", *, size: float = SIZES["heading"]) -> Picture:
    """A picture with a heading above it."""
    return column(label(words, color, size=size, bold=True), picture, gap=6, align="middle")


def space(width: float = 0, height: float = 0) -> Picture:
    """Nothing, of a size."""
    return Picture(width, height)


def fits(words: str, width: float, size: float) -> bool:
    """Whether a text fits into a width."""
    return text_width(words, size) <= width
