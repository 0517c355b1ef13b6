"""Shapes of figures: rectangles, circles, paths and text, each at its place and in its colors."""

import math
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import Literal

from softlook.lens.figures.color import Color
from softlook.lens.figures.text import text_width, visible_text
from softlook.lens.figures.tokens import MONO

Theme = Literal["auto", "light", "dark"]
"""The colors of a page: those that the reader's system prefers, or one of the two."""
Point = tuple[float, float]
SUPERSCRIPT = 0.7
"""Size of a superscript, as a fraction of the font size."""
ASCENT, DESCENT = 0.76, 0.24
"""Height of text above and below its baseline, as a fraction of its size."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Colors and tooltip of a shape. Without `fill` and `stroke` it is invisible."""

    fill: Color | None = None
    stroke: Color | None = None
    stroke_width: float = 1.0
    dash: str = ""
    """Lengths of dashes and gaps, as in SVG."""
    tooltip: str = ""

    @property
    def colors(self) -> Iterator[Color]:
        yield from filter(None, (self.fill, self.stroke))

    def paint(self, theme: Theme) -> str:
        """The attributes of its colors. Classes follow the theme of the page."""
        fill, stroke = self.fill, self.stroke
        named = {"f": fill, "s": stroke}
        classes = " ".join(f"sl-{letter}-{color.name}" for letter, color in named.items() if color)
        parts = [f'class="{classes}"'] if classes and theme == "auto" else []
        parts.append(f'fill="{fill.at(theme) if fill else "none"}"')
        if stroke:
            parts.append(f'stroke="{stroke.at(theme)}"')
            parts += [f'stroke-width="{self.stroke_width:g}"'] * (self.stroke_width != 1)
            parts += [f'stroke-dasharray="{self.dash}"'] * bool(self.dash)
        return " ".join(parts)

    def element(self, name: str, attributes: str, content: str = "") -> str:
        tooltip = f"<title>{escape(visible_text(self.tooltip))}</title>" if self.tooltip else ""
        inner = tooltip + content
        return f"<{name} {attributes}>{inner}</{name}>" if inner else f"<{name} {attributes}/>"


@dataclass(frozen=True, kw_only=True)
class Rect(Shape):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float
    radius: float = 0.0

    def moved(self, dx: float, dy: float) -> "Rect":
        return replace(self, x=self.x + dx, y=self.y + dy)

    def svg(self, theme: Theme) -> str:
        box = f'x="{number(self.x)}" y="{number(self.y)}" width="{number(self.width)}" height="{number(self.height)}"'
        radius = f' rx="{number(self.radius)}"' if self.radius else ""
        return self.element("rect", f"{box}{radius} {self.paint(theme)}")


@dataclass(frozen=True, kw_only=True)
class Circle(Shape):
    """A circle around a point."""

    x: float
    y: float
    r: float

    def moved(self, dx: float, dy: float) -> "Circle":
        return replace(self, x=self.x + dx, y=self.y + dy)

    def svg(self, theme: Theme) -> str:
        place = f'cx="{number(self.x)}" cy="{number(self.y)}" r="{number(self.r)}"'
        return self.element("circle", f"{place} {self.paint(theme)}")


@dataclass(frozen=True, kw_only=True)
class Path(Shape):
    """A line or an area: commands of SVG with absolute points, such as ("M", a), ("L", b), ("C", b, c, d), ("Z",)."""

    commands: tuple[tuple[str, *tuple[Point, ...]], ...]

    def moved(self, dx: float, dy: float) -> "Path":
        moved = ((letter, *((x + dx, y + dy) for x, y in points)) for letter, *points in self.commands)
        return replace(self, commands=tuple(moved))

    def svg(self, theme: Theme) -> str:
        steps = (letter + " ".join(f"{number(x)} {number(y)}" for x, y in points) for letter, *points in self.commands)
        return self.element("path", f'd="{"".join(steps)}" stroke-linejoin="round" {self.paint(theme)}')


