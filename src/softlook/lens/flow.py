"""Attention flow: the maximum flow from an output position to each input through the attention graph."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.lens.head_patterns import single_call
from softlook.lens.trace import Trace

MAX_LENGTH = 128
"""Longer inputs take too long: every input position is a maximum-flow problem on layers x length nodes."""
EPSILON = 1e-12
"""Capacities below it are rounding errors."""


def attention_flow(
    trace: Trace,
    position: int = -1,
    *,
    layers: Sequence[str] | None = None,
    residual: float = 0.5,
) -> Float[Tensor, "B S"]:
    """Attention flow (Abnar and Zuidema 2020) from one output position to every input position.

    Nodes are the positions before and after each layer; the capacity of an edge is `residual` x identity +
    (1 - `residual`) x attention, the mean over heads. Unlike in rollout, a path carries as much as its weakest edge.
    For inputs of up to 128 tokens; see `attention_rollout` for longer ones.

    - `layers`: paths of self-attention layers in order; default: all layers of the trace.

    >>> from softlook.lens import trace
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> with torch.no_grad(), trace(model) as recorded:
    ...     logits = model(torch.tensor([[3, 1, 4]]))
    >>> attention_flow(recorded, position=0)
    tensor([[1., 0., 0.]])
    """
    if not 0 <= residual <= 1:
        raise ValueError(f"residual must be from 0 to 1, got {residual}")
    chosen = {path: trace[path] for path in (layers or trace)}
    length = next((layer.calls[0].query.shape[2] for layer in chosen.values() if layer.calls), 0)
    for path, layer in chosen.items():
        single_call(path, layer, length)
    if length > MAX_LENGTH:
        raise ShapeError(f"attention flow is for inputs of up to {MAX_LENGTH} tokens, got {length}: use rollout")
    if not -length <= position < length:
        raise ShapeError(f"position {position} is not among {length} positions")
    maps = [layer.weights().double().mean(1).cpu() for layer in chosen.values()]
    steps = [residual * torch.eye(length, dtype=torch.float64) + (1 - residual) * one for one in maps]
    flows = [_flow_to_inputs([step[row] for step in steps], position % length) for row in range(len(steps[0]))]
    return torch.stack(flows).float()


def max_flow(capacity: Float[Tensor, "n n"], source: int, sink: int) -> float:
    """The maximum flow from one node to another (Dinic 1970) in a dense graph.

    >>> capacity = torch.tensor([[0.0, 3.0, 2.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    >>> max_flow(capacity, 0, 2)
    4.0
    """
    free = capacity.double().clone()
    total = 0.0
    while (levels := _levels(free, source))[sink] >= 0:
        total += _blocking_flow(free, levels, source, sink)
    return total


def _flow_to_inputs(steps: list[Tensor], position: int) -> Tensor:
    """The flow from a position after the last layer to each position before the first."""
    depth, length = len(steps), len(steps[0])
    capacity = torch.zeros((depth + 1) * length, (depth + 1) * length, dtype=torch.float64)
    for layer, step in enumerate(steps):
        capacity[(layer + 1) * length : (layer + 2) * length, layer * length : (layer + 1) * length] = step
    flows = [max_flow(capacity, depth * length + position, target) for target in range(length)]
    return torch.tensor(flows, dtype=torch.float64)


def _levels(free: Tensor, source: int) -> Tensor:
    """The number of edges with free capacity from the source to each node; -1 where there is no path."""
    levels = torch.full((len(free),), -1)
    levels[source] = 0
    reached, level = torch.tensor([source]), 0
    while len(reached):
        level += 1
        reached = ((free[reached] > EPSILON).any(0) & (levels < 0)).nonzero()[:, 0]
        levels[reached] = level
    return levels


def _blocking_flow(free: Tensor, levels: Tensor, source: int, sink: int) -> float:
    """Saturate every shortest path, depth first; reduces the free capacities."""
    total, path = 0.0, [source]
    dead = torch.zeros(len(free), dtype=torch.bool)
    while path:
        node = path[-1]
        if node == sink:
            edges = (torch.tensor(path[:-1]), torch.tensor(path[1:]))
            amount = free[edges].min()
            free[edges] -= amount
            free[edges[1], edges[0]] += amount
            total += float(amount)
            full = (free[edges] <= EPSILON).nonzero()[0, 0]
            path = path[: int(full) + 1]
            continue
        usable = (free[node] > EPSILON) & (levels == levels[node] + 1) & ~dead
        if usable.any():
            path.append(int(usable.to(torch.uint8).argmax()))
        else:
            dead[node] = True
            path.pop()
    return total
