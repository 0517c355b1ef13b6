"""Relative position biases: ALiBi, T5, Shaw, Transformer-XL."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import MaskError
from softlook.base.shapes import MapIndices, Tile
from softlook.ops.bias import Bias, DenseBias, ScoreMod, score_dtype
from softlook.ops.masks.base import Sizes

MAX_SHARED_ELEMENTS = 1 << 24
"""Larger biases are not materialized to be shared by layers."""


class DistanceBias(Bias):
    """A bias of one value per head and distance: a tile of t x s entries needs t + s - 1 values."""

    def by_distance(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the bias at distances (n,) as (H, n), in at least float32. Positive distances are past keys."""
        raise NotImplementedError(f"{type(self).__name__} implements no by_distance()")

    def tile(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        t, s = tile.rows.stop - tile.rows.start, tile.columns.stop - tile.columns.start
        if not t * s:
            return query.new_zeros(1, 1, t, s)
        smallest = tile.rows.start + tile.shift - (tile.columns.stop - 1)
        values = self.by_distance(torch.arange(smallest, smallest + t + s - 1, device=tile.device), query.dtype)
        if torch.compiler.is_exporting():  # other runtimes have no overlapping views
            return values[:, tile.distances() - smallest][None]
        # Row i reads backwards from its own distance on: every diagonal is one value.
        windows = values[tile.heads.start : tile.heads.stop].unfold(-1, s, 1)
        return windows.flip(-1)[None]

    def precompute(self, heads: int, queries: int, keys: int, like: Tensor) -> Bias:
        """Materialize the bias once for several layers, unless it is too large.

        `like` has the dtype and device of the scores it will be added to.
        """
        if not torch.compiler.is_exporting() and heads * queries * keys > MAX_SHARED_ELEMENTS:  # exported: symbols
            return self
        tile = Tile.whole((1, heads, queries, keys), like.device)
        return DenseBias(self.tile(like, like, 1.0, tile).contiguous(), finite=True)


@dataclass(frozen=True, eq=False)
class ALiBiBias(DistanceBias):
    """ALiBi (Press et al., 2022): minus slope times distance."""

    slopes: Tensor
    """(H,)"""

    def by_distance(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        return -self.slopes.to(score_dtype(dtype))[:, None] * distances.abs()

    def score_mod(self, queries: int, keys: int) -> ScoreMod:
        slopes, shift = self.slopes.float(), keys - queries
        return lambda score, b, h, i, j: score - slopes[h] * (i + shift - j).abs()

    def validate(self, sizes: Sizes, head_dim: int) -> None:
        _check_heads("alibi", len(self.slopes), sizes)

    def __str__(self) -> str:
        return "alibi"


@dataclass(frozen=True, eq=False)
class T5Bias(DistanceBias):
    """T5's bias (Raffel et al., 2020): a learned value per bucket of distances."""

    table: Tensor
    """(buckets, H)"""
    bidirectional: bool
    max_distance: int

    def by_distance(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        return self.table.to(score_dtype(dtype))[self.bucket(distances)].T

    def bucket(self, distances: Tensor) -> Tensor:
        """Return the bucket of each distance: one each for small ones, logarithmic ones up to `max_distance`."""
        buckets = self.table.shape[0] // (2 if self.bidirectional else 1)
        future = (distances < 0).long() * buckets if self.bidirectional else torch.zeros_like(distances)
        distance = distances.abs() if self.bidirectional else distances.clamp(min=0)
        exact = buckets // 2
        growth = (distance.clamp(min=1).float() / exact).log() / math.log(self.max_distance / exact)
        logarithmic = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
        return future + torch.where(distance < exact, distance, logarithmic)

    def score_mod(self, queries: int, keys: int) -> ScoreMod:
        last = keys - 1  # distances run from -(S - 1) + shift to S - 1
        distances = torch.arange(keys - queries - last, keys, device=self.table.device)
        values = self.by_distance(distances, torch.float32).contiguous()
        return lambda score, b, h, i, j: score + values[h, i - j + last]

    def validate(self, sizes: Sizes, head_dim: int) -> None:
        _check_heads("t5", self.table.shape[1], sizes)

    def __str__(self) -> str:
        return "t5"


@dataclass(frozen=True, eq=False)
class ShawBias(Bias):
    """Relative key and value vectors (Shaw et al., 2018)."""

    keys: Tensor
    """(2 * clip + 1, D): from `clip` or more positions before the query to `clip` or more after it."""
    values: Tensor | None
    """(2 * clip + 1, E)"""

    def tile(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        dtype = score_dtype(query.dtype)
        products = query.to(dtype) @ self.keys.to(dtype).mT * scale
        return products.gather(-1, self._offsets(tile).expand(*query.shape[:2], -1, -1))

    def apply_at(self, scores: Tensor, query: Tensor, key: Tensor, scale: float, index: MapIndices) -> Tensor:
        clip = len(self.keys) // 2
        products = query.to(scores.dtype) @ self.keys.to(scores.dtype).mT * scale
        return scores + products.gather(-1, (clip - index.distances.clamp(-clip, clip)).expand_as(scores))

    def relative_values(self, weights: Tensor, tile: Tile) -> Tensor | None:
        if self.values is None:
            return None
        by_offset = weights.new_zeros((*weights.shape[:3], len(self.keys)))
        by_offset = by_offset.scatter_add(-1, self._offsets(tile).expand_as(weights), weights)
        return by_offset @ self.values.to(weights.dtype)

    @property
    def has_relative_values(self) -> bool:
        return self.values is not None

    @property
    def depends_on_content(self) -> bool:
        return True

    def validate(self, sizes: Sizes, head_dim: int) -> None:
        if len(self.keys) % 2 == 0 or self.keys.shape[-1] != head_dim:
            raise MaskError(f"shaw expects keys shaped (2 * clip + 1, {head_dim}), got {tuple(self.keys.shape)}")
        if self.values is not None and len(self.values) != len(self.keys):
            raise MaskError(f"shaw expects as many values as keys, {len(self.keys)}, got {len(self.values)}")

    def _offsets(self, tile: Tile) -> Tensor:
        clip = len(self.keys) // 2
        return clip - tile.distances().clamp(-clip, clip)

    def __str__(self) -> str:
        return "shaw"


@dataclass(frozen=True, eq=False)
class TransformerXLBias(Bias):
    """Transformer-XL's relative scores (Dai et al., 2019)."""

    relative: Tensor
    """(H, P, D): a vector per distance from 0 up."""
    content_bias: Tensor
    """u, (H, D)"""
    position_bias: Tensor
    """v, (H, D)"""

    def tile(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        heads = slice(tile.heads.start, tile.heads.stop)
        t, s = tile.rows.stop - tile.rows.start, tile.columns.stop - tile.columns.start
        if not t * s:
            return query.new_zeros((*query.shape[:2], t, s), dtype=score_dtype(query.dtype))
        largest = tile.rows.stop - 1 + tile.shift - tile.columns.start
        distances = largest - torch.arange(t + s - 1, device=tile.device)
        tensors = (query, key, self.relative, self.content_bias, self.position_bias)
        query, key, relative, content_bias, position_bias = (tensor.to(score_dtype(query.dtype)) for tensor in tensors)
        vectors = relative[heads, distances.clamp(min=0)]
        by_distance = (query + position_bias[heads, None]) @ vectors.mT * scale
        by_distance = by_distance.masked_fill(distances < 0, -torch.inf)  # there is no vector for future keys
        keys = key.repeat_interleave(query.shape[1] // max(key.shape[1], 1), 1)
        return relative_shift(by_distance) + (keys @ content_bias[heads, :, None]).mT * scale

    def apply_at(self, scores: Tensor, query: Tensor, key: Tensor, scale: float, index: MapIndices) -> Tensor:
        heads, distances = index.heads.flatten(), index.distances
        tensors = (self.relative[:, : index.keys], self.content_bias, self.position_bias)
        relative, content_bias, position_bias = (tensor[heads].to(scores.dtype) for tensor in tensors)
        by_distance = (query.to(scores.dtype) + position_bias[:, None]) @ relative.mT * scale
        positions = by_distance.gather(-1, distances.clamp(min=0).expand_as(scores))
        keys = key.to(scores.dtype).repeat_interleave(query.shape[1] // max(key.shape[1], 1), 1)
        content = (keys @ content_bias[:, :, None]).mT * scale
        return scores + positions.masked_fill(distances < 0, -torch.inf) + content

    @property
    def may_mask(self) -> bool:
        return True

    @property
    def depends_on_content(self) -> bool:
        return True

    def validate(self, sizes: Sizes, head_dim: int) -> None:
        _, H, _, S = sizes
        if self.relative.shape[0] != H or self.relative.shape[1] < S or self.relative.shape[2] != head_dim:
            raise MaskError(
                f"transformer_xl expects a vector for each of {H} heads and each distance from 0 to {S - 1}, "
                f"({H}, {S} or more, {head_dim}), got {tuple(self.relative.shape)}"
            )
        for name, bias in (("content_bias", self.content_bias), ("position_bias", self.position_bias)):
            if bias.shape != (H, head_dim):
                raise MaskError(f"transformer_xl expects {name} shaped ({H}, {head_dim}), got {tuple(bias.shape)}")

    def __str__(self) -> str:
        return "transformer_xl"


def alibi(heads: int | Float[Tensor, " H"]) -> Bias:
    """ALiBi (Press et al., 2022): minus slope times distance. Takes the number of heads, or the slopes.

    >>> alibi(4).slopes.float()
    tensor([0.2500, 0.0625, 0.0156, 0.0039])
    """
    return ALiBiBias(_slopes(heads) if isinstance(heads, int) else heads)


def t5(table: Float[Tensor, "buckets H"], *, bidirectional: bool = True, max_distance: int = 128) -> DistanceBias:
    """T5's relative position bias (Raffel et al., 2020): a learned value per bucket of distances and head.

    `bidirectional` (encoders) uses half of the buckets for future keys; without it they count as distance 0.

    >>> table = torch.arange(32.0)[:, None]
    >>> t5(table).bucket(torch.tensor([0, 1, 7, 8, 9999, -1]))
    tensor([ 0,  1,  7,  8, 15, 17])
    """
    return T5Bias(table, bidirectional, max_distance)


def shaw(keys: Float[Tensor, "P D"], values: Float[Tensor, "Q E"] | None = None) -> Bias:
    """Relative position representations (Shaw et al., 2018): a vector per clipped offset, added to keys and values.

    Row 0 is `clip` or more positions before the query, the middle row its own position, the last `clip` or more after.

    >>> query = key = torch.ones(1, 1, 2, 1)
    >>> from softlook import attention_scores
    >>> attention_scores(query, key, bias=shaw(torch.tensor([[10.0], [0.0], [20.0]])))[0, 0]
    tensor([[ 1., 21.],
            [11.,  1.]])
    """
    return ShawBias(keys, values)


def transformer_xl(
    relative: Float[Tensor, "H P D"], content_bias: Float[Tensor, "H D"], position_bias: Float[Tensor, "H D"]
) -> Bias:
    """Transformer-XL's scores (Dai et al., 2019): (q + content_bias) . k + (q + position_bias) . relative[distance].

    `relative` has a vector for each head and distance from 0 up. Future keys have none and are masked.

    >>> query = key = torch.ones(1, 1, 2, 1)
    >>> from softlook import attention_scores
    >>> zero = torch.zeros(1, 1)
    >>> attention_scores(query, key, bias=transformer_xl(torch.tensor([[[0.0], [5.0]]]), zero, zero))[0, 0]
    tensor([[1., -inf],
            [6., 1.]])
    """
    return TransformerXLBias(relative, content_bias, position_bias)


def relative_shift(by_distance: Float[Tensor, "*heads t n"]) -> Float[Tensor, "*heads t s"]:
    """Turn scores by distance, largest first, into scores by key: Transformer-XL's relative shift, without a copy.

    Row i of t has its keys in the n = t + s - 1 distances from index t - 1 - i on.

    >>> relative_shift(torch.tensor([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]]))
    tensor([[1., 0.],
            [2., 1.]])
    """
    t, n = by_distance.shape[-2:]
    if torch.compiler.is_exporting():  # one more entry per row, so that a single row is no special case
        by_distance = torch.nn.functional.pad(by_distance, (0, 1))
    elif t <= 1:
        return by_distance
    width = by_distance.shape[-1] - 1
    flat = by_distance.flatten(-2)[..., t - 1 : t - 1 + t * width]
    return flat.unflatten(-1, (t, width))[..., : n - t + 1]


def _slopes(heads: int) -> Tensor:
    """2^(-8/n), 2^(-16/n), ... for n heads, a power of two; further heads get the slopes in between."""
    if heads < 1:
        raise MaskError(f"alibi expects at least one head, got {heads}")
    power = 1 << (heads.bit_length() - 1)
    first = [2 ** (-8 * (n + 1) / power) for n in range(power)]
    between = [2 ** (-8 * (n + 1) / (2 * power)) for n in range(0, 2 * power, 2)]
    return torch.tensor(first + between[: heads - power], dtype=torch.float64)


def _check_heads(name: str, heads: int, sizes: Sizes) -> None:
    if heads != sizes[1]:
        raise MaskError(f"this {name} bias is for {heads} heads, but the query has {sizes[1]}")
