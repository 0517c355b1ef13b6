"""Attention biases: values added to the scores, and score functions.

>>> import torch
>>> from softlook import attention, bias
>>> query, key, value = torch.randn(3, 1, 2, 5, 8)
>>> capped = bias.from_function(lambda score, b, h, q_idx, kv_idx: 5 * torch.tanh(score / 5))
>>> torch.allclose(attention(query, key, value, bias=capped), attention(query, key, value, softcap=5.0), atol=1e-6)
True
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from softlook.base.errors import DtypeError
from softlook.base.shapes import MapIndices, Tile
from softlook.ops.masks.base import Sizes, as_4d, check_broadcast, slice_tile

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""FlexAttention's signature: (score, batch, head, q_idx, kv_idx) -> score."""


def score_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of scores for queries of `dtype`, and of everything added to them: at least float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Bias:
    """A change to the scores before mask and softmax, usually a sum. Combine biases with `+`."""

    def tile(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        """Return the bias under a tile, broadcastable to (b, h, t, s); content-dependent biases in `score_dtype`.

        `query` (b, h, t, D) and `key` (b, g, s, D) are the tile's own, for biases that depend on them.
        """
        raise NotImplementedError(f"{type(self).__name__} implements no tile()")

    def score_mod(self, queries: int, keys: int) -> ScoreMod | None:
        """Return the bias of a T x S map as a FlexAttention `score_mod`; None if it depends on the content."""
        return None

    def apply(self, scores: Tensor, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        """Return the scores of a tile with the bias applied."""
        return scores + self.tile(query, key, scale, tile).to(scores.dtype)

    def apply_at(self, scores: Tensor, query: Tensor, key: Tensor, scale: float, index: MapIndices) -> Tensor:
        """Return the scores of any cells of the map with the bias applied; `query` and `key` are those of the cells."""
        score_mod = self.score_mod(index.queries, index.keys)
        if score_mod is None:
            raise NotImplementedError(f"{type(self).__name__} implements neither score_mod() nor apply_at()")
        return score_mod(scores, index.batch, index.heads, index.rows, index.columns).to(scores.dtype)

    def validate(self, sizes: Sizes, head_dim: int) -> None:
        """Raise an error unless the bias fits a map of these sizes with this head dimension."""

    def relative_values(self, weights: Tensor, tile: Tile) -> Tensor | None:
        """Return what relative value vectors (Shaw et al.) add to the output, (b, h, t, E), or None."""
        return None

    @property
    def has_relative_values(self) -> bool:
        return False

    @property
    def is_additive(self) -> bool:
        """Whether `tile` gives the whole change; False for functions of the score."""
        return True

    @property
    def may_mask(self) -> bool:
        """Whether it can hold -inf, which masks a key."""
        return False

    @property
    def is_dense(self) -> bool:
        """Whether it is a tensor with T x S entries already."""
        return False

    @property
    def depends_on_content(self) -> bool:
        """Whether it depends on queries or keys, so that a gradient flows through it to them."""
        return False

    @property
    def requires_grad(self) -> bool:
        """Whether it holds a tensor that requires a gradient."""
        return any(isinstance(part, Tensor) and part.requires_grad for part in vars(self).values())

    def __add__(self, other: "Bias | Tensor") -> "Bias":
        return BiasSum(self, as_bias(other))


@dataclass(frozen=True, eq=False)
class BiasSum(Bias):
    """Two biases, applied one after the other."""

    one: Bias
    other: Bias

    def tile(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        return self.one.tile(query, key, scale, tile) + self.other.tile(query, key, scale, tile)

    def score_mod(self, queries: int, keys: int) -> ScoreMod | None:
        one, other = self.one.score_mod(queries, keys), self.other.score_mod(queries, keys)
        if one is None or other is None:
            return None
        return lambda score, b, h, i, j: other(one(score, b, h, i, j), b, h, i, j)

    def apply(self, scores: Tensor, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        if self.is_additive:
            return super().apply(scores, query, key, scale, tile)
        return self.other.apply(self.one.apply(scores, query, key, scale, tile), query, key, scale, tile)

    def apply_at(self, scores: Tensor, query: Tensor, key: Tensor, scale: float, index: MapIndices) -> Tensor:
        return self.other.apply_at(self.one.apply_at(scores, query, key, scale, index), query, key, scale, index)

    def validate(self, sizes: Sizes, head_dim: int) -> None:
        self.one.validate(sizes, head_dim)
        self.other.validate(sizes, head_dim)

    def relative_values(self, weights: Tensor, tile: Tile) -> Tensor | None:
        added = [part for bias in (self.one, self.other) if (part := bias.relative_values(weights, tile)) is not None]
        return sum(added[1:], added[0]) if added else None

    @property
    def has_relative_values(self) -> bool:
        return self.one.has_relative_values or self.other.has_relative_values

    @property
    def is_additive(self) -> bool:
        return self.one.is_additive and self.other.is_additive

    @property
    def may_mask(self) -> bool:
        return self.one.may_mask or self.other.may_mask

    @property
    def is_dense(self) -> bool:
        return self.one.is_dense and self.other.is_dense

    @property
    def depends_on_content(self) -> bool:
        return self.one.depends_on_content or self.other.depends_on_content

    @property
    def requires_grad(self) -> bool:
        return self.one.requires_grad or self.other.requires_grad

    def __str__(self) -> str:
        return f"{self.one} + {self.other}"


@dataclass(frozen=True, eq=False)
class BiasWrapper(Bias):
    """Base of a bias with other indices: its properties are those of `bias`."""

    bias: Bias

    @property
    def is_additive(self) -> bool:
        return self.bias.is_additive

    @property
    def may_mask(self) -> bool:
        return self.bias.may_mask

    @property
    def depends_on_content(self) -> bool:
        return self.bias.depends_on_content

    @property
    def requires_grad(self) -> bool:
        return self.bias.requires_grad


@dataclass(frozen=True, eq=False)
class DenseBias(Bias):
    """A bias as a tensor. -inf masks a key."""

    values: Tensor
    finite: bool = False
    """Whether it is known to hold no -inf, so that the check can be skipped."""

    def tile(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        return slice_tile(self.values, tile)

    def score_mod(self, queries: int, keys: int) -> ScoreMod:
        values = self.values
        B, H, T, _ = values.shape

        def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            zero = j - j
            return score + values[b if B > 1 else zero, h if H > 1 else zero, i if T > 1 else zero, j]

        return score_mod

    def validate(self, sizes: Sizes, head_dim: int) -> None:
        check_broadcast("bias", self.values, sizes)

    @property
    def may_mask(self) -> bool:
        return not self.finite

    @property
    def is_dense(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"dense({'x'.join(map(str, self.values.shape))})"


@dataclass(frozen=True, eq=False)
class FunctionBias(Bias):
    """A score function with FlexAttention's `score_mod` signature."""

    function: ScoreMod

    def apply(self, scores: Tensor, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        b, h, i, j = tile.indices()
        return self.function(scores, b, h, i + tile.shift, j).to(scores.dtype).expand(scores.shape)

    def score_mod(self, queries: int, keys: int) -> ScoreMod:
        function, shift = self.function, keys - queries
        return lambda score, b, h, i, j: function(score, b, h, i + shift, j)

    @property
    def is_additive(self) -> bool:
        return False

    @property
    def may_mask(self) -> bool:
        return True

    @property
    def depends_on_content(self) -> bool:
        return True

    @property
    def requires_grad(self) -> bool:
        """True: tensors that the function closes over are not visible here."""
        return True

    def __str__(self) -> str:
        return f"from_function({getattr(self.function, '__name__', 'fn')})"


def from_function(function: ScoreMod) -> Bias:
    """Change the scores by a function with FlexAttention's `score_mod` signature, on every backend.

    `function(score, b, h, q_idx, kv_idx)` returns the new score; -inf masks the key. It is called with index tensors
    that broadcast to the scores, or with scalars inside FlexAttention's kernel, so it must be elementwise. `q_idx` is
    the query's position among the keys, i + (S - T): the same function holds for decoding with a KV cache. It is
    applied after scale and softcap and before the mask, and must be pure.

    >>> relative = from_function(lambda score, b, h, q_idx, kv_idx: score - 0.5 * (q_idx - kv_idx).abs())
    >>> from softlook import attention_scores
    >>> attention_scores(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), bias=relative)[0, 0]
    tensor([[ 0.0000, -0.5000],
            [-0.5000,  0.0000]])
    """
    if not callable(function):
        raise TypeError(f"from_function expects a function (score, b, h, q_idx, kv_idx), got {type(function).__name__}")
    return FunctionBias(function)


def as_bias(bias: Bias | Tensor) -> Bias:
    """Return a bias as it is, and a floating-point tensor as a bias."""
    if isinstance(bias, Bias):
        return bias
    if not isinstance(bias, Tensor):
        raise TypeError(
            f"bias expects a bias from softlook.positions or softlook.bias, or a floating-point tensor, "
            f"got {type(bias).__name__}"
        )
    if not bias.is_floating_point():
        raise DtypeError(
            f"a bias is added to the scores and expects a floating-point dtype, got {bias.dtype}. "
            "Pass boolean tensors as mask=; convert integers with .float()."
        )
    return DenseBias(as_4d("bias", bias))


__all__ = ["Bias", "from_function"]
