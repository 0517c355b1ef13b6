"""The all-attention layer: what is learned stands beside what is read."""

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


def by_the_paper(attend: AllAttention, x: Tensor, mask: Any, bias: Any) -> tuple[Tensor, Tensor]:
    """Output and map, head by head, from the formulas: keys times sqrt(d), values times sqrt(N), one softmax."""
    B, T, _ = x.shape
    N, D, H = attend.persistent, attend.head_dim, attend.to_query.out_features // attend.head_dim
    seen = (
        torch.ones(B, T, T, dtype=torch.bool) if mask is None else mask.to_dense((B, H, T, T)).expand(B, 1, T, T)[:, 0]
    )
    far = (torch.arange(T)[:, None] - torch.arange(T)).abs()
    outputs, weights = [], []
    for h in range(H):
        query, key, value = (
            to(x)[..., h * D : (h + 1) * D] for to in (attend.to_query, attend.to_key, attend.to_value)
        )
        context = query @ key.mT / math.sqrt(D)
        context = context if bias is None else context - bias.slopes[h] * far
        own = query @ (attend.persistent_keys[h] * math.sqrt(D)).T / math.sqrt(D)
        together = torch.cat([own, context.masked_fill(~seen, -torch.inf)], -1).softmax(-1)
        outputs.append(together[..., :N] @ (attend.persistent_values[h] * math.sqrt(N)) + together[..., N:] @ value)
        weights.append(together)
    return attend.to_out(torch.cat(outputs, -1)), torch.stack(weights, 1)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("bias", [None, bias()], ids=["no bias", "alibi"])
@pytest.mark.parametrize("backend", ["auto", "reference", "tiled", "sdpa"])
def test_it_is_the_published_layer_on_every_path(mask: Any, bias: Any, backend: Any) -> None:
    attend, x = layer(core=AttentionCore(backend=backend)), normal(2, 6, 12)
    with maps(attend) as kept:
        output = attend(x, mask=mask, bias=bias)
    wanted, weights = by_the_paper(attend, x, mask, bias)
    assert_close(output, wanted)
    assert_close(kept[0], weights)


def test_a_query_whose_context_is_hidden_still_sees_what_is_learned() -> None:
    attend, x = layer(), normal(1, 3, 12)
    with maps(attend) as kept:
        attend(x, mask=masks.dense(torch.zeros(3, 3, dtype=torch.bool)))
    assert kept[0][..., 5:].eq(0).all()
    assert_close(kept[0][..., :5].sum(-1), torch.ones(1, 4, 3, dtype=torch.float64))


@pytest.mark.parametrize("bias", [None, bias()], ids=["no bias", "alibi"])
def test_what_is_learned_is_no_part_of_the_memory(bias: Any) -> None:
    attend, x, memory = layer(), normal(2, 6, 12), DynamicCache()
    steps = [
        attend(x[:, start:stop], mask=masks.causal() & masks.window(3), bias=bias, cache=memory)
        for start, stop in ((0, 2), (2, 3), (3, 6))
    ]
    assert memory.length == 6
    assert_close(torch.cat(steps, 1), attend(x, mask=masks.window(3), bias=bias))


def test_changing_the_future_does_not_change_the_past() -> None:
    attend, x = layer(), normal(2, 6, 12)
    other = torch.cat([x[:, :4], normal(2, 2, 12)], 1)
    assert torch.equal(attend(x, mask=masks.causal())[:, :4], attend(other, mask=masks.causal())[:, :4])


def test_heads_may_share_keys_and_what_is_learned() -> None:
    shared, x = layer(kv_heads=2), normal(2, 6, 12)
    assert shared.persistent_keys.shape == (2, 5, 3)
    full = layer()
    full.load_state_dict(
        {
            name: wide(weight)
            if name.split(".")[0] in ("to_key", "to_value", "persistent_keys", "persistent_values")
            else weight
            for name, weight in shared.state_dict().items()
        }
    )
    assert_close(shared(x, mask=masks.causal()), full(x, mask=masks.causal()))


def wide(weight: Tensor) -> Tensor:
    """Two heads' weights, each written twice."""
    if weight.ndim == 3:
        return weight.repeat_interleave(2, 0)
    return weight.unflatten(0, (2, 3)).repeat_interleave(2, 0).flatten(0, 1)


def test_learned_vectors_start_small_and_are_as_large_as_others_at_use() -> None:
    attend = AllAttention(64, heads=2, persistent=400)
    assert attend.persistent_keys.std().item() == pytest.approx(1 / math.sqrt(32), rel=0.05)
    assert attend.persistent_values.std().item() == pytest.approx(1 / math.sqrt(400), rel=0.05)
    key, value = attend.persistent_kv(3)
    assert key.shape == value.shape == (3, 2, 400, 32)
    assert key.std().item() == pytest.approx(1, rel=0.05)
    assert value.std().item() == pytest.approx(1, rel=0.05)


def test_a_block_is_one_layer_with_a_norm_around_it() -> None:
    attend, x = layer(), normal(2, 6, 12)
    block = AllAttentionBlock(attend, lambda: nn.LayerNorm(12, dtype=torch.float64))
    wanted = nn.functional.layer_norm(x + attend(x, mask=masks.causal(), bias=bias()), (12,))
    assert_close(block(x, mask=masks.causal(), bias=bias()), wanted)


def test_every_weight_learns() -> None:
    attend = layer(qkv_bias=False)
    attend(normal(2, 6, 12), mask=masks.causal()).square().sum().backward()
    for name, parameter in attend.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_no_persistent_vector_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"persistent must be at least 1, got 0\. Use SelfAttention for none\."):
        AllAttention(12, heads=4, persistent=0)
