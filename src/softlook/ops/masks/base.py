"""Mask base class, boolean combinations and dense masks.

A mask gives the same definition in three forms: `mask_mod` for (batch, head, query, key) indices, `tile` for a tile
of the map, and `visible_range` / `full_range`, bounds of a tile's keys that need no evaluation: keys that any row may
attend to, and keys that every row attends to.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor

from softlook.base.display import Displayed
from softlook.base.errors import MaskError
from softlook.base.shapes import Tile
from softlook.base.tensors import to_device

NO_ANCHOR: frozenset[str] = frozenset()
OWN_KEY, FIRST_KEY = frozenset({"own"}), frozenset({"first"})
Sizes = tuple[int, int, int, int]
"""B, H, T, S of the attention map."""


class Mask(Displayed):
    """Which keys each query attends to. True = visible. Immutable: it copies the tensors it is built from."""

    shared_key: Hashable | None = None
    """Equal for masks that are equal by value, so that they share one cache."""
    has_tensors: bool = True
    """Whether it may hold tensors, which have a device and a size to validate."""

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        """Return whether query `i` attends to key `j`, for integer tensors that broadcast; `shift` is S - T."""
        raise NotImplementedError(f"{type(self).__name__} implements no mask_mod()")

    def tile(self, tile: Tile) -> Tensor:
        """Return the mask under a tile: four dimensions, each full or 1."""
        return self.mask_mod(*tile.indices(), tile.shift)

    def to_dense(self, sizes: Sizes, device: torch.device | str = "cpu") -> Tensor:
        """Return the whole mask as a boolean tensor that broadcasts to (B, H, T, S)."""
        self.validate(sizes)
        device = torch.device(device)
        return to_device(self, device).tile(Tile.whole(sizes, device))

    def visible_range(self, tile: Tile) -> range:
        """Return the tile's columns outside of which every row is masked."""
        return tile.columns

    def full_range(self, tile: Tile) -> range:
        """Return columns of the tile that are visible to every row."""
        return tile.columns[:0]

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        """Return which keys are certainly visible to every query: its "own" key, the "first" key."""
        return NO_ANCHOR

    def every_row_visible(self, queries: int, keys: int) -> bool:
        """Return whether every query certainly sees a key, so that there is no fully masked row."""
        return bool(self.anchors(queries, keys))

    @property
    def can_compile(self) -> bool:
        """Whether a compiler can inline `mask_mod` into a FlexAttention kernel."""
        return True

    def validate(self, sizes: Sizes) -> None:
        """Raise MaskError unless the mask fits a map of these sizes."""

    def __getstate__(self) -> dict[str, Any]:
        """For copies: without what was derived from the mask, such as kernels that cannot be copied."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __and__(self, other: "Mask | Tensor") -> "Mask":
        return And(self, as_owned_mask(other))

    def __or__(self, other: "Mask | Tensor") -> "Mask":
        return Or(self, as_owned_mask(other))

    def __invert__(self) -> "Mask":
        return Not(self)


@dataclass(frozen=True, eq=False)
class And(Mask):
    """Visible where both masks are."""

    one: Mask
    other: Mask

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        return self.one.mask_mod(b, h, i, j, shift) & self.other.mask_mod(b, h, i, j, shift)

    def tile(self, tile: Tile) -> Tensor:
        return self.one.tile(tile) & self.other.tile(tile)

    def visible_range(self, tile: Tile) -> range:
        return _intersect(self.one.visible_range(tile), self.other.visible_range(tile))

    def full_range(self, tile: Tile) -> range:
        return _intersect(self.one.full_range(tile), self.other.full_range(tile))

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        return self.one.anchors(queries, keys) & self.other.anchors(queries, keys)

    @property
    def can_compile(self) -> bool:
        return self.one.can_compile and self.other.can_compile

    def validate(self, sizes: Sizes) -> None:
        self.one.validate(sizes)
        self.other.validate(sizes)

    def __str__(self) -> str:
        return f"{self.one} & {self.other}"


@dataclass(frozen=True, eq=False)
class Or(Mask):
    """Visible where either mask is."""

    one: Mask
    other: Mask

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        return self.one.mask_mod(b, h, i, j, shift) | self.other.mask_mod(b, h, i, j, shift)

    def tile(self, tile: Tile) -> Tensor:
        return self.one.tile(tile) | self.other.tile(tile)

    def visible_range(self, tile: Tile) -> range:
        visible = [part for part in (self.one.visible_range(tile), self.other.visible_range(tile)) if part]
        return range(min(p.start for p in visible), max(p.stop for p in visible)) if visible else tile.columns[:0]

    def full_range(self, tile: Tile) -> range:
        return max(self.one.full_range(tile), self.other.full_range(tile), key=len)

    def anchors(self, queries: int, keys: int) -> frozenset[str]:
        return self.one.anchors(queries, keys) | self.other.anchors(queries, keys)

    @property
    def can_compile(self) -> bool:
        return self.one.can_compile and self.other.can_compile

    def validate(self, sizes: Sizes) -> None:
        self.one.validate(sizes)
        self.other.validate(sizes)

    def __str__(self) -> str:
        return f"({self.one} | {self.other})"


@dataclass(frozen=True, eq=False)
class Not(Mask):
    """Visible where the mask is not."""

    mask: Mask

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        return ~self.mask.mask_mod(b, h, i, j, shift)

    def tile(self, tile: Tile) -> Tensor:
        return ~self.mask.tile(tile)

    def full_range(self, tile: Tile) -> range:
        return tile.columns if not self.mask.visible_range(tile) else tile.columns[:0]

    @property
    def can_compile(self) -> bool:
        return self.mask.can_compile

    def validate(self, sizes: Sizes) -> None:
        self.mask.validate(sizes)

    def __str__(self) -> str:
        return f"~({self.mask})"


@dataclass(frozen=True, eq=False)
class DenseMask(Mask):
    """A mask as a boolean tensor."""

    visible: Tensor

    def mask_mod(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor, shift: int) -> Tensor:
        B, H, T, _ = self.visible.shape
        zero = torch.zeros_like(j)
        return self.visible[b if B > 1 else zero, h if H > 1 else zero, i if T > 1 else zero, j]

    def tile(self, tile: Tile) -> Tensor:
        return slice_tile(self.visible, tile)

    def validate(self, sizes: Sizes) -> None:
        check_broadcast("mask", self.visible, sizes)

    def __str__(self) -> str:
        return f"dense({'x'.join(map(str, self.visible.shape))})"


def slice_tile(tensor: Tensor, tile: Tile) -> Tensor:
    """Return the part of a 4-D tensor under the tile; dimensions of size 1 stay."""
    for axis, part in enumerate((tile.batch, tile.heads, tile.rows, tile.columns)):
        if tensor.shape[axis] != 1:
            tensor = tensor.narrow(axis, part.start, part.stop - part.start)
    return tensor


def check_broadcast(name: str, tensor: Tensor, sizes: Sizes) -> None:
    """Require a shape that broadcasts to the map; only dimensions of size 1 broadcast."""
    B, H, T, S = sizes
    shape = tuple(tensor.shape)
    fits = len(shape) == 4 and shape[0] in (1, B) and shape[1] in (1, H) and shape[2] in (1, T) and shape[3] == S
    if not fits:
        raise MaskError(
            f"a {name} for batch {B}, {H} heads, {T} queries and {S} keys has shape (1 or {B}, 1 or {H}, 1 or {T}, "
            f"{S}), got {shape}. Reshape it so that each dimension is full or 1."
        )


def as_4d(name: str, tensor: Tensor) -> Tensor:
    """Return (T, S) as (1, 1, T, S); three dimensions raise an error, since the missing one is ambiguous."""
    if tensor.ndim == 2:
        return tensor[None, None]
    if tensor.ndim == 4:
        return tensor
    raise MaskError(
        f"a {name} has the dimensions (queries, keys) or (batch, heads, queries, keys), got {tuple(tensor.shape)}. "
        f"Add the missing one: {name}[:, None] for one per sequence, {name}[None] for one per head."
    )


def as_owned_mask(mask: Mask | Tensor) -> Mask:
    """Return a mask as it is, and a copy of a boolean tensor as a mask."""
    return mask if isinstance(mask, Mask) else DenseMask(clone_detached(as_mask(mask).visible))


def clone_detached(tensor: Tensor) -> Tensor:
    """Return a copy that no later write reaches, also in inference mode and for expanded tensors."""
    if not torch.compiler.is_compiling() and torch.is_inference_mode_enabled():  # Dynamo cannot trace the second call
        with torch.inference_mode(False):
            return clone_detached(tensor)
    strides = tensor.stride()
    if 0 not in strides:
        return tensor.clone()
    once = tensor[tuple(slice(0, 1 if stride == 0 else None) for stride in strides)]
    return once.clone().expand(tensor.shape)


@overload
def as_mask(mask: Tensor) -> DenseMask: ...
@overload
def as_mask(mask: Mask | Tensor) -> Mask: ...
def as_mask(mask: Mask | Tensor) -> Mask:
    """Return a mask as it is, and a boolean tensor as a mask that shares its memory."""
    if isinstance(mask, Mask):
        return mask
    if not isinstance(mask, Tensor):
        raise TypeError(
            f"mask expects a mask from softlook.masks or a boolean tensor, got {type(mask).__name__}. "
            "Combine masks with &, | and ~, or pass masks.dense(tensor)."
        )
    if mask.dtype != torch.bool:
        raise MaskError(
            f"a mask expects a boolean tensor, True = visible, got {mask.dtype}. "
            "Pass values to add to the scores as bias=; convert ones and zeros with .bool()."
        )
    return DenseMask(as_4d("mask", mask))


def _intersect(one: range, other: range) -> range:
    start, stop = max(one.start, other.start), min(one.stop, other.stop)
    return range(start, max(start, stop))
