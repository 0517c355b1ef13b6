"""Log-sum-exp of the scores of each query, by torch's fused kernel where that has it."""

import torch
from torch import Tensor

from softlook.ops.arguments import AttentionArgs
from softlook.ops.backends.tiled import additive_mask
from softlook.ops.look import compute_values
from softlook.ops.masks.base import DenseMask, Mask
from softlook.ops.masks.masks import CAUSAL, PaddingMask, PrefixMask, WindowMask
from softlook.ops.selection import scores_at

FUSED_MIN_QUERIES = 128
"""With fewer queries, a few large operations are as fast."""
STRIP_SCORES = 1 << 20
"""Scores that are held at once."""


def log_sum_exp(args: AttentionArgs) -> Tensor:
    """Log-sum-exp of the scores of each query, without gradients; -inf if fully masked. (B, H, T)

    >>> from softlook.ops.arguments import prepare_args
    >>> query, key = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 7, 4)
    >>> torch.allclose(log_sum_exp(prepare_args(query, key)), (query @ key.mT / 2).logsumexp(-1), atol=1e-5)
    True
    """
    with torch.no_grad():
        lse = _fused(args) if _has_kernel(args) else None
        if lse is None:
            return compute_values(args, frozenset({"lse"}), top_k=1, bins=1)[0]["lse"]
        return lse if args.sink is None else torch.logaddexp(lse, args.sink[:, None])


def log_sum_exp_of(args: AttentionArgs, rows: range) -> Tensor:
    """Log-sum-exp of the scores of some queries, without gradients. (B, H, t)

    >>> from softlook.ops.arguments import prepare_args
    >>> args = prepare_args(torch.randn(1, 2, 5, 4), torch.randn(1, 2, 7, 4))
    >>> torch.allclose(log_sum_exp_of(args, range(1, 5, 2)), log_sum_exp(args)[:, :, 1::2], atol=1e-5)
    True
    """
    (B, H, _, S), device = args.sizes, args.query.device
    columns, indices = torch.arange(S, device=device), torch.tensor(rows, device=device)
    with torch.no_grad():
        strips = indices.split(max(STRIP_SCORES // max(B * H * S, 1), 1))
        lse = torch.cat([scores_at(args, strip, columns).logsumexp(-1) for strip in strips], 2)
        return lse if args.sink is None else torch.logaddexp(lse, args.sink[:, None])


def _has_kernel(args: AttentionArgs) -> bool:
    """Whether the fused CPU kernel computes these scores: dot products, and a mask with one row for all queries."""
    if args.score is not None or args.softcap is not None or args.bias is not None or not args.query.is_cpu:
        return False
    (_, _, T, S), mask = args.sizes, args.mask
    is_whole = args.key.shape[2] == S and T >= FUSED_MIN_QUERIES
    return is_whole and (mask is None or (_is_causal(mask) and T == S) or _is_shared_by_queries(mask))


def _is_causal(mask: Mask | None) -> bool:
    return isinstance(mask, WindowMask) and mask == CAUSAL


def _is_shared_by_queries(mask: Mask) -> bool:
    return isinstance(mask, PaddingMask | PrefixMask) or (isinstance(mask, DenseMask) and mask.visible.shape[2] == 1)


def _fused(args: AttentionArgs) -> Tensor | None:
    """The second result of torch's fused CPU kernel; None where that is not certain to be it."""
    (B, H, T, S), dtype = args.sizes, args.compute_dtype
    query, key = args.query.to(dtype), args.key.to(dtype).repeat_interleave(args.group_size, 1)
    added, is_causal = None, _is_causal(args.mask)
    if args.mask is not None and not is_causal:
        visible = args.mask.tile(args.tile)
        if not bool(visible.any(-1).all()):
            return None  # a fully masked row
        added = additive_mask(visible, dtype).expand(B, H, T, S)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    _, lse = kernel(query, key, key, 0.0, is_causal, attn_mask=added, scale=args.scale)
    return None if bool((lse == 0).any()) else lse  # a row of NaN
