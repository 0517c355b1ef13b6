"""Variable-length attention: packed documents, one SDPA call each."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from softlook.base.tensors import can_read
from softlook.ops.arguments import AttentionArgs
from softlook.ops.masks.base import And, Mask
from softlook.ops.masks.cache import cached
from softlook.ops.masks.masks import DocumentMask, WindowMask

MIN_MEAN_LENGTH = 16
"""Mean tokens per document below which one large map is cheaper than many small calls."""


def document_lengths(args: AttentionArgs) -> list[int] | None:
    """Return the length of each document of a packed row, or None where documents cannot run separately."""
    (B, _, T, S), mask = args.sizes, args.mask
    documents, _ = split_documents(mask)
    if mask is None or documents is None or args.bias is not None or not can_read(documents.keys):
        return None
    if T != S or args.first_key or 1 not in (B, documents.keys.shape[0]):
        return None  # queries are the last keys; a GPU would have to be waited for, and has a kernel of its own
    return cached(mask, "varlen", S, lambda: _run_lengths(documents.keys[0]))


def varlen_attention(args: AttentionArgs, value: Tensor, attend: Callable[[AttentionArgs, Tensor], Tensor]) -> Tensor:
    """Run `attend` on each document and concatenate the outputs. (B, H, T, E)"""
    lengths, (_, window) = document_lengths(args), split_documents(args.mask)
    assert lengths is not None
    B, H, _, _ = args.sizes
    # One split per tensor: its backward is a single cat, where slices would each allocate a whole tensor of zeros.
    parts = zip(args.query.split(lengths, 2), args.key.split(lengths, 2), value.split(lengths, 2), strict=True)
    outputs = [
        attend(replace(args, query=query, key=key, mask=window, sizes=(B, H, query.shape[2], key.shape[2])), values)
        for query, key, values in parts
    ]
    return torch.cat([output.transpose(1, 2) for output in outputs], 1).transpose(1, 2)  # the layout of merged heads


def split_documents(mask: Mask | None) -> tuple[DocumentMask | None, WindowMask | None]:
    """Split a mask that is documents, alone or combined with a window, into these two."""
    if isinstance(mask, DocumentMask):
        return (mask, None) if mask.queries is None else (None, None)
    if isinstance(mask, And):
        for one, other in ((mask.one, mask.other), (mask.other, mask.one)):
            if isinstance(one, WindowMask) and isinstance(other, DocumentMask) and other.queries is None:
                return other, one
    return None, None


def _run_lengths(ids: Tensor) -> list[int] | None:
    unique, counts = ids.unique_consecutive(return_counts=True)
    is_contiguous = unique.numel() == unique.unique().numel()
    is_long_enough = ids.numel() >= MIN_MEAN_LENGTH * unique.numel()
    return counts.tolist() if is_contiguous and is_long_enough else None
