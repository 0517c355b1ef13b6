"""Charts: lines with their names at their ends, and bars with their values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softlook.lens.figures.color import role, tint
from softlook.lens.figures.matrix import INK
from softlook.lens.figures.picture import Picture
from softlook.lens.figures.shapes import Circle, Mark, Path, Point, Rect, Text
from softlook.lens.figures.text import text_width
from softlook.lens.figures.tokens import SIZES

SMALL = SIZES["small"]
DIGITS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@dataclass(frozen=True)
class Curve:
    """A line of a chart: its points, its color, and whether it is dashed or has marked points."""

    x: Sequence[float]
    y: Sequence[float]
    color: str = "weight"
    dash: str = ""
    dots: bool = False


@dataclass(frozen=True)
class Axis:
    """The range of an axis and its ticks, linear or logarithmic."""

    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()

    def fraction(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def text(self, tick: float) -> str:
        if self.log and (tick >= 10_000 or tick < 0.01):
            return f"10{str(round(math.log10(tick))).translate(DIGITS)}"
        return f"{tick:,.10g}".replace("-", "−")


def make_axis(values: Sequence[float], *, log: bool = False, zero: bool = False, ticks: tuple[float, ...] = ()) -> Axis:
    """An axis around values, with round ticks. A logarithmic axis ends at the smallest and the largest value.

    >>> make_axis([0.1, 9.3], zero=True).ticks, make_axis([3, 700], log=True).ticks
    ((0.0, 2.0, 4.0, 6.0, 8.0, 10.0), (10.0, 100.0))
    """
    least, most = min((*values, *ticks)), max((*values, *ticks))
    if log:
        return Axis(least, most, True, ticks or _log_ticks(least, most))
    least = min(least, 0.0) if zero else least
    step = _round_step((most - least or 1.0) / 5)
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    ticks = ticks or tuple(round(n * step, 10) for n in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], False, ticks)


def line_chart(
    lines: Mapping[str, Curve],
    *,
    x_axis: Axis,
    y_axis: Axis,
    x_label: str = "",
    y_label: str = "",
    width: float = 300,
    height: float = 200,
) -> Picture:
    """Lines in one pair of axes. The name of each line stands at its end."""
    left = 14 + max(text_width(y_axis.text(tick), SMALL) for tick in y_axis.ticks)
    top = 24.0 if y_label else 8.0

    def place(x: float, y: float) -> Point:
        return left + width * x_axis.fraction(x), top + height * (1 - y_axis.fraction(y))

    marks = _axes(x_axis, y_axis, left, top, width, height)
    ends: list[tuple[float, str, str]] = []
    for name, line in lines.items():
        points = [place(x, y) for x, y in zip(line.x, line.y, strict=True)]
        marks += _line(points, line, name)
        ends.append((points[-1][1], name, f"{line.color}-ink" if line.color in INK else line.color))
    marks += _end_labels(ends, left + width + 8)
    if y_label:
        marks.append(Text(x=0, y=12, words=y_label, size=SMALL, fill=role("soft")))
    if x_label:
        words = Text(x=left + width, y=top + height + 36, words=x_label, size=SMALL, anchor="end", fill=role("soft"))
        marks.append(words)
    right = max((text_width(name, SMALL) + 8 for name in lines), default=0)
    return Picture(left + width + max(right, 8), top + height + (42 if x_label else 24), tuple(marks))


def bars(
    values: Sequence[float],
    names: Sequence[str],
    color: str = "weight",
    *,
    maximum: float | None = None,
    width: float = 44,
    height: float = 120,
    digits: int = 2,
) -> Picture:
    """Vertical bars with their values above and their names below; negative bars are hollow and hang down."""
    largest = maximum or max(map(abs, values)) or 1.0
    below = 16.0 + height * -min(values) / largest if min(values) < 0 else 0.0
    marks: list[Mark] = []
    top = 18.0
    for index, (value, name) in enumerate(zip(values, names, strict=True)):
        size, x = height * abs(value) / largest, index * width
        y = top + height - size if value >= 0 else top + height
        paint: dict[str, Any] = {"fill": tint(color, 0.75)}
        if value < 0:
            paint = {"stroke": tint(color, 0.75), "stroke_width": 2.0}
        box = Rect(
            x=x + 4, y=y, width=width - 8, height=max(size, 1), radius=2, tooltip=f"{name}: {value:.4g}", **paint
        )
        marks.append(box)
        words = f"{value:.{digits}f}".replace("-", "−")
        label_y = y - 5 if value >= 0 else y + size + 13
        marks.append(Text(x=x + width / 2, y=label_y, words=words, size=SMALL, anchor="middle", fill=role("ink")))
        name_y = top + height + 16 + (0 if value >= 0 else size + 16)
        marks.append(Text(x=x + width / 2, y=name_y, words=name, size=SMALL, anchor="middle", fill=role("soft")))
    base = Path(commands=(("M", (0, top + height)), ("L", (width * len(values), top + height))), stroke=role("line"))
    return Picture(width * len(values), top + height + 22 + below, (*marks, base))


def _axes(x_axis: Axis, y_axis: Axis, left: float, top: float, width: float, height: float) -> list[Mark]:
    marks: list[Mark] = []
    for tick in y_axis.ticks:
        y = top + height * (1 - y_axis.fraction(tick))
        marks.append(Path(commands=(("M", (left, y)), ("L", (left + width, y))), stroke=role("edge")))
        text = {"words": y_axis.text(tick), "size": SMALL, "anchor": "end", "fill": role("soft")}
        marks.append(Text(x=left - 8, y=y + 4, **text))
    for tick in x_axis.ticks:
        x = left + width * x_axis.fraction(tick)
        marks.append(Path(commands=(("M", (x, top + height)), ("L", (x, top + height + 4))), stroke=role("line")))
        text = {"words": x_axis.text(tick), "size": SMALL, "anchor": "middle", "fill": role("soft")}
        marks.append(Text(x=x, y=top + height + 18, **text))
    marks.append(Path(commands=(("M", (left, top + height)), ("L", (left + width, top + height))), stroke=role("line")))
    return marks


def _line(points: Sequence[Point], line: Curve, name: str) -> list[Mark]:
    color = role(line.color)
    path = (("M", points[0]), *(("L", point) for point in points[1:]))
    marks: list[Mark] = [Path(commands=path, stroke=color, stroke_width=2, dash=line.dash, tooltip=name)]
    if line.dots:
        marks += [
            Circle(x=x, y=y, r=3, fill=color, tooltip=f"{name}: {value:.4g} at {at:g}")
            for (x, y), at, value in zip(points, line.x, line.y, strict=True)
        ]
    return marks


def _end_labels(ends: Sequence[tuple[float, str, str]], x: float) -> list[Mark]:
    """Names at the ends of lines, moved apart where they would overlap."""
    marks: list[Mark] = []
    ordered, last = sorted(ends), -math.inf
    for y, name, color in ordered:
        last = max(y + 4, last + 1.25 * SMALL)
        marks.append(Text(x=x, y=last, words=name, size=SMALL, fill=role(color)))
    return marks


def _log_ticks(least: float, most: float) -> tuple[float, ...]:
    """Powers of ten within a range, at most six; with their multiples by 2 and 5 if there are few."""
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    powers = [power for power in range(first, last + 1) if least * 0.99 <= 10.0**power <= most * 1.01]
    if len(powers) >= 2:
        return tuple(10.0**power for power in powers[:: math.ceil(len(powers) / 6)])
    for factors in ((1, 2, 5), range(1, 10)):
        steps = (factor * 10.0**power for power in range(first, last + 1) for factor in factors)
        ticks = tuple(step for step in steps if least * 0.99 <= step <= most * 1.01)
        if len(ticks) >= 2:
            return ticks
    return tuple(float(f"{end:.2g}") for end in (least, most))


def scientific(value: float) -> str:
    """A small or large number with two digits.

    >>> scientific(2.4e-07), scientific(0.0), scientific(0.25)
    ('2.4 × 10⁻⁷', '0', '0.25')
    """
    if value == 0 or 0.01 <= abs(value) < 10_000:
        return f"{value:.2g}".replace("-", "−")
    factor, power = f"{value:.1e}".split("e")
    return f"{factor} × 10{str(int(power)).translate(DIGITS)}".replace("-", "−")


def _round_step(step: float) -> float:
    """The next larger 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return power * next(factor for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))
