"""Attention maps: one map, or the maps of several heads on one scale."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.lens.figures.color import tint
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.matrix import attention_map
from softlook.lens.figures.picture import Picture, column, label, row
from softlook.lens.figures.shapes import Mark, Rect, Text
from softlook.lens.figures.text import text_width, visible_label
from softlook.lens.figures.tokens import SIZES

MAX_SIDE = 128
"""Cells per side that a browser draws without delay."""
MAX_NUMBERED, NUMBERED_SIDE = 12, SIZES["numbered_cell"]
"""Cells per side up to which each shows its number, and the side of such a cell."""
MAX_WIDTH = 1200.0
"""Default width of a figure: a page on a laptop screen."""
GAP = 24.0


def attention_figure(
    weights: Float[Tensor, "T S"],
    *,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    lanes: Mapping[str, Float[Tensor, " T"]] | None = None,
    subtitle: str = "Rows are queries, columns are keys.",
    caption: str = "",
) -> Figure:
    """Draw an attention map: a square for each query and key, its weight as text and tooltip.

    - `lanes`: numbers for each query, drawn as bars beside the map: entropies, received weights, importances.

    >>> import torch
    >>> figure = attention_figure(torch.tensor([[0.25, 0.75]]), queries=["it"], keys=["road", "animal"])
    >>> "it attends to animal: 0.750" in figure.svg()
    True

    Notebooks show it; `figure.save("map.svg")` writes it, also as .html and .png.
    """
    check_map(weights, queries, keys)
    lanes, side = lanes or {}, square_side(max(weights.shape))
    maximum, digits = _maximum([weights]), 2 if side == NUMBERED_SIDE else None
    picture = attention_map(weights, queries, keys, maximum=maximum, side=side, digits=digits)
    parts = [picture, *(_lane(name, values, side) for name, values in lanes.items())]
    return Figure(
        visible_label(title) or "Attention map",
        _description({"": weights}, queries, keys),
        row(*parts, gap=18, align="end"),
        {"weights": weights, **lanes},
        subtitle=subtitle,
        caption=caption,
    )


def heads_figure(
    maps: Mapping[str, Float[Tensor, "T S"]],
    *,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "",
    max_width: float = MAX_WIDTH,
) -> Figure:
    """Draw several maps of the same queries and keys side by side on one scale: heads, temperatures, masks.

    Maps beyond `max_width`, in pixels, continue in the next row.

    >>> import torch
    >>> heads = {"head 0": torch.eye(2), "head 1": torch.full((2, 2), 0.5)}
    >>> heads_figure(heads, queries=["a", "b"], keys=["a", "b"]).svg().count(" attends to ")
    8
    """
    if not maps:
        raise ValueError("heads_figure expects at least one map, got none")
    for weights in maps.values():
        check_map(weights, queries, keys)
    side, maximum = square_side(max(len(queries), len(keys))), _maximum(maps.values())
    if side == NUMBERED_SIDE and 2 * len(keys) * side > 0.8 * max_width:  # two maps fit side by side
        side = SIZES["cell"]
    digits = 2 if side == NUMBERED_SIDE else None
    drawn = [
        column(
            label(visible_label(name), bold=True),
            attention_map(one, queries, keys, maximum=maximum, side=side, digits=digits),
            gap=4,
        )
        for name, one in maps.items()
    ]
    return Figure(
        visible_label(title) or "Attention map",
        _description(maps, queries, keys),
        _rows(drawn, max_width - 2 * SIZES["margin"]),
        dict(maps),
        subtitle="Rows are queries, columns are keys.",
    )


def square_side(count: int) -> float:
    """The side of a square, for a number of tokens."""
    if count <= MAX_NUMBERED:
        return NUMBERED_SIDE
    return SIZES["cell"] if count <= 32 else 16.0 if count <= 64 else SIZES["small_cell"]


def _maximum(maps: Iterable[Tensor]) -> float:
    """The weight of the strongest color."""
    return max(float(one.nan_to_num(0).max()) for one in maps) or 1.0


def _lane(name: str, values: Tensor, side: float, color: str = "output") -> Picture:
    """A bar for each row of a map."""
    width, largest = 90.0, float(values.abs().max()) or 1.0
    marks: list[Mark] = []
    for index, value in enumerate(values.double().tolist()):
        y, length = index * side, max(1.0, (width - 40) * abs(value) / largest)
        paint: dict[str, Any] = {"fill": tint(color, 0.7)}
        if value < 0:
            paint = {"stroke": tint(color, 0.7), "stroke_width": 1.5}
        marks.append(
            Rect(x=0, y=y + 0.2 * side, width=length, height=0.6 * side, radius=2, tooltip=f"{value:.4g}", **paint)
        )
        if side >= 13:
            words = f"{value:.2f}".replace("-", "−")
            ink = tint(color, 1)
            marks.append(Text(x=length + 4, y=y + side / 2 + 4, words=words, size=11, fill=ink))
    bars = Picture(max(width, text_width(name, SIZES["small"], bold=True)), side * len(values), tuple(marks))
    return column(label(visible_label(name), f"{color}-ink", size=SIZES["small"], bold=True), bars, gap=6)


def _rows(drawn: Sequence[Picture], width: float) -> Picture:
    """Pictures of one size in as many rows as they need."""
    across = max(1, math.floor((width + GAP) / (max(one.width for one in drawn) + GAP)))
    rows = [row(*drawn[n : n + across], gap=GAP, align="end") for n in range(0, len(drawn), across)]
    return column(*rows, gap=GAP)


def _description(maps: Mapping[str, Tensor], queries: Sequence[str], keys: Sequence[str]) -> str:
    """What each query attends to most, for the first queries."""
    text = [f"{len(queries)} queries (rows) attend to {len(keys)} keys (columns)."]
    for name, weights in maps.items():
        text += [f"{name}:"] if name else []
        best = weights.double().nan_to_num(-1).argmax(-1).tolist()
        for number, (query, key) in enumerate(zip(queries[:MAX_NUMBERED], best, strict=False)):
            text.append(f"{query} attends most to {keys[key]} ({float(weights[number, key]):.3f}).")
    return " ".join(text)


def check_map(weights: Tensor, queries: Sequence[str], keys: Sequence[str]) -> None:
    """Require weights of these queries and keys."""
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
