"""Pictures of heads: several heads as matrix products, permutation, the causal mask."""

import torch
from torch import Tensor

from softlook.blocks.attention import AttentionCore, SelfAttention
from softlook.lens.figures.charts import scientific
from softlook.lens.figures.color import role
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery.inputs import SUSAN, random, seed
from softlook.lens.figures.matrix import attention_map, block, matrix, vector
from softlook.lens.figures.picture import Picture, column, label, overlay, row, space
from softlook.lens.figures.shapes import Path
from softlook.lens.figures.tokens import SIZES
from softlook.ops import masks
from softlook.ops.attention import attention_weights, self_attention
from softlook.ops.permutation import equivariance_gap, permute
from softlook.ops.positions import sinusoidal

SMALL = SIZES["small"]
HEADS, DIM = 2, 6


def multi_head() -> Figure:
    """Multi-head attention as matrix multiplication: cut, attend, concatenate, multiply."""
    with seed(4):
        core = AttentionCore()
        layer = SelfAttention(DIM, heads=HEADS, qkv_bias=False, core=core)
    x = random(1, 5, DIM, number=6)
    with torch.no_grad():
        query, (key, value) = layer.project_q(x), layer.project_kv(x)
        heads = core(query, key, value)
        weights = core.weights(query, key)
        output = layer(x)[0]
    joined = heads.transpose(1, 2).flatten(2)[0]
    side, inputs = 15.0, x[0]
    linears = (
        ("Q", "query", layer.to_query, query),
        ("K", "key", layer.to_key, key),
        ("V", "value", layer.to_value, value),
    )
    projections = [
        block(_strips(matrix(linear.weight.detach().T, color, side=side), side), "W", color, sup=letter)
        for letter, color, linear, _ in linears
    ]
    results = [
        block(_strips(matrix(_merged(values), color, side=side), side), letter, color)
        for letter, color, _, values in linears
    ]
    first = row(
        block(matrix(inputs, "input", side=side), "X", "input"),
        label("×"),
        row(*projections, gap=6),
        label("="),
        row(*results, gap=6),
        gap=10,
    )
    heads_row = row(*(_head(weights[0, n], value[0, n], heads[0, n], "₁₂"[n], side) for n in range(HEADS)), gap=44)
    last = row(
        block(_strips(matrix(joined, "output", side=side), side), "[Z₁ Z₂]", "output"),
        label("×"),
        block(
            _strips(matrix(layer.to_out.weight.detach().T, "weight", side=side), side, rows=True),
            "W",
            "weight",
            sup="O",
        ),
        label("="),
        block(matrix(output, "output", side=side), "Y", "output"),
        gap=12,
    )
    titles = (
        "1  One multiplication; its columns are cut into heads",
        "2  Each head attends by itself, in parallel",
        "3  The heads side by side, times W of the output",
    )
    picture = column(
        *(column(label(t, bold=True), part, gap=8) for t, part in zip(titles, (first, heads_row, last), strict=True)),
        gap=24,
    )
    return Figure(
        "Multi-head attention as matrix multiplication",
        "Five inputs with six features are multiplied by three matrices, whose columns are cut into two heads. Each "
        "head computes its own attention. Their outputs side by side, times a last matrix, are the output.",
        picture,
        {
            "X": inputs,
            "weights": weights[0],
            "heads": heads[0],
            "joined": joined,
            "Y": output,
            "W": layer.to_out.weight.detach(),
        },
        subtitle="Two heads of width 3 have as many parameters as one of width 6. Dashed: the cut between them.",
    )


def _head(weights: Tensor, value: Tensor, output: Tensor, index: str, side: float) -> Picture:
    """The attention of one head."""
    return row(
        block(matrix(weights, "weight", maximum=1.0, side=side), f"A{index}", "weight"),
        label("×"),
        block(matrix(value, "value", side=side), f"V{index}", "value"),
        label("="),
        block(matrix(output, "output", side=side), f"Z{index}", "output"),
        gap=12,
    )


def _merged(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)[0]


def _strips(picture: Picture, side: float, *, rows: bool = False) -> Picture:
    """A matrix with a dashed line between the heads."""
    middle = DIM // HEADS * side
    ends = ((-4.0, middle), (picture.width + 4, middle)) if rows else ((middle, -4.0), (middle, picture.height + 4))
    return overlay(
        picture, Picture(0, 0, (Path(commands=(("M", ends[0]), ("L", ends[1])), stroke=role("ink"), dash="3 2"),))
    )


