"""The samples torch tests its own attention modules with give the same answers in softlook, weights copied across.

Torch's modules put the positions first unless told otherwise, take rows without a batch, and say True where a key is
hidden. The call is adapted here; the numbers come from softlook's modules.
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

KINDS = (torch.float32, torch.float64)
COUNTS = {
    nn.MultiheadAttention: 64,
    nn.TransformerEncoderLayer: 35,
    nn.TransformerDecoderLayer: 67,
    nn.Transformer: 64,
}


def samples(module: type[nn.Module], kind: torch.dtype = torch.float32) -> list[Any]:
    """Always the same numbers, whoever asks and whenever."""
    (info,) = [info for info in module_db if info.module_cls is module]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return info.module_inputs_func(info, device="cpu", dtype=kind, requires_grad=True, training=False)


def every(module: type[nn.Module]) -> Callable[..., Any]:
    numbers = range(COUNTS[module])
    return lambda test: pytest.mark.parametrize("kind", KINDS)(pytest.mark.parametrize("number", numbers)(test))


def built(module: Any, sample: Any, kind: torch.dtype) -> Any:
    """Torch's module, with weights and biases that matter."""
    made = sample.constructor_input
    reference = module(*made.args, **made.kwargs).to(kind).eval()
    with torch.no_grad():
        for weight in reference.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return reference


# --- weights across --------------------------------------------------------------------------------------------------


def copied(actual: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
    actual.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})


def heads(reference: Any, kind: Callable[..., Any] = CrossAttention, **options: Any) -> Any:
    """Torch's multi-head attention as ours."""
    bias, stacked = reference.in_proj_bias is not None, reference.in_proj_weight
    source = reference.kdim if stacked is None else None
    actual = kind(reference.embed_dim, reference.num_heads, source=source, bias=bias, mix=AttentionCore(**options))
    actual.to(kind_of(reference))
    parts = (reference.q_proj_weight, reference.k_proj_weight, reference.v_proj_weight)
    weights = parts if stacked is None else stacked.chunk(3)
    biases = reference.in_proj_bias.chunk(3) if bias else (None, None, None)
    for layer, weight, own in zip((actual.to_query, actual.to_key, actual.to_value), weights, biases, strict=True):
        copied(layer, weight, own)
    copied(actual.to_out, reference.out_proj.weight, reference.out_proj.bias)
    return actual


def feed(reference: Any) -> FeedForward:
    first, second = reference.linear1, reference.linear2
    actual = FeedForward(first.in_features, first.out_features, reference.activation, bias=first.bias is not None)
    actual.to(kind_of(reference))
    copied(actual.to_up, first.weight, first.bias)
    copied(actual.to_out, second.weight, second.bias)
    return actual


def norms(reference: Any) -> Callable[[], nn.Module]:
    """Torch's own norms, one after the other."""
    layers = iter([getattr(reference, name) for name in ("norm1", "norm2", "norm3") if hasattr(reference, name)])
    return lambda: next(layers)


def encoder(reference: Any) -> PreNormBlock | PostNormBlock:
    block = PreNormBlock if reference.norm_first else PostNormBlock
    return block(heads(reference.self_attn, SelfAttention), feed(reference), norms(reference))


def decoder(reference: Any) -> PreNormDecoderBlock | PostNormDecoderBlock:
    looks = heads(reference.self_attn, SelfAttention), heads(reference.multihead_attn)
    block = PreNormDecoderBlock if reference.norm_first else PostNormDecoderBlock
    return block(*looks, feed(reference), norms(reference))


def kind_of(reference: nn.Module) -> torch.dtype:
    return next(reference.parameters()).dtype


# --- the call, adapted -----------------------------------------------------------------------------------------------


def batched(x: Tensor, batch_first: bool) -> Tensor:
    """Torch's layout as (batch, positions, width)."""
    return x[None] if x.ndim == 2 else x if batch_first else x.transpose(0, 1)


def as_torch(x: Tensor, like: Tensor, batch_first: bool) -> Tensor:
    """And back."""
    return x[0] if like.ndim == 2 else x if batch_first else x.transpose(0, 1)


def may_look(hidden: Tensor | None, absent: Tensor | None) -> Tensor | None:
    """Torch's True = hidden, of pairs (T, S) or (heads, T, S) and of keys (S,) or (B, S), as True = may look."""
    pairs = None if hidden is None else ~hidden[None] if hidden.ndim == 3 else ~hidden[None, None]
    keys = None if absent is None else ~torch.atleast_2d(absent)[:, None, None]
    if pairs is None or keys is None:
        return keys if pairs is None else pairs
    return pairs & keys


