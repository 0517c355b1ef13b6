"""Ablation replaces the output of heads before the output projection, and leaves the model as it was."""

from typing import Any

import pytest
import torch
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.lens import ablate
from softlook.models import GPT, GPTConfig

IDS = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
LAYER = "blocks.1.attn"


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(vocab_size=10, context=8, dim=32, depth=2, heads=4)).eval()


@torch.no_grad()
def zero_columns(model: GPT, heads: list[int], amount: float = 1.0) -> Tensor:
    """The logits with these heads' columns of the output projection scaled down by hand."""
    attn: Any = model.get_submodule(LAYER)
    weight = attn.to_out.weight
    kept = weight.clone()
    for head in heads:
        weight[:, head * attn.head_dim : (head + 1) * attn.head_dim] *= 1 - amount
    logits = model(IDS)
    weight.copy_(kept)
    return logits


@pytest.mark.parametrize("amount", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("heads", [[2], [0, 3]])
@torch.no_grad()
def test_zero_ablation_equals_zeros_in_the_output_projection(model: GPT, heads: list[int], amount: float) -> None:
    with ablate(model, LAYER, heads, amount=amount):
        ablated = model(IDS)
    torch.testing.assert_close(ablated, zero_columns(model, heads, amount), atol=1e-5, rtol=0)


@torch.no_grad()
def test_contexts_nest(model: GPT) -> None:
    with ablate(model, LAYER, 0), ablate(model, LAYER, 3):
        ablated = model(IDS)
    torch.testing.assert_close(ablated, zero_columns(model, [0, 3]), atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_mean_is_over_sequences_and_positions_and_resampling_takes_another_sequence(model: GPT) -> None:
    core: Any = model.get_submodule(f"{LAYER}.core")
    outputs: list[Tensor] = []
    core.register_forward_hook(lambda core, args, output: outputs.append(output))
    model(IDS)
    for replacement in ("mean", "resample"):
        with ablate(model, LAYER, 1, replacement):  # pyright: ignore[reportArgumentType]
            core.register_forward_hook(lambda core, args, output: outputs.append(output))
            model(IDS)
    plain, mean, resampled = outputs[0], outputs[2], outputs[-1]
    torch.testing.assert_close(mean[:, 1], plain[:, 1].mean((0, 1)).expand_as(plain[:, 1]))
    torch.testing.assert_close(resampled[:, 1], plain[[1, 0], 1])
    torch.testing.assert_close(resampled[:, [0, 2, 3]], plain[:, [0, 2, 3]])


@torch.no_grad()
def test_the_model_is_unchanged_after_the_context_and_after_an_exception(model: GPT) -> None:
    plain = model(IDS)
    with ablate(model, LAYER, 0):
        model(IDS)
    with pytest.raises(RuntimeError, match="stop"), ablate(model, LAYER, 0):
        raise RuntimeError("stop")
    assert torch.equal(model(IDS), plain)
    assert not any(module._forward_hooks for module in model.modules())


def test_wrong_layers_heads_and_amounts_are_errors(model: GPT) -> None:
    with (
        pytest.raises(ConfigError, match="no attention layer 'attn': expected one of blocks.0.attn"),
        ablate(model, "attn", 0),
    ):
        pass
    with pytest.raises(ConfigError, match="has the heads 0 to 3, got 4"), ablate(model, LAYER, 4):
        model(IDS)
    with pytest.raises(ConfigError, match="amount must be from 0 to 1, got 2"), ablate(model, LAYER, 0, amount=2):
        pass
    with pytest.raises(ConfigError, match="a batch of at least 2, got 1"), ablate(model, LAYER, 0, "resample"):
        model(IDS[:1])
