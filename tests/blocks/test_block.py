"""Blocks, and how their layers are joined to the path around them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from softlook import masks
from softlook.blocks import (
    Block,
    CrossAttention,
    DecoderBlock,
    FeedForward,
    Memory,
    ParallelBlock,
    PostNorm,
    PreNorm,
    RMSNorm,
    Sandwich,
    SelfAttention,
)

X = torch.randn(2, 7, 12, generator=torch.Generator().manual_seed(0))
OTHER = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1))


def norm() -> nn.LayerNorm:
    made = nn.LayerNorm(12)
    nn.init.normal_(made.weight)
    nn.init.normal_(made.bias)
    return made


ARRANGEMENTS = {
    "post": lambda: PostNorm(norm()),
    "pre": lambda: PreNorm(norm()),
    "sandwich": lambda: Sandwich(norm(), norm()),
}


def test_post_norm_norms_the_sum() -> None:
    around, layer = PostNorm(norm()), nn.Linear(12, 12)
    assert_close(around(X, layer), around.norm(X + layer(X)))


def test_pre_norm_leaves_the_path_untouched() -> None:
    around, layer = PreNorm(norm()), nn.Linear(12, 12)
    assert_close(around(X, layer), X + layer(around.norm(X)))
    assert_close(around(X, torch.zeros_like), X)


def test_a_sandwich_norms_what_goes_in_and_what_comes_out() -> None:
    around, layer = Sandwich(norm(), norm()), nn.Linear(12, 12)
    assert_close(around(X, layer), X + around.closing(layer(around.norm(X))))


@pytest.mark.parametrize("kind", ARRANGEMENTS)
def test_residual_dropout_takes_from_the_layer_and_not_from_the_path(kind: str) -> None:
    around = ARRANGEMENTS[kind]()
    around.drop.p = 1.0
    untouched = around.norm(X) if kind == "post" else X
    assert_close(around(X, nn.Linear(12, 12)), untouched)


@pytest.mark.parametrize("kind", ARRANGEMENTS)
def test_a_block_looks_and_then_thinks(kind: str) -> None:
    block = Block(SelfAttention(12, 3), FeedForward(12), ARRANGEMENTS[kind])
    seen = block.around_attend(X, lambda x: block.attend(x, mask=masks.causal()))
    assert_close(block(X, mask=masks.causal()), block.around_feed(seen, block.feed))


def test_a_parallel_block_looks_and_thinks_at_once() -> None:
    block: Any = ParallelBlock(SelfAttention(12, 3), FeedForward(12), ARRANGEMENTS["pre"])
    normed = block.around.norm(X)
    wanted = X + block.attend(normed, mask=masks.causal()) + block.feed(normed)
    assert_close(block(X, mask=masks.causal()), wanted)


def test_a_decoder_block_looks_back_then_across_then_thinks() -> None:
    block = DecoderBlock(SelfAttention(12, 3), CrossAttention(12, 3), FeedForward(12), ARRANGEMENTS["post"])
    hidden = masks.padding([5, 2])
    x = block.around_attend(X, lambda x: block.attend(x, mask=masks.causal()))
    x = block.around_cross(x, lambda x: block.cross(x, OTHER, mask=hidden))
    given = block(X, OTHER, mask=masks.causal(), other_mask=hidden)
    assert_close(given, block.around_feed(x, block.feed))


def test_a_decoder_block_answers_the_same_step_by_step() -> None:
    block = DecoderBlock(SelfAttention(12, 3), CrossAttention(12, 3), FeedForward(12), ARRANGEMENTS["pre"])
    memory = Memory().layers(1)[0]
    steps = [block(step, OTHER, mask=masks.causal(), memory=memory) for step in X.split(1, 1)]
    assert_close(torch.cat(steps, 1), block(X, OTHER, mask=masks.causal()))


def test_gradients_reach_the_input_even_where_the_layers_pass_nothing_on() -> None:
    block = Block(SelfAttention(12, 3), FeedForward(12), ARRANGEMENTS["pre"])
    for parameter in block.parameters():
        nn.init.zeros_(parameter)
    x = X.clone().requires_grad_()
    block(x).sum().backward()
    assert x.grad is not None
    assert_close(x.grad, torch.ones_like(X))


def test_rms_norm_keeps_the_direction_and_gives_every_vector_the_same_size() -> None:
    def size(x: Tensor) -> Tensor:
        return x.square().mean(-1).sqrt()

    given = RMSNorm(12)(X)
    assert_close(size(given), torch.ones(2, 7), atol=1e-4, rtol=1e-4)
    assert_close(nn.functional.cosine_similarity(given, X, dim=-1), torch.ones(2, 7))
