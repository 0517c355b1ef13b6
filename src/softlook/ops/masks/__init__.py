"""Attention masks. True = visible; combine with `&`, `|`, `~`.

>>> from softlook import masks
>>> mask = masks.causal() & masks.window(left=1)
>>> mask.to_dense((1, 1, 3, 3))[0, 0].int()
tensor([[1, 0, 0],
        [1, 1, 0],
        [0, 1, 1]], dtype=torch.int32)

A mask is immutable: it copies the tensor or list it is built from.

Queries are aligned with the *last* keys, so a mask means the same with and without a KV cache:

>>> masks.causal().to_dense((1, 1, 2, 4))[0, 0].int()
tensor([[1, 1, 1, 0],
        [1, 1, 1, 1]], dtype=torch.int32)
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from softlook.base.errors import MaskError
from softlook.ops.masks.base import Mask as Mask
from softlook.ops.masks.base import as_owned_mask, clone_detached
from softlook.ops.masks.masks import (
    CAUSAL,
    DocumentMask,
    FunctionMask,
    GraphMask,
    MaskMod,
    PaddingMask,
    PrefixMask,
    WindowMask,
)

Lengths = Tensor | Sequence[int]
Side = Literal["left", "right"]


def causal() -> Mask:
    """Causal mask: each query attends to its own and earlier positions.

    >>> causal().to_dense((1, 1, 3, 3))[0, 0].int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return CAUSAL


def window(left: int | None, right: int | None = 0) -> Mask:
    """Sliding window: the query's own key, `left` keys before it and `right` keys after it; None = unlimited.

    A window of W tokens that includes the query's own is `window(W - 1)`.

    >>> window(1, 1).to_dense((1, 1, 3, 3))[0, 0].int()
    tensor([[1, 1, 0],
            [1, 1, 1],
            [0, 1, 1]], dtype=torch.int32)
    """
    for side, limit in (("left", left), ("right", right)):
        if limit is not None and limit < 0:
            raise MaskError(f"window expects {side} >= 0 or None, got {limit}")
    return WindowMask(left, right)


def prefix(length: int | Lengths) -> Mask:
    """Prefix mask: the first `length` keys. A prefix language model uses `causal() | prefix(n)`.

    >>> (causal() | prefix(2)).to_dense((1, 1, 3, 3))[0, 0].int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return PrefixMask(length if isinstance(length, int) else _integers("prefix", length))


def padding(lengths: Lengths, *, side: Side = "right", length: int | None = None) -> Mask:
    """Padding mask: the real keys of each sequence.

    With `side="left"`, `length` is the padded length S.

    >>> padding([1, 3]).to_dense((2, 1, 1, 3)).int().flatten(1)
    tensor([[1, 0, 0],
            [1, 1, 1]], dtype=torch.int32)
    >>> padding([1, 3], side="left", length=3).to_dense((2, 1, 1, 3)).int().flatten(1)
    tensor([[0, 0, 1],
            [1, 1, 1]], dtype=torch.int32)
    """
    if (side == "left") != (length is not None):
        raise MaskError(f'padding expects length with side="left" and only there, got side={side!r}, length={length}')
    return PaddingMask(_integers("padding", lengths), length)


def documents(keys: Tensor, queries: Tensor | None = None) -> Mask:
    """Document mask for packed sequences: each query attends within its own document.

    `keys` holds the document id of each key, (S,) or (B, S). The queries are the last keys unless `queries` holds
    ids of their own.

    >>> documents(torch.tensor([7, 7, 9])).to_dense((1, 1, 3, 3))[0, 0].int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    key_ids = _integers("documents", keys, dims=(1, 2))
    query_ids = None if queries is None else _integers("documents", queries, dims=(1, 2))
    return DocumentMask(torch.atleast_2d(key_ids), None if query_ids is None else torch.atleast_2d(query_ids))


def graph(edges: Tensor, *, loops: bool = False) -> Mask:
    """Graph mask: node `edges[0, n]` attends to node `edges[1, n]`.

    With `loops`, every node that has an edge also attends to itself. Memory is O(edges).

    >>> graph(torch.tensor([[0, 2], [1, 0]])).to_dense((1, 1, 3, 3))[0, 0].int()
    tensor([[0, 1, 0],
            [0, 0, 0],
            [1, 0, 0]], dtype=torch.int32)
    """
    edges = _integers("graph", edges, dims=(2,))
    if edges.shape[0] != 2:
        raise MaskError(f"graph expects edges shaped (2, number of edges), got {tuple(edges.shape)}")
    if not edges.numel():
        return GraphMask(edges, (0, 0))
    if int(edges.min()) < 0:
        raise MaskError(f"graph expects node indices >= 0, got {int(edges.min())}")
    if loops:
        edges = torch.cat([edges, edges.unique().expand(2, -1)], 1)
    last_query, last_key = edges.amax(1).tolist()
    return GraphMask(clone_detached(edges.unique(dim=1)), (last_query + 1, last_key + 1))


def dense(tensor: Tensor) -> Mask:
    """Mask from a boolean tensor shaped (T, S) or (B or 1, H or 1, T or 1, S).

    >>> dense(torch.tensor([[True, False]])) & causal()
    And(one=DenseMask(visible=tensor([[[[ True, False]]]])), other=WindowMask(left=None, right=0))
    """
    return as_owned_mask(tensor)


def from_function(function: MaskMod) -> Mask:
    """Mask from a function with FlexAttention's `mask_mod` signature, on every backend.

    `function(b, h, q_idx, kv_idx)` returns whether the query attends to the key. It is called with index tensors that
    broadcast against each other, or with scalars inside FlexAttention's kernel, so it must be elementwise. `q_idx` is
    the query's position among the keys, i + (S - T): the same function holds for decoding with a KV cache. The result
    is cached: the function must be pure.

    >>> from_function(lambda b, h, q_idx, kv_idx: (q_idx - kv_idx) % 2 == 0).to_dense((1, 1, 3, 3))[0, 0].int()
    tensor([[1, 0, 1],
            [0, 1, 0],
            [1, 0, 1]], dtype=torch.int32)
    """
    if not callable(function):
        raise TypeError(f"from_function expects a function (b, h, q_idx, kv_idx), got {type(function).__name__}")
    return FunctionMask(function)


def _integers(name: str, values: Lengths, dims: tuple[int, ...] = (1,)) -> Tensor:
    tensor = values if isinstance(values, Tensor) else torch.as_tensor(values)
    if not tensor.numel():
        tensor = tensor.long()  # an empty list has no integer dtype yet
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise MaskError(f"{name} expects integers, got {tensor.dtype}")
    if tensor.ndim not in dims:
        raise MaskError(f"{name} expects {' or '.join(map(str, dims))} dimensions, got shape {tuple(tensor.shape)}")
    return clone_detached(tensor.long())


__all__ = ["Mask", "causal", "dense", "documents", "from_function", "graph", "padding", "prefix", "window"]
