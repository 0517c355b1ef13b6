"""torch's flash kernel, called directly on CUDA for what SDPA does not pass on: packed documents and windows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from softlook.base.tensors import is_traced
from softlook.ops.arguments import HALF_DTYPES, AttentionArgs
from softlook.ops.backends.varlen import split_documents
from softlook.ops.masks.cache import cached, can_cache
from softlook.ops.masks.masks import DocumentMask, WindowMask

MIN_TOKENS = 4096
"""In fewer tokens, finding the documents, for which the host waits once per mask, costs more than it saves."""
MAX_HEAD_DIM = 256


@dataclass(frozen=True)
class DocumentRuns:
    """Documents as runs of consecutive tokens of all rows."""

    offsets: Tensor
    """(documents + 1,) int32: the first token of each, and the number of all tokens."""
    longest: int


def document_runs(args: AttentionArgs, value: Tensor) -> DocumentRuns | None:
    """Return the runs of packed documents; None where the flash kernel does not apply to them.

    Reading them from the device waits for it once per mask, not once per layer.
    """
    (B, _, T, S), mask = args.sizes, args.mask
    documents, window = split_documents(mask)
    if mask is None or documents is None or args.bias is not None or not is_supported(args, value):
        return None
    if T != S or args.first_key or B * T < MIN_TOKENS or not is_forward_window(window):
        return None
    if not can_cache(args.query) or not can_cache(documents.keys):
        return None  # a tracer cannot read the documents, and a CUDA graph cannot wait for them
    return cached(documents, "runs", B, lambda: find_runs(documents, B))


def has_window(args: AttentionArgs, value: Tensor) -> bool:
    """Return whether the kernel applies the mask itself: a window over queries and keys of equal length."""
    mask, (_, _, T, S) = args.mask, args.sizes
    return (
        isinstance(mask, WindowMask)
        and T == S
        and args.bias is None
        and is_forward_window(mask)
        and not is_traced(args.query)
        and is_supported(args, value)
    )


def is_supported(args: AttentionArgs, value: Tensor) -> bool:
    """Return whether torch's flash kernel applies to these tensors on this device."""
    query, D = args.query, args.query.shape[3]
    return (
        query.is_cuda
        and query.dtype in HALF_DTYPES
        and value.shape[3] == D <= MAX_HEAD_DIM
        and D % 8 == 0
        and query.stride(3) == args.key.stride(3) == value.stride(3) == 1
        and torch.cuda.get_device_properties(query.device).major >= 8
        and torch.backends.cuda.flash_sdp_enabled()
    )


def is_forward_window(window: WindowMask | None) -> bool:
    """Return whether the bounds of a window are at least 0: the kernel takes a negative one as unlimited."""
    return window is None or all(bound is None or bound >= 0 for bound in (window.left, window.right))


def find_runs(documents: DocumentMask, rows: int) -> DocumentRuns | None:
    """Return the runs of equal ids in each of `rows` rows; None if a document has several.

    >>> find_runs(DocumentMask(torch.tensor([[0, 0, 1], [7, 7, 7]]), None), 2)
    DocumentRuns(offsets=tensor([0, 2, 3, 6], dtype=torch.int32), longest=3)
    >>> find_runs(DocumentMask(torch.tensor([[0, 1, 0]]), None), 1)
    """
    ids = documents.keys.expand(rows, -1)
    starts = _changes(ids).flatten().nonzero()[:, 0]
    offsets = torch.cat([starts, starts.new_full((1,), ids.numel())])
    distinct = _changes(ids.sort(1).values).sum()
    count, longest = torch.stack([distinct, offsets.diff().max()]).tolist()
    return DocumentRuns(offsets.int(), longest) if count == len(starts) else None


def _changes(ids: Tensor) -> Tensor:
    """Where an id differs from the one before; the first of each row does."""
    return torch.cat([torch.ones_like(ids[:, :1], dtype=torch.bool), ids[:, 1:] != ids[:, :-1]], 1)


def bind_flash_varlen(args: AttentionArgs, value: Tensor, dropout: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The flash kernel for these documents and tensors like these."""
    runs, (_, window) = document_runs(args, value), split_documents(args.mask)
    assert runs is not None
    (B, H, T, _), E = args.sizes, value.shape[3]
    flash, offsets, longest = _flash(window, args.scale, dropout), runs.offsets, runs.longest

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        tokens = (tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value))
        return flash(*tokens, offsets, longest).view(B, T, H, E).transpose(1, 2)

    return run


def bind_flash_window(args: AttentionArgs, dropout: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The flash kernel for this window and tensors like these."""
    assert isinstance(args.mask, WindowMask)
    flash, T = _flash(args.mask, args.scale, dropout), args.sizes[2]

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return flash(*(tensor.transpose(1, 2) for tensor in (query, key, value)), None, T).transpose(1, 2)

    return run


def _flash(window: WindowMask | None, scale: float, dropout: float) -> Callable[..., Tensor]:
    """The kernel as a function of tensors (..., heads, head_dim), offsets of documents, and the longest length."""
    left, right = (None, None) if window is None else (window.left, window.right)
    bounds = {"window_size_left": -1 if left is None else left, "window_size_right": -1 if right is None else right}
    is_causal, forward = left is None and right == 0, torch.ops.aten._flash_attention_forward
    # The kernel subtracts the largest product before it scales it: a negative scale is multiplied into the queries.
    factor, positive = (scale, 1.0) if scale <= 0 else (None, scale)

    def run(query: Tensor, key: Tensor, value: Tensor, offsets: Tensor | None, longest: int) -> Tensor:
        query = query if factor is None else query * factor
        lengths = (offsets, offsets, longest, longest)
        return forward(query, key, value, *lengths, dropout, is_causal, False, scale=positive, **bounds)[0]

    return run
