"""Matrices and vectors as squares, on a scale that is printed: filled squares are positive, hollow ones negative."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from softlook.lens.figures.color import on, role, tint
from softlook.lens.figures.picture import Picture, Scale, column, label, overlay, row
from softlook.lens.figures.shapes import Mark, Path, Rect, Text
from softlook.lens.figures.text import shorten_label, text_width, visible_label
from softlook.lens.figures.tokens import SIZES

CELL, NUMBERED, SMALL = SIZES["cell"], SIZES["numbered_cell"], SIZES["small_cell"]
SLANT = 45.0
"""Angle of column labels that do not fit above their columns."""
INK = ("query", "key", "value", "output", "input", "weight")
"""The colors that have a darker variant for text."""
NAMES = {"query": "Q", "key": "K", "value": "V", "output": "Y", "input": "X", "weight": "weight"}
"""What the colors stand for, where a matrix has no letter."""


def matrix(
    values: Tensor,
    color: str = "weight",
    *,
    maximum: float | None = None,
    side: float = CELL,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    row_color: str = "soft",
    column_color: str = "soft",
    digits: int | None = None,
    hidden: Tensor | None = None,
    name: str = "",
    tooltip: str = "{name} ({row}, {column}): {value:.4g}",
) -> Picture:
    """A matrix as squares. The larger the magnitude, the stronger the color; negative squares are hollow.

    - `maximum`: the magnitude of the strongest color; default: the largest of the matrix.
    - `rows`, `columns`: labels of the rows and columns, in `row_color` and `column_color`.
    - `digits`: decimals of the number in each square; default: no numbers.
    - `hidden`: squares that are hatched, such as those of a mask.
    - `name`: what the printed scale and the tooltips call its entries.
    - `tooltip`: the format of the tooltips.
    """
    values = values.detach().double()
    largest = float(values.nan_to_num(0, 0, 0).abs().max()) if values.numel() else 0.0
    maximum = maximum or largest or 1.0
    draw = partial(_cell, color=color, maximum=maximum, side=side, digits=digits)
    marks: list[Mark] = []
    for i, numbers in enumerate(values.tolist()):
        for j, value in enumerate(numbers):
            labels = {"row": _name(rows, i), "column": _name(columns, j)}
            words = tooltip.format(name=name or "entry", value=value, **labels)
            if hidden is not None and bool(hidden[i, j]):
                marks += _hatched(j * side, i * side, side, words)
            else:
                marks += draw(j * side, i * side, value, tooltip=words)
    height, width = (side * size for size in values.shape)
    scales = () if digits is not None or hidden is not None and bool(hidden.all()) else (Scale(color, maximum, name),)
    picture = Picture(width, height, tuple(marks), scales)
    return _with_labels(picture, side, rows, columns, (row_color, column_color))


def vector(values: Tensor, color: str = "weight", *, vertical: bool = False, **options: object) -> Picture:
    """A vector as a row of squares, or as a column; `options` are those of `matrix`."""
    return matrix(values[:, None] if vertical else values[None], color, **options)  # pyright: ignore[reportArgumentType]


def attention_map(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    color: str = "weight",
    maximum: float | None = 1.0,
    side: float = CELL,
    digits: int | None = None,
    hidden: Tensor | None = None,
) -> Picture:
    """An attention map: a row for each query, a column for each key, with the names of both axes."""
    picture = matrix(
        weights,
        color,
        maximum=maximum,
        side=side,
        rows=queries,
        columns=keys,
        row_color="query-ink",
        column_color="key-ink",
        digits=digits,
        hidden=hidden,
        name="weight",
        tooltip="{row} attends to {column}: {value:.3f}",
    )
    left = picture.width - side * len(keys) - _overhang(keys, side)
    names = overlay(
        _text("query ↓", left - 8, 14, "query-ink", anchor="end"), _text("key →", left, 14, "key-ink", anchor="start")
    )
    shift = max(0.0, text_width("query ↓", SIZES["small"]) + 8 - left)
    placed = overlay(names.at(shift, 0), picture.at(shift, 20))
    return placed.sized(max(placed.width, shift + left + 44), placed.height)


def block(picture: Picture, letter: str, color: str, *, sup: str = "", shape: str = "", name: str = "") -> Picture:
    """A matrix with its letter above, which may have a superscript, and its shape below."""
    ink = f"{color}-ink" if color in INK else color
    heading = row(
        label(letter, ink, size=SIZES["heading"] + 1, bold=True, sup=sup),
        *([label(name, "soft", size=SIZES["small"])] if name else []),
        gap=6,
    )
    named = tuple(replace(scale, name=letter, sup=sup) for scale in picture.scales)
    parts = [heading, replace(picture, scales=named)]
    if shape:
        parts.append(label(shape, "soft", size=SIZES["small"]))
    return column(*parts, gap=5, align="middle")


def scale_legend(scales: Sequence[Scale], width: float) -> Picture:
    """The printed scales of matrices: the magnitude of the strongest color of each."""
    small = SIZES["small"]
    lines, line = [], [label("strongest color:", "soft", size=small)]
    for (color, maximum), names in _by_maximum(scales).items():
        ink = f"{color}-ink" if color in INK else "soft"
        square = Picture(12, 12, (Rect(x=0, y=0, width=12, height=12, radius=2, fill=tint(color, 1)),))
        ends = [","] * (len(names) - 1) + [""]
        parts = [label(name + comma, ink, size=small, sup=sup) for (name, sup), comma in zip(names, ends, strict=True)]
        words = row(*parts, label(f"{maximum:.3g}", ink, size=small), gap=5)
        entry = row(square, words, gap=6)
        if row(*line, entry, gap=14).width > width:
            lines, line = [*lines, line], []
        line.append(entry)
    return column(*(row(*entries, gap=14) for entries in [*lines, line]), gap=2)


def _by_maximum(scales: Sequence[Scale]) -> dict[tuple[str, float], list[tuple[str, str]]]:
    """The names of matrices with the same color and scale."""
    found: dict[tuple[str, float], list[tuple[str, str]]] = {}
    for scale in scales:
        name = (scale.name or NAMES.get(scale.color, "entry"), scale.sup)
        names = found.setdefault((scale.color, scale.maximum), [])
        names += [name] * (name not in names)
    return found


def format_number(value: float, digits: int = 2) -> str:
    """A number in a square.

    >>> format_number(0.5), format_number(-0.5, 1), format_number(0.0)
    ('0.50', '−0.5', '0')
    """
    if math.isinf(value):
        return "−∞" if value < 0 else "∞"
    return "0" if value == 0 else f"{value:z.{digits}f}".replace("-", "−")


def _cell(
    x: float,
    y: float,
    value: float,
    *,
    color: str,
    maximum: float,
    side: float,
    digits: int | None,
    tooltip: str = "",
) -> list[Mark]:
    """A filled square, or a ring for a negative number."""
    gap = 1.0 if side > 12 else 0.4
    inside = side - 2 * gap
    box = {"x": x + gap, "y": y + gap, "width": inside, "height": inside, "tooltip": tooltip}
    radius = SIZES["radius"] if side > 12 else 0.5
    if math.isnan(value):
        fill = role("alert")
        marks: list[Mark] = [Rect(**box, radius=radius, fill=fill)]
    elif value >= 0:
        fill = tint(color, value / maximum)
        marks = [Rect(**box, radius=radius, fill=fill, stroke=None if value else role("edge"))]
    else:
        fill = tint(color, 0)
        ring = 2.5 if digits is not None else max(2.0, inside / 6)
        inner = {"x": x + gap + ring / 2, "y": y + gap + ring / 2, "width": inside - ring, "height": inside - ring}
        strength = 0.15 + 0.85 * min(1.0, -value / maximum)
        marks = [
            Rect(**{**box, **inner}, radius=radius / 2, fill=fill, stroke=tint(color, strength), stroke_width=ring)
        ]
    if digits is not None:
        words = format_number(value, digits)
        size = min(13.0, side * 0.31 + 1)
        size *= min(1.0, (side - 8) / text_width(words, size))
        ink = on(fill) if round(value, digits) else role("soft")
        baseline = y + side / 2 + 0.36 * size
        marks.append(Text(x=x + side / 2, y=baseline, words=words, size=size, anchor="middle", fill=ink))
    return marks


def _hatched(x: float, y: float, side: float, tooltip: str) -> list[Mark]:
    """A square with a diagonal line: hidden by a mask."""
    box = Rect(x=x + 1, y=y + 1, width=side - 2, height=side - 2, radius=2, fill=role("surface"), tooltip=tooltip)
    ends = (x + 0.25 * side, y + 0.75 * side), (x + 0.75 * side, y + 0.25 * side)
    return [box, Path(commands=(("M", ends[0]), ("L", ends[1])), stroke=role("line"))]


def _with_labels(
    picture: Picture, side: float, rows: Sequence[str], columns: Sequence[str], colors: tuple[str, str]
) -> Picture:
    """A matrix with labels at its left and above it."""
    size = _label_size(side)
    left = max((text_width(_short(one), size, mono=True) for one in rows), default=-8) + 8
    top = _label_height(columns, side)
    marks: list[Mark] = list(picture.at(left, top).marks)
    for i, words in enumerate(rows):
        y = top + (i + 0.5) * side + 0.36 * size
        marks += _text(_short(words), left - 8, y, colors[0], anchor="end", size=size, mono=True).marks
    slanted = _is_slanted(columns, side)
    for j, words in enumerate(columns):
        x, y = left + (j + 0.5) * side, top - 7
        place = {"angle": -SLANT, "anchor": "start"} if slanted else {"anchor": "middle"}
        marks += _text(_short(words), x + 3 * slanted, y, colors[1], size=size, mono=True, **place).marks
    width, height = left + picture.width + _overhang(columns, side), top + picture.height
    return replace(picture, width=width, height=height, marks=tuple(marks))


def _text(words: str, x: float, y: float, color: str, *, size: float = SIZES["small"], **options: object) -> Picture:
    text = Text(x=x, y=y, words=words, size=size, fill=role(color), **options)  # pyright: ignore[reportArgumentType]
    return Picture(0, 0, (text,))


def _label_size(side: float) -> float:
    """Slanted labels of this size do not touch their neighbors."""
    return min(SIZES["text"], max(9.0, 0.7 * side))


def _short(words: str) -> str:
    return shorten_label(visible_label(words))


def _longest(labels: Sequence[str], side: float) -> float:
    return max((text_width(_short(one), _label_size(side), mono=True) for one in labels), default=0.0)


def _is_slanted(labels: Sequence[str], side: float) -> bool:
    return _longest(labels, side) > side - 4


def _label_height(labels: Sequence[str], side: float) -> float:
    if not labels:
        return 0.0
    size, longest = _label_size(side), _longest(labels, side)
    return math.sin(math.radians(SLANT)) * (longest + size) + 6 if _is_slanted(labels, side) else size + 8


def _overhang(labels: Sequence[str], side: float) -> float:
    """How far slanted labels reach beyond the last column."""
    if not labels or not _is_slanted(labels, side):
        return 0.0
    size = _label_size(side)
    ends = [
        j * side + math.cos(math.radians(SLANT)) * text_width(_short(one), size, mono=True)
        for j, one in enumerate(labels)
    ]
    return max(0.0, max(ends) + side / 2 + 6 - side * len(labels))


def _name(labels: Sequence[str], index: int) -> str:
    return labels[index] if labels else str(index)
