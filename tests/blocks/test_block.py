"""Transformer blocks: residual connections and norms."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from softlook import masks
from softlook.blocks import (
    CrossAttention,
    FeedForward,
    KVCache,
    ParallelBlock,
    PostNormBlock,
    PostNormDecoderBlock,
    PreNormBlock,
    PreNormDecoderBlock,
    RMSNorm,
    SandwichNormBlock,
    SelfAttention,
    SharedNormParallelBlock,
)

X = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0))
ENCODED = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1))
CAUSAL = masks.causal()


def norm() -> nn.LayerNorm:
    layer = nn.LayerNorm(12)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer


def build(kind: type[nn.Module], **options: Any) -> Any:
    return kind(SelfAttention(12, 3), FeedForward(12), norm, **options)


def build_decoder(kind: type[nn.Module]) -> Any:
    return kind(SelfAttention(12, 3), CrossAttention(12, 3), FeedForward(12), norm)


def test_post_norm_block_normalizes_each_sum() -> None:
    block = build(PostNormBlock)
    x = block.attn_norm(X + block.attn(X, mask=CAUSAL))
    assert_close(block(X, mask=CAUSAL), block.ffn_norm(x + block.ffn(x)))


def test_pre_norm_block_leaves_the_residual_stream_unnormalized() -> None:
    block = build(PreNormBlock)
    x = X + block.attn(block.attn_norm(X), mask=CAUSAL)
    assert_close(block(X, mask=CAUSAL), x + block.ffn(block.ffn_norm(x)))


def test_sandwich_norm_block_normalizes_inputs_and_outputs_of_layers() -> None:
    block = build(SandwichNormBlock)
    x = X + block.attn_post_norm(block.attn(block.attn_norm(X), mask=CAUSAL))
    assert_close(block(X, mask=CAUSAL), x + block.ffn_post_norm(block.ffn(block.ffn_norm(x))))


def test_parallel_blocks_feed_both_layers_from_the_block_input() -> None:
    block = build(ParallelBlock)
    expected = X + block.attn(block.attn_norm(X), mask=CAUSAL) + block.ffn(block.ffn_norm(X))
    assert_close(block(X, mask=CAUSAL), expected)
    block = build(SharedNormParallelBlock)
    normed = block.norm(X)
    assert_close(block(X, mask=CAUSAL), X + block.attn(normed, mask=CAUSAL) + block.ffn(normed))


@pytest.mark.parametrize("kind", [PreNormBlock, SandwichNormBlock, ParallelBlock, SharedNormParallelBlock])
def test_dropout_applies_to_layer_outputs_and_not_to_the_residual_stream(kind: type[nn.Module]) -> None:
    assert_close(build(kind, dropout=1.0)(X), X)


def test_dropout_of_a_post_norm_block_leaves_the_norms() -> None:
    block = build(PostNormBlock, dropout=1.0)
    assert_close(block(X), block.ffn_norm(block.attn_norm(X)))


def test_post_norm_decoder_block_attends_to_itself_then_to_the_encoder() -> None:
    block, padding = build_decoder(PostNormDecoderBlock), masks.padding([5, 2])
    x = block.attn_norm(X + block.attn(X, mask=CAUSAL))
    x = block.cross_attn_norm(x + block.cross_attn(x, ENCODED, mask=padding))
    assert_close(block(X, ENCODED, mask=CAUSAL, encoder_mask=padding), block.ffn_norm(x + block.ffn(x)))


def test_pre_norm_decoder_block_attends_to_itself_then_to_the_encoder() -> None:
    block, padding = build_decoder(PreNormDecoderBlock), masks.padding([5, 2])
    x = X + block.attn(block.attn_norm(X), mask=CAUSAL)
    x = x + block.cross_attn(block.cross_attn_norm(x), ENCODED, mask=padding)
    assert_close(block(X, ENCODED, mask=CAUSAL, encoder_mask=padding), x + block.ffn(block.ffn_norm(x)))


@pytest.mark.parametrize("kind", [PreNormDecoderBlock, PostNormDecoderBlock])
def test_decoder_block_gives_the_same_outputs_step_by_step(kind: type[nn.Module]) -> None:
    block, cache = build_decoder(kind), KVCache().allocate(1)[0]
    with torch.no_grad():
        steps = [block(step, ENCODED, mask=CAUSAL, cache=cache) for step in X.split(1, 1)]
    assert_close(torch.cat(steps, 1), block(X, ENCODED, mask=CAUSAL))


def test_gradients_pass_through_the_residual_stream_when_all_weights_are_zero() -> None:
    block = build(PreNormBlock)
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    x = X.clone().requires_grad_()
    block(x).sum().backward()
    assert x.grad is not None
    assert_close(x.grad, torch.ones_like(X))


def test_rms_norm_keeps_the_direction_and_gives_every_vector_the_same_size() -> None:
    def size(x: Tensor) -> Tensor:
        return x.square().mean(-1).sqrt()

    normed = RMSNorm(12)(X)
    assert_close(size(normed), torch.ones(2, 7), atol=1e-4, rtol=1e-4)
    assert_close(nn.functional.cosine_similarity(normed, X, dim=-1), torch.ones(2, 7))
