"""softlook's modules match torch's attention modules on the samples of torch's own tests, with the same weights.

By default torch's modules take (positions, batch, width); they accept inputs without a batch, and their masks are True
for masked keys. The calls are adapted here.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.testing._internal.common_modules import module_db

from softlook import attention_weights
from softlook.blocks import (
    AttentionCore,
    CrossAttention,
    FeedForward,
    PostNormBlock,
    PostNormDecoderBlock,
    PreNormBlock,
    PreNormDecoderBlock,
    SelfAttention,
)

DTYPES = (torch.float32, torch.float64)
COUNTS = {
    nn.MultiheadAttention: 64,
    nn.TransformerEncoderLayer: 35,
    nn.TransformerDecoderLayer: 67,
    nn.Transformer: 64,
}


def samples(module: type[nn.Module], dtype: torch.dtype = torch.float32) -> list[Any]:
    """The samples of a module; the same values in every call."""
    (info,) = [info for info in module_db if info.module_cls is module]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=False)


def every(module: type[nn.Module]) -> Callable[..., Any]:
    numbers = range(COUNTS[module])
    return lambda test: pytest.mark.parametrize("dtype", DTYPES)(pytest.mark.parametrize("number", numbers)(test))


def build_reference(module: Any, sample: Any, dtype: torch.dtype) -> Any:
    """Torch's module with noise on all weights and biases, so that every one matters."""
    arguments = sample.constructor_input
    reference = module(*arguments.args, **arguments.kwargs).to(dtype).eval()
    with torch.no_grad():
        for weight in reference.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return reference


# --- copying weights -------------------------------------------------------------------------------------------------


def copy_weights(actual: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
    actual.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})


def convert_attention(reference: Any, kind: Callable[..., Any] = CrossAttention, **options: Any) -> Any:
    """Torch's multi-head attention as softlook's."""
    bias, fused = reference.in_proj_bias is not None, reference.in_proj_weight
    kv_dim, core = reference.kdim if fused is None else None, AttentionCore(**options)
    actual = kind(reference.embed_dim, reference.num_heads, kv_dim=kv_dim, qkv_bias=bias, core=core)
    actual.to(dtype_of(reference))
    separate = (reference.q_proj_weight, reference.k_proj_weight, reference.v_proj_weight)
    weights = separate if fused is None else fused.chunk(3)
    biases = reference.in_proj_bias.chunk(3) if bias else (None, None, None)
    for layer, weight, own in zip((actual.to_query, actual.to_key, actual.to_value), weights, biases, strict=True):
        copy_weights(layer, weight, own)
    copy_weights(actual.to_out, reference.out_proj.weight, reference.out_proj.bias)
    return actual


def convert_feed_forward(reference: Any) -> FeedForward:
    first, second = reference.linear1, reference.linear2
    actual = FeedForward(first.in_features, first.out_features, reference.activation, bias=first.bias is not None)
    actual.to(dtype_of(reference))
    copy_weights(actual.to_up, first.weight, first.bias)
    copy_weights(actual.to_out, second.weight, second.bias)
    return actual


def norms(reference: Any) -> Callable[[], nn.Module]:
    """A factory that returns torch's norms in order."""
    layers = iter([getattr(reference, name) for name in ("norm1", "norm2", "norm3") if hasattr(reference, name)])
    return lambda: next(layers)


def convert_encoder_layer(reference: Any) -> PreNormBlock | PostNormBlock:
    block = PreNormBlock if reference.norm_first else PostNormBlock
    return block(
        convert_attention(reference.self_attn, SelfAttention), convert_feed_forward(reference), norms(reference)
    )


def convert_decoder_layer(reference: Any) -> PreNormDecoderBlock | PostNormDecoderBlock:
    layers = convert_attention(reference.self_attn, SelfAttention), convert_attention(reference.multihead_attn)
    block = PreNormDecoderBlock if reference.norm_first else PostNormDecoderBlock
    return block(*layers, convert_feed_forward(reference), norms(reference))


