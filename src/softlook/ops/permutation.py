"""Does order matter? Tools to put a set into another order and to see what a function makes of it.

Attention sees a set. Shuffle what goes in, and what comes out is shuffled the same way (equivariance); take the mean
of what comes out, and the order is gone altogether (invariance). Positions and masks are what brings order in.
"""

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from softlook.base.errors import ShapeError

Order = Int[Tensor, " T"]


def permuted(x: Tensor, order: Order, *, axis: int = 1) -> Tensor:
    """The elements of `x` in another order: first the one numbered `order[0]`, then `order[1]`, and so on.

    Elements stand along axis 1, be they ids (B, T) or vectors (B, T, C); `axis` tells otherwise.

    >>> permuted(torch.tensor([[10, 11, 12]]), torch.tensor([2, 0, 1]))
    tensor([[12, 10, 11]])
    """
    if sorted(order.tolist()) != list(range(x.shape[axis])):
        raise ShapeError(
            f"an order of {x.shape[axis]} elements holds each number from 0 to {x.shape[axis] - 1} once; "
            f"{order.tolist()} came"
        )
    return x.index_select(axis, order.to(x.device))


def equivariance_gap(function: Callable[[Tensor], Tensor], x: Tensor, order: Order, *, axis: int = 1) -> float:
    """How far shuffling before `function` is from shuffling after it: the largest difference, 0 for a set function.

    "Susan gave roses to Mary" and "Mary gave roses to Susan" are the same set of words:

    >>> from softlook import self_attention
    >>> susan, swapped = torch.randn(1, 5, 8), torch.tensor([4, 1, 2, 3, 0])
    >>> equivariance_gap(self_attention, susan, swapped) < 1e-5
    True
    >>> places = torch.randn(5, 8)
    >>> equivariance_gap(lambda words: self_attention(words + places), susan, swapped) < 1e-5
    False
    """
    with torch.no_grad():
        return _apart(function(permuted(x, order, axis=axis)), permuted(function(x), order, axis=axis))


def invariance_gap(function: Callable[[Tensor], Tensor], x: Tensor, order: Order, *, axis: int = 1) -> float:
    """How far the output moves when the input is shuffled: the largest difference, 0 where order does not matter.

    >>> words, order = torch.randn(1, 5, 8), torch.tensor([4, 1, 2, 3, 0])
    >>> invariance_gap(lambda x: x.mean(1), words, order) < 1e-5
    True
    """
    with torch.no_grad():
        return _apart(function(permuted(x, order, axis=axis)), function(x))


def _apart(one: Tensor, other: Tensor) -> float:
    if one.shape != other.shape:
        raise ShapeError(f"the output changes its shape with the order: {tuple(one.shape)} and {tuple(other.shape)}")
    return (one - other).abs().max().item() if one.numel() else 0.0
