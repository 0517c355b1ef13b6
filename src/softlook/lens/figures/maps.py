"""Figures of a trained model's attention: all heads, the alignment of a translation, twins, image patches."""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.lens.figures.attention_map import attention_figure, check_map, square_side
from softlook.lens.figures.color import Color
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.heatmap import heatmap
from softlook.lens.figures.matrix import attention_map, matrix
from softlook.lens.figures.picture import Picture, column, grid, label, overlay, row
from softlook.lens.figures.shapes import Rect
from softlook.lens.figures.text import visible_label
from softlook.lens.figures.tokens import SIZES

SMALL = SIZES["small"]
MAX_WIDTH = 1100.0
"""Width of all heads of a layer."""


def head_map_figure(
    layers: Mapping[str, Float[Tensor, "H T S"]],
    *,
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "Attention of every head",
) -> Figure:
    """Every head of every layer as a small map: a row for each layer, a column for each head.

    >>> import torch
    >>> maps = {f"layer {n}": torch.rand(4, 6, 6).softmax(-1) for n in range(2)}
    >>> head_map_figure(maps, queries=list("abcdef"), keys=list("abcdef"))
    Figure('Attention of every head', 760 x ...)
    """
    if not layers:
        raise ShapeError("head_map_figure expects at least one layer, got none")
    for weights in layers.values():
        check_map(weights[0], queries, keys)
    heads = max(len(weights) for weights in layers.values())
    side = max(24.0, min(112.0, (MAX_WIDTH - 90) / heads - 8))
    maximum = max(float(weights.max()) for weights in layers.values()) or 1.0
    height = side * min(max(len(queries) / len(keys), 0.5), 2.0)
    rows = [
        row(
            *(
                heatmap(one, maximum=maximum, width=side, height=height, name=f"{name}, head {number}")
                for number, one in enumerate(weights)
            ),
            gap=8,
        )
        for name, weights in layers.items()
    ]
    names = [label(visible_label(name), "soft", size=SMALL) for name in layers]
    left = max(name.width for name in names) + 10
    numbers = [label(str(n), "soft", size=SMALL) for n in range(heads)]
    marks = [one.at(left + n * (side + 8) + (side - one.width) / 2, 0) for n, one in enumerate(numbers)]
    for n, (name, one) in enumerate(zip(names, rows, strict=True)):
        marks += [one.at(left, 22 + n * (height + 8)), name.at(0, 22 + n * (height + 8) + (height - name.height) / 2)]
    found = {name: _concentration(weights) for name, weights in layers.items()}
    return Figure(
        title,
        f"{len(layers)} layers (rows) of up to {heads} heads (columns), each a map of {len(queries)} queries and "
        f"{len(keys)} "
        f"keys. " + _sharpest(found),
        overlay(*marks),
        dict(layers.items()),
        subtitle="Rows are layers, columns are heads. In each map, rows are queries and columns are keys.",
    )


def alignment_figure(
    weights: Float[Tensor, "T S"], *, source: Sequence[str], target: Sequence[str], title: str = ""
) -> Figure:
    """The alignment of a translation: for each target token, the source tokens that the decoder looks at.

    >>> import torch
    >>> alignment_figure(torch.eye(2), source=["der", "Hund"], target=["the", "dog"])
    Figure('der Hund → the dog', 760 x ...)
    """
    spaced = " " if any(len(one) > 1 for one in (*source, *target)) else ""
    title = title or f"{spaced.join(source)} → {spaced.join(target)}"
    words = "Rows are target tokens, columns are source tokens: where the decoder looks while it writes each token."
    return attention_figure(weights, queries=target, keys=source, title=title, subtitle=words)


