"""Pictures of the matrix form: projections in parallel, matrix attention, temperature, and why √d."""

import torch
from torch import Tensor, nn

from softlook.lens.figures.charts import Curve, bars, line_chart, make_axis
from softlook.lens.figures.color import Color
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery.inputs import random, seed
from softlook.lens.figures.graph import arrow
from softlook.lens.figures.matrix import block, matrix
from softlook.lens.figures.picture import Picture, column, label, over, row, under
from softlook.lens.figures.shapes import Rect
from softlook.ops.attention import attention, attention_scores, attention_weights

PIXELS = 16
"""Side of the image."""


def pixel_projection() -> Figure:
    """All pixels of an image pass through the same matrices at once."""
    image = _image()
    with seed(2):
        projections = [nn.Linear(3, 1, bias=False) for _ in range(3)]
    x = image.view(-1, 3) - 0.5
    maps = [layer(x).detach().view(PIXELS, PIXELS) for layer in projections]
    side, parts = 9.0, []
    for letter, color, layer, values in zip("QKV", ("query", "key", "value"), projections, maps, strict=True):
        weight = block(matrix(layer.weight.detach().T, color, side=18), "W", color, sup=letter)
        line = Picture(54, 12, arrow((0, 6), (54, 6)).marks)
        parts.append(
            row(weight, line, matrix(values, color, side=7.5, name=letter), label(letter, f"{color}-ink", bold=True))
        )
    rows = [("R", 0), ("G", 1), ("B", 2)]
    channels = ", ".join(name for name, _ in rows)
    source = column(
        over(_pixels(image, side), f"{PIXELS} × {PIXELS} pixels", "input-ink"),
        label(f"a set of {PIXELS**2} elements", "soft"),
        label(f"with 3 features: {channels}", "soft"),
        gap=4,
        align="middle",
    )
    return Figure(
        "Every pixel through the same matrices, in parallel",
        f"An image of {PIXELS} by {PIXELS} pixels is a set of {PIXELS**2} elements with three features. Three "
        "matrices, each 3 by 1, turn every pixel into a query, a key and a value.",
        row(source, Picture(40, 12, arrow((0, 6), (40, 6)).marks), column(*parts, gap=14), gap=20),
        {
            "image": image,
            "weights": torch.stack([layer.weight.detach() for layer in projections]),
            "maps": torch.stack(maps),
        },
        subtitle="One set of parameters whatever the size of the image: a larger image only has more elements.",
    )


def _image() -> Tensor:
    """A red disc in front of a sky and a meadow."""
    line = torch.linspace(-1, 1, PIXELS)
    y, x = torch.meshgrid(line, line, indexing="ij")
    sky = torch.stack([0.45 + 0.3 * y, 0.65 + 0.2 * y, torch.full_like(y, 0.95)], -1)
    meadow = torch.stack([0.25 + 0.1 * x, 0.62 - 0.12 * y, torch.full_like(y, 0.3)], -1)
    disc = torch.tensor([0.86, 0.24, 0.2]).expand_as(sky)
    image = torch.where((y > 0.35)[..., None], meadow, sky)
    return torch.where(((x + 0.1) ** 2 + (y - 0.05) ** 2 < 0.22)[..., None], disc, image).clamp(0, 1)


def _pixels(image: Tensor, side: float) -> Picture:
    marks = []
    for i, pixels in enumerate((image * 255).round().int().tolist()):
        for j, (red, green, blue) in enumerate(pixels):
            code = f"{red:02x}{green:02x}{blue:02x}"
            color = Color(f"rgb-{code}", f"#{code}", f"#{code}")
            marks.append(Rect(x=j * side, y=i * side, width=side - 0.8, height=side - 0.8, fill=color))
    return Picture(side * image.shape[1], side * image.shape[0], tuple(marks))


def matrix_attention() -> Figure:
    """QKᵀ, softmax and V: all outputs at once."""
    query, key, value = random(3, 5, 4, number=8)
    batch = [one[None, None] for one in (query, key, value)]
    scores = attention_scores(*batch[:2])[0, 0]
    weights = attention_weights(*batch[:2])[0, 0]
    output = attention(*batch)[0, 0]
    side, big = 20.0, 36.0
    first = row(
        block(matrix(query, "query", side=side), "Q", "query", shape="5 × 4"),
        label("×"),
        block(matrix(key.T, "key", side=side), "K", "key", sup="T", shape="4 × 5"),
        label("/ √4  ="),
        block(matrix(scores, "weight", side=big, digits=1), "S", "weight", shape="5 × 5", name="scores"),
        gap=14,
    )
    second = row(
        block(
            matrix(weights, "weight", maximum=1.0, side=big, digits=2),
            "A",
            "weight",
            shape="5 × 5, rows sum to 1",
            name="weights",
        ),
        label("×"),
        block(matrix(value, "value", side=side), "V", "value", shape="5 × 4"),
        label("="),
        block(matrix(output, "output", side=side), "Y", "output", shape="5 × 4"),
        gap=14,
    )
    step = row(Picture(12, 34, arrow((6, 0), (6, 34)).marks), label("softmax of each row", "weight-ink"), gap=8)
    return Figure(
        "Attention as three matrix operations",
        "Queries times transposed keys give a five by five matrix of scores, divided by two. A softmax turns each row "
        "into weights that sum to one. Weights times values give the outputs.",
        column(first, step, second, gap=10, align="middle"),
        {"Q": query, "K": key, "V": value, "scores": scores, "weights": weights, "Y": output},
        subtitle="Y = softmax(QKᵀ / √d) V. Row i of A holds the weights of query i over all keys.",
    )


