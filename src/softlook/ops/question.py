"""A question, checked: queries, keys, and all that stands between them and the softmax.

Every path answers the same `Question`. The order is fixed:
scores -> scale -> soft cap -> bias -> mask -> softmax.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from softlook.base.errors import DtypeError, ShapeError
from softlook.base.moving import moved
from softlook.base.shapes import Tile, span
from softlook.ops.bias import Bias, as_bias, score_dtype
from softlook.ops.masks.algebra import Mask, Sizes, as_mask
from softlook.ops.masks.prepared import on_device
from softlook.ops.scores import Additive, DotScore, Score, scaled

SCALED_DOT = scaled()
FEWEST_ROWS = 16
"""Below this a matrix product spends more on reading the keys than on multiplying."""
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class Question:
    """What a map is made of. Build one with `ask`."""

    query: Tensor
    """(B, H, T, D)"""
    key: Tensor
    """(B, G, s, D), s of the S keys from `first_key` on; all of them unless the keys came in parts."""
    mask: Mask | None
    bias: Bias | None
    scale: float
    softcap: float | None
    sink: Tensor | None
    """(H,): the score of nothing at all."""
    score: Score | None
    """Only where the score is not a dot product."""
    first_key: int
    sizes: Sizes
    """B, H, T, S of the whole map."""
    repeats: int
    """R: how many query heads share a key head."""

    @property
    def numbers(self) -> torch.dtype:
        """What scores and weights are worked out in."""
        return score_dtype(self.query.dtype)

    @property
    def tile(self) -> Tile:
        """All of the map that these keys cover."""
        B, H, T, S = self.sizes
        columns = span(self.first_key, self.first_key + self.key.shape[2])
        return Tile(span(0, B), span(0, H), span(0, T), columns, T, S, self.query.device)

    @property
    def needs_gradient(self) -> bool:
        """Must a gradient flow? A score that was handed in may learn in ways that cannot be seen from here."""
        hidden = self.score is not None or (self.bias is not None and self.bias.learned)
        return learns(self.query, self.key, self.sink) or (hidden and torch.is_grad_enabled())

    def learns_with(self, value: Tensor) -> bool:
        """Must a gradient flow back through the average of these values?"""
        return self.needs_gradient or learns(value)

    def tiles(self, elements: int, rows: int) -> Iterator[list[Tile]]:
        """The map in strips of about `elements` entries and at most `rows` rows: a list for each set of heads."""
        whole = self.tile
        batch, heads, rows = self._strip(elements, rows)
        for b in _steps(whole.batch, batch):
            for h in _steps(whole.heads, heads):
                yield [replace(whole, batch=b, heads=h, rows=r) for r in _steps(whole.rows, rows)]

    def _strip(self, elements: int, rows: int) -> tuple[int, int, int]:
        """How many sequences, heads and rows a strip has."""
        (B, H, T, _), R, width = self.sizes, self.repeats, max(self.key.shape[2], 1)
        if self.score is not None:  # what was handed in may treat every head in its own way: it is shown all of them
            return max(B, 1), max(H, 1), max(1, min(T, rows, elements // (width * max(B * H, 1))))
        rows = max(1, min(T, rows, max(FEWEST_ROWS, elements // (width * R))))
        heads = max(1, min(H, max(R, elements // (width * rows) // R * R)))
        return (max(1, elements // (width * rows * heads)) if heads == H else 1), heads, rows

    def queries_of(self, tile: Tile) -> Tensor:
        """(b, h, t, D)"""
        part = self.query[tile.batch.start : tile.batch.stop, tile.heads.start : tile.heads.stop]
        return part[:, :, tile.rows.start : tile.rows.stop]

    def keys_of(self, tile: Tile, tensor: Tensor | None = None) -> Tensor:
        """The keys, or what else is kept per key, under the tile: (b, g, s, D)."""
        tensor, R = self.key if tensor is None else tensor, self.repeats
        part = tensor[tile.batch.start : tile.batch.stop, tile.heads.start // R : -(-tile.heads.stop // R)]
        return part[:, :, tile.columns.start - self.first_key : tile.columns.stop - self.first_key]


def ask(
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
) -> Question:
    """Check the parts against each other and put them into one form."""
    query, key = autocast(query, key)
    check_tensor("query", query)
    check_tensor("key", key, like=query)
    own_scale, prepared = 1.0, None if score is None else _as_called(score, query)
    if score is None or isinstance(score, DotScore):
        score, prepared = score or SCALED_DOT, None
        own_scale = score.scale(query.shape[3])
        query, key = score.prepare(query, key)
    (B, H, T, D), (_, G, s, _) = query.shape, key.shape
    check_pair(query.shape, key.shape)
    first_key, S = part or (0, s)
    if not 0 <= first_key <= first_key + s <= S:
        raise ShapeError(f"part=(first, all) places {s} keys from {first_key} on among {S}: they do not fit")
    sizes = (B, H, T, S)
    if mask is not None:
        mask = on_device(as_mask(mask), query.device)
        mask.check(sizes)
    if bias is not None:
        bias = moved(as_bias(bias), query.device)
        bias.check(sizes, D)
    return Question(
        query=query,
        key=key,
        mask=mask,
        bias=bias,
        scale=own_scale if scale is None else _number("scale", scale),  # given by hand: in place of the score's own
        softcap=None if softcap is None else _positive("softcap", softcap),
        sink=None if sink is None else _sink(sink, H, query),
        score=prepared,
        first_key=first_key,
        sizes=sizes,
        repeats=H // G if G else 1,
    )


def check_tensor(name: str, tensor: Tensor, like: Tensor | None = None) -> None:
    """Four axes, floating point, and the kind and the device of `like`."""
    if tensor.ndim != 4:
        raise ShapeError(
            f"{name} wants the axes (batch, heads, positions, width); {tuple(tensor.shape)} came. "
            "One head is tensor[:, None]; a packed width is tensor.unflatten(-1, (heads, -1)).transpose(1, 2)."
        )
    if tensor.dtype not in FLOATS:
        raise DtypeError(f"{name} wants floating-point numbers; {tensor.dtype} came. Use {name}.float().")
    if like is not None and tensor.dtype != like.dtype:
        raise DtypeError(f"{name} holds {tensor.dtype} but query holds {like.dtype}. Use {name}.to(query.dtype).")
    if like is not None and tensor.device != like.device:
        raise DtypeError(f"{name} is on {tensor.device} but query is on {like.device}. Use {name}.to(query.device).")


def check_pair(query: Sequence[int], key: Sequence[int]) -> None:
    """The sizes that queries and keys, shaped so, must share."""
    (B, H, _, D), (key_B, G, _, key_D) = query, key
    if key_B != B:
        raise ShapeError(
            f"query has a batch of {B}, key one of {key_B}: each query needs its own keys. Use key.expand."
        )
    if key_D != D:
        raise ShapeError(f"query is {D} wide, key {key_D}: a dot product needs one width (scores.bilinear joins two)")
    if (G == 0) != (H == 0) or (G and H % G):
        raise ShapeError(f"{H} query heads cannot share {G} key heads: {H} is not a multiple of {G}")


def check_value(question: Question, value: Tensor) -> None:
    """One value for each key, in as many heads."""
    check_tensor("value", value, like=question.query)
    if value.shape[:3] != question.key.shape[:3]:
        raise ShapeError(
            f"value wants one vector for each key, {(*question.key.shape[:3], 'width')}; {tuple(value.shape)} came"
        )


def learns(*tensors: Tensor | None) -> bool:
    """Must a gradient flow back to any of them?"""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Under torch.autocast, everything but double precision becomes what autocast asks for.

    The other half precision too: cuDNN's recurrent layers give float16, whatever was asked for.
    """
    kind = tensors[0].device.type
    if not _is_autocast(kind):
        return tensors
    wanted = torch.get_autocast_dtype(kind)
    casting = (torch.float32, torch.float16, torch.bfloat16)
    return tuple(tensor.to(wanted) if tensor.dtype in casting else tensor for tensor in tensors)


