"""Biases added to the scores: dense tensors, symbolic biases and score functions."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from softlook import DtypeError, MaskError, attention, attention_scores, bias, masks, positions
from softlook.base.shapes import Tile
from softlook.ops.bias import DenseBias, as_bias
from tests.ops_cases import DEVICE, TensorRNG, close, small_tiles

SIZES = (2, 4, 3, 5)


@pytest.fixture
def rng() -> TensorRNG:
    return TensorRNG(torch.Generator().manual_seed(0), torch.float64)


def test_a_bias_is_added_after_scale_and_softcap_and_before_the_mask(rng: TensorRNG) -> None:
    query, key, bias = rng.normal(2, 4, 3, 6), rng.normal(2, 4, 5, 6), rng.normal(*SIZES)
    mask = rng.booleans(3, 5)
    scores = attention_scores(query, key, bias=bias, mask=mask, softcap=2.0, scale=0.5)
    expected = (2 * (query @ key.mT * 0.5 / 2).tanh() + bias).masked_fill(~mask, -torch.inf)
    close(scores, expected)


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (2, 4, 3, 5), (1, 4, 1, 5), (2, 1, 1, 5)], ids=str)
def test_dimensions_of_size_one_broadcast(rng: TensorRNG, shape: tuple[int, ...]) -> None:
    query, key, bias = rng.normal(2, 4, 3, 6), rng.normal(2, 4, 5, 6), rng.normal(*shape)
    close(attention_scores(query, key, bias=bias), attention_scores(query, key) + bias)


def test_biases_add_up(rng: TensorRNG) -> None:
    query, key, bias = rng.normal(2, 4, 3, 6), rng.normal(2, 4, 5, 6), rng.normal(3, 5)
    alibi = positions.alibi(4)
    both = attention_scores(query, key, bias=alibi + bias)
    close(both, attention_scores(query, key, bias=alibi) + bias)
    close(both, attention_scores(query, key, bias=as_bias(bias) + alibi))
    assert str(alibi + bias) == "alibi + dense(1x1x3x5)"


def test_score_mod_and_tile_agree(rng: TensorRNG) -> None:
    tile = Tile.whole(SIZES, DEVICE)
    key = rng.normal(2, 4, 5, 6)
    table = rng.normal(8, 4)
    alibi = positions.alibi(torch.tensor([0.5, 0.25, 0.125, 0.0625], device=DEVICE))
    for each in (as_bias(rng.normal(2, 1, 1, 5)), alibi, positions.t5(table), alibi + rng.normal(3, 5)):
        score_mod = each.score_mod(3, 5)
        assert score_mod is not None
        whole = each.tile(key[:, :, :3], key, 1.0, tile).expand(SIZES)
        scores = rng.normal(*SIZES)
        close(score_mod(scores, *torch.broadcast_tensors(*tile.indices())).to(whole), scores + whole)


def test_a_content_dependent_bias_has_no_score_mod(rng: TensorRNG) -> None:
    shaw = positions.shaw(rng.normal(5, 6))
    assert shaw.score_mod(3, 5) is None
    assert (shaw + rng.normal(3, 5)).score_mod(3, 5) is None


def test_bias_properties(rng: TensorRNG) -> None:
    dense, alibi = as_bias(rng.normal(3, 5)), positions.alibi(4)
    assert dense.may_mask and not alibi.may_mask and (alibi + dense).may_mask
    assert not dense.requires_grad and as_bias(rng.normal(3, 5).requires_grad_()).requires_grad
    assert (alibi + rng.normal(3, 5).requires_grad_()).requires_grad
    assert positions.shaw(rng.normal(5, 6), rng.normal(5, 2)).has_relative_values
    assert not (alibi + positions.shaw(rng.normal(5, 6))).has_relative_values


def test_relative_values_of_two_biases_add_up(rng: TensorRNG) -> None:
    query = rng.normal(1, 1, 4, 6)
    one, other = (positions.shaw(rng.normal(3, 6), rng.normal(3, 2)) for _ in range(2))
    value = rng.normal(1, 1, 4, 2)
    weights = attention_scores(query, query, bias=one + other, stage="weights")
    tile = Tile.whole((1, 1, 4, 4), DEVICE)
    added = [bias.relative_values(weights, tile) for bias in (one, other)]
    assert added[0] is not None and added[1] is not None
    close(attention(query, query, value, bias=one + other), weights @ value + added[0] + added[1])


@pytest.mark.parametrize("backend", ["reference", "sdpa", "tiled"])
def test_minus_infinity_masks_a_key(rng: TensorRNG, backend: Any) -> None:
    query, key, value = rng.normal(1, 2, 3, 6), rng.normal(1, 2, 5, 6), rng.normal(1, 2, 5, 4)
    hidden = rng.booleans(3, 5)
    hidden[1] = True
    bias = torch.zeros(3, 5, dtype=torch.float64, device=DEVICE).masked_fill(hidden, -torch.inf)
    actual = attention(query, key, value, bias=bias, backend=backend)
    close(actual, attention(query, key, value, mask=~hidden, backend="reference"))
    assert actual[:, :, 1].eq(0).all()


@pytest.mark.parametrize("backend", ["reference", "sdpa", "tiled"])
def test_a_row_masked_by_a_bias_gets_zero_gradients(rng: TensorRNG, backend: Any) -> None:
    query = rng.normal(1, 2, 3, 6).requires_grad_()
    bias = torch.zeros(3, 3, dtype=torch.float64, device=DEVICE)
    bias[1] = -torch.inf
    bias.requires_grad_()
    (rng.normal(1, 2, 3, 6) * attention(query, query, query, bias=bias, backend=backend)).sum().backward()
    assert query.grad is not None and query.grad.isfinite().all()
    assert bias.grad is not None and bias.grad.isfinite().all() and bias.grad[1].eq(0).all()


@pytest.mark.parametrize(
    ("bias", "error", "message"),
    [
        (torch.ones(3, 5, dtype=torch.bool), DtypeError, "got torch.bool. Pass boolean tensors as mask="),
        (torch.ones(3, 5, dtype=torch.long), DtypeError, r"torch.int64.*convert integers with \.float\(\)"),
        (torch.ones(4, 3, 5), MaskError, r"got \(4, 3, 5\).*bias\[:, None\].*bias\[None\]"),
        (torch.ones(5, 3), MaskError, r"a bias for batch 2, 4 heads, 3 queries and 5 keys.*got \(1, 1, 5, 3\)"),
        (torch.ones(3, 1), MaskError, r"got \(1, 1, 3, 1\)"),
        (positions.alibi(3), MaskError, "for 3 heads, but the query has 4"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_a_bias_of_another_size_raises_an_error(bias: Any, error: type, message: str) -> None:
    query, key = torch.zeros(2, 4, 3, 8), torch.zeros(2, 2, 5, 8)
    with pytest.raises(error, match=f"(?s){message}"):
        attention(query, key, key, bias=bias)


def test_str_of_a_dense_bias() -> None:
    assert str(DenseBias(torch.zeros(1, 2, 3, 4))) == "dense(1x2x3x4)"


def relative(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return torch.where(q_idx >= kv_idx, 3 * torch.tanh(score / 3) - 0.125 * (h + 1) * (q_idx - kv_idx), -torch.inf)


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
@pytest.mark.parametrize("lengths", [(5, 5), (2, 5), (300, 300)], ids=str)
def test_a_score_function_is_applied_on_every_backend(backend: Any, lengths: tuple[int, int], rng: TensorRNG) -> None:
    T, S = lengths
    query, key, value = rng.normal(2, 4, T, 6), rng.normal(2, 2, S, 6), rng.normal(2, 2, S, 3)
    slopes = 0.125 * torch.arange(1, 5, device=DEVICE)
    expected = attention(
        query, key, value, softcap=3.0, bias=positions.alibi(slopes.to(query)), mask=masks.causal(), backend="reference"
    )
    with small_tiles() if T < 10 else nullcontext():
        close(attention(query, key, value, bias=bias.from_function(relative), backend=backend), expected, 1e-8)


def test_a_score_function_is_differentiable_and_adds_to_other_biases(rng: TensorRNG) -> None:
    query, weight = rng.normal(1, 2, 6, 4).requires_grad_(), rng.normal(6, 6).requires_grad_()
    function = bias.from_function(lambda score, b, h, q_idx, kv_idx: score + weight[q_idx, kv_idx])
    outputs = (
        attention(query, query, query, bias=function + rng.normal(6, 6).mul(0), backend="tiled"),
        attention(query, query, query, bias=weight),
    )
    close(*outputs)
    for one, other in zip(*(torch.autograd.grad(o.square().sum(), (query, weight)) for o in outputs), strict=True):
        close(one, other)


@pytest.mark.usefixtures("no_shape_checks")
def test_from_function_expects_a_function() -> None:
    wrong: Any = 3
    with pytest.raises(TypeError, match=r"from_function expects a function \(score, b, h, q_idx, kv_idx\), got int"):
        bias.from_function(wrong)
