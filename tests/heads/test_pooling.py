"""Pooling of a sequence into one vector."""

import pytest
import torch
from torch import Tensor, nn

from softlook.heads import ClsPool, L2Normalize, MeanPool, Pooler

PADDING_MASK = torch.tensor([[True, True, True, False], [True, False, False, False]])
POOLS = {
    "mean": MeanPool(),
    "cls": ClsPool(),
    "pooler": Pooler(MeanPool(), 3, torch.tanh),
    "l2": L2Normalize(MeanPool()),
}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 4, 3)


@pytest.mark.parametrize("pool", POOLS.values(), ids=list(POOLS))
def test_padding_does_not_change_the_output(pool: nn.Module, x: Tensor) -> None:
    filled = x.masked_fill(~PADDING_MASK[..., None], torch.nan)
    torch.testing.assert_close(pool(filled, PADDING_MASK), pool(x, PADDING_MASK))


@pytest.mark.parametrize("pool", POOLS.values(), ids=list(POOLS))
def test_a_padded_sequence_is_pooled_like_an_unpadded_one(pool: nn.Module, x: Tensor) -> None:
    torch.testing.assert_close(pool(x, PADDING_MASK)[:1], pool(x[:1, :3]))


@pytest.mark.parametrize("pool", POOLS.values(), ids=list(POOLS))
def test_left_padding_pools_like_right_padding(pool: nn.Module, x: Tensor) -> None:
    left = x.roll(1, 1)
    torch.testing.assert_close(pool(left, PADDING_MASK.roll(1, 1))[:1], pool(x, PADDING_MASK)[:1])


def test_mean_pooling_ignores_the_order_and_cls_pooling_does_not(x: Tensor) -> None:
    reversed_x = x.flip(1)
    torch.testing.assert_close(MeanPool()(reversed_x), MeanPool()(x))
    assert not torch.allclose(ClsPool()(reversed_x), ClsPool()(x))


def test_the_mean_of_a_fully_padded_sequence_is_zero_with_a_zero_gradient(x: Tensor) -> None:
    x.requires_grad_()
    pooled = MeanPool()(x, torch.zeros(2, 4, dtype=torch.bool))
    pooled.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(pooled, torch.zeros(2, 3))
    torch.testing.assert_close(x.grad, torch.zeros(2, 4, 3))


def test_pooler_applies_a_linear_layer_and_an_activation(x: Tensor) -> None:
    pool = Pooler(ClsPool(), 3, torch.relu)
    torch.testing.assert_close(pool(x), torch.relu(x[:, 0] @ pool.dense.weight.T + pool.dense.bias))


def test_l2_normalization_keeps_the_direction(x: Tensor) -> None:
    pooled, mean = L2Normalize(MeanPool())(x), MeanPool()(x)
    torch.testing.assert_close(pooled.norm(dim=-1), torch.ones(2))
    torch.testing.assert_close(pooled * mean.norm(dim=-1, keepdim=True), mean)
