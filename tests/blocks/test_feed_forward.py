"""The position-wise feed-forward layer."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from softlook.blocks import ACTIVATIONS, FeedForward, GatedFeedForward

X = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0))
FORMULAS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + (-x).exp()),
    "tanh": lambda x: 1 - 2 / ((2 * x).exp() + 1),
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_matches_its_formula(name: Any) -> None:
    x = torch.linspace(-4, 4, 41, dtype=torch.float64)
    assert_close(ACTIVATIONS[name](x), FORMULAS[name](x))


def test_a_feed_forward_layer_is_two_linear_layers_with_an_activation_and_four_times_the_width() -> None:
    ffn = FeedForward(12)
    assert ffn.to_up.weight.shape == (48, 12)
    hidden = (X @ ffn.to_up.weight.T + ffn.to_up.bias).clamp(min=0)
    assert_close(ffn(X), hidden @ ffn.to_out.weight.T + ffn.to_out.bias)


@pytest.mark.parametrize("activation", [F.relu, F.gelu, F.silu, F.sigmoid])
def test_a_gated_layer_multiplies_the_activated_gate_with_the_hidden_vector(activation: object) -> None:
    ffn = GatedFeedForward(12, 20, activation)  # pyright: ignore[reportArgumentType]
    gate, hidden = X @ ffn.to_gate.weight.T, X @ ffn.to_up.weight.T
    assert_close(ffn(X), (activation(gate) * hidden) @ ffn.to_out.weight.T)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("ffn", [FeedForward(12), GatedFeedForward(12, 20, F.silu)])
def test_every_position_is_transformed_identically_and_independently(ffn: nn.Module) -> None:
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    assert_close(ffn(X)[:, order], ffn(X[:, order]))
    changed = X.clone()
    changed[:, 3] += 1
    others = torch.arange(7) != 3
    assert_close(ffn(changed)[:, others], ffn(X)[:, others])


def test_dropout_applies_in_training_only() -> None:
    ffn = FeedForward(12, dropout=0.5)

    def twice() -> tuple[Tensor, Tensor]:
        return ffn(X), ffn(X)

    one, other = twice()
    assert not torch.equal(one, other)
    ffn.eval()
    assert_close(*twice(), atol=0, rtol=0)