SCORES = torch.tensor([2.0, 1.0, 0.5, -1.0])
TEMPERATURES = (0.25, 1.0, 4.0)


def softmax_temperature() -> Figure:
    """The softmax of the same scores at three temperatures."""
    query, keys = torch.ones(1, 1, 1, 1), SCORES.view(1, 1, -1, 1)
    weights = torch.stack([attention_weights(query, keys, scale=1 / t)[0, 0, 0] for t in TEMPERATURES])
    names = [f"k{n}" for n in "₁₂₃₄"]
    charts = [over(bars(SCORES.tolist(), names, "key", maximum=4.0, width=38, digits=1), "scores s", "key-ink")]
    for t, row_of_weights in zip(TEMPERATURES, weights, strict=True):
        chart = bars(row_of_weights.tolist(), names, "weight", maximum=1.0, width=38)
        charts.append(under(over(chart, f"τ = {t:g}", "weight-ink"), f"sum {row_of_weights.sum():.2f}"))
    return Figure(
        "Softmax and temperature",
        "Four scores, and their softmax at the temperatures 0.25, 1 and 4: nearly all weight on the largest score, a "
        "mixture, and nearly equal weights.",
        row(*charts, gap=34, align="start"),
        {"scores": SCORES, "temperatures": list(TEMPERATURES), "weights": weights},
        subtitle="wᵢ = exp(sᵢ/τ) / Σⱼ exp(sⱼ/τ). A low temperature selects, a high one averages; ties stay ties.",
    )


WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
SAMPLES, KEYS = 512, 16


def why_sqrt_d() -> Figure:
    """Measured: the variance of q·k and the slope of the softmax, against the width."""
    variances: dict[str, list[float]] = {"q·k": [], "q·k / √d": []}
    slopes: dict[str, list[float]] = {name: [] for name in variances}
    for width in WIDTHS:
        query, key = random(1, SAMPLES, 1, width, number=width), random(1, SAMPLES, KEYS, width, number=width + 1)
        for name, scale in (("q·k", 1.0), ("q·k / √d", width**-0.5)):
            scores = attention_scores(query, key, scale=scale)[0, :, 0]
            variances[name].append(float(scores.var()))
            slopes[name].append(_slope(scores))
    styles = {"q·k": "key", "q·k / √d": "query"}
    x_axis = make_axis(WIDTHS, log=True, ticks=(4, 16, 64, 256, 1024))
    charts = [
        line_chart(
            {name: Curve(WIDTHS, values, styles[name], dots=True) for name, values in lines.items()},
            x_axis=x_axis,
            y_axis=make_axis([y for values in lines.values() for y in values], log=True),
            x_label="width d",
            y_label=title,
            width=220,
            height=190,
        )
        for title, lines in (("variance of the scores", variances), ("slope of the softmax", slopes))
    ]
    return Figure(
        "Why scores are divided by √d",
        f"Left: the variance of q·k grows like d, from {variances['q·k'][0]:.1f} at width 4 to "
        f"{variances['q·k'][-1]:.0f} at width 1024; divided by √d it stays near 1. Right: the slope of the softmax "
        f"falls from {slopes['q·k'][0]:.2f} to {slopes['q·k'][-1]:.3f} without the division, and stays at "
        f"{slopes['q·k / √d'][-1]:.2f} with it.",
        row(*charts, gap=30),
        {"widths": list(WIDTHS), "variance": variances, "slope": slopes},
        subtitle="Large scores push the softmax to where its slope is zero, and then nothing is learned.",
        caption=f"Means over {SAMPLES} queries and {KEYS} keys of standard normal numbers. The slope is the "
        "Frobenius norm "
        "of the Jacobian of the softmax, by automatic differentiation.",
    )


def _slope(scores: Tensor) -> float:
    """The mean Frobenius norm of the Jacobian of the softmax."""
    jacobian = torch.func.vmap(torch.func.jacrev(lambda one: one.softmax(-1)))(scores)
    return float(jacobian.flatten(1).norm(dim=1).mean())
