"""Figures of numbers by layer and head, and of training curves."""

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor

from softlook.lens.figures.charts import Curve, line_chart, make_axis
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.matrix import matrix
from softlook.lens.figures.picture import column, grid, label
from softlook.lens.figures.text import visible_label

COLORS = ("query", "key", "value", "output", "weight", "input")
"""Colors of lines, in this order."""


def head_scores_figure(
    scores: Mapping[str, Float[Tensor, "L H"]],
    *,
    title: str = "Scores of every head",
    subtitle: str = "Rows are layers, columns are heads.",
    shared_scale: bool = False,
) -> Figure:
    """Numbers by layer and head, a grid for each kind: scores of the head table, contributions, effects of ablation.

    >>> import torch
    >>> head_scores_figure({"previous token": torch.rand(4, 6), "induction": torch.rand(4, 6)})
    Figure('Scores of every head', 760 x ...)
    """
    layers, heads = next(iter(scores.values())).shape
    side = 22.0 if heads <= 12 else 13.0
    maximum = max(float(one.abs().max()) for one in scores.values()) if shared_scale else None
    rows, columns = [f"{n}" for n in range(layers)], [f"{n}" for n in range(heads)]
    parts = [
        column(
            label(visible_label(name), bold=True),
            matrix(values, "weight", maximum=maximum, side=side, rows=rows, columns=columns, name=visible_label(name)),
            gap=2,
        )
        for name, values in scores.items()
    ]
    largest = [
        f"{name}: layer {n // heads}, head {n % heads}"
        for name, n in ((name, int(values.abs().argmax())) for name, values in scores.items())
    ]
    across = max(1, int((1000 + 24) // (max(part.width for part in parts) + 24)))
    return Figure(
        title,
        f"Grids of {layers} layers (rows) and {heads} heads (columns). Largest: {'; '.join(largest)}.",
        grid(parts, min(across, 4), gap=24),
        dict(scores),
        subtitle=subtitle,
    )


def curves_figure(
    curves: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str = "Training",
    x_label: str = "step",
    y_label: str = "loss",
    log: bool = False,
) -> Figure:
    """Training curves: points (step, value) of each line, whose name stands at its end.

    >>> curves_figure({"training": [(0, 2.0), (100, 0.5)], "validation": [(0, 2.1), (100, 0.8)]})
    Figure('Training', 760 x ...)
    """
    points = [point for line in curves.values() for point in line]
    lines = {
        visible_label(name): Curve(
            [x for x, _ in line], [y for _, y in line], COLORS[n % len(COLORS)], dash="6 3" * (n >= len(COLORS))
        )
        for n, (name, line) in enumerate(curves.items())
    }
    chart = line_chart(
        lines,
        x_axis=make_axis([x for x, _ in points]),
        y_axis=make_axis([y for _, y in points], log=log, zero=not log),
        x_label=x_label,
        y_label=y_label,
        width=480,
        height=260,
    )
    ends = ", ".join(f"{name} {line[-1][1]:.4g}" for name, line in curves.items())
    text = f"{y_label} by {x_label}. At the end: {ends}."
    return Figure(title, text, chart, {name: list(line) for name, line in curves.items()})
