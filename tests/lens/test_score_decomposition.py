"""Scores split into offset, key and interaction: the parts add up, and each kind of head is recognized."""

from typing import Any

import pytest
import torch
from torch import Tensor

from softlook import masks
from softlook.base.errors import ShapeError
from softlook.blocks import AttentionCore
from softlook.lens.score_decomposition import decompose_scores
from softlook.lens.trace import AttentionCall
from softlook.ops.positions.relative_bias import alibi

MASKS: dict[str, Any] = {
    "none": None,
    "causal": masks.causal(),
    "window": masks.window(4),
    "padding": masks.padding([9, 12]),
}


def call(length: int = 12, *, query: Tensor | None = None, mask: Any = None, bias: Any = None) -> AttentionCall:
    key = torch.randn(2, 3, length, 4)
    query = torch.zeros_like(key) if query is None else query
    return AttentionCall(AttentionCore(), query, key, mask, bias, key.norm(dim=-1))


def without_trend(bias: Tensor, seen: Tensor) -> Tensor:
    """The residual of a straight line through the keys that are seen."""
    line = torch.stack([seen.expand_as(bias), torch.arange(12.0) * seen.expand_as(bias)], -1)
    bias = bias * seen
    return bias - (line @ torch.linalg.lstsq(line, bias[..., None]).solution)[..., 0]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", MASKS)
def test_a_head_of_alibi_alone_is_offset_alone(name: str) -> None:
    shares = decompose_scores(call(mask=MASKS[name], bias=alibi(3))).shares
    torch.testing.assert_close(shares, torch.tensor([1.0, 0, 0]).expand(2, 3, 3), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", MASKS)
def test_a_head_with_a_bias_per_key_alone_is_key_alone(name: str) -> None:
    seen = (torch.arange(12) < torch.tensor([[9 if name == "padding" else 12], [12]]))[:, None, None].float()
    bias = without_trend(torch.randn(2, 3, 1, 12), seen)
    parts = decompose_scores(call(mask=MASKS[name], bias=bias.expand(2, 3, 12, 12)))
    torch.testing.assert_close(parts.shares, torch.tensor([0.0, 1, 0]).expand(2, 3, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(parts.by_key, bias[:, :, 0], atol=1e-4, rtol=0)


def test_a_trend_of_the_keys_counts_as_offset_because_the_weights_are_the_same() -> None:
    trend = call(mask=masks.causal(), bias=0.3 * torch.arange(12.0).expand(1, 1, 12, 12))
    distance = torch.arange(12.0)[:, None] - torch.arange(12.0)
    offset = AttentionCall(
        trend.core, trend.query, trend.key, trend.mask, -0.3 * distance[None, None], trend.value_norm
    )
    torch.testing.assert_close(trend.row_look.weights(), offset.row_look.weights())
    torch.testing.assert_close(decompose_scores(trend).shares, decompose_scores(offset).shares, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", MASKS)
def test_the_parts_add_up_to_the_centered_scores_and_the_shares_to_one(name: str) -> None:
    one = call(query=torch.randn(2, 3, 12, 4), mask=MASKS[name], bias=alibi(3))
    parts = decompose_scores(one)
    weights = one.row_look.weights()
    visible = weights > 0
    scores = weights.log().masked_fill(~visible, 0)
    centered = (scores - scores.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True)) * visible
    torch.testing.assert_close(parts.offset + parts.key + parts.interaction, centered, atol=1e-5, rtol=0)
    torch.testing.assert_close(parts.shares.sum(-1), torch.ones(2, 3))
    assert (parts.shares[..., 2] > 0.1).all()


@pytest.mark.parametrize("name", ["none", "causal", "window"])
def test_the_fit_is_the_least_squares_solution(name: str) -> None:
    one = call(8, query=torch.randn(2, 3, 8, 4), mask=MASKS[name])
    parts = decompose_scores(one)
    visible = one.row_look.weights()[0, 0] > 0
    distance = torch.arange(8)[:, None] - torch.arange(8)
    columns = [(distance == d) * visible for d in range(-7, 8)] + [(torch.arange(8) == j) * visible for j in range(8)]
    design = torch.stack([part.double() for part in columns])
    design = (design - design.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True)) * visible
    design, scores = design.flatten(1).T, (parts.offset + parts.key + parts.interaction)[0, 0].double().flatten()
    fitted = design @ torch.linalg.lstsq(design, scores, driver="gelsd").solution
    torch.testing.assert_close((parts.offset + parts.key)[0, 0].double().flatten(), fitted, atol=1e-5, rtol=0)


def test_sampled_rows_and_selected_heads_and_queries_are_parts_of_the_whole() -> None:
    one = call(40, query=torch.randn(2, 3, 40, 4), mask=masks.causal(), bias=alibi(3))
    sampled = decompose_scores(one, heads=slice(1, 2), max_rows=10)
    assert sampled.offset.shape == (2, 1, 10, 40) and sampled.rows[[0, -1]].tolist() == [0, 39]
    whole = decompose_scores(one)
    total = (whole.offset + whole.key + whole.interaction)[:, 1:2, sampled.rows]
    torch.testing.assert_close(sampled.offset + sampled.key + sampled.interaction, total, atol=1e-5, rtol=0)
    queries = torch.zeros(2, 40, dtype=torch.bool).index_fill(1, sampled.rows, True)
    chosen = decompose_scores(one, queries=queries).shares[:, 1:2]
    torch.testing.assert_close(chosen, sampled.shares, atol=1e-5, rtol=0)


def test_a_part_of_the_map_is_decomposed_by_itself() -> None:
    query, key, bias = torch.randn(2, 3, 40, 4), torch.randn(2, 3, 40, 4), torch.randn(2, 3, 40, 40)
    whole = AttentionCall(AttentionCore(), query, key, None, bias, key.norm(dim=-1))
    part = AttentionCall(
        AttentionCore(), query[:, :, 5:17], key[:, :, 5:17], None, bias[:, :, 5:17, 5:17], key[:, :, 5:17].norm(dim=-1)
    )
    one, other = decompose_scores(whole, rows=slice(5, 17), columns=slice(5, 17)), decompose_scores(part)
    torch.testing.assert_close(one.shares, other.shares, atol=1e-5, rtol=0)
    torch.testing.assert_close(one.by_key, other.by_key, atol=1e-4, rtol=0)
    assert one.rows.tolist() == list(range(5, 17)) and torch.equal(one.offsets, other.offsets)
    right = decompose_scores(whole, rows=slice(30, 40), columns=slice(0, 6))
    assert right.offsets[[0, -1]].tolist() == [25, 39] and right.by_offset.shape == (2, 3, 15)
    torch.testing.assert_close(right.shares.sum(-1), torch.ones(2, 3))
    with pytest.raises(ShapeError, match="select no part of a map of 40 queries and 40 keys"):
        decompose_scores(whole, rows=slice(40, 50))
    with pytest.raises(ShapeError, match="select no part"):
        decompose_scores(whole, columns=slice(0, 10, 2))
