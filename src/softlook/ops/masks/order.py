"""Masks and order: which masks say what a query sees of the future, and what becomes of a decoder's own mask."""

from torch import Tensor

from softlook.ops.masks.algebra import Both, Dense, Either, Mask, Opposite, as_mask
from softlook.ops.masks.kinds import Band, Documents, Padding, Prefix

CAUSAL = Band(None, 0)


def decoder_mask(mask: Mask | Tensor | None, own: Band | None = CAUSAL) -> Mask | None:
    """The mask of a layer whose default is `own`, in a call that is given `mask`.

    A mask that mentions order (`causal`, `window`, `graph`, a tensor with a row for each query, or anything made with
    one of them) takes the place of the default. One that does not (`padding`, `documents`, `prefix` alone, a tensor
    with one row for all queries) hides keys in addition to it. A window of the layer stays in force in both cases.

    >>> from softlook import masks
    >>> print(decoder_mask(masks.padding([2])), decoder_mask(masks.causal() | masks.prefix(2)), sep=", ")
    causal() & padding(lengths), (causal() | prefix(2))
    """
    if mask is None or own is None:
        return own if mask is None else as_mask(mask)
    mask = as_mask(mask)
    if not mentions_order(mask):
        return own & mask
    window = Band(own.left, own.right or None)
    return mask if window == Band(None, None) else window & mask


def mentions_order(mask: Mask) -> bool:
    """Whether a mask says anything about the order of queries and keys."""
    match mask:
        case Both(one, other) | Either(one, other):
            return mentions_order(one) or mentions_order(other)
        case Opposite(inner):
            return mentions_order(inner)
        case Dense(seen):
            return seen.shape[2] != 1
        case _:
            return not isinstance(mask, Padding | Documents | Prefix)


def never_ahead(mask: Mask) -> bool:
    """Whether a mask certainly hides every key ahead of its query."""
    match mask:
        case Both(one, other):
            return never_ahead(one) or never_ahead(other)
        case Either(one, other):
            return never_ahead(one) and never_ahead(other)
        case Band(_, right):
            return right == 0
        case _:
            return False