def agree(actual: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    """The same output, and in double precision, where rounding hides nothing, the same gradient for what went in."""
    if expected.dtype == torch.float32:
        return assert_close(actual, expected, rtol=1e-5, atol=1e-5)
    assert_close(actual, expected)
    upstream = torch.randn_like(expected)
    found = torch.autograd.grad(actual, inputs, upstream, allow_unused=True)
    return assert_close(found, torch.autograd.grad(expected, inputs, upstream, allow_unused=True))


def attend(reference: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """What our heads answer, and their maps. A zero key is a sink of score 0; a learned one is a key like any other."""
    actual = heads(reference, sink=0.0 if reference.add_zero_attn else None)
    looks, keys, values = (
        actual.split(project(x))
        for project, x in ((actual.to_query, query), (actual.to_key, key), (actual.to_value, value))
    )
    if reference.bias_k is not None:
        learned = (actual.split(part.expand(len(query), 1, -1)) for part in (reference.bias_k, reference.bias_v))
        keys, values = (torch.cat(both, 2) for both in zip((keys, values), learned, strict=True))
        mask = None if mask is None else nn.functional.pad(mask, (0, 1), value=True)
    maps = attention_weights(looks, keys, mask=mask, sink=actual.core.sink)
    if reference.add_zero_attn:  # the share of nothing, which torch shows as a last column
        maps = torch.cat([maps, 1 - maps.sum(-1, keepdim=True)], -1)
    return actual.join(actual.mix(looks, keys, values, mask)), maps


# --- the samples -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", COUNTS, ids=lambda module: module.__name__)
def test_no_sample_is_left_out(module: type[nn.Module]) -> None:
    assert len(samples(module)) == COUNTS[module]


@every(nn.MultiheadAttention)
def test_multi_head_attention_matches_torch_s(number: int, kind: torch.dtype) -> None:
    sample = samples(nn.MultiheadAttention, kind)[number]
    reference = built(nn.MultiheadAttention, sample, kind)
    inputs, masks = sample.forward_input.args, sample.forward_input.kwargs
    expected, wanted_map = reference(*inputs, **masks)
    mask = may_look(masks["attn_mask"], masks["key_padding_mask"])
    query, key, value = (batched(x, reference.batch_first) for x in inputs)
    output, maps = attend(reference, query, key, value, mask)
    assert_close(maps.mean(1)[0], wanted_map)
    agree(as_torch(output, expected, reference.batch_first), expected, list(inputs))


@every(nn.TransformerEncoderLayer)
def test_a_block_matches_torch_s_encoder_layer(number: int, kind: torch.dtype) -> None:
    sample = samples(nn.TransformerEncoderLayer, kind)[number]
    reference = built(nn.TransformerEncoderLayer, sample, kind)
    (x,), masks = sample.forward_input.args, sample.forward_input.kwargs
    batch_first = reference.self_attn.batch_first
    mask = may_look(masks.get("src_mask"), masks.get("src_key_padding_mask"))
    output = encoder(reference)(batched(x, batch_first), mask=mask)
    agree(as_torch(output, x, batch_first), reference(x, **masks), [x])


@every(nn.TransformerDecoderLayer)
def test_a_decoder_block_matches_torch_s_decoder_layer(number: int, kind: torch.dtype) -> None:
    sample = samples(nn.TransformerDecoderLayer, kind)[number]
    reference = built(nn.TransformerDecoderLayer, sample, kind)
    (x, other), masks = sample.forward_input.args, sample.forward_input.kwargs
    batch_first = reference.self_attn.batch_first
    output = decoder(reference)(
        batched(x, batch_first),
        batched(other, batch_first),
        mask=may_look(masks.get("tgt_mask"), masks.get("tgt_key_padding_mask")),
        other_mask=may_look(masks.get("memory_mask"), masks.get("memory_key_padding_mask")),
    )
    agree(as_torch(output, x, batch_first), reference(x, other, **masks), [x, other])


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True, but")  # torch tells that it will be no faster
@every(nn.Transformer)
def test_a_block_and_a_decoder_block_answer_as_torch_s_transformer(number: int, kind: torch.dtype) -> None:
    sample = samples(nn.Transformer, kind)[number]
    reference = built(nn.Transformer, sample, kind)
    (source, target), masks = sample.forward_input.args, sample.forward_input.kwargs
    batch_first = reference.batch_first
    encode, decode = encoder(reference.encoder.layers[0]), decoder(reference.decoder.layers[0])
    source_mask = may_look(masks["src_mask"], masks["src_key_padding_mask"])
    target_mask = may_look(masks["tgt_mask"], masks["tgt_key_padding_mask"])
    read = reference.encoder.norm(encode(batched(source, batch_first), mask=source_mask))
    output = reference.decoder.norm(decode(batched(target, batch_first), read, mask=target_mask))
    agree(as_torch(output, target, batch_first), reference(source, target, **masks), [source, target])


# --- beside the samples ----------------------------------------------------------------------------------------------


def test_numbers_added_to_the_scores_are_a_bias() -> None:
    reference = nn.MultiheadAttention(12, 3, batch_first=True)
    query, other, added = torch.randn(2, 5, 12), torch.randn(2, 7, 12), torch.randn(2 * 3, 5, 7)
    expected, wanted_maps = reference(query, other, other, attn_mask=added, average_attn_weights=False)
    actual, bias = heads(reference), added.view(2, 3, 5, 7)
    assert_close(actual(query, other, bias=bias), expected)
    looks, (keys, _) = actual.split(actual.to_query(query)), actual.project_kv(other)
    assert_close(attention_weights(looks, keys, bias=bias), wanted_maps)


def test_keys_and_values_may_have_another_width() -> None:
    reference = nn.MultiheadAttention(12, 3, kdim=5, vdim=5, batch_first=True)
    query, other = torch.randn(2, 4, 12), torch.randn(2, 7, 5)
    assert_close(heads(reference)(query, other), reference(query, other, other, need_weights=False)[0])


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_causal_encoder_layer_of_torch_s_is_a_block_with_a_causal_mask(norm_first: bool) -> None:
    reference = nn.TransformerEncoderLayer(12, 3, 24, 0.0, norm_first=norm_first, batch_first=True)
    x, ahead = torch.randn(2, 6, 12), nn.Transformer.generate_square_subsequent_mask(6)
    assert_close(encoder(reference)(x, mask=ahead == 0), reference(x, src_mask=ahead))
