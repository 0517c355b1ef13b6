"""Graphs: boxes and circles with names, and arrows between them."""

import math
from collections.abc import Sequence
from typing import Any, Literal

from softlook.lens.figures.color import Color, role, tint
from softlook.lens.figures.matrix import INK
from softlook.lens.figures.picture import Picture
from softlook.lens.figures.shapes import Circle, Mark, Path, Point, Rect, Text
from softlook.lens.figures.text import text_width
from softlook.lens.figures.tokens import SIZES

HEAD = 7.0
"""Length of the head of an arrow."""


def box(
    words: str,
    color: str = "input",
    *,
    note: str = "",
    width: float | None = None,
    height: float = 34.0,
    size: float = SIZES["text"],
    mono: bool = False,
) -> Picture:
    """A box with one line of text, and a smaller line below it."""
    needed = max(text_width(words, size, mono=mono), text_width(note, SIZES["small"] - 1)) + 22
    width = max(width or 0, needed)
    height = max(height, 44.0) if note else height
    ink = f"{color}-ink" if color in INK else color
    edge: dict[str, Any] = {"stroke": role(ink), "fill": tint(color, 0.12) if color in INK else role("paper")}
    middle = height / 2 + 0.36 * size - (8 if note else 0)
    text: dict[str, Any] = {"words": words, "size": size, "anchor": "middle", "fill": role(ink)}
    marks: list[Mark] = [Rect(x=0, y=0, width=width, height=height, radius=6, **edge)]
    marks.append(Text(x=width / 2, y=middle, mono=mono, **text))
    if note:
        place: dict[str, Any] = {"x": width / 2, "y": middle + 16, "size": SIZES["small"] - 1}
        marks.append(Text(words=note, anchor="middle", fill=role("soft"), **place))
    return Picture(width, height, tuple(marks))


def circle(words: str, color: str = "input", *, r: float = 15.0, size: float = SIZES["text"]) -> Picture:
    """A circle with a sign or a letter, such as an operation."""
    ink = f"{color}-ink" if color in INK else color
    fill = tint(color, 0.12) if color in INK else role("paper")
    disc = Circle(x=r, y=r, r=r, stroke=role(ink), fill=fill)
    return Picture(
        2 * r, 2 * r, (disc, Text(x=r, y=r + 0.36 * size, words=words, size=size, anchor="middle", fill=role(ink)))
    )


def arrow(
    start: Point,
    end: Point,
    color: Color | str = "line",
    *,
    width: float = 1.5,
    dash: str = "",
    curvature: float = 0.0,
    shape: Literal["line", "curve"] = "line",
    tooltip: str = "",
    head: bool = True,
) -> Picture:
    """An arrow between two points: straight, or curved by `curvature` pixels to its left.

    With shape "curve" it leaves and arrives along the longer axis.
    """
    stroke = role(color) if isinstance(color, str) else color
    (x, y), (u, v) = start, end
    length = math.hypot(u - x, v - y) or 1.0
    if shape == "curve":
        is_vertical = abs(v - y) >= abs(u - x)
        handles = ((x, (y + v) / 2), (u, (y + v) / 2)) if is_vertical else (((x + u) / 2, y), ((x + u) / 2, v))
    else:
        side = ((v - y) / length * curvature * 4 / 3, -(u - x) / length * curvature * 4 / 3)
        handles = tuple((x + f * (u - x) + side[0], y + f * (v - y) + side[1]) for f in (1 / 3, 2 / 3))
    into = (u - handles[1][0], v - handles[1][1])
    size = math.hypot(*into) or 1.0
    direction = (into[0] / size, into[1] / size)
    scale = HEAD * (1 + 0.12 * max(0.0, width - 1.5))
    stop = (u - direction[0] * scale * 0.8, v - direction[1] * scale * 0.8) if head else end
    is_straight = shape == "line" and not curvature
    path = (("M", start), ("L", stop)) if is_straight else (("M", start), ("C", *handles, stop))
    marks: list[Mark] = [Path(commands=path, stroke=stroke, stroke_width=width, dash=dash, tooltip=tooltip)]
    if head:
        marks.append(Path(commands=_head(end, direction, scale), fill=stroke))
    return Picture(max(x, u), max(y, v), tuple(marks))


def lines(
    points: Sequence[Point],
    color: Color | str = "line",
    *,
    width: float = 1.5,
    head: bool = True,
    dash: str = "",
) -> Picture:
    """A path of straight lines through points, with an arrow head at its end."""
    tail = Picture(0, 0)
    stroke = role(color) if isinstance(color, str) else color
    if len(points) > 2:
        path = (("M", points[0]), *(("L", point) for point in points[1:-1]))
        tail = Picture(0, 0, (Path(commands=path, stroke=stroke, stroke_width=width, dash=dash),))
    last = arrow(points[-2], points[-1], stroke, width=width, head=head, dash=dash)
    return Picture(max(x for x, _ in points), max(y for _, y in points), (*tail.marks, *last.marks))


def _head(end: Point, direction: Point, size: float) -> tuple[tuple[str, *tuple[Point, ...]], ...]:
    (x, y), (dx, dy) = end, direction
    back, half = (x - dx * size, y - dy * size), 0.45 * size
    left, right = (back[0] - dy * half, back[1] + dx * half), (back[0] + dy * half, back[1] - dx * half)
    return (("M", end), ("L", left), ("L", right), ("Z",))
