"""Weights of several layers as one tensor, without a copy: the parameters become views of it, and stay live."""

import torch
from torch import Tensor


def adjoined(*weights: Tensor) -> Tensor:
    """The weights, one below the other, as one tensor that shares its memory with all of them.

    Where they do not lie so yet, they are moved there once: a parameter stays the same object with the same values, and
    whatever is written into it, by an optimizer, by `copy_` or through `.data`, is written into the tensor as well.

    >>> one, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 1)
    >>> both = adjoined(one.weight, other.weight)
    >>> other.weight.data.fill_(7.0)
    tensor([[7., 7.]])
    >>> both[3]
    tensor([7., 7.])
    """
    if not are_adjoined(*weights):
        whole, start = torch.cat([weight.detach() for weight in weights]), 0
        for weight in weights:
            weight.data = whole[start : start + len(weight)]
            start += len(weight)
    first = weights[0].detach()
    shape = sum(map(len, weights)), *first.shape[1:]
    return first.as_strided(shape, first.stride(), first.storage_offset())


def are_adjoined(*weights: Tensor) -> bool:
    """Do the weights lie in one piece of memory, each right behind the one before it?"""
    first = weights[0]
    expected = first.storage_offset()
    for weight in weights:
        same = weight.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (same and weight.is_contiguous() and weight.storage_offset() == expected):
            return False
        expected += weight.numel()
    return True
