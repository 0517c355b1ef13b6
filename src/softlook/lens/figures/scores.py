"""Figures of numbers by layer and head, of contributions to a logit, and of training curves."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.lens.figures.charts import Curve, bars, line_chart, make_axis
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.matrix import matrix
from softlook.lens.figures.picture import Picture, column, grid, label, row
from softlook.lens.figures.text import shorten_label, visible_label

COLORS = ("query", "key", "value", "output", "weight", "input")
"""Colors of lines, in this order."""
STRIP = 16
"""Tokens in a row."""


def head_scores_figure(
    scores: Mapping[str, Float[Tensor, "L H"]],
    *,
    title: str = "Scores of every head",
    subtitle: str = "Rows are layers, columns are heads. A hatched square has no value.",
    shared_scale: bool = False,
) -> Figure:
    """Numbers by layer and head, a grid for each kind: `HeadTable.grids`, contributions, effects of ablation.

    NaN is drawn as a hatched square; a grid of NaN only is left out.

    >>> import torch
    >>> head_scores_figure({"previous token": torch.rand(4, 6), "induction": torch.rand(4, 6)})
    Figure('Scores of every head', 760 x ...)
    """
    known = {name: values for name, values in scores.items() if not bool(values.isnan().all())}
    if not known:
        raise ValueError("head_scores_figure expects at least one grid with a number, got none")
    maximum = max(_largest(one) for one in known.values()) if shared_scale else None
    parts = [
        column(label(visible_label(name), bold=True), _head_grid(values, maximum, visible_label(name)), gap=2)
        for name, values in known.items()
    ]
    found = [
        f"{name}: layer {n // values.shape[1]}, head {n % values.shape[1]}"
        for name, values in known.items()
        for n in [int(values.abs().nan_to_num(-1).argmax())]
    ]
    layers, heads = next(iter(known.values())).shape
    across = max(1, int((1000 + 24) // (max(part.width for part in parts) + 24)))
    return Figure(
        title,
        f"Grids of {layers} layers (rows) and {heads} heads (columns). Largest: {'; '.join(found)}.",
        grid(parts, min(across, 4), gap=24),
        dict(scores),
        subtitle=subtitle,
    )


def contributions_figure(
    layers: Mapping[str, float],
    heads: Float[Tensor, "L H"],
    sources: Float[Tensor, " S"],
    *,
    tokens: Sequence[str],
    title: str = "What adds to a logit",
) -> Figure:
    """What each layer, each head and each source token adds to a logit: filled squares raise it, hollow ones lower it.

    `sources` are the sums over all heads for each of the `tokens`.

    >>> import torch
    >>> layers = {"embedding": 0.5, "blocks.0.attn": -1.0}
    >>> contributions_figure(layers, torch.randn(1, 4), torch.randn(2), tokens=["a", "b"])
    Figure('What adds to a logit', 760 x ...)
    """
    amounts = torch.tensor(list(layers.values()))
    names = [visible_label(name) for name in layers]
    left = matrix(amounts[:, None], "weight", side=34, digits=2, rows=names, name="layer")
    words = [visible_label(token) for token in tokens]
    right = [
        column(label("heads (layer ↓, head →)", bold=True), _head_grid(heads, None, "head"), gap=4),
        column(label("source tokens, through all heads", bold=True), _token_strip(sources, words), gap=4),
    ]
    order = sources.argsort(descending=True).tolist()
    return Figure(
        title,
        f"{len(layers)} parts add up to {float(amounts.sum()):.2f}, {names[int(amounts.abs().argmax())]} most of all; "
        f"of the source tokens {words[order[0]]} raises the logit most.",
        row(column(label("parts", bold=True), left, gap=4), column(*right, gap=20), gap=40, align="start"),
        {"layers": dict(layers), "heads": heads, "sources": sources},
        subtitle="Filled: raises the logit. Hollow: lowers it.",
    )


def _head_grid(values: Tensor, maximum: float | None, name: str) -> Picture:
    """A row for each layer, a column for each head."""
    layers, heads = values.shape
    side = 22.0 if heads <= 12 else 16.0
    rows, columns = [str(n) for n in range(layers)], [str(n) for n in range(heads)]
    hidden = values.isnan()
    return matrix(values, "weight", maximum=maximum, side=side, rows=rows, columns=columns, hidden=hidden, name=name)


def _token_strip(values: Tensor, words: Sequence[str]) -> Picture:
    """A square for each token, in rows of tokens."""
    largest = _largest(values) or 1.0
    parts = [values[n : n + STRIP] for n in range(0, len(values), STRIP)]
    strips = [
        matrix(part[None], "output", maximum=largest, side=24, columns=words[n * STRIP : (n + 1) * STRIP], name="token")
        for n, part in enumerate(parts)
    ]
    return column(*strips, gap=6)


def _largest(values: Tensor) -> float:
    return float(values.nan_to_num(0).abs().max())


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


def probabilities_figure(
    distributions: Mapping[str, Mapping[str, float]], *, title: str = "Prediction", subtitle: str = ""
) -> Figure:
    """Probabilities of outputs as bars: one row for each distribution, such as before and after an intervention.

    >>> probabilities_figure({"before": {"cat": 0.7, "dog": 0.2}, "after": {"cat": 0.1, "dog": 0.8}})
    Figure('Prediction', 760 x ...)
    """
    maximum = max(p for one in distributions.values() for p in one.values()) or 1.0
    parts = []
    for name, one in distributions.items():
        names = [shorten_label(visible_label(text), 8) for text in one]
        drawn = bars(list(one.values()), names, maximum=maximum, width=62)
        parts.append(column(label(visible_label(name), bold=True), drawn, gap=4))
    likely = [f"{name}: {max(one, key=one.__getitem__)} {max(one.values()):.0%}" for name, one in distributions.items()]
    text = f"Probabilities of outputs. Most likely: {'; '.join(likely)}."
    return Figure(title, text, column(*parts, gap=20), dict(distributions), subtitle=subtitle)
