"""`python -m benchmarks.norm_axes`: layer, batch and instance norm in the same Transformer, trained on digits.

Each row of pixels of a digit is a token. Large and small batches, two runs each. One minute on one CPU core, offline;
writes the figure of docs/book/21-norms.md and its numbers.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.recorded import Results, record
from softlook.blocks import FeedForward, PreNormBlock, SelfAttention
from softlook.lens.figures.charts import Axis, Curve, line_chart
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.picture import over, row

NAME = "norm_axes"
DIM, DEPTH, RATE, SEEDS, TRAINING = 32, 4, 2e-3, 2, 1400
BATCHES = {64: 300, 4: 300}
"""Digits per batch -> steps."""
INTERVAL = 20


class OverTokens(nn.Module):
    """A norm of torch that expects channels before positions."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.mT).mT


NORMS: Mapping[str, Callable[[], nn.Module]] = {
    "layer norm": lambda: nn.LayerNorm(DIM),
    "batch norm": lambda: OverTokens(nn.BatchNorm1d(DIM)),
    "instance norm": lambda: OverTokens(nn.InstanceNorm1d(DIM, affine=True)),
    "no norm": nn.Identity,
}
COLORS = {"layer norm": "query", "batch norm": "key", "instance norm": "value", "no norm": "weight"}


class RowClassifier(nn.Module):
    """An encoder over the eight rows of a digit, mean pooling, and a linear head.

    The last norm is a layer norm in every model: instance norm there would give each channel the mean zero over the
    rows, and so the same mean to every digit.
    """

    def __init__(self, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.embed, self.positions = nn.Linear(8, DIM), nn.Parameter(0.5 * torch.randn(8, DIM))
        blocks = (PreNormBlock(SelfAttention(DIM, heads=4), FeedForward(DIM), norm) for _ in range(DEPTH))
        self.blocks, self.final_norm, self.head = nn.ModuleList(blocks), nn.LayerNorm(DIM), nn.Linear(DIM, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.final_norm(x).mean(1))


def train(norm: str, batch: int, seed: int, steps: int) -> list[float]:
    """Train a model; returns the loss on held-out digits, in evaluation mode, after every few steps."""
    digits: Any = load_digits()
    images, labels = torch.tensor(digits.images).float() / 8 - 1, torch.tensor(digits.target)
    torch.manual_seed(seed)
    model = RowClassifier(NORMS[norm])
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=RATE), []
    for step in range(steps + 1):
        if step % INTERVAL == 0:
            model.eval()
            with torch.no_grad():
                losses.append(round(F.cross_entropy(model(images[TRAINING:]), labels[TRAINING:]).item(), 3))
            model.train()
        chosen = torch.randint(TRAINING, (batch,))
        optimizer.zero_grad()
        F.cross_entropy(model(images[chosen]), labels[chosen]).backward()
        optimizer.step()
    return losses


def run_all() -> Results:
    """The held-out loss of every norm, batch size and seed."""
    losses: dict[str, dict[str, list[list[float]]]] = {}
    for norm in NORMS:
        losses[norm] = {str(b): [train(norm, b, seed, steps) for seed in range(SEEDS)] for b, steps in BATCHES.items()}
        print(f"{norm}: { ({b: [one[-1] for one in runs] for b, runs in losses[norm].items()}) }", flush=True)
    settings = {"dim": DIM, "depth": DEPTH, "rate": RATE, "interval": INTERVAL}
    return {"settings": settings, "steps": {str(b): steps for b, steps in BATCHES.items()}, "loss": losses}


def final_loss(results: Results, norm: str, batch: int) -> float:
    """The mean of the runs after the last step."""
    runs = results["loss"][norm][str(batch)]
    return sum(one[-1] for one in runs) / len(runs)


def draw(results: Results) -> Figure:
    """The mean held-out loss over the steps, for large and small batches."""
    charts = []
    for batch, steps in results["steps"].items():
        x = range(0, steps + 1, results["settings"]["interval"])
        lines = {}
        for norm, color in COLORS.items():
            means = [sum(one) / len(one) for one in zip(*results["loss"][norm][batch], strict=True)]
            lines[norm] = Curve(x, [min(one, 2.5) for one in means], color)
        axes = {"x_axis": Axis(0, steps, False, (0, 100, 200, 300)), "y_axis": Axis(0, 2.5, False, (0.0, 1.0, 2.0))}
        chart = line_chart(lines, **axes, x_label="step", y_label="held-out loss", width=220, height=200)
        charts.append(over(chart, f"{batch} digits per batch"))
    finals = "; ".join(
        f"{norm} {final_loss(results, norm, 64):.2f} and {final_loss(results, norm, 4):.2f}" for norm in COLORS
    )
    return Figure(
        "Layer, batch and instance norm in the same Transformer",
        f"Held-out loss while training with 64 and with 4 digits per batch; at the end: {finals}.",
        row(*charts, gap=20),
        results,
        subtitle="All of them train here; they differ in what they need: layer norm only the token itself.",
        caption=f"Pre-norm encoder of {results['settings']['depth']} blocks of width {results['settings']['dim']} over "
        "the rows of handwritten digits; mean of two runs.",
    )


if __name__ == "__main__":
    record(NAME, run_all, draw)
