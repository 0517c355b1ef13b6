"""Permutations: measure equivariance and invariance of a function.

Attention is permutation-equivariant: permuting the input permutes the output. Mean pooling makes it
permutation-invariant. Positions and masks introduce order.

>>> import torch
>>> from softlook import permutation, self_attention
>>> x, order = torch.randn(1, 3, 8), torch.tensor([2, 0, 1])
>>> permutation.equivariance_gap(self_attention, x, order) < 1e-5
True
"""

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from softlook.base.errors import ShapeError

Order = Int[Tensor, " T"]


def permute(x: Tensor, order: Order, *, axis: int = 1) -> Tensor:
    """Reorder the elements of `x` along `axis`: element `order[0]` first, then `order[1]`, and so on.

    >>> permute(torch.tensor([[10, 11, 12]]), torch.tensor([2, 0, 1]))
    tensor([[12, 10, 11]])
    """
    if sorted(order.tolist()) != list(range(x.shape[axis])):
        raise ShapeError(f"order expects a permutation of 0 to {x.shape[axis] - 1}, got {order.tolist()}")
    return x.index_select(axis, order.to(x.device))


def equivariance_gap(function: Callable[[Tensor], Tensor], x: Tensor, order: Order, *, axis: int = 1) -> float:
    """Return the largest difference between permuting before and after `function`; 0 if it is equivariant.

    "Susan gave roses to Mary" and "Mary gave roses to Susan" are the same set of words:

    >>> from softlook import self_attention
    >>> susan, swapped = torch.randn(1, 5, 8), torch.tensor([4, 1, 2, 3, 0])
    >>> equivariance_gap(self_attention, susan, swapped) < 1e-5
    True
    >>> positions = torch.randn(5, 8)
    >>> equivariance_gap(lambda words: self_attention(words + positions), susan, swapped) < 1e-5
    False
    """
    with torch.no_grad():
        return _max_difference(function(permute(x, order, axis=axis)), permute(function(x), order, axis=axis))


def invariance_gap(function: Callable[[Tensor], Tensor], x: Tensor, order: Order, *, axis: int = 1) -> float:
    """Return the largest change of the output when the input is permuted; 0 if `function` is invariant.

    >>> words, order = torch.randn(1, 5, 8), torch.tensor([4, 1, 2, 3, 0])
    >>> invariance_gap(lambda x: x.mean(1), words, order) < 1e-5
    True
    """
    with torch.no_grad():
        return _max_difference(function(permute(x, order, axis=axis)), function(x))


def _max_difference(one: Tensor, other: Tensor) -> float:
    if one.shape != other.shape:
        raise ShapeError(f"the output's shape depends on the order: {tuple(one.shape)} and {tuple(other.shape)}")
    return (one - other).abs().max().item() if one.numel() else 0.0


__all__ = ["equivariance_gap", "invariance_gap", "permute"]
