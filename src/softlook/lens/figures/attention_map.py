"""Attention maps as self-contained SVG figures.

Rows are queries, columns are keys. One hue with even steps of lightness, for light and dark pages.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape

from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.lens.figures.color import LIGHT, NAN_COLOR, STEPS, colormap, style, text_color
from softlook.lens.figures.map_layout import MAX_NUMBERED, MAX_WIDTH, FigureLayout
from softlook.lens.figures.text import shorten_label, visible_label

MAX_SIDE = 128
"""Cells per side that a browser draws without delay."""
FONT = "ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace"

Rows = list[list[float]]


def attention_figure(
    weights: Float[Tensor, "T S"], *, queries: Sequence[str], keys: Sequence[str], title: str = ""
) -> str:
    """Draw an attention map as SVG: a cell for each query and key, its weight as text and tooltip.

    >>> import torch
    >>> svg = attention_figure(torch.tensor([[0.25, 0.75]]), queries=["it"], keys=["road", "animal"])
    >>> "it attends to animal: 0.750" in svg
    True

    Save it with `Path("map.svg").write_text(svg, encoding="utf-8")`, or show it with `IPython.display.SVG(svg)`.
    """
    return heads_figure({"": weights}, queries=queries, keys=keys, title=title)


def heads_figure(
    maps: Mapping[str, Float[Tensor, "T S"]],
    *,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    max_width: float = MAX_WIDTH,
) -> str:
    """Draw several maps of the same queries and keys side by side on one scale: heads, temperatures, masks.

    Maps beyond `max_width`, in pixels, continue in the next row.

    >>> import torch
    >>> heads = {"head 0": torch.eye(2), "head 1": torch.full((2, 2), 0.5)}
    >>> heads_figure(heads, queries=["a", "b"], keys=["a", "b"]).count(" attends to ")
    8
    """
    if not maps:
        raise ValueError("heads_figure expects at least one map, got none")
    maps_of_rows = [_as_rows(weights, queries, keys) for weights in maps.values()]
    max_weight = max((w for rows in maps_of_rows for row in rows for w in row if not math.isnan(w)), default=0.0)
    layout = FigureLayout(
        tuple(map(visible_label, queries)),
        tuple(map(visible_label, keys)),
        tuple(map(visible_label, maps)),
        visible_label(title),
        max_width,
    )
    name = escape(layout.title or "Attention map")
    cells = [_cells(layout, number, rows, max_weight) for number, rows in enumerate(maps_of_rows)]
    size = f'viewBox="0 0 {layout.width} {layout.height}" width="{layout.width}" height="{layout.height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" class="softlook" role="img" aria-label="{name}" {size}
  font-family="{FONT}">
<title>{name}</title>
<desc>{escape(_description(layout, maps_of_rows))}</desc>
<style>{style()}</style>
<rect class="sl-paper" width="100%" height="100%" fill="{LIGHT["paper"]}"/>
{_labels(layout)}
{"".join(cells)}{_legend(layout, max_weight)}
</svg>
"""


def _cells(layout: FigureLayout, number: int, rows: Rows, max_weight: float) -> str:
    cells = []
    for row, (query, weights) in enumerate(zip(layout.queries, rows, strict=True)):
        for column, (key, weight) in enumerate(zip(layout.keys, weights, strict=True)):
            x, y = layout.x(number) + column * layout.side, layout.y(number) + row * layout.side
            text = f"<title>{escape(query)} attends to {escape(key)}: {weight:.3f}</title>"
            cells.append(f'<g class="sl-square">{text}{_cell(layout, x, y, weight, max_weight)}</g>\n')
    return "".join(cells)


def _cell(layout: FigureLayout, x: float, y: float, weight: float, max_weight: float) -> str:
    gap = 1 if layout.side > 13 else 0.5
    geometry = f'x="{x + gap:g}" y="{y + gap:g}" width="{layout.side - 2 * gap:g}" height="{layout.side - 2 * gap:g}"'
    css_class, fill, ink = _colors(weight, max_weight)
    edge = f' stroke="{LIGHT["edge"]}"' if weight == 0 else ""
    box = f'<rect class="sl-{css_class}" {geometry} rx="{layout.side / 12:.1f}" fill="{fill}"{edge}/>'
    if not layout.numbered:
        return box
    middle = f'x="{x + layout.side / 2:g}" y="{y + layout.side / 2 + 4.5:g}" text-anchor="middle" font-size="13"'
    return f'{box}<text class="sl-on-{css_class}" {middle} fill="{ink}">{_number(weight)}</text>'


