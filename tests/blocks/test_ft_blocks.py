"""Blocks of FT-Transformer, and weight absorption."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.blocks import AttentionCore, FTBlock, GatedFeedForward, QKNormAttention, RMSNorm, SelfAttention, add_lora
from softlook.blocks.ft_blocks import _is_cheaper, absorbed_attend_to, ft_blocks

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "without biases": {"qkv_bias": False},
    "own scale": {"core": AttentionCore(scale=0.3)},
    "sink": {"core": AttentionCore(sink=0.0)},
    "grouped keys": {"kv_heads": 2},
}


def optimized_block(**changes: Any) -> Any:
    ffn = GatedFeedForward(24, 32, F.relu)
    block = FTBlock(SelfAttention(24, heads=4, **changes), ffn, lambda: nn.LayerNorm(24))
    with torch.no_grad():
        for weight in block.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    block._attend = absorbed_attend_to
    return block.double().eval()


def tokens(length: int = 7) -> Tensor:
    return torch.randn(3, length, 24, dtype=torch.float64)


def test_only_the_first_attention_has_no_norm() -> None:
    blocks: list[Any] = list(ft_blocks(3, 16, heads=4))
    assert [type(block.attn_norm) for block in blocks] == [nn.Identity, nn.LayerNorm, nn.LayerNorm]
    assert all(type(block.ffn_norm) is nn.LayerNorm for block in blocks)


def test_attention_biases_start_at_zero_and_feed_forward_biases_do_not() -> None:
    (block,) = ft_blocks(1, 16, heads=4)
    biases = {name: weight for name, weight in block.named_parameters() if name.endswith("bias")}
    assert all(not weight.any() for name, weight in biases.items() if name.startswith("attn."))
    assert all(weight.all() for name, weight in biases.items() if name.startswith("ffn."))


def test_default_hidden_width_is_four_thirds_of_dim() -> None:
    (explicit,), (default,) = ft_blocks(1, 24, heads=4, hidden=32), ft_blocks(1, 24, heads=4)
    shapes = [{name: weight.shape for name, weight in block.named_parameters()} for block in (explicit, default)]
    assert shapes[0] == shapes[1]


def test_columns_have_no_order() -> None:
    first, second = ft_blocks(2, 16, heads=4, attention_dropout=0.5, hidden_dropout=0.5, dropout=0.5).eval()
    x, order = torch.randn(5, 7, 16), torch.randperm(7)
    assert_close(second(first(x[:, order])), second(first(x))[:, order])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("count", [1, 2, 7])
def test_some_tokens_attending_to_all_equal_those_of_the_whole_block(case: str, count: int) -> None:
    block, x = optimized_block(**CASES[case]), tokens()
    assert_close(block(x[:, :count], context=x), block(x)[:, :count])


def test_gradients_of_absorbed_attention_are_those_of_the_whole_block() -> None:
    block, x = optimized_block(), tokens().requires_grad_()
    weights = {name: weight for name, weight in block.named_parameters() if not name.endswith("to_key.bias")}
    absorbed = torch.autograd.grad(block(x[:, :1], context=x).square().sum(), [x, *weights.values()])
    whole = torch.autograd.grad(block(x)[:, :1].square().sum(), [x, *weights.values()])
    for name, one, other in zip(["x", *weights], absorbed, whole, strict=True):
        assert_close(one, other, msg=lambda message, name=name: f"{name}: {message}")


def test_a_hook_on_the_core_sees_the_same_map_with_absorption() -> None:
    block, x, maps = optimized_block(), tokens(), []
    assert _is_cheaper(block.attn, x[:, :1], x)
    block.attn.core.register_forward_hook(lambda core, args, out: maps.append(core.weights(*args[:2])))
    block(x[:, :1], context=x)
    block(x)
    assert_close(maps[0], maps[1][:, :, :1])


def test_many_queries_lora_and_qk_norm_use_plain_attention() -> None:
    block, x = optimized_block(), tokens()
    assert not _is_cheaper(block.attn, x, x)
    add_lora(block, rank=2, target_modules=("to_key",))
    assert not _is_cheaper(block.attn, x[:, :1], x)
    block.attn = QKNormAttention(24, heads=4, norm=RMSNorm).double()
    assert not _is_cheaper(block.attn, x[:, :1], x)
    assert_close(block(x[:, :1], context=x), block(x)[:, :1])


def test_a_bias_uses_plain_attention() -> None:
    block, x, bias = optimized_block(), tokens(), torch.randn(1, 4, 7, 7, dtype=torch.float64)
    assert_close(block(x[:, :1], context=x, bias=bias[:, :, :1]), block(x, bias=bias)[:, :1])


def test_dropout_drops_the_same_fraction_of_the_value_bias() -> None:
    torch.manual_seed(0)
    block = optimized_block(core=AttentionCore(dropout=0.5)).train()
    x = torch.zeros(20_000, 7, 24, dtype=torch.float64)
    with torch.no_grad():
        outputs = [block(x[:, :1], context=x), block(x)[:, :1]]
    for one, other in zip(*((output.mean(0), output.std(0)) for output in outputs), strict=True):
        assert_close(one, other, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("count", [1, 2])
def test_the_bits_of_a_row_do_not_depend_on_its_index(count: int) -> None:
    block, x = optimized_block().float(), torch.randn(1, 12, 24).repeat(16, 1, 1)
    assert _is_cheaper(block.attn, x[:, :count], x)
    output = block(x[:, :count], context=x)
    assert bool((output == output[:1]).all())


def test_context_requires_a_multi_head_attention() -> None:
    block: Any = FTBlock(nn.Identity(), GatedFeedForward(24, 32, F.relu), lambda: nn.LayerNorm(24))
    with pytest.raises(ConfigError, match="needs a MultiHeadAttention, got a Identity"):
        block(torch.randn(3, 1, 24), context=torch.randn(3, 7, 24))
