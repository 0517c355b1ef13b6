"""Pictures of what attention contains: a fully connected layer and a convolution."""

import torch
from torch import Tensor, nn

from softlook.blocks.equivalences import attention_from_convolution, attention_from_linear
from softlook.lens.figures.charts import scientific
from softlook.lens.figures.color import tint
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery.inputs import random, seed
from softlook.lens.figures.graph import arrow
from softlook.lens.figures.matrix import attention_map, block, matrix, vector
from softlook.lens.figures.picture import Picture, column, label, overlay, row
from softlook.lens.figures.shapes import Circle
from softlook.lens.figures.tokens import SIZES
from softlook.lens.trace import attention_maps

SMALL = SIZES["small"]


def fully_connected() -> Figure:
    """A fully connected layer as attention with one head for each input."""
    with seed(3):
        linear = nn.Linear(4, 3, bias=False)
        layer = attention_from_linear(linear)
    x = torch.tensor([[0.9, -0.5, 0.3, 0.7]])
    (maps,) = attention_maps(layer, x).values()
    heads = maps[0, :, 0]
    with torch.no_grad():
        plain, attended = linear(x)[0], layer(x)[0]
    weight = linear.weight.detach()
    names = [f"x{n}" for n in "₁₂₃₄"]
    left = column(label("A fully connected layer", bold=True), _bipartite(x[0], weight, plain), gap=12)
    product = row(
        block(
            matrix(
                heads,
                "weight",
                maximum=1.0,
                side=24,
                rows=[f"head {n}" for n in range(4)],
                columns=names,
                column_color="key-ink",
            ),
            "A",
            "weight",
        ),
        label("×"),
        block(vector(x[0], "input", vertical=True, side=24), "V = X", "value"),
        label("="),
        block(vector(x[0], "input", vertical=True, side=24), "Z", "output"),
        gap=10,
    )
    last = row(
        block(vector(x[0], "input", side=24), "[Z₁ Z₂ Z₃ Z₄]", "output"),
        label("×"),
        block(matrix(weight.T, "weight", side=24), "W", "weight", sup="O"),
        label("="),
        block(vector(attended, "output", side=24), "Y", "output"),
        gap=10,
    )
    right = column(label("The same as attention with four heads", bold=True), product, last, gap=14)
    return Figure(
        "A fully connected layer is attention with fixed maps",
        "Left, a layer with four inputs and three outputs, its weights drawn as lines. Right, four heads: each attends "
        "to one input only, so that their outputs are the inputs, and the output projection holds the weights.",
        row(left, right, gap=40, align="start"),
        {"x": x[0], "weight": weight, "maps": heads, "linear": plain, "attention": attended},
        subtitle="One head for each input, W of the values = identity, W of the output = the weights of the layer.",
        caption="Here the maps are fixed; attention computes them from the input. Largest difference between the two "
        f"outputs: {scientific(float((plain - attended).abs().max()))} (softlook.blocks.attention_from_linear).",
    )


def _bipartite(x: Tensor, weight: Tensor, y: Tensor) -> Picture:
    """Inputs and outputs as circles, weights as lines: solid if positive, dashed if negative."""
    step, height, largest = 58.0, 170.0, float(weight.abs().max())
    parts, offset = [], step * (weight.shape[1] - weight.shape[0]) / 2
    for i, weights in enumerate(weight.tolist()):
        for j, one in enumerate(weights):
            start, stop = (20 + j * step, height + 22), (20 + offset + i * step, 46.0)
            strength = abs(one) / largest
            line = arrow(
                start,
                stop,
                tint("weight", 0.25 + 0.75 * strength),
                width=0.8 + 3 * strength,
                dash="" if one > 0 else "5 3",
                head=False,
                tooltip=f"weight {one:.3f}",
            )
            parts.append(line)
    sides = ((x, "input", "x", 0.0, height + 24), (y, "output", "y", offset, 24.0))
    for values, color, letter, left, top in sides:
        for index, value in enumerate(values.tolist()):
            center = (20 + left + index * step, top + 10)
            fill = tint(color, 0.2 + 0.5 * abs(value) / float(values.abs().max()))
            words = label(f"{letter}{'₁₂₃₄'[index]}", f"{color}-ink", bold=True)
            y_words = top + 22 if letter == "x" else top - 22
            disc = Circle(x=center[0], y=center[1], r=11, fill=fill, stroke=tint(color, 1), tooltip=f"{value:.3f}")
            parts += [Picture(0, 0, (disc,)), words.at(center[0] - words.width / 2, y_words)]
    return overlay(*parts).sized(40 + step * (weight.shape[1] - 1), height + 70)


def convolution() -> Figure:
    """A convolution as attention with one head for each offset of the kernel."""
    with seed(6):
        conv = nn.Conv1d(2, 2, kernel_size=3, padding=1, bias=False)
        layer = attention_from_convolution(conv)
    x = random(1, 2, 7, number=17)
    (maps,) = attention_maps(layer, x).values()
    with torch.no_grad():
        plain, attended = conv(x)[0], layer(x)[0]
    positions = [str(n) for n in range(7)]
    heads = [
        column(
            label(f"head {n}: offset {offset}", "weight-ink", bold=True),
            attention_map(maps[0, n], positions, positions, side=20),
            gap=4,
        )
        for n, offset in enumerate(("−1", "0", "+1"))
    ]
    side = 22.0
    kernel = layer.to_out.weight.detach()
    bottom = row(
        block(matrix(x[0], "input", side=side), "X", "input", shape="2 channels × 7 positions"),
        label("→ 3 heads →"),
        block(matrix(kernel, "weight", side=side), "W", "weight", sup="O", shape="2 × (3 offsets × 2 channels)"),
        label("→"),
        block(matrix(attended, "output", side=side), "Y", "output", shape="2 × 7"),
        gap=14,
    )
    return Figure(
        "A convolution is attention to fixed offsets",
        "Three attention maps of seven positions. In each, every query attends to one key: the one before it, itself, "
        "and the one after it. The kernel is the output projection.",
        column(row(*heads, gap=30), bottom, gap=26, align="middle"),
        {"x": x[0], "maps": maps[0], "kernel": conv.weight.detach(), "convolution": plain, "attention": attended},
        subtitle="A kernel of size 3 is three heads, each with its own offset. Beyond the ends a head returns zeros.",
        caption="Largest difference between the convolution and the attention: "
        f"{scientific(float((plain - attended).abs().max()))} (softlook.blocks.attention_from_convolution).",
    )
