"""Reading a long text piece by piece."""

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
    attend = RelativeAttention(8, heads=2, head_dim=head_dim).double()
    nn.init.normal_(attend.content_bias)
    nn.init.normal_(attend.position_bias)
    return attend


def test_a_memory_starts_empty_and_keeps_the_last_states_of_each_layer() -> None:
    memory, first, second, third = SegmentCache(5), normal(2, 3, 4), normal(2, 4, 4), normal(2, 1, 4)
    assert memory.held == 0
    assert memory.update(0, first) is None
    assert memory.update(1, -first) is None
    assert memory.held == 3
    past = memory.update(0, second)
    assert past is not None and torch.equal(past, first)
    assert torch.equal(memory.states[1], -first)
    past = memory.update(0, third)
    assert past is not None and torch.equal(past, torch.cat([first[:, 2:], second], 1))
    assert torch.equal(memory.states[0], torch.cat([second, third], 1))
    assert memory.held == 5


def test_a_segment_longer_than_the_memory_leaves_its_end() -> None:
    memory, x = SegmentCache(2), normal(1, 5, 4)
    memory.update(0, x)
    assert torch.equal(memory.states[0], x[:, 3:])


def test_what_is_kept_has_no_gradient() -> None:
    memory, x = SegmentCache(4, [normal(1, 2, 4).requires_grad_()]), normal(1, 3, 4).requires_grad_()
    past = memory.update(0, x * 2)
    assert past is not None and not past.requires_grad
    assert not memory.states[0].requires_grad


def test_a_memory_can_be_handed_what_to_start_from() -> None:
    start = normal(1, 6, 4)
    memory = SegmentCache(4, [start])
    assert memory.held == 4
    past = memory.update(0, normal(1, 2, 4))
    assert past is not None and torch.equal(past, start[:, 2:])


def test_other_sequences_in_the_same_memory_are_refused() -> None:
    memory = SegmentCache(4)
    memory.update(0, normal(2, 3, 4))
    with pytest.raises(
        ShapeError, match=r"the cache holds states of \(batch, width\) \(2, 4\), got \(3, 4\)\. Use a new cache"
    ):
        memory.update(0, normal(3, 3, 4))


def test_a_memory_without_length_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"the length of a segment cache must be at least 1, got 0\. Use cache=None\."
    ):
        SegmentCache(0)


@pytest.mark.parametrize("width", [None, 3])
def test_scores_are_those_of_the_paper(width: int | None) -> None:
    attend = attention(width)
    x, past, distances = normal(2, 3, 8), normal(2, 4, 8), normal(7, 8)
    D, seen = attend.head_dim, torch.cat([past, x], 1)
    outputs = []
    for h in range(2):
        part = slice(h * D, (h + 1) * D)
        query, key, value = (
            attend.to_query(x)[..., part],
            attend.to_key(seen)[..., part],
            attend.to_value(seen)[..., part],
        )
        relative, u, v = attend.to_relative(distances)[:, part], attend.content_bias[h], attend.position_bias[h]
        scores = torch.full((2, 3, 7), -torch.inf, dtype=torch.float64)
        for i in range(3):
            for j in range(4 + i + 1):
                away = relative[4 + i - j]
                scores[:, i, j] = ((query[:, i] + u) * key[:, j]).sum(-1) + (query[:, i] + v) @ away
        outputs.append((scores / D**0.5).softmax(-1) @ value)
    wanted = attend.to_out(torch.cat(outputs, -1))
    assert_close(attend(x, past, distances, mask=masks.causal()), wanted)
    assert_close(attend(x, past, distances), wanted)  # there are no vectors for distances ahead


@pytest.mark.parametrize("kind", [PostNormSegmentBlock, PreNormSegmentBlock])
def test_the_past_is_as_good_as_the_present(kind: Callable[..., nn.Module]) -> None:
    block = kind(attention(), FeedForward(8), lambda: nn.LayerNorm(8)).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.5)
    x, distances = normal(2, 7, 8), normal(7, 8)
    whole = block(x, None, distances, mask=masks.causal())
    assert_close(block(x[:, 4:], x[:, :4], distances, mask=masks.causal()), whole[:, 4:])
