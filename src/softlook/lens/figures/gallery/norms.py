"""Pictures of gradients and statistics: which cells a norm shares, and what passes through the softmax."""

import torch
from torch import Tensor, nn

from softlook.lens.figures.charts import Curve, line_chart, make_axis
from softlook.lens.figures.color import role, tint
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery.inputs import random
from softlook.lens.figures.graph import arrow, box
from softlook.lens.figures.picture import Picture, column, label, overlay, row
from softlook.lens.figures.shapes import Mark, Rect
from softlook.lens.figures.tokens import SIZES
from softlook.ops.attention import attention

SMALL = SIZES["small"]
BATCH, FEATURES, POSITIONS = 3, 4, 5


def norm_axes() -> Figure:
    """Layer, batch and instance norm: the cells whose statistics normalize one cell."""
    norms = {
        "layer norm": lambda x: nn.LayerNorm(FEATURES)(x.mT).mT,
        "batch norm": nn.BatchNorm1d(FEATURES),
        "instance norm": nn.InstanceNorm1d(FEATURES),
    }
    x, shared = random(BATCH, FEATURES, POSITIONS, number=1), {}
    for name, norm in norms.items():
        grad = torch.autograd.functional.jacobian(lambda one, norm=norm: norm(one)[0, 1, 2], x)
        shared[name] = torch.as_tensor(grad) != 0
    texts = {
        "layer norm": "the features of one position",
        "batch norm": "one feature of all examples",
        "instance norm": "one feature of one example",
    }
    drawings = [
        column(
            label(name, bold=True),
            _slices(cells),
            label(texts[name], "soft"),
            label(f"{int(cells.sum())} cells share mean and variance", "soft", size=SMALL),
            gap=10,
            align="middle",
        )
        for name, cells in shared.items()
    ]
    return Figure(
        "Layer, batch and instance norm",
        "Three stacks of cells: examples behind one another, features in rows, positions in columns. Colored are the "
        "cells that take part in normalizing the framed cell: a column of one example; a row of all examples; a row of "
        "one example.",
        row(*drawings, gap=34),
        dict(shared.items()),
        subtitle="Colored: the cells that influence the framed one, by the gradient of the norm.",
        caption=f"{BATCH} examples, {FEATURES} features (rows), {POSITIONS} positions (columns). Layer norm needs no "
        "other "
        "example and no other position: that is why sequence models use it.",
    )


def _slices(cells: Tensor) -> Picture:
    """The examples of a batch, one behind the other."""
    side, shift, marks = 26.0, 30.0, []
    for index in reversed(range(BATCH)):
        x, y = shift * index, shift * (BATCH - 1 - index) * 0.8
        marks.append(
            Rect(
                x=x - 3,
                y=y - 3,
                width=side * POSITIONS + 6,
                height=side * FEATURES + 6,
                radius=4,
                fill=role("paper"),
                stroke=role("line"),
            )
        )
        for feature in range(FEATURES):
            for position in range(POSITIONS):
                marks.append(
                    _cell(x + position * side, y + feature * side, side, bool(cells[index, feature, position]))
                )
    y = shift * (BATCH - 1) * 0.8
    marks.append(Rect(x=2 * side, y=y + side, width=side, height=side, radius=3, stroke=role("ink"), stroke_width=2.5))
    return Picture(side * POSITIONS + shift * (BATCH - 1) + 3, side * FEATURES + y + 3, tuple(marks)).at(3, 3)


def _cell(x: float, y: float, side: float, is_shared: bool) -> Mark:
    fill = tint("query", 0.75) if is_shared else tint("input", 0.12)
    return Rect(x=x + 1, y=y + 1, width=side - 2, height=side - 2, radius=3, fill=fill)


SHARPNESS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)


def gradient_flow() -> Figure:
    """Gradients through values and through scores, against the sharpness of the softmax."""
    norms: dict[str, list[float]] = {"values": [], "scores": []}
    for sharpness in SHARPNESS:
        query, key, value = random(3, 8, 4, 16, 16, number=30)
        value, added = (
            value.requires_grad_(),
            torch.zeros(8, 4, 16, 16, requires_grad=True),
        )  # its gradient is the scores'
        output = attention(query, key, value, bias=added, scale=sharpness / 4)
        gradients = torch.autograd.grad((output * random(8, 4, 16, 16, number=31)).sum(), (value, added))
        for name, one in zip(norms, gradients, strict=True):
            norms[name].append(float(one.norm()))
    colors = {"values": "value", "scores": "weight"}
    chart = line_chart(
        {name: Curve(SHARPNESS, values, colors[name], dots=True) for name, values in norms.items()},
        x_axis=make_axis(SHARPNESS, log=True, ticks=(0.25, 1, 4, 32)),
        y_axis=make_axis([y for ys in norms.values() for y in ys], zero=True),
        x_label="size of the scores (1: standard normal)",
        y_label="norm of the gradient",
        width=240,
        height=220,
    )
    return Figure(
        "Values have a linear path, scores pass the softmax",
        "Left, the path of the gradient: from the output straight to the values, and through the softmax to the "
        "scores. "
        f"Right, measured: as the scores grow, the gradient of the values grows from {norms['values'][0]:.0f} to "
        f"{norms['values'][-1]:.0f}; that of the scores is largest at {max(norms['scores']):.0f} and falls to "
        f"{norms['scores'][-1]:.0f}.",
        row(_paths(), chart, gap=40),
        {"sharpness": list(SHARPNESS), "norms": norms},
        subtitle="Y = A V is linear in V. The gradient of the scores is multiplied by the slope of the softmax.",
        caption="Norms by automatic differentiation: 8 examples, 4 heads, 16 positions, width 16, random inputs and "
        "a random "
        "gradient of the output.",
    )


def _paths() -> Picture:
    """The graph of attention with the two paths of the gradient."""
    q, k, v = (
        box(letter, color, width=44).at(x, 220)
        for letter, color, x in (("Q", "query", 0), ("K", "key", 70), ("V", "value", 190))
    )
    parts = [
        q,
        k,
        v,
        box("Q Kᵀ / √d", "weight", width=114).at(0, 150),
        box("softmax", "weight", width=114).at(0, 80),
        box("A V", "output", width=234).at(0, 10),
        arrow((22, 218), (22, 186)),
        arrow((92, 218), (92, 186)),
        arrow((57, 148), (57, 116)),
        arrow((57, 78), (57, 46)),
        arrow((212, 218), (212, 46), "value", width=3),
        label("linear", "value-ink", bold=True).at(218, 124),
        label("scores S", "weight-ink", size=SMALL).at(64, 124),
        label("weights A", "weight-ink", size=SMALL).at(64, 54),
        arrow((117, 8), (117, -22)),
        label("Y", "output-ink", bold=True).at(124, -24),
    ]
    return overlay(*parts).at(0, 26).sized(270, 282)