def _is_autocast(kind: str) -> bool:
    """Whether autocast is on for this type of device; the meta device, for one, has none."""
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """Inside, torch.autocast rounds no product: `autocast` has cast the inputs already, and scores stay single."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if _is_autocast(kind) else nullcontext()


def _as_called(score: Score, like: Tensor) -> Score:
    """A score that was handed in, under the autocast it was handed in under: it may hold layers of its own."""
    kind = like.device.type
    if isinstance(score, Additive) or not _is_autocast(kind):
        return score
    dtype = torch.get_autocast_dtype(kind)

    def cast(query: Tensor, key: Tensor, /) -> Tensor:
        with torch.autocast(kind, dtype=dtype):
            return score(query, key)

    return cast


def _sink(sink: Tensor | float, heads: int, query: Tensor) -> Tensor:
    numbers = score_dtype(query.dtype)
    if not isinstance(sink, Tensor):
        return query.new_full((heads,), sink, dtype=numbers)  # filled where it is needed: nothing to copy to a GPU
    if sink.shape not in ((), (heads,)):
        raise ShapeError(f"sink wants one score, or one for each of the {heads} heads; {tuple(sink.shape)} came")
    return sink.to(query.device, numbers).expand(heads)


def _number(name: str, number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{name} wants a finite number; {number} came")
    return float(number)


def _positive(name: str, number: float) -> float:
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} wants a number above 0, or None for none; {number} came")
    return number


def _steps(whole: range, step: int) -> Iterator[range]:
    for start in range(whole.start, whole.stop, step):
        yield range(start, min(start + step, whole.stop))