def permutation() -> Figure:
    """ "Susan gave roses to Mary" and "Mary gave roses to Susan", without and with positions."""
    words = random(1, 5, 6, number=21) * 0.5
    swapped = torch.tensor([4, 1, 2, 3, 0])
    positions = sinusoidal(5, 6)
    orders = (torch.arange(5), swapped)

    def with_positions(x: Tensor) -> Tensor:
        return self_attention(x + positions)

    gaps = {
        "without positions": equivariance_gap(self_attention, words, swapped),
        "with positions": equivariance_gap(with_positions, words, swapped),
    }
    rows, numbers = [], {"words": words[0], "gaps": gaps}
    for name, function, added in (
        ("without positions", self_attention, 0.0),
        ("with positions", with_positions, positions),
    ):
        maps, outputs = [], []
        for order in orders:
            x = permute(words, order) + added
            tokens = [SUSAN[n] for n in order.tolist()]
            maps.append(
                attention_map(attention_weights(x[:, None], x[:, None], scale=1.0)[0, 0], tokens, tokens, side=20)
            )
            outputs.append(function(permute(words, order))[0, 1])
        numbers[name] = torch.stack(outputs)
        change = float((outputs[0] - outputs[1]).abs().max())
        compared = column(
            label("output of “gave”", "soft", size=SMALL),
            *(vector(one, "output", maximum=2.0, side=20) for one in outputs),
            label("equal" if change < 1e-5 else "different", "output-ink", bold=True),
            label(f"largest difference {scientific(change)}", "soft", size=SMALL),
            gap=6,
        )
        rows.append(column(label(name, bold=True), row(*maps, compared, gap=26, align="end"), gap=4))
    return Figure(
        "The order of the words does not matter, until positions are added",
        "Attention maps of “Susan gave roses to Mary” and “Mary gave roses to Susan”. Without positions the second map "
        "is the first with its rows and columns swapped, and the output of “gave” is the same. With positions it "
        "differs.",
        column(*rows, gap=22),
        numbers,
        subtitle="Permuting the inputs permutes rows and columns of the map, and the outputs with them.",
        caption="Largest difference between permuting before and after attention: "
        f"{scientific(gaps['without positions'])} without "
        f"positions, {gaps['with positions']:.2f} with them (softlook.ops.permutation.equivariance_gap).",
    )


def causal_mask() -> Figure:
    """The causal mask: all positions at once in training, one by one in generation."""
    tokens = ("Susan", "gave", "roses", "to", "Mary")
    query, key = random(2, 1, 1, 5, 8, number=9)
    mask = masks.causal()
    weights = attention_weights(query, key, mask=mask)[0, 0]
    hidden = ~mask.to_dense((1, 1, 5, 5))[0, 0]
    side, rows, marks = 26.0, [], []
    training = attention_map(weights, tokens, tokens, hidden=hidden, side=side)
    top = training.height - 5 * side
    for count, target in enumerate((*tokens[1:], "."), start=1):
        step = attention_weights(query[:, :, count - 1 : count], key[:, :, :count], mask=mask)[0, 0]
        rows.append(torch.nn.functional.pad(step[0], (0, 5 - count)))
        squares = matrix(step, "weight", maximum=1.0, side=side, name="weight")
        marks += [
            squares.at(0, top + (count - 1) * side),
            _target(target, side).at(5 * side + 10, top + (count - 1) * side),
        ]
    generated = torch.stack(rows)
    targets = column(*(_target(word, side) for word in (*tokens[1:], ".")), gap=0)
    left = column(
        label("Training: every position at once", bold=True), row(training, targets, gap=0, align="end"), gap=8
    )
    head = label("key →", "key-ink", size=SMALL).at(0, top - 24)
    right = column(label("Generation: one position at a time", bold=True), overlay(head, *marks), gap=8)
    return Figure(
        "The causal mask in training and in generation",
        "Left, a lower triangular attention map of five words: the upper triangle is hidden, and each row predicts the "
        "next word. Right, the same rows, computed one after the other while the sentence grows.",
        row(left, right, gap=60, align="end"),
        {"training": weights, "generation": generated, "hidden": hidden},
        subtitle="A query sees itself and the words before it. Both ways give the same weights.",
        caption=f"Largest difference between the two: {scientific(float((weights - generated).abs().max()))}.",
    )


def _target(word: str, height: float) -> Picture:
    """The word that a row predicts."""
    words = row(label("→", "soft"), label(word, "output-ink", mono=True), gap=6)
    return row(space(0, height), words, gap=0)
