"""Where a query may look. True = may look; combine with `&`, `|`, `~`.

>>> from softlook import masks
>>> mask = masks.causal() & masks.window(left=1)
>>> mask.dense((1, 1, 3, 3))[0, 0].int()
tensor([[1, 0, 0],
        [1, 1, 0],
        [0, 1, 1]], dtype=torch.int32)

A mask is a value: it copies the tensor or list it is made from, and later writes to that do not change it.

Queries line up with the *last* keys, so a mask means the same with and without a memory of the past:

>>> masks.causal().dense((1, 1, 2, 4))[0, 0].int()
tensor([[1, 1, 1, 0],
        [1, 1, 1, 1]], dtype=torch.int32)
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from softlook.base.errors import MaskError
from softlook.ops.masks.algebra import Mask as Mask
from softlook.ops.masks.algebra import own_copy, owned
from softlook.ops.masks.kinds import Band, Documents, Graph, Padding, Prefix

Lengths = Tensor | Sequence[int]


def causal() -> Mask:
    """Look at yourself and what came before.

    >>> causal().dense((1, 1, 3, 3))[0, 0].int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return Band(None, 0)


def window(left: int | None, right: int | None = 0) -> Mask:
    """Look at yourself, `left` keys back and `right` keys ahead; None is without end.

    A "window of W tokens, oneself included" is `window(W - 1)`.

    >>> window(1, 1).dense((1, 1, 3, 3))[0, 0].int()
    tensor([[1, 1, 0],
            [1, 1, 1],
            [0, 1, 1]], dtype=torch.int32)
    """
    for side, limit in (("left", left), ("right", right)):
        if limit is not None and limit < 0:
            raise MaskError(f"window wants {side} >= 0, or None for without end; {limit} came")
    return Band(left, right)


def prefix(length: int | Lengths) -> Mask:
    """Look at the first `length` keys. A prefix language model is `causal() | prefix(n)`.

    >>> (causal() | prefix(2)).dense((1, 1, 3, 3))[0, 0].int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)
    """
    return Prefix(length if isinstance(length, int) else _whole_numbers("prefix", length))


def padding(lengths: Lengths, *, left_of: int | None = None) -> Mask:
    """Look at the real keys of each sequence, not at what fills it up.

    The filling is on the right. Where it is on the left, say of how many keys: `left_of=S`.

    >>> padding([1, 3]).dense((2, 1, 1, 3)).int().flatten(1)
    tensor([[1, 0, 0],
            [1, 1, 1]], dtype=torch.int32)
    >>> padding([1, 3], left_of=3).dense((2, 1, 1, 3)).int().flatten(1)
    tensor([[0, 0, 1],
            [1, 1, 1]], dtype=torch.int32)
    """
    return Padding(_whole_numbers("padding", lengths), left_of)


def documents(keys: Tensor, queries: Tensor | None = None) -> Mask:
    """Look within your own document, where several are packed into one row.

    `keys` says which document each key belongs to, (S,) or (B, S). The queries are the last keys,
    unless they have document numbers of their own.

    >>> documents(torch.tensor([7, 7, 9])).dense((1, 1, 3, 3))[0, 0].int()
    tensor([[1, 1, 0],
            [1, 1, 0],
            [0, 0, 1]], dtype=torch.int32)
    """
    key_ids = _whole_numbers("documents", keys, axes=(1, 2))
    query_ids = None if queries is None else _whole_numbers("documents", queries, axes=(1, 2))
    return Documents(_one_row(key_ids), None if query_ids is None else _one_row(query_ids))


def graph(edges: Tensor, *, loops: bool = False) -> Mask:
    """Look along the edges of a graph: node `edges[0, n]` may look at node `edges[1, n]`.

    With `loops`, every node that has an edge also sees itself. Only O(edges) memory is held.

    >>> graph(torch.tensor([[0, 2], [1, 0]])).dense((1, 1, 3, 3))[0, 0].int()
    tensor([[0, 1, 0],
            [0, 0, 0],
            [1, 0, 0]], dtype=torch.int32)
    """
    edges = _whole_numbers("graph", edges, axes=(2,))
    if edges.shape[0] != 2:
        raise MaskError(f"graph wants edges shaped (2, number of edges); {tuple(edges.shape)} came")
    if not edges.numel():
        return Graph(edges, (0, 0))
    if int(edges.min()) < 0:
        raise MaskError(f"graph wants node numbers from 0 up; {int(edges.min())} came")
    if loops:
        edges = torch.cat([edges, edges.unique().expand(2, -1)], 1)
    last_query, last_key = edges.amax(1).tolist()
    return Graph(own_copy(edges.unique(dim=1)), (last_query + 1, last_key + 1))


def dense(tensor: Tensor) -> Mask:
    """A mask written out: True and False, shaped (T, S) or (B or 1, H or 1, T or 1, S).

    >>> dense(torch.tensor([[True, False]])) & causal()
    Both(one=Dense(seen=tensor([[[[ True, False]]]])), other=Band(left=None, right=0))
    """
    return owned(tensor)


def _whole_numbers(what: str, numbers: Lengths, axes: tuple[int, ...] = (1,)) -> Tensor:
    tensor = torch.as_tensor(numbers)
    if not tensor.numel():
        tensor = tensor.long()  # an empty list has no kind of number yet
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise MaskError(f"{what} wants whole numbers; {tensor.dtype} came")
    if tensor.ndim not in axes:
        raise MaskError(f"{what} wants a tensor with {' or '.join(map(str, axes))} axes; {tuple(tensor.shape)} came")
    return own_copy(tensor.long())


def _one_row(ids: Tensor) -> Tensor:
    return ids if ids.ndim == 2 else ids[None]


__all__ = ["Mask", "causal", "dense", "documents", "graph", "padding", "prefix", "window"]
