"""The all-attention layer: persistent vectors in addition to the context."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from softlook import masks, positions
from softlook.base.errors import ConfigError
from softlook.blocks import AllAttention, AllAttentionBlock, AttentionCore, DynamicCache
from tests.parity.comparison import maps

MASKS: dict[str, Any] = {
    "none": None,
    "causal": masks.causal(),
    "window": masks.window(2),
    "causal and padding": masks.causal() & masks.padding([3, 6]),
    "documents": masks.causal() & masks.documents(torch.tensor([0, 0, 1, 1, 1, 2])),
}


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def layer(**changes: Any) -> AllAttention:
    return AllAttention(12, heads=4, persistent=5, **changes).double()


def bias() -> Any:
    return positions.alibi(torch.tensor([0.5, 0.25, 0.125, 0.0625]))


def published_formula(attn: AllAttention, x: Tensor, mask: Any, bias: Any) -> tuple[Tensor, Tensor]:
    """Output and map, head by head, as in the paper: keys times sqrt(d), values times sqrt(N), one softmax."""
    B, T, _ = x.shape
    N, D, H = attn.persistent, attn.head_dim, attn.to_query.out_features // attn.head_dim
    seen = (
        torch.ones(B, T, T, dtype=torch.bool) if mask is None else mask.to_dense((B, H, T, T)).expand(B, 1, T, T)[:, 0]
    )
    distance = (torch.arange(T)[:, None] - torch.arange(T)).abs()
    outputs, weights = [], []
    for h in range(H):
        query, key, value = (to(x)[..., h * D : (h + 1) * D] for to in (attn.to_query, attn.to_key, attn.to_value))
        context = query @ key.mT / math.sqrt(D)
        context = context if bias is None else context - bias.slopes[h] * distance
        persistent = query @ (attn.persistent_keys[h] * math.sqrt(D)).T / math.sqrt(D)
        joint = torch.cat([persistent, context.masked_fill(~seen, -torch.inf)], -1).softmax(-1)
        outputs.append(joint[..., :N] @ (attn.persistent_values[h] * math.sqrt(N)) + joint[..., N:] @ value)
        weights.append(joint)
    return attn.to_out(torch.cat(outputs, -1)), torch.stack(weights, 1)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("bias", [None, bias()], ids=["no bias", "alibi"])
@pytest.mark.parametrize("backend", ["auto", "reference", "tiled", "sdpa"])
def test_every_backend_matches_the_published_layer(mask: Any, bias: Any, backend: Any) -> None:
    attn, x = layer(core=AttentionCore(backend=backend)), normal(2, 6, 12)
    with maps(attn) as kept:
        output = attn(x, mask=mask, bias=bias)
    expected, weights = published_formula(attn, x, mask, bias)
    assert_close(output, expected)
    assert_close(kept[0], weights)


def test_a_query_whose_context_is_masked_attends_to_the_persistent_vectors() -> None:
    attn, x = layer(), normal(1, 3, 12)
    with maps(attn) as kept:
        attn(x, mask=masks.dense(torch.zeros(3, 3, dtype=torch.bool)))
    assert kept[0][..., 5:].eq(0).all()
    assert_close(kept[0][..., :5].sum(-1), torch.ones(1, 4, 3, dtype=torch.float64))


@pytest.mark.parametrize("bias", [None, bias()], ids=["no bias", "alibi"])
def test_persistent_vectors_are_not_cached(bias: Any) -> None:
    attn, x, cache = layer(), normal(2, 6, 12), DynamicCache()
    steps = [
        attn(x[:, start:stop], mask=masks.causal() & masks.window(3), bias=bias, cache=cache)
        for start, stop in ((0, 2), (2, 3), (3, 6))
    ]
    assert cache.length == 6
    assert_close(torch.cat(steps, 1), attn(x, mask=masks.window(3), bias=bias))


def test_changing_the_future_does_not_change_the_past() -> None:
    attn, x = layer(), normal(2, 6, 12)
    other = torch.cat([x[:, :4], normal(2, 2, 12)], 1)
    assert torch.equal(attn(x, mask=masks.causal())[:, :4], attn(other, mask=masks.causal())[:, :4])


def test_heads_may_share_keys_and_persistent_vectors() -> None:
    shared, x = layer(kv_heads=2), normal(2, 6, 12)
    assert shared.persistent_keys.shape == (2, 5, 3)
    full = layer()
    full.load_state_dict(
        {
            name: repeat_heads(weight)
            if name.split(".")[0] in ("to_key", "to_value", "persistent_keys", "persistent_values")
            else weight
            for name, weight in shared.state_dict().items()
        }
    )
    assert_close(shared(x, mask=masks.causal()), full(x, mask=masks.causal()))


def repeat_heads(weight: Tensor) -> Tensor:
    """The weights of two heads, each repeated twice."""
    if weight.ndim == 3:
        return weight.repeat_interleave(2, 0)
    return weight.unflatten(0, (2, 3)).repeat_interleave(2, 0).flatten(0, 1)


def test_persistent_vectors_are_initialized_small_and_scaled_to_unit_variance() -> None:
    attn = AllAttention(64, heads=2, persistent=400)
    assert attn.persistent_keys.std().item() == pytest.approx(1 / math.sqrt(32), rel=0.05)
    assert attn.persistent_values.std().item() == pytest.approx(1 / math.sqrt(400), rel=0.05)
    key, value = attn.persistent_kv(3)
    assert key.shape == value.shape == (3, 2, 400, 32)
    assert key.std().item() == pytest.approx(1, rel=0.05)
    assert value.std().item() == pytest.approx(1, rel=0.05)


def test_a_block_normalizes_the_sum_of_input_and_attention() -> None:
    attn, x = layer(), normal(2, 6, 12)
    block = AllAttentionBlock(attn, lambda: nn.LayerNorm(12, dtype=torch.float64))
    expected = nn.functional.layer_norm(x + attn(x, mask=masks.causal(), bias=bias()), (12,))
    assert_close(block(x, mask=masks.causal(), bias=bias()), expected)


def test_gradients_reach_every_parameter() -> None:
    attn = layer(qkv_bias=False)
    attn(normal(2, 6, 12), mask=masks.causal()).square().sum().backward()
    for name, parameter in attn.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_zero_persistent_vectors_raise_an_error() -> None:
    with pytest.raises(ConfigError, match=r"persistent must be at least 1, got 0\. Use SelfAttention for none\."):
        AllAttention(12, heads=4, persistent=0)