def _colors(weight: float, max_weight: float) -> tuple[str, str, str]:
    """The CSS class of a cell, its fill color, and the color of its text."""
    if math.isnan(weight):
        return "nan", NAN_COLOR, text_color(NAN_COLOR)
    if weight == 0:
        return "zero", LIGHT["paper"], LIGHT["soft"]
    step = round(STEPS * weight / max_weight)
    return str(step), colormap(step), text_color(colormap(step))


def _labels(layout: FigureLayout) -> str:
    """Title, map names, row and column labels."""
    lines = [_text(28, 40, layout.title, "ink", 'font-size="18" font-weight="600"')]
    for number, name in enumerate(layout.names):
        x, top = layout.x(number), layout.y(number)
        name_y = top - layout.label_height
        if number % layout.columns == 0:
            lines += _query_labels(layout, top)
        lines.append(_text(x, name_y + 10, name, "ink", 'font-size="14" font-weight="600"'))
        lines.append(_text(x, name_y + 26 * any(layout.names) + 8, "key →", "key", 'font-size="12"'))
        for column, key in enumerate(layout.keys):
            middle, base = x + (column + 0.5) * layout.side, top - 10
            anchor = f'transform="rotate(-45 {middle:g} {base:g})"' if layout.slant else 'text-anchor="middle"'
            lines.append(_text(middle, base, shorten_label(key), "key", f'font-size="{layout.size}" {anchor}'))
    return "\n".join(filter(None, lines))


def _query_labels(layout: FigureLayout, top: float) -> list[str]:
    """Labels at the left of a row of maps."""
    x, lines = layout.left - 12, []
    lines.append(_text(x, top - 10, "query ↓", "query", 'font-size="12" text-anchor="end"'))
    for row, query in enumerate(layout.queries):
        y = top + (row + 0.5) * layout.side + 0.36 * layout.size
        lines.append(_text(x, y, shorten_label(query), "query", f'font-size="{layout.size}" text-anchor="end"'))
    return lines


def _legend(layout: FigureLayout, max_weight: float) -> str:
    """Color scale."""
    y, begin, width = layout.bottom + 28, layout.left + 14, 3
    lines = [_text(layout.left - 12, y + 11, "weight", "soft", 'font-size="12" text-anchor="end"')]
    lines.append(_text(layout.left, y + 11, "0", "soft", 'font-size="12"'))
    for step in range(STEPS + 1):
        geometry = f'x="{begin + width * step:g}" y="{y:g}" width="{width}" height="14" shape-rendering="crispEdges"'
        lines.append(f'<rect class="sl-{step}" {geometry} fill="{colormap(step)}"/>')
    lines.append(_text(begin + width * (STEPS + 1) + 6, y + 11, f"{max_weight:.3f}", "soft", 'font-size="12"'))
    return "\n".join(lines)


def _description(layout: FigureLayout, maps_of_rows: Sequence[Rows]) -> str:
    """Text description of the figure."""
    text = [f"{len(layout.queries)} queries (rows) attend to {len(layout.keys)} keys (columns)."]
    for name, rows in zip(layout.names, maps_of_rows, strict=True):
        text += [f"{name}:"] if name else []
        for query, weights in zip(layout.queries[:MAX_NUMBERED], rows, strict=False):
            best = max(range(len(weights)), key=lambda n: weights[n])
            text.append(f"{query} attends most to {layout.keys[best]} ({weights[best]:.3f}).")
    return " ".join(text)


def _as_rows(weights: Tensor, queries: Sequence[str], keys: Sequence[str]) -> Rows:
    if weights.ndim != 2:
        raise ShapeError(
            f"a map has the dimensions (queries, keys), got {tuple(weights.shape)}. "
            "Select one with weights[0, 0]; heads_figure draws several."
        )
    if tuple(weights.shape) != (len(queries), len(keys)) or not weights.numel():
        raise ShapeError(
            f"a map of {len(queries)} queries and {len(keys)} keys has shape ({len(queries)}, {len(keys)}) and "
            f"at least one cell, got {tuple(weights.shape)}"
        )
    if max(weights.shape) > MAX_SIDE:
        raise ShapeError(
            f"a figure has up to {MAX_SIDE} x {MAX_SIDE} cells, got {tuple(weights.shape)}. "
            "Pool the map first: look(..., stats=('pooled_max',)).pooled_max[0, 0]."
        )
    if bool((weights < 0).any() | weights.isinf().any()):
        raise ValueError("weights must be finite and >= 0. Use attention_weights, not attention_scores.")
    return weights.detach().cpu().double().tolist()


def _number(weight: float) -> str:
    return "0" if weight == 0 else "&lt;.01" if weight < 0.005 else f"{weight:.2f}"


def _text(x: float, y: float, words: str, color: str, more: str) -> str:
    if not words:
        return ""
    return f'<text class="sl-{color}" x="{x:g}" y="{y:g}" fill="{LIGHT[color]}" {more}>{escape(words)}</text>'
