"""Attention flow is the maximum flow that networkx computes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.lens import attention_flow, attention_maps, attention_rollout, trace
from softlook.lens.flow import max_flow
from softlook.models import GPT, Bert, BertConfig, GPTConfig

networkx = pytest.importorskip("networkx")  # installed with torch

SIZES: dict[str, Any] = {"vocab_size": 20, "context": 200, "dim": 32, "depth": 3, "heads": 4}
IDS = torch.randint(20, (2, 7), generator=torch.Generator().manual_seed(0))


def reference(capacity: Tensor, source: int, sink: int) -> float:
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(capacity)))
    graph.add_edges_from((int(i), int(j), {"capacity": float(capacity[i, j])}) for i, j in capacity.nonzero())
    return networkx.maximum_flow_value(graph, source, sink)


@pytest.mark.parametrize("density", [0.1, 0.4, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_the_maximum_flow_of_random_graphs_is_that_of_networkx(seed: int, density: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    capacity = torch.rand(25, 25, generator=generator).double()
    capacity *= torch.rand(25, 25, generator=generator) < density
    capacity.fill_diagonal_(0)
    assert max_flow(capacity, 0, 24) == pytest.approx(reference(capacity, 0, 24), abs=1e-9)
    assert max_flow(capacity, 3, 9) == pytest.approx(reference(capacity, 3, 9), abs=1e-9)


def test_flow_is_rerouted_through_residual_edges() -> None:
    capacity = torch.zeros(6, 6)
    for i, j in ((0, 1), (0, 2), (1, 3), (1, 4), (2, 3), (3, 5), (4, 5)):
        capacity[i, j] = 1
    assert max_flow(capacity, 0, 5) == 2


def test_attention_flow_is_the_maximum_flow_through_the_maps() -> None:
    torch.manual_seed(0)
    for model in (GPT(GPTConfig(**SIZES)).eval(), Bert(BertConfig(**SIZES)).eval()):
        for parameter in model.parameters():
            parameter.data *= 3
        with torch.no_grad(), trace(model) as recorded:
            model(IDS)
        capacity = torch.zeros(28, 28, dtype=torch.float64)
        for layer, weights in enumerate(attention_maps(model, IDS).values()):
            step = 0.3 * torch.eye(7) + 0.7 * weights[1].mean(0)
            capacity[7 * layer + 7 : 7 * layer + 14, 7 * layer : 7 * layer + 7] = step
        flow = attention_flow(recorded, 5, residual=0.3)
        expected = torch.tensor([reference(capacity, 21 + 5, j) for j in range(7)])
        torch.testing.assert_close(flow[1], expected, atol=1e-5, rtol=0)


def test_with_one_layer_flow_is_rollout() -> None:
    model = GPT(GPTConfig(**SIZES)).eval()
    with torch.no_grad(), trace(model) as recorded:
        model(IDS)
    layers = ["blocks.1.attn"]
    rollout = attention_rollout(recorded, layers=layers)
    torch.testing.assert_close(attention_flow(recorded, 4, layers=layers), rollout[:, 4], atol=1e-6, rtol=0)


def test_long_inputs_and_wrong_positions_are_errors() -> None:
    model = GPT(GPTConfig(**SIZES)).eval()
    with torch.no_grad(), trace(model) as recorded:
        model(torch.zeros(1, 129, dtype=torch.long))
    with pytest.raises(ShapeError, match="up to 128 tokens, got 129: use rollout"):
        attention_flow(recorded)
    with torch.no_grad(), trace(model) as recorded:
        model(IDS)
    with pytest.raises(ShapeError, match="position 7 is not among 7 positions"):
        attention_flow(recorded, 7)
    with pytest.raises(ValueError, match="residual must be from 0 to 1, got 2"):
        attention_flow(recorded, residual=2)
