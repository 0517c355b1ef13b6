"""`python -m benchmarks.path_length`: recurrent networks, convolutions and attention learn to name a distant symbol.

A sequence holds n random symbols; the first one must be named at its end. Five minutes on one CPU core, offline; writes
the figure of docs/book/15-gradients-and-paths.md and its numbers.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.recorded import Results, record
from benchmarks.sequence_layers import DIM, GRU, CausalAttention, SequenceModel, dilated_convolutions
from softlook.blocks import AttentionCore
from softlook.lens.figures.charts import Axis, Curve, line_chart, make_axis
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.picture import row

NAME = "path_length"
LENGTHS = (4, 8, 16, 32, 64)
SHOWN = 32
"""The length whose learning curves are drawn."""
SYMBOLS, STEPS, BATCH, RATE, SEEDS, INTERVAL = 8, 300, 64, 3e-3, 2, 10
COLORS = {"attention": "query", "convolution": "output", "GRU": "key", "RNN": "value"}


class RNN(nn.Module):
    """A recurrent network of matrix products and tanh, without gates."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.rnn = nn.RNN(dim, dim, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(x)[0]


def make_layer(name: str, length: int) -> nn.Module:
    match name:
        case "attention":
            return CausalAttention(DIM, heads=2)
        case "convolution":
            return dilated_convolutions(DIM, length)
        case _:
            return (GRU if name == "GRU" else RNN)(DIM)


def train(name: str, length: int, seed: int, steps: int = STEPS) -> list[float]:
    """Train a model; returns the accuracy on new sequences after every tenth step."""
    torch.manual_seed(seed)
    model = SequenceModel(make_layer(name, length), SYMBOLS, SYMBOLS, length, positions=name == "attention")
    optimizer, held_out = torch.optim.Adam(model.parameters(), lr=RATE), torch.randint(SYMBOLS, (256, length))
    accuracy = []
    for step in range(steps + 1):
        if step % INTERVAL == 0:
            with torch.no_grad():
                right = model(held_out)[:, -1].argmax(-1) == held_out[:, 0]
            accuracy.append(round(right.float().mean().item(), 3))
        ids = torch.randint(SYMBOLS, (BATCH, length))
        optimizer.zero_grad()
        F.cross_entropy(model(ids)[:, -1], ids[:, 0]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return accuracy


def operations(name: str, length: int) -> int:
    """Multiplications and additions of one layer for one sequence."""
    if name in ("RNN", "GRU"):  # torch does not count fused recurrent layers: two products per step and gate
        return length * 2 * 2 * DIM**2 * (3 if name == "GRU" else 1)
    layer, x = make_layer(name, length), torch.randn(1, length, DIM)
    for module in layer.modules():
        if isinstance(module, AttentionCore):
            module.backend = "reference"  # in products of matrices, which are counted
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        layer(x)
    return counter.get_total_flops()


def run_all() -> Results:
    """Learning curves of every layer, length and seed, and the operations of each."""
    curves: dict[str, dict[str, list[list[float]]]] = {}
    for name in COLORS:
        curves[name] = {str(n): [train(name, n, seed) for seed in range(SEEDS)] for n in LENGTHS}
        print(f"{name}: { ({n: [one[-1] for one in runs] for n, runs in curves[name].items()}) }", flush=True)
    settings = {"dim": DIM, "symbols": SYMBOLS, "steps": STEPS, "batch": BATCH, "rate": RATE, "interval": INTERVAL}
    costs = {name: [operations(name, n) for n in LENGTHS] for name in COLORS}
    return {"settings": settings, "lengths": list(LENGTHS), "accuracy": curves, "operations": costs}


def final_accuracy(results: Results, name: str) -> list[float]:
    """The mean accuracy after training, for each length."""
    runs = results["accuracy"][name]
    return [sum(one[-1] for one in runs[str(n)]) / len(runs[str(n)]) for n in results["lengths"]]


def draw(results: Results) -> Figure:
    """Learning curves at one length, the accuracy of every length, and the operations."""
    lengths, settings = results["lengths"], results["settings"]
    steps = range(0, settings["steps"] + 1, settings["interval"])
    shown = {name: results["accuracy"][name][str(SHOWN)] for name in COLORS}
    learned = {name: [sum(one) / len(one) for one in zip(*runs, strict=True)] for name, runs in shown.items()}
    final = {name: final_accuracy(results, name) for name in COLORS}
    by_length, shares = Axis(lengths[0], lengths[-1], True, tuple(lengths)), Axis(0.0, 1.0, False, (0.0, 0.5, 1.0))
    costs = [cost for values in results["operations"].values() for cost in values]
    charts = [
        line_chart(
            {name: Curve(x, values, COLORS[name], dots=x is lengths) for name, values in lines.items()},
            x_axis=x_axis,
            y_axis=y_axis,
            x_label=x_label,
            y_label=y_label,
            width=150,
            height=190,
        )
        for x, lines, x_axis, y_axis, x_label, y_label in (
            (steps, learned, make_axis(steps, ticks=(0, 100, 200, 300)), shares, "step", f"right, n = {SHOWN}"),
            (lengths, final, by_length, shares, "length n", f"right after {settings['steps']} steps"),
            (lengths, results["operations"], by_length, make_axis(costs, log=True), "length n", "operations"),
        )
    ]
    last = ", ".join(f"{name} {values[-1]:.0%}" for name, values in final.items())
    return Figure(
        "Naming the first of n symbols, by RNN, convolution and attention",
        f"Left: learning curves for {SHOWN} symbols. Center: accuracy after training; of {lengths[-1]} symbols: "
        f"{last}. Right: operations of one layer, or of the convolutions that together reach so far.",
        row(*charts, gap=10),
        results,
        subtitle="Attention learns at every distance: its path has one step.",
        caption=f"Width {settings['dim']}, {settings['symbols']} symbols, {settings['batch']} sequences per step, mean "
        "of two runs. Convolutions of size 2 whose dilations double until they reach the first symbol.",
    )


if __name__ == "__main__":
    record(NAME, run_all, draw)
