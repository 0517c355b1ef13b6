"""One vector for a whole sequence."""

import pytest
import torch
from torch import Tensor, nn

from softlook.heads import ClsPool, L2Normalize, MeanPool, Pooler

PRESENT = torch.tensor([[True, True, True, False], [True, False, False, False]])
POOLS = {
    "mean": MeanPool(),
    "first": ClsPool(),
    "dense": Pooler(MeanPool(), 3, torch.tanh),
    "length one": L2Normalize(MeanPool()),
}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 4, 3)


@pytest.mark.parametrize("pool", POOLS.values(), ids=list(POOLS))
def test_what_stands_where_no_token_is_changes_nothing(pool: nn.Module, x: Tensor) -> None:
    filled = x.masked_fill(~PRESENT[..., None], torch.nan)
    torch.testing.assert_close(pool(filled, PRESENT), pool(x, PRESENT))


@pytest.mark.parametrize("pool", POOLS.values(), ids=list(POOLS))
def test_a_padded_sequence_is_pooled_as_if_it_were_alone(pool: nn.Module, x: Tensor) -> None:
    torch.testing.assert_close(pool(x, PRESENT)[:1], pool(x[:1, :3]))


@pytest.mark.parametrize("pool", POOLS.values(), ids=list(POOLS))
def test_padding_on_the_left_pools_like_padding_on_the_right(pool: nn.Module, x: Tensor) -> None:
    left = x.roll(1, 1)
    torch.testing.assert_close(pool(left, PRESENT.roll(1, 1))[:1], pool(x, PRESENT)[:1])


def test_the_mean_forgets_the_order_and_the_first_does_not(x: Tensor) -> None:
    turned = x.flip(1)
    torch.testing.assert_close(MeanPool()(turned), MeanPool()(x))
    assert not torch.allclose(ClsPool()(turned), ClsPool()(x))


def test_the_mean_of_no_token_at_all_is_zero_with_no_nan_in_its_gradient(x: Tensor) -> None:
    x.requires_grad_()
    pooled = MeanPool()(x, torch.zeros(2, 4, dtype=torch.bool))
    pooled.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(pooled, torch.zeros(2, 3))
    torch.testing.assert_close(x.grad, torch.zeros(2, 4, 3))


def test_a_dense_pool_bends_a_linear_map_of_the_pooled_vector(x: Tensor) -> None:
    pool = Pooler(ClsPool(), 3, torch.relu)
    torch.testing.assert_close(pool(x), torch.relu(x[:, 0] @ pool.dense.weight.T + pool.dense.bias))


def test_length_one_keeps_the_direction(x: Tensor) -> None:
    pooled, mean = L2Normalize(MeanPool())(x), MeanPool()(x)
    torch.testing.assert_close(pooled.norm(dim=-1), torch.ones(2))
    torch.testing.assert_close(pooled * mean.norm(dim=-1, keepdim=True), mean)
