"""Any heads, rows and columns of a map are those of the whole map, for every kind of mask and bias."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from softlook import attention_weights, bias, look, masks, positions, scores
from softlook.blocks.prefix_keys import bias_with_prefix_keys, mask_with_prefix_keys
from softlook.ops.arguments import prepare_args
from softlook.ops.selection import select_heads

B, H, T, S, D = 2, 6, 20, 24, 8
PARTS: list[dict[str, slice]] = [
    {"rows": slice(1, None, 3), "columns": slice(0, None, 5)},
    {"heads": slice(4, 5), "rows": slice(None, None, 7)},
    {"heads": slice(1, 5), "columns": slice(2, 20, 2)},
    {"heads": slice(2, 4), "rows": slice(3, 9), "columns": slice(10, 12)},
    {"heads": slice(5, 6), "rows": slice(0, 2), "columns": slice(22, 24)},  # in the future of a causal mask
]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def dense_mask(*shape: int) -> Tensor:
    visible = random(*shape) > 0
    visible[..., 4] = True
    return visible


MASKS: dict[str, Any] = {
    "none": None,
    "causal": masks.causal(),
    "window": masks.window(3, 2),
    "padding": masks.padding([24, 9]),
    "padding on the left": masks.padding([24, 9], side="left", length=24) & masks.causal(),
    "documents": masks.documents(torch.arange(S) // 7),
    "prefix": masks.causal() | masks.prefix(torch.tensor([3, 8])),
    "graph": masks.graph(torch.stack([torch.arange(T), torch.arange(T) * 7 % S])),
    "dense, per head": dense_mask(B, H, T, S),
    "dense, one row": dense_mask(B, 1, 1, S),
    "function": masks.from_function(lambda b, h, i, j: (i + j + h + b) % 3 == 0),
    "not": ~masks.window(2, 2),
    "prefix keys": mask_with_prefix_keys(masks.window(3), 4),
}
BIASES: dict[str, Any] = {
    "alibi": positions.alibi(H),
    "t5": positions.t5(random(32, H)),
    "shaw": positions.shaw(random(7, D)),
    "transformer_xl": positions.transformer_xl(random(H, S, D), random(H, D), random(H, D)),
    "dense": random(1, H, T, S),
    "dense with -inf": random(B, 1, T, S).masked_fill(~dense_mask(B, 1, T, S), -torch.inf),
    "function": bias.from_function(lambda score, b, h, i, j: torch.where(i - j > 2, score * (h + 1), score - b)),
    "sum": positions.alibi(H) + random(1, 1, T, S),
    "sum with content": positions.alibi(H) + positions.shaw(random(7, D)),
    "prefix keys": bias_with_prefix_keys(positions.alibi(H), 4),
    "prefix keys, content": bias_with_prefix_keys(positions.shaw(random(7, D)), 4),
}


def check(key_heads: int, part: dict[str, slice], **options: Any) -> None:
    query, key = random(B, H, T, D), random(B, key_heads, S, D)
    expected = attention_weights(query, key, **options)
    everything = slice(None)
    expected = expected[:, part.get("heads", everything), part.get("rows", everything), part.get("columns", everything)]
    assert_close(look(query, key, stats=("lse",), **options).weights(**part), expected, atol=1e-5, rtol=1e-4)
    assert_close(look(query, key, stats=("entropy",), **options).weights(**part), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_parts_of_a_masked_map_are_those_of_the_whole_map(name: str, part: dict[str, slice]) -> None:
    check(H, part, mask=MASKS[name])


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("name", BIASES)
def test_parts_of_a_biased_map_are_those_of_the_whole_map(name: str, part: dict[str, slice]) -> None:
    check(H, part, bias=BIASES[name])


@pytest.mark.parametrize("part", PARTS, ids=str)
@pytest.mark.parametrize("key_heads", [1, 2, 3])
def test_heads_that_share_keys_can_be_selected_one_by_one(key_heads: int, part: dict[str, slice]) -> None:
    sink = random(H)
    check(key_heads, part, mask=dense_mask(B, H, T, S), bias=positions.alibi(H), sink=sink, softcap=3.0, scale=0.7)


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_score_functions_are_given_all_heads(part: dict[str, slice]) -> None:
    weight = random(H, D, 5)
    check(H, part, score=scores.additive(weight, weight, random(5)), mask=masks.causal())
    check(2, part, score=scores.cosine(0.1), sink=0.5)
    check(H, part, score=lambda query, key: query @ key.mT * torch.arange(H).view(-1, 1, 1), mask=masks.window(4))


def test_only_the_selected_heads_remain() -> None:
    args = prepare_args(random(B, H, T, D), random(B, 2, S, D))
    selected, first = select_heads(args, range(4, 5))
    assert (selected.query.shape[1], selected.key.shape[1], selected.group_size, first) == (1, 1, 1, 0)
    selected, first = select_heads(args, range(2, 4))  # of two groups: both are needed
    assert (selected.query.shape[1], selected.key.shape[1], selected.group_size, first) == (6, 2, 3, 2)


def test_gradients_flow_through_selected_rows_and_columns() -> None:
    query, key = random(1, 2, 5, 4).requires_grad_(), random(1, 2, 5, 4).requires_grad_()
    part = look(query, key, mask=masks.causal(), stats=("lse",)).weights(rows=slice(0, None, 2), columns=slice(1, 3))
    whole = attention_weights(query, key, mask=masks.causal())[:, :, 0::2, 1:3]
    weight = random(*part.shape)
    for actual, expected in zip(
        *(torch.autograd.grad((x * weight).sum(), (query, key)) for x in (part, whole)), strict=True
    ):
        assert_close(actual, expected, atol=1e-5, rtol=1e-4)
