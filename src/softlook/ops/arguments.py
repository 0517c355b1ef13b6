"""Attention arguments: validated and brought into one form.

Every backend computes the same `AttentionArgs`, in this order:
scores -> scale -> softcap -> bias -> mask -> softmax.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from softlook.base.errors import DtypeError, ShapeError
from softlook.base.shapes import Tile, make_range
from softlook.base.tensors import map_tensors, to_device
from softlook.ops.bias import Bias, as_bias, score_dtype
from softlook.ops.masks.base import Mask, Sizes, as_mask
from softlook.ops.masks.cache import mask_to_device
from softlook.ops.masks.masks import WindowMask
from softlook.ops.scores import Additive, DotScore, Score

MIN_TILE_ROWS = 16
"""With fewer rows a matrix product is bound by reading the keys."""
HALF_DTYPES = (torch.float16, torch.bfloat16)
FLOAT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(eq=False, slots=True)
class AttentionArgs:
    """What an attention map is computed from. Build it with `prepare_args`; treat it as immutable."""

    query: Tensor
    """(B, H, T, D)"""
    key: Tensor
    """(B, G, s, D): the s keys from `first_key` on; all S unless the keys are given in chunks."""
    mask: Mask | None
    bias: Bias | None
    scale: float
    softcap: float | None
    sink: Tensor | None
    """(H,): the logit of the attention sink."""
    score: Score | None
    """Only for scores that are not a dot product."""
    first_key: int
    sizes: Sizes
    """B, H, T, S of the whole map."""
    group_size: int
    """R: query heads per key/value head."""

    @property
    def compute_dtype(self) -> torch.dtype:
        """The dtype of scores and weights: at least float32."""
        return score_dtype(self.query.dtype)

    @property
    def tile(self) -> Tile:
        """The part of the map that these keys cover."""
        whole = Tile.whole(self.sizes, self.query.device)
        if self.first_key or self.key.shape[2] != self.sizes[3]:
            whole.columns = make_range(self.first_key, self.first_key + self.key.shape[2])
        return whole

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient is needed. A caller's score function may hold parameters that are not visible here."""
        if not torch.is_grad_enabled():
            return False
        if self.score is not None or (self.bias is not None and self.bias.requires_grad):
            return True
        return needs_grad(self.query, self.key, self.sink)

    def requires_grad_with(self, value: Tensor) -> bool:
        """Whether a gradient is needed, also for these values."""
        return self.requires_grad or needs_grad(value)

    def upcast(self) -> "AttentionArgs":
        """Cast half-precision inputs to `compute_dtype` once, so that gradients of tiles are summed in that precision.

        A score function of the caller keeps the dtype it was called with.
        """

        def cast(tensor: Tensor) -> Tensor:
            return tensor.to(self.compute_dtype) if tensor.dtype in HALF_DTYPES else tensor

        bias = map_tensors(self.bias, cast)
        if self.score is not None and not isinstance(self.score, Additive):
            return replace(self, bias=bias)
        score = map_tensors(self.score, cast)
        return replace(self, query=cast(self.query), key=cast(self.key), bias=bias, score=score)

    def tiles(self, elements: int, rows: int) -> Iterator[list[Tile]]:
        """Split the map into row tiles of about `elements` entries and at most `rows` rows, grouped by heads."""
        whole = self.tile
        batch, heads, rows = self._tile_shape(elements, rows)
        for b in _split_range(whole.batch, batch):
            for h in _split_range(whole.heads, heads):
                yield [replace(whole, batch=b, heads=h, rows=r) for r in _split_range(whole.rows, rows)]

    def _tile_shape(self, elements: int, rows: int) -> tuple[int, int, int]:
        """Sequences, heads and rows per tile."""
        (B, H, T, _), R, width = self.sizes, self.group_size, max(self.key.shape[2], 1)
        if self.score is not None:  # a score function may treat heads differently: it is given all of them
            return max(B, 1), max(H, 1), max(1, min(T, rows, elements // (width * max(B * H, 1))))
        rows = max(1, min(T, rows, max(MIN_TILE_ROWS, elements // (width * R))))
        heads = max(1, min(H, max(R, elements // (width * rows) // R * R)))
        return (max(1, elements // (width * rows * heads)) if heads == H else 1), heads, rows

    def query_tile(self, tile: Tile) -> Tensor:
        """(b, h, t, D)"""
        part = self.query[tile.batch.start : tile.batch.stop, tile.heads.start : tile.heads.stop]
        return part[:, :, tile.rows.start : tile.rows.stop]

    def key_tile(self, tile: Tile, tensor: Tensor | None = None) -> Tensor:
        """The keys (default), or another tensor with an entry per key, under the tile: (b, g, s, D)."""
        tensor, R = self.key if tensor is None else tensor, self.group_size
        part = tensor[tile.batch.start : tile.batch.stop, tile.heads.start // R : -(-tile.heads.stop // R)]
        return part[:, :, tile.columns.start - self.first_key : tile.columns.stop - self.first_key]


def prepare_args(
    query: Tensor,
    key: Tensor,
    *,
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | float | None = None,
    score: Score | None = None,
    part: tuple[int, int] | None = None,
) -> AttentionArgs:
    """Validate the arguments against each other and bring them into one form."""
    if is_autocast(query):
        query, key = cast_for_autocast(query, key)
    if not _is_checked(query, key):
        check_tensor("query", query)
        check_tensor("key", key, like=query)
    own_score = None
    if score is None:
        own_scale = max(query.shape[3], 1) ** -0.5
    elif isinstance(score, DotScore):
        own_scale = score.scale(query.shape[3])
        query, key = score.prepare(query, key)
    else:
        own_scale, own_score = 1.0, _with_autocast(score, query)
    (B, H, T, D), (key_B, G, s, key_D) = query.shape, key.shape
    if key_B != B or key_D != D or H != G:
        check_query_key(query.shape, key.shape)
    first_key, S = part or (0, s)
    if part is not None and not 0 <= first_key <= first_key + s <= S:
        raise ShapeError(f"part=(first, total)=({first_key}, {S}) does not hold {s} keys")
    sizes = (B, H, T, S)
    if mask is not None:
        mask = _prepare_mask(as_mask(mask), sizes, query.device)
    if bias is not None:
        bias = to_device(as_bias(bias), query.device)
        bias.validate(sizes, D)
    return AttentionArgs(
        query,
        key,
        mask,
        bias,
        own_scale if scale is None else _check_finite("scale", scale),  # an explicit scale replaces the score's own
        None if softcap is None else _check_positive("softcap", softcap),
        None if sink is None else _sink_tensor(sink, H, query),
        own_score,
        first_key,
        sizes,
        H // G if G else 1,
    )


def _prepare_mask(mask: Mask, sizes: Sizes, device: torch.device) -> Mask | None:
    if sizes[2] == 1 and isinstance(mask, WindowMask) and mask.left is None:
        return None  # the last position sees all earlier ones
    if mask.has_tensors:
        mask = mask_to_device(mask, device)
        mask.validate(sizes)
    return mask


def _is_checked(query: Tensor, key: Tensor) -> bool:
    """Whether `check_tensor` would accept both: one cheap test for the common case."""
    return query.ndim == 4 == key.ndim and query.dtype is key.dtype in FLOAT_DTYPES and query.device == key.device


def check_tensor(name: str, tensor: Tensor, like: Tensor | None = None) -> None:
    """Require four dimensions, a floating-point dtype, and the dtype and device of `like`."""
    if tensor.ndim != 4:
        raise ShapeError(
            f"{name} expects the dimensions (batch, heads, positions, head_dim), got {tuple(tensor.shape)}. "
            "One head is tensor[:, None]; split packed heads with tensor.unflatten(-1, (heads, -1)).transpose(1, 2)."
        )
    if tensor.dtype not in FLOAT_DTYPES:
        raise DtypeError(f"{name} expects a floating-point dtype, got {tensor.dtype}. Use {name}.float().")
    if like is not None and tensor.dtype != like.dtype:
        raise DtypeError(f"{name} has dtype {tensor.dtype} but query has {like.dtype}. Use {name}.to(query.dtype).")
    if like is not None and tensor.device != like.device:
        raise DtypeError(f"{name} is on {tensor.device} but query is on {like.device}. Use {name}.to(query.device).")


def check_query_key(query: Sequence[int], key: Sequence[int]) -> None:
    """Check the sizes that a query and a key of these shapes must share."""
    (B, H, _, D), (key_B, G, _, key_D) = query, key
    if key_B != B:
        raise ShapeError(f"query has batch size {B}, key has {key_B}: each query needs its own keys. Use key.expand.")
    if key_D != D:
        raise ShapeError(
            f"query has head_dim {D}, key has {key_D}: a dot product needs equal ones (or scores.bilinear)"
        )
    if (G == 0) != (H == 0) or (G and H % G):
        raise ShapeError(f"{H} query heads cannot share {G} key heads: {H} is not a multiple of {G}")


def check_value(args: AttentionArgs, value: Tensor) -> None:
    """Require one value for each key, with the same number of heads."""
    if not _is_checked(value, args.query):
        check_tensor("value", value, like=args.query)
    (B, G, S, _), (key_B, key_G, key_S, _) = value.shape, args.key.shape
    if key_S != S or key_G != G or key_B != B:
        raise ShapeError(
            f"value expects one vector for each key, {(*args.key.shape[:3], 'value_dim')}, got {tuple(value.shape)}"
        )


def needs_grad(*tensors: Tensor | None) -> bool:
    """Return whether autograd records an operation on these tensors."""
    if not torch.is_grad_enabled():
        return False
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


def cast_for_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast tensors to the autocast dtype where autocast is on; float64 stays.

    Also casts the other half precision: cuDNN's recurrent layers return float16 whatever autocast's dtype is.
    """
    if not is_autocast(tensors[0]):
        return tensors
    dtype = torch.get_autocast_dtype(tensors[0].device.type)
    return tuple(tensor if tensor.dtype == torch.float64 else _cast_float(tensor, dtype) for tensor in tensors)


def _cast_float(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.dtype in FLOAT_DTYPES else tensor


def is_autocast(like: Tensor) -> bool:
    """Return whether autocast is on for the tensor's device type; some, such as meta, have no autocast."""
    if like.is_cpu or like.is_cuda:
        return torch.is_autocast_enabled("cuda" if like.is_cuda else "cpu")
    device_type = like.device.type
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def disable_autocast(like: Tensor) -> AbstractContextManager[object]:
    """Disable autocast inside: `cast_for_autocast` has cast the inputs, and scores stay in `compute_dtype`."""
    return torch.autocast(like.device.type, enabled=False) if is_autocast(like) else nullcontext()


def _with_autocast(score: Score, like: Tensor) -> Score:
    """Run a score function of the caller under the caller's autocast: it may hold layers."""
    if isinstance(score, Additive) or not is_autocast(like):
        return score
    device_type = like.device.type
    dtype = torch.get_autocast_dtype(device_type)

    def run(query: Tensor, key: Tensor, /) -> Tensor:
        with torch.autocast(device_type, dtype=dtype):
            return score(query, key)

    return run


def _sink_tensor(sink: Tensor | float, heads: int, query: Tensor) -> Tensor:
    dtype = score_dtype(query.dtype)
    if not isinstance(sink, Tensor):
        return query.new_full((heads,), sink, dtype=dtype)  # created on the device: no copy to the GPU
    if sink.shape not in ((), (heads,)):
        raise ShapeError(f"sink expects one logit, or one for each of the {heads} heads, got {tuple(sink.shape)}")
    return sink.to(query.device, dtype).expand(heads)


def _check_finite(name: str, number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{name} expects a finite number, got {number}")
    return float(number)


def _check_positive(name: str, number: float) -> float:
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} expects a number above 0 or None, got {number}")
    return number


def _split_range(whole: range, step: int) -> Iterator[range]:
    for start in range(whole.start, whole.stop, step):
        yield range(start, min(start + step, whole.stop))
