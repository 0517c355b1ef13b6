"""Pictures of positions: learned, sinusoidal, rotary, ALiBi, and positions lost without residuals."""

import torch
from torch import Tensor, nn

from softlook.blocks.attention import SelfAttention
from softlook.embed.positions import LearnedPositions
from softlook.lens.figures.charts import Curve, line_chart, make_axis
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery.inputs import random, seed
from softlook.lens.figures.matrix import matrix
from softlook.lens.figures.picture import column, label, paragraph, row
from softlook.lens.figures.tokens import SIZES
from softlook.ops.attention import attention_scores
from softlook.ops.positions import alibi, rotary, rotary_angles, sinusoidal

SMALL = SIZES["small"]
COUNT, DIM, THETA = 16, 16, 100.0


def position_encodings() -> Figure:
    """Four ways to tell positions: learned and sinusoidal vectors, rotary queries and keys, ALiBi's bias."""
    with seed(7):
        learned = LearnedPositions(COUNT, DIM)(torch.arange(COUNT)).detach()
    waves = sinusoidal(COUNT, DIM, theta=THETA)
    one = random(1, 1, 1, DIM, number=4).expand(1, 1, COUNT, DIM)
    angles = rotary_angles(COUNT, DIM, theta=THETA)
    turned = attention_scores(rotary(one, angles), rotary(one, angles))[0, 0]
    zeros = torch.zeros(1, 1, COUNT, DIM)
    slopes = attention_scores(zeros, zeros, bias=alibi(torch.tensor([0.25])))[0, 0]
    side = 10.0
    panels = (
        (
            "learned",
            "input",
            learned,
            "a vector for each position, from training; here untrained",
            "position ↓  feature →",
        ),
        (
            "sinusoidal",
            "input",
            waves,
            "sines and cosines of growing wavelengths, for any length",
            "position ↓  feature →",
        ),
        (
            "rotary",
            "weight",
            turned,
            "q and k turn with their position: scores depend on the distance",
            "query ↓  key →",
        ),
        ("ALiBi", "weight", slopes, "minus a slope times the distance, added to the scores", "query ↓  key →"),
    )
    drawn = [
        column(
            label(name, bold=True),
            label(axes, "soft", size=SMALL),
            matrix(values, color, side=side, name=name),
            paragraph(words, 164, size=SMALL),
            gap=6,
        )
        for name, color, values, words, axes in panels
    ]
    return Figure(
        "Four ways to tell positions",
        f"Four heat maps of {COUNT} positions. Learned vectors look random before training; sinusoidal ones show waves "
        "that grow longer from left to right; rotary scores and ALiBi's bias are constant along diagonals.",
        row(*drawn, gap=16, align="start"),
        {name: values for name, _, values, _, _ in panels},
        subtitle="The first two are added to the inputs, rotary turns queries and keys, ALiBi is added to the scores.",
        caption=f"Base of the wavelengths: {THETA:g} here, so that they fit {COUNT} positions; 10,000 by default.",
    )


LAYERS, LENGTH, SENTENCES, WIDTH, TOKEN_SIZE = 6, 16, 192, 32, 0.25


def positions_without_residuals() -> Figure:
    """How well the position of a token can be read from its hidden state, with and without residual connections."""
    accuracy = {name: _probe(residual) for name, residual in (("with residuals", True), ("without residuals", False))}
    layers = list(range(LAYERS + 1))
    chart = line_chart(
        {
            name: Curve(layers, values, color, dots=True)
            for (name, values), color in zip(accuracy.items(), ("query", "key"), strict=True)
        }
        | {"chance": Curve([0, LAYERS], [1 / LENGTH] * 2, "soft", "2 4")},
        x_axis=make_axis(layers, ticks=tuple(layers)),
        y_axis=make_axis([0, 1], ticks=(0, 0.25, 0.5, 0.75, 1)),
        x_label="attention layers",
        y_label="positions recognized",
        width=380,
        height=220,
    )
    return Figure(
        "Without residuals, positions are lost",
        "A chart of how many positions a linear map recognizes from the hidden states after each layer: with residual "
        f"connections {accuracy['with residuals'][-1]:.0%} after {LAYERS} layers, without them "
        f"{accuracy['without residuals'][1]:.0%} after one layer and {accuracy['without residuals'][-1]:.0%} at the "
        "end.",
        chart,
        {"accuracy": accuracy, "chance": 1 / LENGTH},
        subtitle="Attention averages: without the path around it, the positions that were added at the input vanish.",
        caption=f"Untrained self-attention of width {WIDTH} with layer norm; random tokens of size {TOKEN_SIZE} "
        "plus sinusoidal positions; a linear "
        f"classifier of {LENGTH} positions fitted by least squares on {SENTENCES} sentences, measured on as many "
        "others.",
    )


def _probe(residual: bool) -> list[float]:
    """The accuracy of a linear classifier of positions, before and after each layer."""
    with seed(5):
        layers = [SelfAttention(WIDTH, heads=4) for _ in range(LAYERS)]
    norm = nn.LayerNorm(WIDTH, elementwise_affine=False)
    x = TOKEN_SIZE * random(2 * SENTENCES, LENGTH, WIDTH, number=8) + sinusoidal(LENGTH, WIDTH)
    found = [_accuracy(x)]
    with torch.no_grad():
        for layer in layers:
            x = norm(x + layer(x)) if residual else norm(layer(x))
            found.append(_accuracy(x))
    return found


def _accuracy(x: Tensor) -> float:
    """Positions that are recognized in the second half, by a linear map fitted on the first half."""
    ones = torch.ones(*x.shape[:2], 1)
    states = torch.cat([x, ones], -1).double()
    targets = torch.eye(LENGTH).double().expand(SENTENCES, -1, -1)
    fit, test = states[:SENTENCES].flatten(0, 1), states[SENTENCES:].flatten(0, 1)
    gram = fit.T @ fit + 1e-3 * torch.eye(fit.shape[1]).double()
    weight = torch.linalg.solve(gram, fit.T @ targets.flatten(0, 1))
    return float(((test @ weight).argmax(-1) == torch.arange(LENGTH).repeat(SENTENCES)).double().mean())
