"""Segment-level recurrence: the segment cache, relative attention and segment blocks."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from softlook import masks
from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks import FeedForward, PostNormSegmentBlock, PreNormSegmentBlock, RelativeAttention, SegmentCache


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def attention(head_dim: int | None = None) -> RelativeAttention:
    attn = RelativeAttention(8, heads=2, head_dim=head_dim).double()
    nn.init.normal_(attn.content_bias)
    nn.init.normal_(attn.position_bias)
    return attn


def test_a_cache_starts_empty_and_keeps_the_last_states_of_each_layer() -> None:
    cache, first, second, third = SegmentCache(5), normal(2, 3, 4), normal(2, 4, 4), normal(2, 1, 4)
    assert cache.held == 0
    assert cache.update(0, first) is None
    assert cache.update(1, -first) is None
    assert cache.held == 3
    past = cache.update(0, second)
    assert past is not None and torch.equal(past, first)
    assert torch.equal(cache.states[1], -first)
    past = cache.update(0, third)
    assert past is not None and torch.equal(past, torch.cat([first[:, 2:], second], 1))
    assert torch.equal(cache.states[0], torch.cat([second, third], 1))
    assert cache.held == 5


def test_of_a_segment_longer_than_the_cache_the_end_is_kept() -> None:
    cache, x = SegmentCache(2), normal(1, 5, 4)
    cache.update(0, x)
    assert torch.equal(cache.states[0], x[:, 3:])


def test_cached_states_have_no_gradient() -> None:
    cache, x = SegmentCache(4, [normal(1, 2, 4).requires_grad_()]), normal(1, 3, 4).requires_grad_()
    past = cache.update(0, x * 2)
    assert past is not None and not past.requires_grad
    assert not cache.states[0].requires_grad


def test_a_cache_can_have_initial_states() -> None:
    start = normal(1, 6, 4)
    cache = SegmentCache(4, [start])
    assert cache.held == 4
    past = cache.update(0, normal(1, 2, 4))
    assert past is not None and torch.equal(past, start[:, 2:])


def test_states_of_another_shape_raise_an_error() -> None:
    cache = SegmentCache(4)
    cache.update(0, normal(2, 3, 4))
    with pytest.raises(
        ShapeError, match=r"the cache holds states of \(batch, width\) \(2, 4\), got \(3, 4\)\. Use a new cache"
    ):
        cache.update(0, normal(3, 3, 4))


def test_a_cache_of_length_zero_raises_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"the length of a segment cache must be at least 1, got 0\. Use cache=None\."
    ):
        SegmentCache(0)


@pytest.mark.parametrize("width", [None, 3])
def test_relative_attention_matches_the_paper(width: int | None) -> None:
    attn = attention(width)
    x, past, distances = normal(2, 3, 8), normal(2, 4, 8), normal(7, 8)
    D, seen = attn.head_dim, torch.cat([past, x], 1)
    outputs = []
    for h in range(2):
        part = slice(h * D, (h + 1) * D)
        query, key, value = (
            attn.to_query(x)[..., part],
            attn.to_key(seen)[..., part],
            attn.to_value(seen)[..., part],
        )
        relative, u, v = attn.to_relative(distances)[:, part], attn.content_bias[h], attn.position_bias[h]
        scores = torch.full((2, 3, 7), -torch.inf, dtype=torch.float64)
        for i in range(3):
            for j in range(4 + i + 1):
                vector = relative[4 + i - j]
                scores[:, i, j] = ((query[:, i] + u) * key[:, j]).sum(-1) + (query[:, i] + v) @ vector
        outputs.append((scores / D**0.5).softmax(-1) @ value)
    expected = attn.to_out(torch.cat(outputs, -1))
    assert_close(attn(x, past, distances, mask=masks.causal()), expected)
    assert_close(attn(x, past, distances), expected)  # there are no vectors for distances ahead


@pytest.mark.parametrize("kind", [PostNormSegmentBlock, PreNormSegmentBlock])
def test_a_segment_with_a_cached_past_equals_the_end_of_one_pass(kind: Callable[..., nn.Module]) -> None:
    block = kind(attention(), FeedForward(8), lambda: nn.LayerNorm(8)).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    x, distances = normal(2, 7, 8), normal(7, 8)
    whole = block(x, None, distances, mask=masks.causal())
    assert_close(block(x[:, 4:], x[:, :4], distances, mask=masks.causal()), whole[:, 4:])
