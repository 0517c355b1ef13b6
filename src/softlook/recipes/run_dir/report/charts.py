"""Confusion matrix and reliability diagram as SVG."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from softlook.base.errors import escape_control
from softlook.lens.figures.color import LIGHT, STEPS, colormap, text_color
from softlook.recipes.run_dir.report.plots import svg_start, text

SIZE = 380
"""Width and height of the cells of a confusion matrix together."""
MAX_COUNTED = 15
"""Classes up to which the cells show their counts."""
MAX_NAME_CHARS, CHARACTER_WIDTH = 14, 6.4
DIAGRAM, LEFT, TOP, BOTTOM, HISTOGRAM = 390, 44, 12, 34, 64
"""Width and height of a reliability diagram, its margins, and the height of its histogram."""


def confusion_figure(names: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Heatmap of a confusion matrix: rows are labels, columns predictions, colors the fraction of the row.

    >>> "label b, predicted a: 1 of 3" in confusion_figure(["a", "b"], [[2, 0], [1, 2]])
    True
    """
    cell = min(SIZE / len(names), 64.0)
    shown = [shorten(escape_control(name)) for name in names]
    longest = CHARACTER_WIDTH * max(map(len, shown))
    is_rotated = longest > cell - 6
    left, top = longest + 14, (0.75 * longest + 20 if is_rotated else 24)
    width, height = left + cell * len(names) + (0.75 * longest if is_rotated else 4), top + cell * len(names) + 4
    parts = [svg_start("Confusion matrix", "Rows are labels, columns are predictions.", width, height)]
    for number, name in enumerate(shown):
        middle = (number + 0.5) * cell
        parts.append(text(left - 8, top + middle + 4, name, "soft", 'font-size="12" text-anchor="end"'))
        x, y = left + middle, top - 8
        turn = f'text-anchor="start" transform="rotate(-48 {x:.1f} {y:.1f})"' if is_rotated else 'text-anchor="middle"'
        parts.append(text(x, y, name, "soft", f'font-size="12" {turn}'))
    for row, values in enumerate(counts):
        total = sum(values)
        for column, count in enumerate(values):
            title = f"label {names[row]}, predicted {names[column]}: {count:,} of {total:,}"
            x, y = left + column * cell, top + row * cell
            parts.append(_matrix_cell(x, y, cell, count, total, title, has_text=len(names) <= MAX_COUNTED))
    return "".join([*parts, "</svg>"])


def _matrix_cell(x: float, y: float, cell: float, count: int, total: int, title: str, *, has_text: bool) -> str:
    step = round(STEPS * count / total) if total else 0
    color, gap = colormap(step), min(2.0, cell / 10)
    box = f'x="{x + gap / 2:.1f}" y="{y + gap / 2:.1f}" width="{cell - gap:.1f}" height="{cell - gap:.1f}" rx="{gap}"'
    rect = f'<rect class="sl-{step}" {box} fill="{color}"/>'
    label = ""
    if has_text and count:
        center = f'x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}" font-size="12" text-anchor="middle"'
        label = f'<text class="sl-on-{step}" {center} fill="{text_color(color)}">{count:,}</text>'
    return f"<g><title>{escape(escape_control(title))}</title>{rect}{label}</g>"


def reliability_figure(bins: Sequence[Mapping[str, Any]]) -> str:
    """Reliability diagram: accuracy by confidence, with the diagonal of perfect calibration and a histogram."""
    width = height = DIAGRAM

    def x(value: float) -> float:
        return LEFT + (width - LEFT - 22) * value

    def y(value: float) -> float:
        return TOP + (height - TOP - BOTTOM) * (1 - value)

    parts = [svg_start("Reliability diagram", "Accuracy by confidence.", width, height + HISTOGRAM)]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(f'<path class="sl-edge-line" d="M{LEFT} {y(tick):.1f}H{x(1):.1f}" stroke="{LIGHT["edge"]}"/>')
        parts.append(text(LEFT - 8, y(tick) + 4, f"{tick:.0%}", "soft", 'font-size="11" text-anchor="end"'))
        anchor = 'font-size="11" text-anchor="middle"'
        parts.append(text(x(tick), height + HISTOGRAM - 16, f"{tick:.0%}", "soft", anchor))
    largest = max((one["examples"] for one in bins), default=1)
    for one in bins:
        title = (
            f"confidence {one['low']:.0%} to {one['high']:.0%}, mean {one['confidence']:.1%}: "
            f"accuracy {one['accuracy']:.1%} of {one['examples']:,} examples"
        )
        left, right = x(one["low"]) + 1.5, x(one["high"]) - 1.5
        fill = f'class="sl-query" fill="{LIGHT["query"]}" x="{left:.1f}" width="{right - left:.1f}"'
        size = max((HISTOGRAM - 26) * one["examples"] / largest, 1)
        parts.append(
            f"<g><title>{title}</title>"
            f'<rect {fill} y="{y(one["accuracy"]):.1f}" height="{y(0) - y(one["accuracy"]):.1f}" rx="2"/>'
            f'<rect {fill} y="{height + HISTOGRAM - 34 - size:.1f}" height="{size:.1f}" opacity="0.45"/></g>'
        )
    line = f'stroke="{LIGHT["key"]}" stroke-width="1.5" stroke-dasharray="4 4"'
    parts.append(f'<path class="sl-key-line" d="M{x(0):.1f} {y(0):.1f}L{x(1):.1f} {y(1):.1f}" {line}/>')
    parts.append(text(x(0.5), height + HISTOGRAM - 1, "confidence", "soft", 'font-size="11" text-anchor="middle"'))
    return "".join([*parts, "</svg>"])


def shorten(name: str) -> str:
    """A class name that fits next to the matrix."""
    return name if len(name) <= MAX_NAME_CHARS else name[: MAX_NAME_CHARS - 1] + "…"