@dataclass(frozen=True, kw_only=True)
class Text(Shape):
    """One line of text, whose baseline begins, is centered or ends at a point."""

    x: float
    y: float
    words: str
    size: float = 13.0
    anchor: Literal["start", "middle", "end"] = "start"
    bold: bool = False
    italic: bool = False
    mono: bool = False
    angle: float = 0.0
    """Rotation around the point in degrees, clockwise."""
    sup: str = ""
    """A superscript after the words."""

    @property
    def width(self) -> float:
        own, sup = visible_text(self.words), visible_text(self.sup)
        width = text_width(own, self.size, mono=self.mono, bold=self.bold)
        return width + text_width(sup, SUPERSCRIPT * self.size, mono=self.mono, bold=self.bold)

    @property
    def corners(self) -> tuple[Point, Point, Point, Point]:
        """The corners of the box around the text."""
        left = self.x - self.width * {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        right, top, bottom = left + self.width, self.y - ASCENT * self.size, self.y + DESCENT * self.size
        a, b, c, d = (self._rotated(p) for p in ((left, top), (right, top), (right, bottom), (left, bottom)))
        return a, b, c, d

    def _rotated(self, point: Point) -> Point:
        angle, dx, dy = math.radians(self.angle), point[0] - self.x, point[1] - self.y
        cos, sin = math.cos(angle), math.sin(angle)
        return self.x + dx * cos - dy * sin, self.y + dx * sin + dy * cos

    def moved(self, dx: float, dy: float) -> "Text":
        return replace(self, x=self.x + dx, y=self.y + dy)

    def svg(self, theme: Theme) -> str:
        x, y = number(self.x), number(self.y)
        parts = [f'x="{x}" y="{y}" font-size="{number(self.size)}"']
        parts += [f'text-anchor="{self.anchor}"'] * (self.anchor != "start")
        parts += ['font-weight="600"'] * self.bold + ['font-style="italic"'] * self.italic
        parts += [f'font-family="{MONO}"'] * self.mono
        parts += [f'transform="rotate({number(self.angle)} {x} {y})"'] * bool(self.angle)
        words = escape(visible_text(self.words))
        if self.sup:
            place = f'dy="{number(-0.4 * self.size)}" font-size="{number(SUPERSCRIPT * self.size)}"'
            words += f"<tspan {place}>{escape(visible_text(self.sup))}</tspan>"
        return self.element("text", f"{' '.join(parts)} {self.paint(theme)}", words)


@dataclass(frozen=True, kw_only=True)
class Image(Shape):
    """Two PNG images of the same size, for light and for dark pages, whose pixels are drawn as sharp squares."""

    x: float
    y: float
    width: float
    height: float
    light: bytes
    dark: bytes

    def moved(self, dx: float, dy: float) -> "Image":
        return replace(self, x=self.x + dx, y=self.y + dy)

    def svg(self, theme: Theme) -> str:
        if theme != "auto":
            return self._image(self.dark if theme == "dark" else self.light)
        return self._image(self.light, "only-light") + self._image(self.dark, "only-dark", "display:none;")

    def _image(self, data: bytes, name: str = "", style: str = "") -> str:
        box = f'x="{number(self.x)}" y="{number(self.y)}" width="{number(self.width)}" height="{number(self.height)}"'
        source = f'href="data:image/png;base64,{b64encode(data).decode()}" preserveAspectRatio="none"'
        sharp = f'image-rendering="optimizeSpeed" style="{style}image-rendering:pixelated"'  # the latter for browsers
        css_class = f' class="sl-{name}"' if name else ""
        return self.element("image", f"{box} {source} {sharp}{css_class}")


Mark = Rect | Circle | Path | Text | Image
"""Any shape."""


def number(value: float) -> str:
    """A coordinate with a tenth of a pixel.

    >>> number(2.0), number(1 / 3)
    ('2', '0.3')
    """
    return f"{round(value, 1):g}" if abs(value) < 1e5 else f"{value:.0f}"


def overlap(one: Text, other: Text) -> bool:
    """Whether the boxes of two texts overlap, rotated or not: no axis separates them.

    >>> overlap(Text(x=0, y=0, words="query"), Text(x=10, y=0, words="key"))
    True
    """
    axes = []
    for corners in (one.corners, other.corners):
        (ax, ay), (bx, by), (cx, cy) = corners[:3]
        axes += [(bx - ax, by - ay), (cx - bx, cy - by)]
    for dx, dy in axes:
        spans = [[x * dx + y * dy for x, y in text.corners] for text in (one, other)]
        if max(spans[0]) <= min(spans[1]) or max(spans[1]) <= min(spans[0]):
            return False
    return True
