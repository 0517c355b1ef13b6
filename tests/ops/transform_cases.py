"""Masks, biases and inputs for the tests of torch's transforms.

Run as a script, it compiles each of them as one graph: torch.compile cannot trace the shape checks of a test run.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from softlook import attention, masks, positions
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask

LENGTHS = (5, 48)
"""Shorter and longer than the longest map that a CPU computes with math attention."""

MASKS: dict[str, Callable[[int], Mask | Tensor | None]] = {
    "none": lambda S: None,
    "causal": lambda S: masks.causal(),
    "window": lambda S: masks.window(3),
    "prefix": lambda S: masks.causal() | masks.prefix(2),
    "padding": lambda S: masks.causal() & masks.padding([S, S - 2]),
    "documents": lambda S: masks.causal() & masks.documents(torch.arange(S) // 4),
    "graph": lambda S: masks.graph(torch.stack([torch.arange(S), torch.arange(S).flip(0)]), loops=True),
    "dense": lambda S: torch.ones(S, S, dtype=torch.bool).tril(),
}
BIASES: dict[str, Callable[[int], Bias | Tensor]] = {
    "alibi": lambda S: positions.alibi(2),
    "t5": lambda S: positions.t5(torch.arange(64.0).view(32, 2) / 64),
    "shaw": lambda S: positions.shaw(torch.arange(72.0).view(9, 8) / 72),
    "dense": lambda S: torch.arange(float(S * S)).view(S, S) / (S * S),
}


def inputs(length: int, batch: tuple[int, ...] = (2,)) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = torch.randn(3, *batch, 2, length, 8)
    return query, key, value


def compile_each(names: list[str]) -> None:
    """Compare one full graph with eager attention, for the masks and biases of these names and every length."""
    options: list[tuple[int, dict[str, Any]]] = [
        (n, {"mask": make(n)}) for n in LENGTHS for name, make in MASKS.items() if name in names
    ]
    options += [(n, {"bias": make(n)}) for n in LENGTHS for name, make in BIASES.items() if name in names]
    for length, given in options:
        torch._dynamo.reset()
        query, key, value = inputs(length)
        compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(query, key, value, **given), attention(query, key, value, **given))


if __name__ == "__main__":
    torch.manual_seed(0)
    compile_each(sys.argv[1:])
