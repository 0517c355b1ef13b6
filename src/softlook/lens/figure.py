"""Maps as pictures: one SVG that stands by itself, in which every square carries its real number.

Rows are queries, columns are keys. One hue, even steps of lightness, for light pages and for dark ones.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape

from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.lens.colour import LIGHT, STEPS, WRONG, ramp, readable, style
from softlook.lens.page import NUMBERED, Page, short, shown

LARGEST = 128
"""Squares a side that a browser draws without a pause."""
FONT = "ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"

Rows = list[list[float]]


def map_figure(weights: Float[Tensor, "T S"], *, queries: Sequence[str], keys: Sequence[str], title: str = "") -> str:
    """One map as an SVG: a square for each query and key, its weight inside and in its tooltip.

    >>> import torch
    >>> svg = map_figure(torch.tensor([[0.25, 0.75]]), queries=["it"], keys=["road", "animal"])
    >>> "it looks at animal: 0.750" in svg
    True

    Keep it with `Path("map.svg").write_text(svg, encoding="utf-8")`, or show it with `IPython.display.SVG(svg)`.
    """
    return maps_figure({"": weights}, queries=queries, keys=keys, title=title)


def maps_figure(
    maps: Mapping[str, Float[Tensor, "T S"]], *, queries: Sequence[str], keys: Sequence[str], title: str = ""
) -> str:
    """Several maps of the same queries and keys, side by side on one scale: heads, temperatures, masks.

    >>> import torch
    >>> heads = {"head 0": torch.eye(2), "head 1": torch.full((2, 2), 0.5)}
    >>> maps_figure(heads, queries=["a", "b"], keys=["a", "b"]).count(" looks at ")
    8
    """
    if not maps:
        raise ValueError("there is nothing to draw: no maps came")
    numbers = [_numbers(weights, queries, keys) for weights in maps.values()]
    most = max((w for rows in numbers for row in rows for w in row if not math.isnan(w)), default=0.0)
    page = Page(tuple(map(shown, queries)), tuple(map(shown, keys)), tuple(map(shown, maps)), shown(title))
    name = escape(page.title or "Attention map")
    drawn = [_squares(page, number, rows, most) for number, rows in enumerate(numbers)]
    size = f'viewBox="0 0 {page.width} {page.height}" width="{page.width}" height="{page.height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" class="softlook" role="img" aria-label="{name}" {size}
  font-family="{FONT}">
<title>{name}</title>
<desc>{escape(_told(page, numbers))}</desc>
<style>{style()}</style>
<rect class="sl-paper" width="100%" height="100%" fill="{LIGHT["paper"]}"/>
{_labels(page)}
{"".join(drawn)}{_legend(page, most)}
</svg>
"""


def _squares(page: Page, number: int, rows: Rows, most: float) -> str:
    squares = []
    for row, (query, weights) in enumerate(zip(page.queries, rows, strict=True)):
        for column, (key, weight) in enumerate(zip(page.keys, weights, strict=True)):
            x, y = page.x(number) + column * page.side, page.top + row * page.side
            told = f"<title>{escape(query)} looks at {escape(key)}: {weight:.3f}</title>"
            squares.append(f'<g class="sl-square">{told}{_square(page, x, y, weight, most)}</g>\n')
    return "".join(squares)


def _square(page: Page, x: float, y: float, weight: float, most: float) -> str:
    gap = 1 if page.side > 13 else 0.5
    place = f'x="{x + gap:g}" y="{y + gap:g}" width="{page.side - 2 * gap:g}" height="{page.side - 2 * gap:g}"'
    kind, fill, ink = _colours(weight, most)
    edge = f' stroke="{LIGHT["edge"]}"' if weight == 0 else ""
    box = f'<rect class="sl-{kind}" {place} rx="{page.side / 12:.1f}" fill="{fill}"{edge}/>'
    if not page.numbered:
        return box
    middle = f'x="{x + page.side / 2:g}" y="{y + page.side / 2 + 4.5:g}" text-anchor="middle" font-size="13"'
    return f'{box}<text class="sl-on-{kind}" {middle} fill="{ink}">{_number(weight)}</text>'


