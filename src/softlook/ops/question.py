"""A question, checked: queries, keys, and all that stands between them and the softmax.

Every path answers the same `Question`. The order is fixed:
scores -> scale -> soft cap -> bias -> mask -> softmax.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from softlook.base.errors import DtypeError, ShapeError
from softlook.base.shapes import Tile
from softlook.ops.bias import Bias, as_bias
from softlook.ops.masks.algebra import Mask, as_mask
from softlook.ops.scores import DotScore, Score, scaled

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
    keys: int
    """S, of the whole map."""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, H, T, S of the map."""
        return self.query.shape[0], self.query.shape[1], self.query.shape[2], self.keys

    @property
    def repeats(self) -> int:
        """R: how many query heads share a key head."""
        return self.query.shape[1] // self.key.shape[1] if self.key.shape[1] else 1

    @property
    def numbers(self) -> torch.dtype:
        """What scores and weights are worked out in."""
        return torch.float64 if self.query.dtype == torch.float64 else torch.float32

    @property
    def tile(self) -> Tile:
        """All of the map that these keys cover."""
        B, H, T, S = self.sizes
        columns = range(self.first_key, self.first_key + self.key.shape[2])
        return Tile(range(B), range(H), range(T), columns, T, S, self.query.device)

    @property
    def needs_gradient(self) -> bool:
        parts = (self.query, self.key, self.sink, *(vars(self.score).values() if self.score else ()))
        wanted = any(isinstance(part, Tensor) and part.requires_grad for part in parts)
        return torch.is_grad_enabled() and (wanted or (self.bias is not None and self.bias.learned))

    def tiles(self, elements: int, rows: int) -> Iterator[list[Tile]]:
        """The map in strips of about `elements` entries and at most `rows` rows: a list for each set of heads."""
        whole, R = self.tile, self.repeats
        width = max(len(whole.columns), 1)
        rows = max(1, min(len(whole.rows), rows, max(FEWEST_ROWS, elements // (width * R))))
        heads = R * max(1, min(len(whole.heads) // max(R, 1), elements // (width * R * rows)))
        batch = max(1, elements // (width * rows * heads)) if heads >= len(whole.heads) else 1
        for b in _steps(whole.batch, batch):
            for h in _steps(whole.heads, heads):
                yield [replace(whole, batch=b, heads=h, rows=r) for r in _steps(whole.rows, rows)]

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
    query, key = autocast(query), autocast(key)
    check_tensor("query", query)
    check_tensor("key", key, like=query)
    score = scaled() if score is None else score
    score_scale = score.scale(query.shape[-1]) if isinstance(score, DotScore) else 1.0
    if isinstance(score, DotScore):
        query, key = score.prepare(query, key)
    check_pair(query, key)
    (B, H, T, D), s = query.shape, key.shape[2]
    first_key, keys = part or (0, s)
    if not 0 <= first_key <= first_key + s <= keys:
        raise ShapeError(f"part=(first, all) places {s} keys from {first_key} on among {keys}: they do not fit")
    mask = None if mask is None else as_mask(mask).to(query.device)
    bias = None if bias is None else as_bias(bias)
    if mask is not None:
        mask.check((B, H, T, keys))
    if bias is not None:
        bias.check((B, H, T, keys), D)
    if scale is not None:  # given by hand: in place of the score's own
        score_scale = _number("scale", scale)
    return Question(
        query=query,
        key=key,
        mask=mask,
        bias=bias,
        scale=score_scale,
        softcap=_positive("softcap", softcap),
        sink=_sink(sink, H, query),
        score=None if isinstance(score, DotScore) else score,
        first_key=first_key,
        keys=keys,
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


def check_pair(query: Tensor, key: Tensor) -> None:
    """The sizes that queries and keys must share."""
    (B, H, _, D), (key_B, G, _, key_D) = query.shape, key.shape
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
    want = (*question.key.shape[:3], value.shape[3])
    if tuple(value.shape) != want:
        raise ShapeError(
            f"value wants one vector for each key, {(*question.key.shape[:3], 'width')}; {tuple(value.shape)} came"
        )


def autocast(tensor: Tensor) -> Tensor:
    """Under torch.autocast, single precision becomes what autocast asks for, as in torch's own attention."""
    kind = tensor.device.type
    if tensor.dtype == torch.float32 and torch.is_autocast_enabled(kind):
        return tensor.to(torch.get_autocast_dtype(kind))
    return tensor


def _sink(sink: Tensor | float | None, heads: int, query: Tensor) -> Tensor | None:
    if sink is None:
        return None
    sink = torch.as_tensor(sink, device=query.device)
    if sink.shape not in ((), (heads,)):
        raise ShapeError(f"sink wants one score, or one for each of the {heads} heads; {tuple(sink.shape)} came")
    return sink.to(torch.float64 if query.dtype == torch.float64 else torch.float32).expand(heads)


def _number(name: str, number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{name} wants a finite number; {number} came")
    return float(number)


def _positive(name: str, number: float | None) -> float | None:
    if number is not None and not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} wants a number above 0, or None for none; {number} came")
    return number


def _steps(whole: range, step: int) -> Iterator[range]:
    for start in range(whole.start, whole.stop, step):
        yield range(start, min(start + step, whole.stop))
