"""Masks as values: where a query may look, said in symbols, combined with `&`, `|` and `~`.

A mask answers one question in three ways, all from the same definition:
`at` for single (batch, head, query, key) numbers, `on` for a whole tile, and
`reach`/`clear` for what can be said of a tile without looking: keys that nobody
in it sees, and keys that everybody in it sees.
"""

from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from softlook.base.errors import MaskError
from softlook.base.moving import moved
from softlook.base.shapes import Tile

NONE: frozenset[str] = frozenset()
ITSELF, FIRST = frozenset({"itself"}), frozenset({"first"})
Sizes = tuple[int, int, int, int]
"""B, H, T, S of the map a mask is laid over."""


class Mask:
    """Where queries may look. True = may look. A value: what it was made from may change, it does not."""

    def at(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        """May query `i` look at key `j`? Whole numbers of any shapes that broadcast."""
        raise AssertionError(f"{type(self).__name__} does not say where it lets a query look")

    def on(self, tile: Tile) -> Tensor:
        """The mask on a tile, four axes, each full or 1."""
        return self.at(*tile.indices(), tile.shift)

    def dense(self, sizes: Sizes, device: torch.device | str = "cpu") -> Tensor:
        """The whole mask as a tensor that broadcasts to B H T S."""
        self.check(sizes)
        device = torch.device(device)
        return moved(self, device).on(Tile.whole(sizes, device))

    def reach(self, tile: Tile) -> range:
        """Columns of the tile outside of which no row of it sees anything."""
        return tile.columns

    def clear(self, tile: Tile) -> range:
        """Columns of the tile that every row of it sees."""
        return tile.columns[:0]

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        """Which of "itself" and "first" every query certainly sees: the key at its own position, the first of all."""
        return NONE

    def never_blind(self, queries: int, keys: int) -> bool:
        """Is it certain that every query sees some key?"""
        return bool(self.anchors(queries, keys))

    def check(self, sizes: Sizes) -> None:
        """Raise MaskError unless the mask fits a map of these sizes."""

    def __and__(self, other: "Mask | Tensor") -> "Mask":
        return Both(self, owned(other))

    def __or__(self, other: "Mask | Tensor") -> "Mask":
        return Either(self, owned(other))

    def __invert__(self) -> "Mask":
        return Opposite(self)


@dataclass(frozen=True, eq=False)
class Both(Mask):
    """May look where both may."""

    one: Mask
    other: Mask

    def at(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        return self.one.at(b, h, i, j, shift) & self.other.at(b, h, i, j, shift)

    def on(self, tile: Tile) -> Tensor:
        return self.one.on(tile) & self.other.on(tile)

    def reach(self, tile: Tile) -> range:
        return _common(self.one.reach(tile), self.other.reach(tile))

    def clear(self, tile: Tile) -> range:
        return _common(self.one.clear(tile), self.other.clear(tile))

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        return self.one.anchors(queries, keys) & self.other.anchors(queries, keys)

    def check(self, sizes: Sizes) -> None:
        self.one.check(sizes)
        self.other.check(sizes)

    def __str__(self) -> str:
        return f"{self.one} & {self.other}"


@dataclass(frozen=True, eq=False)
class Either(Mask):
    """May look where one of the two may."""

    one: Mask
    other: Mask

    def at(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        return self.one.at(b, h, i, j, shift) | self.other.at(b, h, i, j, shift)

    def on(self, tile: Tile) -> Tensor:
        return self.one.on(tile) | self.other.on(tile)

    def reach(self, tile: Tile) -> range:
        seen = [part for part in (self.one.reach(tile), self.other.reach(tile)) if part]
        return range(min(p.start for p in seen), max(p.stop for p in seen)) if seen else tile.columns[:0]

    def clear(self, tile: Tile) -> range:
        return max(self.one.clear(tile), self.other.clear(tile), key=len)

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        return self.one.anchors(queries, keys) | self.other.anchors(queries, keys)

    def check(self, sizes: Sizes) -> None:
        self.one.check(sizes)
        self.other.check(sizes)

    def __str__(self) -> str:
        return f"({self.one} | {self.other})"


@dataclass(frozen=True, eq=False)
class Opposite(Mask):
    """May look where the other may not."""

    mask: Mask

    def at(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        return ~self.mask.at(b, h, i, j, shift)

    def on(self, tile: Tile) -> Tensor:
        return ~self.mask.on(tile)

    def clear(self, tile: Tile) -> range:
        return tile.columns if not self.mask.reach(tile) else tile.columns[:0]

    def check(self, sizes: Sizes) -> None:
        self.mask.check(sizes)

    def __str__(self) -> str:
        return f"~({self.mask})"


@dataclass(frozen=True, eq=False)
class Dense(Mask):
    """A mask written out as a tensor."""

    seen: Tensor

    def at(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        B, H, T, _ = self.seen.shape
        zero = torch.zeros_like(j)
        return self.seen[b if B > 1 else zero, h if H > 1 else zero, i if T > 1 else zero, j]

    def on(self, tile: Tile) -> Tensor:
        return cut(self.seen, tile)

    def check(self, sizes: Sizes) -> None:
        check_fits("mask", self.seen, sizes)

    def __str__(self) -> str:
        return f"dense({'x'.join(map(str, self.seen.shape))})"


def cut(tensor: Tensor, tile: Tile) -> Tensor:
    """The part of a four-axis tensor that lies under the tile; axes of size 1 stay."""
    for axis, part in enumerate((tile.batch, tile.heads, tile.rows, tile.columns)):
        if tensor.shape[axis] != 1:
            tensor = tensor.narrow(axis, part.start, part.stop - part.start)
    return tensor


def check_fits(what: str, tensor: Tensor, sizes: Sizes) -> None:
    """Only an axis that is written as 1 is stretched; nothing broadcasts by accident."""
    B, H, T, S = sizes
    shape = tuple(tensor.shape)
    fits = len(shape) == 4 and shape[0] in (1, B) and shape[1] in (1, H) and shape[2] in (1, T) and shape[3] == S
    if not fits:
        raise MaskError(
            f"a {what} for {B} x {H} heads, {T} queries and {S} keys is shaped (1 or {B}, 1 or {H}, 1 or {T}, {S}); "
            f"{shape} came. Reshape it so that each axis is the full size or an explicit 1."
        )


def four_axes(what: str, tensor: Tensor) -> Tensor:
    """(T, S) becomes (1, 1, T, S); three axes are refused, since nobody can know which one is missing."""
    if tensor.ndim == 2:
        return tensor[None, None]
    if tensor.ndim == 4:
        return tensor
    raise MaskError(
        f"a {what} has the axes (queries, keys) or (batch, heads, queries, keys); {tuple(tensor.shape)} came. "
        f"Say which axis is missing: {what}[:, None] for one per sequence, {what}[None] for one per head."
    )


def owned(mask: Mask | Tensor) -> Mask:
    """A mask as it is, a tensor of True and False as a mask that later writes to the tensor do not reach."""
    return mask if isinstance(mask, Mask) else Dense(own_copy(as_mask(mask).seen))


def own_copy(tensor: Tensor) -> Tensor:
    """A copy that no write to `tensor` reaches, also where inference mode or an expanded axis is in the way."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        once = tensor[tuple(slice(0, 1 if stride == 0 else None) for stride in tensor.stride())]
        return once.clone().expand(tensor.shape)
    with torch.inference_mode(False):
        return own_copy(tensor)


@overload
def as_mask(mask: Tensor) -> Dense: ...
@overload
def as_mask(mask: Mask | Tensor) -> Mask: ...
def as_mask(mask: Mask | Tensor) -> Mask:
    """A mask as it is, a tensor of True and False as a mask over the same memory, for one call."""
    if isinstance(mask, Mask):
        return mask
    if not isinstance(mask, Tensor):
        raise TypeError(
            f"mask expects a mask from softlook.masks or a boolean tensor, got {type(mask).__name__}. "
            "Combine masks with &, | and ~, or pass masks.dense(tensor)."
        )
    if mask.dtype != torch.bool:
        raise MaskError(
            f"a mask says True where a query may look; this one holds {mask.dtype} numbers. "
            "Numbers to be added to the scores go in as bias=; ones and zeros become a mask with .bool()."
        )
    return Dense(four_axes("mask", mask))


def _common(one: range, other: range) -> range:
    start, stop = max(one.start, other.start), min(one.stop, other.stop)
    return range(start, max(start, stop))