def _colours(weight: float, most: float) -> tuple[str, str, str]:
    """What the style sheet calls the square, its colour, and that of the number in it."""
    if math.isnan(weight):
        return "nan", WRONG, readable(WRONG)
    if weight == 0:
        return "zero", LIGHT["paper"], LIGHT["soft"]
    step = round(STEPS * weight / most)
    return str(step), ramp(step), readable(ramp(step))


def _labels(page: Page) -> str:
    """The title, a name above each map, and what stands at rows and columns."""
    lines = [_text(28, 40, page.title, "ink", 'font-size="18" font-weight="600"')]
    lines.append(_text(page.left - 12, page.top - 10, "looks from ↓", "query", 'font-size="12" text-anchor="end"'))
    for row, query in enumerate(page.queries):
        y = page.top + (row + 0.5) * page.side + 0.36 * page.size
        lines.append(_text(page.left - 12, y, short(query), "query", f'font-size="{page.size}" text-anchor="end"'))
    for number, name in enumerate(page.names):
        x, y = page.x(number), page.head + 26 * any(page.names)
        lines.append(_text(x, page.head + 10, name, "ink", 'font-size="14" font-weight="600"'))
        lines.append(_text(x, y + 8, "looks at →", "key", 'font-size="12"'))
        for column, key in enumerate(page.keys):
            middle, base = x + (column + 0.5) * page.side, page.top - 10
            turned = f'transform="rotate(-45 {middle:g} {base:g})"' if page.slant else 'text-anchor="middle"'
            lines.append(_text(middle, base, short(key), "key", f'font-size="{page.size}" {turned}'))
    return "\n".join(filter(None, lines))


def _legend(page: Page, most: float) -> str:
    """What a colour means, and in which direction to read."""
    y, begin, width = page.bottom + 28, page.left + 14, 3
    lines = [_text(page.left - 12, y + 11, "weight", "soft", 'font-size="12" text-anchor="end"')]
    lines.append(_text(page.left, y + 11, "0", "soft", 'font-size="12"'))
    for step in range(STEPS + 1):
        place = f'x="{begin + width * step:g}" y="{y:g}" width="{width}" height="14" shape-rendering="crispEdges"'
        lines.append(f'<rect class="sl-{step}" {place} fill="{ramp(step)}"/>')
    lines.append(_text(begin + width * (STEPS + 1) + 6, y + 11, f"{most:.3f}", "soft", 'font-size="12"'))
    return "\n".join(lines)


def _told(page: Page, numbers: Sequence[Rows]) -> str:
    """The picture in words."""
    told = [f"{len(page.queries)} queries, one to a row, look at {len(page.keys)} keys, one to a column."]
    for name, rows in zip(page.names, numbers, strict=True):
        told += [f"{name}:"] if name else []
        for query, weights in zip(page.queries[:NUMBERED], rows, strict=False):
            best = max(range(len(weights)), key=lambda n: weights[n])
            told.append(f"{query} looks most at {page.keys[best]} ({weights[best]:.3f}).")
    return " ".join(told)


def _numbers(weights: Tensor, queries: Sequence[str], keys: Sequence[str]) -> Rows:
    if weights.ndim != 2:
        raise ShapeError(
            f"a map has the axes (queries, keys); {tuple(weights.shape)} came. "
            "Choose one, weights[0, 0]; maps_figure draws several."
        )
    if tuple(weights.shape) != (len(queries), len(keys)) or not weights.numel():
        raise ShapeError(
            f"a map of {len(queries)} queries and {len(keys)} keys has a row for each query and a column for each key, "
            f"one at least; {tuple(weights.shape)} came"
        )
    if max(weights.shape) > LARGEST:
        raise ShapeError(
            f"up to {LARGEST} x {LARGEST} squares can be told apart; {tuple(weights.shape)} came. "
            "Pool the map first: look(..., ask=('heat_max',)).heat_max[0, 0]."
        )
    if bool((weights < 0).any() | weights.isinf().any()):
        raise ValueError("weights are numbers from 0 up; these are not. Scores become weights in attention_weights.")
    return weights.detach().cpu().double().tolist()


def _number(weight: float) -> str:
    return "0" if weight == 0 else "&lt;.01" if weight < 0.005 else f"{weight:.2f}"


def _text(x: float, y: float, words: str, colour: str, more: str) -> str:
    if not words:
        return ""
    return f'<text class="sl-{colour}" x="{x:g}" y="{y:g}" fill="{LIGHT[colour]}" {more}>{escape(words)}</text>'
