"""Pictures of costs: path length and operations of RNN, convolution and attention, measured."""

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from softlook.blocks.attention import AttentionCore, SelfAttention
from softlook.blocks.convolution import CausalConvolution
from softlook.lens.figures.charts import Axis, Curve, line_chart, make_axis
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.gallery.inputs import random, seed
from softlook.lens.figures.picture import row
from softlook.ops import masks

LENGTHS = (4, 8, 16, 32, 64)
DIM, KERNEL = 32, 3
COLORS = {"RNN": "key", "convolution": "output", "dilated": "value", "attention": "query"}


def path_and_cost() -> Figure:
    """How many steps separate the ends of a sequence, and how many operations a layer takes."""
    paths: dict[str, list[float]] = {name: [] for name in COLORS}
    for length in LENGTHS:
        paths["RNN"].append(_recurrent_steps(length))
        paths["convolution"].append(_layers_to_reach(length, dilated=False))
        paths["dilated"].append(_layers_to_reach(length, dilated=True))
        paths["attention"].append(_attention_steps(length))
    costs = {name: [_operations(name, length) for length in LENGTHS] for name in ("RNN", "convolution", "attention")}
    x_axis = make_axis(LENGTHS, log=True, ticks=(4, 8, 16, 32, 64))
    charts = [
        line_chart(
            {name: Curve(LENGTHS, values, COLORS[name], dots=True) for name, values in lines.items()},
            x_axis=x_axis,
            y_axis=axis,
            x_label="length n",
            y_label=words,
            width=210,
            height=210,
        )
        for words, lines, axis in (
            ("steps between the ends", paths, make_axis([y for ys in paths.values() for y in ys], log=True)),
            ("operations of one layer", costs, _cost_axis(costs)),
        )
    ]
    last = {name: int(values[-1]) for name, values in paths.items()}
    return Figure(
        "Path length and cost of RNN, convolution and attention",
        f"Left: between the ends of {LENGTHS[-1]} positions lie {last['RNN']} steps of an RNN, {last['convolution']} "
        f"layers of a convolution of size {KERNEL}, {last['dilated']} if its dilation doubles, and one of attention. "
        "Right: the operations of one layer grow linearly for RNN and convolution, and faster for attention.",
        row(*charts, gap=24),
        {"lengths": list(LENGTHS), "paths": paths, "operations": costs},
        subtitle="Attention joins any two positions in one step, and pays with n² scores.",
        caption="Steps: layers or recurrent steps until the gradient of the last output with respect to the first "
        "input is not "
        f"zero. Operations: counted by torch's flop counter, width {DIM}.",
    )


def _inputs(length: int) -> Tensor:
    """Random inputs in double precision, in which the gradients of a long RNN do not underflow."""
    return random(1, length, DIM).double().requires_grad_()


def _reaches(output: Tensor, x: Tensor) -> bool:
    """Whether the last output depends on the first input."""
    (grad,) = torch.autograd.grad(output[:, -1].sum(), x, retain_graph=True)
    return bool(grad[:, 0].abs().sum() > 0)


def _recurrent_steps(length: int) -> int:
    """Steps from reading the first input to the state that follows the last one."""
    with seed():
        cell = nn.RNNCell(DIM, DIM).double()
    x = _inputs(length)
    state, steps = torch.zeros(1, DIM, dtype=torch.float64), 0
    for position in range(length):
        state, steps = cell(x[:, position], state), steps + 1
    assert _reaches(state[:, None], x)
    return steps - 1


def _layers_to_reach(length: int, *, dilated: bool) -> int:
    with seed():
        layers: list[nn.Module] = []
        x = _inputs(length)
        y: Tensor = x
        while True:
            layers.append(CausalConvolution(DIM, KERNEL, dilation=2 ** len(layers) if dilated else 1).double())
            y = layers[-1](y)
            if _reaches(y, x):
                return len(layers)


def _attention_steps(length: int) -> int:
    with seed():
        layer = SelfAttention(DIM, heads=1).double()
    x = _inputs(length)
    assert _reaches(layer(x, mask=masks.causal()), x)
    return 1


def _operations(name: str, length: int) -> float:
    with seed():
        x = random(1, length, DIM)
        cell, conv = nn.RNNCell(DIM, DIM), CausalConvolution(DIM, KERNEL)
        layer = SelfAttention(DIM, heads=1, core=AttentionCore(backend="reference"))
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        if name == "RNN":
            state = torch.zeros(1, DIM)
            for position in range(length):
                state = cell(x[:, position], state)
        else:
            (conv if name == "convolution" else layer)(x)
    return float(counter.get_total_flops())


def _cost_axis(costs: dict[str, list[float]]) -> Axis:
    return make_axis([y for ys in costs.values() for y in ys], log=True)
