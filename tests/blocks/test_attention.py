"""Multi-head attention as a layer."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from softlook import attention, masks, positions, scores
from softlook.base.errors import ConfigError
from softlook.blocks import AttentionCore, CrossAttention, KVCache, SelfAttention
from tests.models.tiny import TINY

X = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0))
ENCODED = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1))


def test_self_attention_matches_the_formula() -> None:
    attn = SelfAttention(12, heads=3)
    query, key, value = (
        (X @ layer.weight.T + layer.bias).view(2, 7, 3, 4).transpose(1, 2)
        for layer in (attn.to_query, attn.to_key, attn.to_value)
    )
    weights = (query @ key.mT / 2).softmax(-1)
    merged = (weights @ value).transpose(1, 2).reshape(2, 7, 12)
    assert_close(attn(X), merged @ attn.to_out.weight.T + attn.to_out.bias)


def test_the_number_of_heads_does_not_change_the_number_of_parameters() -> None:
    count = [sum(p.numel() for p in SelfAttention(12, heads).parameters()) for heads in (1, 2, 6)]
    assert count[0] == count[1] == count[2] == 4 * (12 * 12 + 12)


def test_grouped_key_heads_equal_repeated_key_heads() -> None:
    shared, repeated = SelfAttention(12, heads=6, kv_heads=2), SelfAttention(12, heads=6)
    state = shared.state_dict()
    for name in ("to_key.weight", "to_key.bias", "to_value.weight", "to_value.bias"):
        state[name] = state[name].unflatten(0, (2, 2)).repeat_interleave(3, 0).flatten(0, 1)
    repeated.load_state_dict(state)
    assert_close(shared(X, mask=masks.causal()), repeated(X, mask=masks.causal()))


def test_a_hook_on_the_core_sees_the_output_of_attention_and_may_change_it() -> None:
    attn, seen = SelfAttention(12, heads=3), []

    def watch(module: nn.Module, args: tuple, output: torch.Tensor) -> torch.Tensor:
        query, key, value, mask, bias = args
        seen.append((output, attention(query, key, value, mask=mask, bias=bias)))
        gate = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
        return output * gate

    hook = attn.core.register_forward_hook(watch)
    gated = attn(X, mask=masks.causal())
    hook.remove()
    assert_close(*seen[0])
    with torch.no_grad():
        attn.to_out.weight[:, 4:] = 0  # the contribution of the two gated heads
    assert_close(gated, attn(X, mask=masks.causal()))


def test_a_cache_does_not_change_outputs() -> None:
    attn, cache = SelfAttention(12, heads=3), KVCache().allocate(1)[0]
    parts = [attn(part, mask=masks.causal(), cache=cache) for part in X.split([3, 1, 3], 1)]
    assert_close(torch.cat(parts, 1), attn(X, mask=masks.causal()))
    assert cache.length == 7


def test_rotary_attention_is_invariant_to_a_shift_of_all_positions() -> None:
    attn = SelfAttention(12, heads=3)
    plain, shifted = (attn(X, rotary=positions.rotary_angles(torch.arange(7) + start, 4)) for start in (0, 100))
    assert_close(plain, shifted, atol=1e-5, rtol=1e-5)
    assert (plain - attn(X)).abs().max() > 1e-3


def test_cross_attention_computes_keys_and_values_once_with_a_cache() -> None:
    attn, cache = CrossAttention(12, heads=3), KVCache().allocate(1)[0]
    calls = []
    attn.to_key.register_forward_hook(lambda *_: calls.append(1))
    parts = [attn(part, ENCODED, cache=cache) for part in X.split([3, 1, 3], 1)]
    assert len(calls) == 1
    assert cache.length == 0  # encoder states do not count as decoded positions
    assert_close(torch.cat(parts, 1), attn(X, ENCODED))


def test_dropout_applies_in_training_only() -> None:
    attn = SelfAttention(12, heads=3, core=AttentionCore(dropout=0.5))
    assert (attn(X) - attn(X)).abs().max() > 1e-3
    attn.eval()
    assert_close(attn(X), attn(X), atol=0, rtol=0)


def test_a_layer_without_biases_has_none() -> None:
    assert [name for name, _ in SelfAttention(12, 3, qkv_bias=False).named_parameters() if "bias" in name] == []
    qkv_only = SelfAttention(12, 3, qkv_bias=True, out_bias=False)
    assert qkv_only.to_out.bias is None and qkv_only.to_key.bias is not None


def test_head_dim_can_be_set() -> None:
    attn = SelfAttention(10, heads=4, head_dim=8)
    assert attn.to_query.weight.shape == (32, 10) and attn.to_out.weight.shape == (10, 32)
    assert attn(torch.randn(1, 3, 10)).shape == (1, 3, 10)


def test_incompatible_sizes_raise_an_error() -> None:
    with pytest.raises(ConfigError, match="dim must be a multiple of heads, got dim=10 and heads=4"):
        SelfAttention(10, heads=4)
    with pytest.raises(ConfigError, match="heads must be a multiple of kv_heads, got heads=6 and kv_heads=4"):
        SelfAttention(12, heads=6, kv_heads=4)


CORES: dict[str, Callable[[], AttentionCore]] = {
    "plain": AttentionCore,
    "scale": lambda: AttentionCore(scale=1.0),
    "cosine": lambda: AttentionCore(score=scores.cosine(0.1)),
    "sink and softcap": lambda: AttentionCore(sink=0.5, softcap=2.0),
    "all": lambda: AttentionCore(scale=0.7, sink=-0.3, softcap=1.5, dropout=0.5),
}


@pytest.mark.parametrize("make", CORES.values(), ids=list(CORES))
@pytest.mark.parametrize("bias", [None, torch.randn(1, 3, 7, 7)], ids=["", "bias"])
def test_the_weights_of_a_core_are_those_of_its_weighted_sum(
    make: Callable[[], AttentionCore], bias: torch.Tensor | None
) -> None:
    core = make().eval()
    query, key, value = torch.randn(3, 2, 3, 7, 4)
    weights = core.weights(query, key, masks.causal(), bias)
    assert_close(weights @ value, core(query, key, value, masks.causal(), bias), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["T5", "T5 v1.1", "GPT", "Llama", "Transformer", "TransformerXL", "Bert"])
def test_a_hook_sees_the_exact_map_of_every_layer(name: str) -> None:
    model, kept = TINY[name].build(), []

    def watch(core: AttentionCore, args: tuple, output: torch.Tensor) -> None:
        query, key, value, *rest = args
        kept.append((core.weights(query, key, *rest), value, output))

    for module in model.modules():
        if isinstance(module, AttentionCore):
            module.register_forward_hook(watch)
    with torch.no_grad():
        TINY[name].ask(model)
    assert kept
    for weights, value, output in kept:
        value = value.repeat_interleave(output.shape[1] // value.shape[1], 1)
        assert_close(weights @ value, output, atol=1e-5, rtol=1e-4)