def twins_figure(
    first: Float[Tensor, "T S"],
    second: Float[Tensor, "T S"],
    *,
    first_tokens: Sequence[str],
    second_tokens: Sequence[str],
    title: str = "Two inputs and their difference",
) -> Figure:
    """The maps of two aligned inputs, and their difference: filled where the second attends more, hollow where less.

    >>> import torch
    >>> tokens = ["too", "tired"], ["too", "wide"]
    >>> twins_figure(torch.eye(2), torch.eye(2).flip(0), first_tokens=tokens[0], second_tokens=tokens[1])
    Figure('Two inputs and their difference', 760 x ...)
    """
    check_map(first, first_tokens, first_tokens)
    check_map(second, second_tokens, second_tokens)
    if first.shape != second.shape:
        raise ShapeError(f"twins are aligned and have one length, got {tuple(first.shape)} and {tuple(second.shape)}")
    side = min(square_side(len(first_tokens)), 22.0 if len(first_tokens) <= 12 else 16.0)
    change = second - first
    merged = [a if a == b else f"{a}/{b}" for a, b in zip(first_tokens, second_tokens, strict=True)]
    largest = max(float(first.max()), float(second.max())) or 1.0
    drawn = {
        name: attention_map(one, tokens, tokens, side=side, maximum=maximum, color=color)
        for name, one, tokens, color, maximum in (
            ("first", first, first_tokens, "weight", largest),
            ("second", second, second_tokens, "weight", largest),
            ("second − first", change, merged, "output", float(change.abs().max()) or 1.0),
        )
    }
    height = max(one.height for one in drawn.values())
    maps = [column(label(name, bold=True), one.pad(top=height - one.height), gap=4) for name, one in drawn.items()]
    at = int(change.abs().argmax())
    i, j = divmod(at, change.shape[1])
    return Figure(
        title,
        f"Two maps and their difference. The largest change is that of {merged[i]} to {merged[j]}: "
        f"{float(change[i, j]):+.2f}.",
        row(*maps, gap=24, align="end") if len(first_tokens) <= 12 else column(*maps, gap=24),
        {"first": first, "second": second, "difference": change},
        subtitle="Difference: filled where the second attends more, hollow where it attends less.",
    )


def patches_figure(
    maps: Mapping[str, Float[Tensor, "h w"]],
    image: Float[Tensor, "3 height width"] | None = None,
    *,
    title: str = "Attention to image patches",
) -> Figure:
    """What one query of a vision Transformer attends to, as grids of patches, beside the image.

    >>> import torch
    >>> patches_figure({"head 0": torch.rand(4, 4)}, torch.rand(3, 8, 8))
    Figure('Attention to image patches', 760 x ...)
    """
    maximum = max(float(one.max()) for one in maps.values()) or 1.0
    size = 150.0
    parts = [] if image is None else [column(label("image", bold=True), _image(image, size), gap=6)]
    for name, one in maps.items():
        squares = matrix(one, "weight", maximum=maximum, side=size / max(one.shape), name="weight")
        parts.append(column(label(visible_label(name), bold=True), squares, gap=6))
    found = ", ".join(f"{name}: patch {tuple(divmod(int(one.argmax()), one.shape[1]))}" for name, one in maps.items())
    return Figure(
        title,
        f"Grids of patches, stronger where the query attends more. Strongest patch (row, column): {found}.",
        grid(parts, 4, gap=22),
        dict(maps.items()),
        subtitle="A square for each patch: the stronger, the more the query attends to it.",
    )


def _image(image: Tensor, size: float) -> Picture:
    """An image, reduced to at most 32 pixels a side."""
    step = math.ceil(max(image.shape[1:]) / 32)
    small = torch.nn.functional.avg_pool2d(image.detach().float()[None], step)[0].clamp(0, 1)
    side, marks = size / max(small.shape[1:]), []
    for i, pixels in enumerate((small * 255).round().int().permute(1, 2, 0).tolist()):
        for j, (red, green, blue) in enumerate(pixels):
            code = f"{red:02x}{green:02x}{blue:02x}"
            color = Color(f"rgb-{code}", f"#{code}", f"#{code}")
            marks.append(Rect(x=j * side, y=i * side, width=side + 0.2, height=side + 0.2, fill=color))
    return Picture(side * small.shape[2], side * small.shape[1], tuple(marks))


def _concentration(weights: Tensor) -> list[float]:
    """The mean of the largest weight of each query, for each head."""
    return weights.amax(-1).mean(-1).tolist()


def _sharpest(found: Mapping[str, list[float]]) -> str:
    value, name, head = max((value, name, head) for name, values in found.items() for head, value in enumerate(values))
    return f"The most concentrated is head {head} of {name}: the largest weight of a query is {value:.2f} on average."
