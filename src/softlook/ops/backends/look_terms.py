"""Arguments of an attention map as terms of the Triton kernels of a look, and which arguments have them."""

import math
from functools import reduce
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from softlook.base.tensors import is_traced
from softlook.ops.arguments import AttentionArgs, needs_grad
from softlook.ops.bias import DenseBias
from softlook.ops.masks.base import And, DenseMask, Mask
from softlook.ops.masks.masks import DocumentMask, PaddingMask, PrefixMask, WindowMask
from softlook.ops.positions.relative_bias import DistanceBias

LOG2E = math.log2(math.e)
DEVICES = ("cuda",)
MIN_ELEMENTS = 1 << 20
"""A smaller map is one tile of plain torch: compiling kernels for its shape is not worth it."""
MAX_DIM = 256
"""Queries, keys and values of more dimensions do not fit into a block."""
MAX_TOP_K = 32
MAX_DENSE_ELEMENTS = 1 << 26
"""Masks without key ranges are evaluated as a whole if the map is not larger."""
RANGED = (WindowMask, PrefixMask, PaddingMask, DocumentMask)


def unsupported_reason(
    args: AttentionArgs, *others: Tensor | None, stats: frozenset[str] = frozenset(), top_k: int = 1
) -> str | None:
    """Return why the kernels cannot look at this map, or None. `others` are further tensors of the call."""
    if args.query.device.type not in DEVICES or find_spec("triton") is None:
        return "the kernels need a GPU and Triton"
    tensors = [tensor for tensor in (args.query, args.key, args.sink, *others) if tensor is not None]
    if is_traced(*tensors):
        return "a transform traces the call"
    if args.requires_grad or needs_grad(*tensors):
        return "the kernels have no gradient"
    if math.prod(args.sizes) < MIN_ELEMENTS or any(0 in tensor.shape for tensor in tensors):
        return "the map is small"
    return _size_reason(args, tensors, stats, top_k) or _terms_reason(args)


def _size_reason(args: AttentionArgs, tensors: list[Tensor], stats: frozenset[str], top_k: int) -> str | None:
    if args.query.dtype == torch.float64:
        return "the kernels have no float64"
    if max(tensor.shape[3] for tensor in tensors if tensor.ndim == 4) > MAX_DIM:
        return f"the kernels have at most {MAX_DIM} dimensions"
    if top_k > MAX_TOP_K and stats & {"top_weights", "top_indices"}:
        return f"the kernels find at most {MAX_TOP_K} top keys"
    if args.key.shape[2] != args.sizes[3] and stats & {"pooled_mean", "pooled_max"}:
        return "the kernels pool whole maps only"
    return None


def _terms_reason(args: AttentionArgs) -> str | None:
    if args.score is not None:
        return "the kernels have dot-product scores only"
    if not (args.bias is None or isinstance(args.bias, DistanceBias | DenseBias)):
        return f"the kernels have no bias {args.bias}"
    masks = _conjunction(args.mask)
    if sum(isinstance(part, DocumentMask) for part in masks) > 1:
        return "the kernels have one document mask only"
    dense = [part for part in masks if not isinstance(part, RANGED)]
    if dense and not _is_dense(dense) and math.prod(args.sizes) > MAX_DENSE_ELEMENTS:
        return f"{args.mask} has no ranges of keys, and the map is too large for a dense mask"
    return None


def _conjunction(mask: Mask | None) -> list[Mask]:
    """The masks that all must allow a key."""
    if isinstance(mask, And):
        return _conjunction(mask.one) + _conjunction(mask.other)
    return [] if mask is None else [mask]


def _is_dense(masks: list[Mask]) -> bool:
    return len(masks) == 1 and isinstance(masks[0], DenseMask)


def mask_terms(args: AttentionArgs) -> tuple[Any, Any, Any, Any]:
    """Return the span, the limits per sequence, the documents, and what remains as a dense mask."""
    (B, _, T, total), first, count = args.sizes, args.first_key, args.key.shape[2]
    left, right, starts, stops, ids, rest = None, None, [], [], None, []
    for part in _conjunction(args.mask):
        if isinstance(part, WindowMask):
            left, right = _min_bound(left, part.left), _min_bound(right, part.right)
        elif isinstance(part, PrefixMask):
            stops.append(torch.as_tensor(part.length, device=args.query.device).expand(B))
        elif isinstance(part, PaddingMask):
            (stops if part.keys is None else starts).append(
                part.lengths if part.keys is None else part.keys - part.lengths
            )
        elif isinstance(part, DocumentMask):
            queries = part.keys[:, total - T :] if part.queries is None else part.queries
            both = (queries.contiguous(), part.keys[:, first : first + count].contiguous())
            ids = (*both, *(_broadcast_strides(own)[0] for own in both))
        else:
            rest.append(part)
    limits = (_limit(starts, torch.maximum, first), _limit(stops, torch.minimum, first))
    return (total - T - first, left, right), limits, ids, _dense(args, rest)


def _dense(args: AttentionArgs, masks: list[Mask]) -> tuple[Any, ...] | None:
    if not masks:
        return None
    if isinstance(masks[0], DenseMask) and len(masks) == 1:
        start = args.first_key
        visible = masks[0].visible[..., start : start + args.key.shape[2]]
    else:
        visible = reduce(And, masks).tile(args.tile)
    return visible.view(torch.uint8), *_broadcast_strides(visible)


def bias_terms(args: AttentionArgs) -> tuple[Any, Any]:
    """Return a table of values per head and distance, or a dense bias."""
    bias, first, (_, _, T, total), count = args.bias, args.first_key, args.sizes, args.key.shape[2]
    if isinstance(bias, DistanceBias):
        smallest = total - T - first - (count - 1)
        distances = torch.arange(smallest, smallest + T + count - 1, device=args.query.device)
        return bias.by_distance(distances, args.query.dtype).float().contiguous(), None
    if isinstance(bias, DenseBias):
        values = bias.values[..., first : first + count]
        return None, (values, *_broadcast_strides(values))
    return None, None


def _broadcast_strides(tensor: Tensor) -> list[int]:
    return [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]


def _min_bound(one: int | None, other: int | None) -> int | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)


def _limit(tensors: list[Tensor], combine: Any, first_key: int) -> Tensor | None:
    return (reduce(combine, tensors) - first_key).to(torch.int32) if tensors else None
