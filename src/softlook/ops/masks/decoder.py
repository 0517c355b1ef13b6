"""Decoder masks: combine a layer's causal mask with the caller's."""

from torch import Tensor

from softlook.ops.masks.base import And, DenseMask, Mask, Not, Or, as_mask
from softlook.ops.masks.masks import CAUSAL as CAUSAL
from softlook.ops.masks.masks import DocumentMask, PaddingMask, PrefixMask, WindowMask


def decoder_mask(mask: Mask | Tensor | None, own: WindowMask | None = CAUSAL) -> Mask | None:
    """Return the mask of a layer whose default is `own`, for a call that passes `mask`.

    A mask that depends on the query (`causal`, `window`, `graph`, `from_function`, a tensor with a row for each query,
    or any combination with one of them) replaces the default. One that does not (`padding`, `documents`, `prefix`
    alone, a tensor with one row for all queries) is combined with it by `&`. A layer's sliding window always applies.

    >>> from softlook import masks
    >>> print(decoder_mask(masks.padding([2])), decoder_mask(masks.causal() | masks.prefix(2)), sep=", ")
    causal() & padding(lengths), (causal() | prefix(2))
    """
    if mask is None or own is None:
        return own if mask is None else as_mask(mask)
    mask = as_mask(mask)
    if not depends_on_query(mask):
        return own & mask
    window = WindowMask(own.left, own.right or None)
    return mask if window == WindowMask(None, None) else window & mask


def depends_on_query(mask: Mask) -> bool:
    """Return whether a mask orders queries and keys, beyond hiding keys or separating documents."""
    match mask:
        case And(one, other) | Or(one, other):
            return depends_on_query(one) or depends_on_query(other)
        case Not(inner):
            return depends_on_query(inner)
        case DenseMask(visible):
            return visible.shape[2] != 1
        case _:
            return not isinstance(mask, PaddingMask | DocumentMask | PrefixMask)


def hides_future(mask: Mask) -> bool:
    """Return whether a mask certainly hides every future key."""
    match mask:
        case And(one, other):
            return hides_future(one) or hides_future(other)
        case Or(one, other):
            return hides_future(one) and hides_future(other)
        case WindowMask(_, right):
            return right == 0
        case _:
            return False
