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
OTHER = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1))


def test_it_is_the_written_out_formula() -> None:
    attend = SelfAttention(12, heads=3)
    query, key, value = (
        (X @ layer.weight.T + layer.bias).view(2, 7, 3, 4).transpose(1, 2)
        for layer in (attend.to_query, attend.to_key, attend.to_value)
    )
    weights = (query @ key.mT / 2).softmax(-1)
    joined = (weights @ value).transpose(1, 2).reshape(2, 7, 12)
    assert_close(attend(X), joined @ attend.to_out.weight.T + attend.to_out.bias)


def test_many_heads_have_as_many_weights_as_one() -> None:
    count = [sum(p.numel() for p in SelfAttention(12, heads).parameters()) for heads in (1, 2, 6)]
    assert count[0] == count[1] == count[2] == 4 * (12 * 12 + 12)


def test_shared_key_heads_answer_as_repeated_ones() -> None:
    shared, repeated = SelfAttention(12, heads=6, kv_heads=2), SelfAttention(12, heads=6)
    state = shared.state_dict()
    for name in ("to_key.weight", "to_key.bias", "to_value.weight", "to_value.bias"):
        state[name] = state[name].unflatten(0, (2, 2)).repeat_interleave(3, 0).flatten(0, 1)
    repeated.load_state_dict(state)
    assert_close(shared(X, mask=masks.causal()), repeated(X, mask=masks.causal()))


def test_a_hook_at_the_mixing_sees_the_look_up_and_may_change_it() -> None:
    attend, seen = SelfAttention(12, heads=3), []

    def watch(module: nn.Module, args: tuple, output: torch.Tensor) -> torch.Tensor:
        query, key, value, mask, bias = args
        seen.append((output, attention(query, key, value, mask=mask, bias=bias)))
        gate = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
        return output * gate

    hook = attend.core.register_forward_hook(watch)
    gated = attend(X, mask=masks.causal())
    hook.remove()
    assert_close(*seen[0])
    with torch.no_grad():
        attend.to_out.weight[:, 4:] = 0  # what the two silenced heads would have added
    assert_close(gated, attend(X, mask=masks.causal()))


def test_a_memory_changes_speed_and_not_answers() -> None:
    attend, memory = SelfAttention(12, heads=3), KVCache().allocate(1)[0]
    parts = [attend(part, mask=masks.causal(), cache=memory) for part in X.split([3, 1, 3], 1)]
    assert_close(torch.cat(parts, 1), attend(X, mask=masks.causal()))
    assert memory.length == 7


def test_rotary_answers_do_not_change_when_everything_moves_along() -> None:
    attend = SelfAttention(12, heads=3)
    here, there = (attend(X, rotary=positions.rotary_angles(torch.arange(7) + start, 4)) for start in (0, 100))
    assert_close(here, there, atol=1e-5, rtol=1e-5)
    assert (here - attend(X)).abs().max() > 1e-3


def test_other_keys_and_values_are_made_once_with_a_memory() -> None:
    attend, memory = CrossAttention(12, heads=3), KVCache().allocate(1)[0]
    calls = []
    attend.to_key.register_forward_hook(lambda *_: calls.append(1))
    parts = [attend(part, OTHER, cache=memory) for part in X.split([3, 1, 3], 1)]
    assert len(calls) == 1
    assert memory.length == 0  # what is read is not what was said
    assert_close(torch.cat(parts, 1), attend(X, OTHER))


def test_dropout_acts_while_training_only() -> None:
    attend = SelfAttention(12, heads=3, core=AttentionCore(dropout=0.5))
    assert (attend(X) - attend(X)).abs().max() > 1e-3
    attend.eval()
    assert_close(attend(X), attend(X), atol=0, rtol=0)


def test_a_layer_without_biases_has_none() -> None:
    assert [name for name, _ in SelfAttention(12, 3, qkv_bias=False).named_parameters() if "bias" in name] == []
    only_in = SelfAttention(12, 3, qkv_bias=True, out_bias=False)
    assert only_in.to_out.bias is None and only_in.to_key.bias is not None


def test_the_width_of_a_head_can_be_told() -> None:
    attend = SelfAttention(10, heads=4, head_dim=8)
    assert attend.to_query.weight.shape == (32, 10) and attend.to_out.weight.shape == (10, 32)
    assert attend(torch.randn(1, 3, 10)).shape == (1, 3, 10)


def test_sizes_that_do_not_go_together_are_errors() -> None:
    with pytest.raises(ConfigError, match="dim must be a multiple of heads, got dim=10 and heads=4"):
        SelfAttention(10, heads=4)
    with pytest.raises(ConfigError, match="heads must be a multiple of kv_heads, got heads=6 and kv_heads=4"):
        SelfAttention(12, heads=6, kv_heads=4)


PARTS: dict[str, Callable[[], AttentionCore]] = {
    "plain": AttentionCore,
    "scale": lambda: AttentionCore(scale=1.0),
    "cosine": lambda: AttentionCore(score=scores.cosine(0.1)),
    "sink and soft cap": lambda: AttentionCore(sink=0.5, softcap=2.0),
    "all": lambda: AttentionCore(scale=0.7, sink=-0.3, softcap=1.5, dropout=0.5),
}


@pytest.mark.parametrize("make", PARTS.values(), ids=list(PARTS))
@pytest.mark.parametrize("bias", [None, torch.randn(1, 3, 7, 7)], ids=["", "bias"])
def test_the_weights_of_a_mixing_are_those_it_averages_with(
    make: Callable[[], AttentionCore], bias: torch.Tensor | None
) -> None:
    mix = make().eval()
    query, key, value = torch.randn(3, 2, 3, 7, 4)
    weights = mix.weights(query, key, masks.causal(), bias)
    assert_close(weights @ value, mix(query, key, value, masks.causal(), bias), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["T5", "T5 v1.1", "GPT", "Llama", "Transformer", "TransformerXL", "Bert"])
def test_a_hook_finds_the_very_map_of_every_layer(name: str) -> None:
    model, kept = TINY[name].build(), []

    def watch(mix: AttentionCore, args: tuple, output: torch.Tensor) -> None:
        query, key, value, *rest = args
        kept.append((mix.weights(query, key, *rest), value, output))

    for module in model.modules():
        if isinstance(module, AttentionCore):
            module.register_forward_hook(watch)
    with torch.no_grad():
        TINY[name].ask(model)
    assert kept
    for weights, value, output in kept:
        value = value.repeat_interleave(output.shape[1] // value.shape[1], 1)
        assert_close(weights @ value, output, atol=1e-5, rtol=1e-4)
