"""Positions as a number added to the score, which depends on the distance alone: ALiBi and T5."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import MaskError
from softlook.base.shapes import Tile
from softlook.ops.bias import At, Bias, DenseBias, score_dtype
from softlook.ops.masks.algebra import Sizes

LARGE = 1 << 24
"""Entries of a bias that is not worth its memory from one layer to the next."""


class DistanceBias(Bias):
    """A bias that is one number per head for each distance: a tile of t x s needs only t + s - 1 of them."""

    def by_distance(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        """The bias at these distances, (n,) -> (H, n), in single precision at least. Positive looks back."""
        raise AssertionError(f"{type(self).__name__} does not say what a distance adds")

    def on(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        t, s = tile.rows.stop - tile.rows.start, tile.columns.stop - tile.columns.start
        if not t * s:
            return query.new_zeros(1, 1, t, s)
        nearest = tile.rows.start + tile.shift - (tile.columns.stop - 1)
        numbers = self.by_distance(torch.arange(nearest, nearest + t + s - 1, device=tile.device), query.dtype)
        if torch.compiler.is_exporting():  # other runtimes know no views that overlap
            return numbers[:, tile.distances() - nearest][None]
        # Row i reads from its own distance on, backwards: every diagonal is one number.
        band = numbers[tile.heads.start : tile.heads.stop].unfold(-1, s, 1)
        return band.flip(-1)[None]

    def for_layers(self, heads: int, queries: int, keys: int, like: Tensor) -> Bias:
        """The same bias for many layers to share: written out once, unless that takes too much memory.

        `like` has the kind of number and the device of what it will be added to.
        """
        if not torch.compiler.is_exporting() and heads * queries * keys > LARGE:  # an exported size is a symbol
            return self
        tile = Tile.whole((1, heads, queries, keys), like.device)
        return DenseBias(self.on(like, like, 1.0, tile).contiguous(), finite=True)


@dataclass(frozen=True, eq=False)
class Alibi(DistanceBias):
    slopes: Tensor
    """(H,)"""

    def by_distance(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        return -self.slopes.to(score_dtype(dtype))[:, None] * distances.abs()

    def entry(self, queries: int, keys: int) -> At:
        slopes, shift = self.slopes.float(), keys - queries
        return lambda b, h, i, j: -slopes[h] * (i + shift - j).abs()

    def check(self, sizes: Sizes, width: int) -> None:
        _check_heads("alibi", len(self.slopes), sizes)

    def __str__(self) -> str:
        return "alibi"


@dataclass(frozen=True, eq=False)
class T5(DistanceBias):
    table: Tensor
    """(buckets, H)"""
    bidirectional: bool
    max_distance: int

    def by_distance(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        return self.table.to(score_dtype(dtype))[self.bucket(distances)].T

    def bucket(self, distances: Tensor) -> Tensor:
        """Near distances have a bucket each, far ones share it in steps that grow; beyond the last, all are one."""
        buckets = self.table.shape[0] // (2 if self.bidirectional else 1)
        ahead = (distances < 0).long() * buckets if self.bidirectional else torch.zeros_like(distances)
        far = distances.abs() if self.bidirectional else distances.clamp(min=0)
        exact = buckets // 2
        growth = (far.clamp(min=1).float() / exact).log() / math.log(self.max_distance / exact)
        shared = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
        return ahead + torch.where(far < exact, far, shared)

    def entry(self, queries: int, keys: int) -> At:
        last = keys - 1  # distances run from -(S - 1) + shift ... to S - 1
        distances = torch.arange(keys - queries - last, keys, device=self.table.device)
        numbers = self.by_distance(distances, torch.float32).contiguous()
        return lambda b, h, i, j: numbers[h, i - j + last]

    def check(self, sizes: Sizes, width: int) -> None:
        _check_heads("t5", self.table.shape[1], sizes)

    def __str__(self) -> str:
        return "t5"


def alibi(heads: int | Float[Tensor, " H"]) -> Bias:
    """Minus slope times distance: each head forgets at its own pace. Any number of heads, or slopes of your own.

    >>> alibi(4).slopes.float()
    tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """
    return Alibi(_slopes(heads) if isinstance(heads, int) else heads)


def t5(table: Float[Tensor, "buckets H"], *, bidirectional: bool = True, max_distance: int = 128) -> DistanceBias:
    """A learned number for each bucket of distances and each head; the buckets widen with the distance.

    `bidirectional` gives half of the buckets to keys ahead (an encoder); without it keys ahead count as distance 0.

    >>> table = torch.arange(32.0)[:, None]
    >>> t5(table).bucket(torch.tensor([0, 1, 7, 8, 9999, -1]))
    tensor([ 0,  1,  7,  8, 15, 17])
    """
    return T5(table, bidirectional, max_distance)


def _slopes(heads: int) -> Tensor:
    """2^(-8/n), 2^(-16/n), ... for n heads, a power of two; what is missing to `heads` comes from between."""
    if heads < 1:
        raise MaskError(f"alibi wants at least one head; {heads} came")
    power = 1 << (heads.bit_length() - 1)
    first = [2 ** (-8 * (n + 1) / power) for n in range(power)]
    between = [2 ** (-8 * (n + 1) / (2 * power)) for n in range(0, 2 * power, 2)]
    return torch.tensor(first + between[: heads - power], dtype=torch.float64)


def _check_heads(what: str, heads: int, sizes: Sizes) -> None:
    if heads != sizes[1]:
        raise MaskError(f"this {what} bias is for {heads} heads, but the query has {sizes[1]}")
