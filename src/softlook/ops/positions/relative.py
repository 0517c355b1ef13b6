"""Positions as vectors of their own, met by the query: Shaw's relative keys and values, and Transformer-XL."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import MaskError
from softlook.base.shapes import Tile
from softlook.ops.bias import Bias, score_dtype
from softlook.ops.masks.algebra import Sizes


@dataclass(frozen=True, eq=False)
class Shaw(Bias):
    keys: Tensor
    """(2 * clip + 1, D): from `clip` or more behind the query to `clip` or more ahead."""
    values: Tensor | None
    """(2 * clip + 1, E)"""

    def on(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        numbers = score_dtype(query.dtype)
        met = query.to(numbers) @ self.keys.to(numbers).mT * scale
        return met.gather(-1, self._place(tile).expand(*query.shape[:2], -1, -1))

    def added_value(self, weights: Tensor, tile: Tile) -> Tensor | None:
        if self.values is None:
            return None
        by_place = weights.new_zeros((*weights.shape[:3], len(self.keys)))
        by_place = by_place.scatter_add(-1, self._place(tile).expand_as(weights), weights)
        return by_place @ self.values.to(weights.dtype)

    @property
    def adds_value(self) -> bool:
        return self.values is not None

    @property
    def uses_content(self) -> bool:
        return True

    def check(self, sizes: Sizes, width: int) -> None:
        if len(self.keys) % 2 == 0 or self.keys.shape[-1] != width:
            raise MaskError(f"shaw wants keys shaped (2 * clip + 1, {width}); {tuple(self.keys.shape)} came")
        if self.values is not None and len(self.values) != len(self.keys):
            raise MaskError(f"shaw wants as many values as keys, {len(self.keys)}; {len(self.values)} came")

    def _place(self, tile: Tile) -> Tensor:
        clip = len(self.keys) // 2
        return clip - tile.distances().clamp(-clip, clip)

    def __str__(self) -> str:
        return "shaw"


@dataclass(frozen=True, eq=False)
class TransformerXL(Bias):
    relative: Tensor
    """(H, P, D): the vector of each distance from 0 up."""
    content: Tensor
    """u, (H, D)"""
    position: Tensor
    """v, (H, D)"""

    def on(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        heads = slice(tile.heads.start, tile.heads.stop)
        t, s = tile.rows.stop - tile.rows.start, tile.columns.stop - tile.columns.start
        if not t * s:
            return query.new_zeros((*query.shape[:2], t, s), dtype=score_dtype(query.dtype))
        farthest = tile.rows.stop - 1 + tile.shift - tile.columns.start
        distances = farthest - torch.arange(t + s - 1, device=tile.device)
        query, key, relative, content, position = (
            tensor.to(score_dtype(query.dtype)) for tensor in (query, key, self.relative, self.content, self.position)
        )
        vectors = relative[heads, distances.clamp(min=0)]
        met = (query + position[heads, None]) @ vectors.mT * scale
        met = met.masked_fill(distances < 0, -torch.inf)  # there is no vector for what lies ahead
        keys = key.repeat_interleave(query.shape[1] // max(key.shape[1], 1), 1)
        return shift(met) + (keys @ content[heads, :, None]).mT * scale

    @property
    def may_hide(self) -> bool:
        return True

    @property
    def uses_content(self) -> bool:
        return True

    def check(self, sizes: Sizes, width: int) -> None:
        _, H, _, S = sizes
        if self.relative.shape[0] != H or self.relative.shape[1] < S or self.relative.shape[2] != width:
            raise MaskError(
                f"transformer_xl wants a vector for each of {H} heads and each distance from 0 to {S - 1}, "
                f"({H}, {S} or more, {width}); {tuple(self.relative.shape)} came"
            )
        for name, bias in (("content", self.content), ("position", self.position)):
            if bias.shape != (H, width):
                raise MaskError(f"transformer_xl wants {name} shaped ({H}, {width}); {tuple(bias.shape)} came")

    def __str__(self) -> str:
        return "transformer_xl"


def shaw(keys: Float[Tensor, "P D"], values: Float[Tensor, "Q E"] | None = None) -> Bias:
    """Relative keys and values: each clipped offset has a vector that is added to the key, and one to the value.

    Row 0 is "`clip` or more behind", the middle row is oneself, the last is "`clip` or more ahead".

    >>> query = key = torch.ones(1, 1, 2, 1)
    >>> from softlook import attention_scores
    >>> attention_scores(query, key, bias=shaw(torch.tensor([[10.0], [0.0], [20.0]])))[0, 0]
    tensor([[ 1., 21.],
            [11.,  1.]])
    """
    return Shaw(keys, values)


def transformer_xl(
    relative: Float[Tensor, "H P D"], content: Float[Tensor, "H D"], position: Float[Tensor, "H D"]
) -> Bias:
    """The scores of Transformer-XL: (q + content) . k + (q + position) . relative[distance].

    `relative` has a vector for each head and each distance from 0 up. Keys ahead have none: they are hidden.

    >>> query = key = torch.ones(1, 1, 2, 1)
    >>> from softlook import attention_scores
    >>> zero = torch.zeros(1, 1)
    >>> attention_scores(query, key, bias=transformer_xl(torch.tensor([[[0.0], [5.0]]]), zero, zero))[0, 0]
    tensor([[1., -inf],
            [6., 1.]])
    """
    return TransformerXL(relative, content, position)


def shift(by_distance: Float[Tensor, "*heads t n"]) -> Float[Tensor, "*heads t s"]:
    """Scores by distance, farthest first, become scores by key: the relative shift, without copying.

    Row i of t has its keys in the n = t + s - 1 distances from place t - 1 - i on.

    >>> shift(torch.tensor([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0]]))
    tensor([[1., 0.],
            [2., 1.]])
    """
    t, n = by_distance.shape[-2:]
    if torch.compiler.is_exporting():  # one place more in each row, so that one row alone needs no rule of its own
        by_distance = torch.nn.functional.pad(by_distance, (0, 1))
    elif t <= 1:
        return by_distance
    width = by_distance.shape[-1] - 1
    flat = by_distance.flatten(-2)[..., t - 1 : t - 1 + t * width]
    return flat.unflatten(-1, (t, width))[..., : n - t + 1]
