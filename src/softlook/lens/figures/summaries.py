"""Figures of masks, looks and traces."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from softlook.base.errors import MaskError
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.heatmap import heatmap
from softlook.lens.figures.matrix import matrix
from softlook.lens.figures.picture import Picture, column, label, row
from softlook.lens.figures.text import visible_label
from softlook.lens.figures.tokens import SIZES
from softlook.lens.trace import Trace
from softlook.ops.look import PER_KEY, PER_QUERY, Look
from softlook.ops.masks.base import Mask, Sizes

SMALL = SIZES["small"]
USUAL, MAX_KEYS, MAX_BATCH = 8, 64, 8
"""The number of keys that a mask is drawn with if it fits any, and the largest that are tried."""
SHOWN = 4
"""Sequences of a batch, or layers of a trace, side by side."""
WIDTH, MAX_LAYERS = 640.0, 48
TRACE_COLUMNS = {"layer": "ink", "calls": "soft", "heads": "weight-ink", "queries": "query-ink", "keys": "key-ink"}


def summary_html(value: Any) -> str | None:
    """The figure of a mask, look or trace as HTML; None if it has none, such as a mask of unknown size.

    >>> from softlook import masks
    >>> summary_html(masks.causal())[:10]
    '<img alt="'
    """
    make = next(make for cls, make in FIGURES.items() if isinstance(value, cls))
    try:
        return make(value)._repr_html_()
    except MaskError:
        return None


def mask_figure(mask: Mask, sizes: Sizes | None = None) -> Figure:
    """A mask: filled squares are visible keys, hatched ones hidden.

    `sizes` are B, H, T, S of the attention map; default: the smallest that the mask fits, 8 queries and keys if any.

    >>> from softlook import masks
    >>> mask_figure(masks.causal() & masks.window(2)).numbers["visible"].sum()
    tensor(21)
    """
    sizes = sizes or fitting_sizes(mask)
    visible = mask.to_dense(sizes).expand(sizes).cpu()
    parts = [_grid(one[0], f"sequence {n}" if sizes[0] > 1 else "") for n, one in enumerate(visible[:SHOWN])]
    share = float(visible.double().mean())
    return Figure(
        visible_label(str(mask)),
        f"A mask of {sizes[2]} queries (rows) and {sizes[3]} keys (columns): {share:.0%} of the pairs are visible.",
        row(*parts, gap=24, align="start"),
        {"visible": visible},
        subtitle="Rows are queries, columns are keys. Filled: visible. Hatched: hidden.",
    )


def fitting_sizes(mask: Mask) -> Sizes:
    """B, H, T, S of a map that a mask fits: 8 keys if possible, as many queries as keys.

    >>> from softlook import masks
    >>> fitting_sizes(masks.causal()), fitting_sizes(masks.padding([2, 3]))
    ((1, 1, 8, 8), (2, 1, 8, 8))
    """
    for keys in (USUAL, *range(1, MAX_KEYS + 1)):
        for batch in range(1, MAX_BATCH + 1):
            sizes = (batch, 1, keys, keys)
            try:
                mask.validate(sizes)
            except MaskError:
                continue
            return sizes
    raise MaskError(f"{mask} fits no square map of at most {MAX_KEYS} keys: name its sizes=(B, H, T, S)")


def look_figure(look: Look, *, sequence: int = 0) -> Figure:
    """The statistics of a look as strips: a row for each head, a column for each query or key.

    >>> import torch
    >>> from softlook import look
    >>> look_figure(look(*torch.randn(2, 1, 4, 100, 8)))
    Figure('Look(lse 1x4x100, entropy 1x4x100, max_weight 1x4x100, received 1x4x100)', ...)
    """
    strips, numbers = [], {}
    for name, values in look.values.items():
        if name not in PER_QUERY + PER_KEY or values.ndim != 3:
            continue
        numbers[name] = values[sequence]
        strips.append(_strip(name, values[sequence]))
    ranges = [f"{name} from {float(one.min()):.3g} to {float(one.max()):.3g}" for name, one in numbers.items()]
    return Figure(
        repr(look),
        f"Statistics of an attention map: {'; '.join(ranges)}.",
        column(*strips, gap=14),
        numbers,
        subtitle="Rows are heads; columns are queries, or keys for received weights.",
    )


def trace_figure(trace: Trace) -> Figure:
    """The layers of a trace, and the shapes of what it recorded in each.

    >>> import torch
    >>> from softlook.lens import trace
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> with torch.no_grad(), trace(model) as recorded:
    ...     logits = model(torch.tensor([[3, 1, 4]]))
    >>> trace_figure(recorded).numbers["layers"]
    [('blocks.0.attn', 1, 4, 3, 3), ('blocks.1.attn', 1, 4, 3, 3)]
    """
    layers = []
    for path, layer in trace.items():
        queries, keys = sum(call.query.shape[2] for call in layer.calls), max(call.key.shape[2] for call in layer.calls)
        layers.append((path, len(layer.calls), layer.calls[0].query.shape[1], queries, keys))
    shown = layers[:MAX_LAYERS]
    columns = [
        column(
            label(name, "soft", size=SMALL),
            *(
                label(visible_label(str(one[n])), ("ink", "soft", "weight-ink", "query-ink", "key-ink")[n], mono=True)
                for one in shown
            ),
            gap=2,
            align="start" if n == 0 else "end",
        )
        for n, (name, color) in enumerate(TRACE_COLUMNS.items())
    ]
    rest = f" and {len(layers) - MAX_LAYERS} more" if len(layers) > MAX_LAYERS else ""
    residual = [tuple(stream.shape) for stream in trace.residual.values()]
    return Figure(
        f"Trace of {len(layers)} attention layers",
        "A table of the recorded layers with their heads, queries and keys: "
        + ", ".join(one[0] for one in shown[:8])
        + f"{rest}.",
        row(*columns, gap=34, align="start"),
        {"layers": layers, "residual": residual},
        subtitle=f"Residual stream after {len(residual)} blocks." if residual else "",
        caption=rest.strip(),
    )


def _grid(visible: Tensor, name: str) -> Picture:
    """Visible and hidden pairs of one sequence."""
    count = max(visible.shape)
    side = 24.0 if count <= 12 else 14.0 if count <= 32 else 8.0
    numbers = [str(n) for n in range(count)] if count <= 12 else []
    squares = matrix(
        visible.double(),
        "weight",
        maximum=1.25,
        side=side,
        rows=numbers[: len(visible)],
        columns=numbers[: visible.shape[1]],
        row_color="query-ink",
        column_color="key-ink",
        hidden=~visible,
        name="visible",
    )
    squares = Picture(squares.width, squares.height, squares.marks)  # visible or not needs no scale
    return column(label(name, bold=True), squares, gap=4) if name else squares


def _strip(name: str, values: Tensor) -> Picture:
    """One statistic: a row for each head."""
    finite = values.double().nan_to_num(0.0, 0.0, 0.0)
    low, high = float(finite.min()), float(finite.max())
    height = max(10.0, min(18.0, 160 / len(values))) * len(values)
    strip = heatmap(finite - low, maximum=(high - low) or 1.0, width=WIDTH, height=height, name=name)
    words = f"{name.replace('_', ' ')}: {low:.3g} (pale) to {high:.3g}"
    return column(label(words, "ink", size=SMALL), Picture(strip.width, strip.height, strip.marks), gap=4)


FIGURES: dict[type, Callable[[Any], Figure]] = {Mask: mask_figure, Look: look_figure, Trace: trace_figure}
"""The figure of each class."""