def dtype_of(reference: nn.Module) -> torch.dtype:
    return next(reference.parameters()).dtype


# --- adapting calls --------------------------------------------------------------------------------------------------


def batched(x: Tensor, batch_first: bool) -> Tensor:
    """Torch's layout as (batch, positions, width)."""
    return x[None] if x.ndim == 2 else x if batch_first else x.transpose(0, 1)


def as_torch(x: Tensor, like: Tensor, batch_first: bool) -> Tensor:
    """(batch, positions, width) in torch's layout."""
    return x[0] if like.ndim == 2 else x if batch_first else x.transpose(0, 1)


def visible(attn_mask: Tensor | None, padding_mask: Tensor | None) -> Tensor | None:
    """Torch's masks (True is masked) of pairs (T, S) or (H, T, S) and of keys (S,) or (B, S), with True for visible."""
    pairs = None if attn_mask is None else ~attn_mask[None] if attn_mask.ndim == 3 else ~attn_mask[None, None]
    keys = None if padding_mask is None else ~torch.atleast_2d(padding_mask)[:, None, None]
    if pairs is None or keys is None:
        return keys if pairs is None else pairs
    return pairs & keys


def check(actual: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    """Compare outputs, and in float64, where rounding errors are small, the gradients of the inputs."""
    if expected.dtype == torch.float32:
        return assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert_close(actual, expected)
    upstream = torch.randn_like(expected)
    found = torch.autograd.grad(actual, inputs, upstream, allow_unused=True)
    return assert_close(found, torch.autograd.grad(expected, inputs, upstream, allow_unused=True))


def run_attention(
    reference: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """softlook's output and attention maps. add_zero_attn is a sink of score 0, bias_k and bias_v an additional key."""
    actual = convert_attention(reference, sink=0.0 if reference.add_zero_attn else None)
    queries, keys, values = (
        actual.split_heads(project(x))
        for project, x in ((actual.to_query, query), (actual.to_key, key), (actual.to_value, value))
    )
    if reference.bias_k is not None:
        rows = (bias.expand(len(query), 1, -1) for bias in (reference.bias_k, reference.bias_v))
        biases = (actual.split_heads(row) for row in rows)
        keys, values = (torch.cat(both, 2) for both in zip((keys, values), biases, strict=True))
        mask = None if mask is None else nn.functional.pad(mask, (0, 1), value=True)
    maps = attention_weights(queries, keys, mask=mask, sink=actual.core.sink)
    if reference.add_zero_attn:  # torch returns the weight of the zero key as a last column
        maps = torch.cat([maps, 1 - maps.sum(-1, keepdim=True)], -1)
    return actual.merge_heads(actual.core(queries, keys, values, mask)), maps


# --- the samples -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", COUNTS, ids=lambda module: module.__name__)
def test_all_samples_are_tested(module: type[nn.Module]) -> None:
    assert len(samples(module)) == COUNTS[module]


@every(nn.MultiheadAttention)
def test_multi_head_attention_matches_torch_s(number: int, dtype: torch.dtype) -> None:
    sample = samples(nn.MultiheadAttention, dtype)[number]
    reference = build_reference(nn.MultiheadAttention, sample, dtype)
    inputs, masks = sample.forward_input.args, sample.forward_input.kwargs
    expected, expected_map = reference(*inputs, **masks)
    mask = visible(masks["attn_mask"], masks["key_padding_mask"])
    query, key, value = (batched(x, reference.batch_first) for x in inputs)
    output, maps = run_attention(reference, query, key, value, mask)
    assert_close(maps.mean(1)[0], expected_map)
    check(as_torch(output, expected, reference.batch_first), expected, list(inputs))


@every(nn.TransformerEncoderLayer)
def test_a_block_matches_torch_s_encoder_layer(number: int, dtype: torch.dtype) -> None:
    sample = samples(nn.TransformerEncoderLayer, dtype)[number]
    reference = build_reference(nn.TransformerEncoderLayer, sample, dtype)
    (x,), masks = sample.forward_input.args, sample.forward_input.kwargs
    batch_first = reference.self_attn.batch_first
    mask = visible(masks.get("src_mask"), masks.get("src_key_padding_mask"))
    output = convert_encoder_layer(reference)(batched(x, batch_first), mask=mask)
    check(as_torch(output, x, batch_first), reference(x, **masks), [x])


@every(nn.TransformerDecoderLayer)
def test_a_decoder_block_matches_torch_s_decoder_layer(number: int, dtype: torch.dtype) -> None:
    sample = samples(nn.TransformerDecoderLayer, dtype)[number]
    reference = build_reference(nn.TransformerDecoderLayer, sample, dtype)
    (x, other), masks = sample.forward_input.args, sample.forward_input.kwargs
    batch_first = reference.self_attn.batch_first
    output = convert_decoder_layer(reference)(
        batched(x, batch_first),
        batched(other, batch_first),
        mask=visible(masks.get("tgt_mask"), masks.get("tgt_key_padding_mask")),
        encoder_mask=visible(masks.get("memory_mask"), masks.get("memory_key_padding_mask")),
    )
    check(as_torch(output, x, batch_first), reference(x, other, **masks), [x, other])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True, but")  # torch warns that its fast path is disabled
@every(nn.Transformer)
def test_a_block_and_a_decoder_block_match_torch_s_transformer(number: int, dtype: torch.dtype) -> None:
    sample = samples(nn.Transformer, dtype)[number]
    reference = build_reference(nn.Transformer, sample, dtype)
    (source, target), masks = sample.forward_input.args, sample.forward_input.kwargs
    batch_first = reference.batch_first
    encode = convert_encoder_layer(reference.encoder.layers[0])
    decode = convert_decoder_layer(reference.decoder.layers[0])
    source_mask = visible(masks["src_mask"], masks["src_key_padding_mask"])
    target_mask = visible(masks["tgt_mask"], masks["tgt_key_padding_mask"])
    encoded = reference.encoder.norm(encode(batched(source, batch_first), mask=source_mask))
    output = reference.decoder.norm(decode(batched(target, batch_first), encoded, mask=target_mask))
    check(as_torch(output, target, batch_first), reference(source, target, **masks), [source, target])


# --- beyond the samples ----------------------------------------------------------------------------------------------


def test_a_float_attn_mask_is_a_bias() -> None:
    reference = nn.MultiheadAttention(12, 3, batch_first=True)
    query, other, added = torch.randn(2, 5, 12), torch.randn(2, 7, 12), torch.randn(2 * 3, 5, 7)
    expected, expected_maps = reference(query, other, other, attn_mask=added, average_attn_weights=False)
    actual, bias = convert_attention(reference), added.view(2, 3, 5, 7)
    assert_close(actual(query, other, bias=bias), expected)
    queries, (keys, _) = actual.split_heads(actual.to_query(query)), actual.project_kv(other)
    assert_close(attention_weights(queries, keys, bias=bias), expected_maps)


def test_keys_and_values_may_have_another_width() -> None:
    reference = nn.MultiheadAttention(12, 3, kdim=5, vdim=5, batch_first=True)
    query, other = torch.randn(2, 4, 12), torch.randn(2, 7, 5)
    assert_close(convert_attention(reference)(query, other), reference(query, other, other, need_weights=False)[0])


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_block_with_a_causal_mask_matches_torch_s_causal_encoder_layer(norm_first: bool) -> None:
    reference = nn.TransformerEncoderLayer(12, 3, 24, 0.0, norm_first=norm_first, batch_first=True)
    x, additive_mask = torch.randn(2, 6, 12), nn.Transformer.generate_square_subsequent_mask(6)
    assert_close(convert_encoder_layer(reference)(x, mask=additive_mask == 0), reference(x, src_mask=additive_mask))
