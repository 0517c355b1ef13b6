"""Score functions: dot product, cosine, distance, bilinear, additive.

Pass one as `attention(..., score=...)`, or any function from `(B, H, T, D)` and `(B, H, S, D)` to `(B, H, T, S)`.
All but `additive` are dot products of a transformed query with a transformed key, so they run on every backend.

>>> import torch
>>> from softlook import attention, scores
>>> query, key, value = torch.randn(3, 1, 2, 5, 8)
>>> attention(query, key, value, score=scores.cosine(temperature=0.1)).shape
torch.Size([1, 2, 5, 8])
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError


@runtime_checkable
class Score(Protocol):
    """A function that compares queries with keys."""

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        """(B, H, T, D), (B, H, S, D) -> (B, H, T, S)"""
        ...


class DotScore:
    """A score that is a dot product of a transformed query and a transformed key."""

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tensors of the dot product. `query` is (B, H, T, D), `key` (B, G, S, D)."""
        return query, key

    def scale(self, width: int) -> float:
        """Return the factor of the dot product."""
        return 1.0

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        prepared_query, prepared_key = self.prepare(query, key)
        return prepared_query @ prepared_key.mT * self.scale(query.shape[-1])


@dataclass(frozen=True, eq=False)
class Dot(DotScore):
    temperature: float | None

    def scale(self, width: int) -> float:
        return 1 / self.temperature if self.temperature is not None else max(width, 1) ** -0.5


@dataclass(frozen=True, eq=False)
class Cosine(DotScore):
    temperature: float

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return _unit_vectors(query), _unit_vectors(key)

    def scale(self, width: int) -> float:
        return 1 / self.temperature


@dataclass(frozen=True, eq=False)
class SquaredDistance(DotScore):
    temperature: float

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        # -|q - k|^2 / 2 = q.k - |k|^2 / 2, up to a constant per query, which the softmax cancels.
        # Half precision would round |k|^2 / 2 by more than the scores differ: the rounding error is a second column.
        ones = query.new_ones((*query.shape[:-1], 2))
        half_square = key.to(_at_least_float32(key)).square().sum(-1, keepdim=True) / 2
        rounded = half_square.to(key.dtype)
        return torch.cat([query, ones], -1), torch.cat([key, -rounded, (rounded - half_square).to(key.dtype)], -1)

    def scale(self, width: int) -> float:
        return 1 / self.temperature


@dataclass(frozen=True, eq=False)
class Bilinear(DotScore):
    weight: Tensor
    temperature: float

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        if self.weight.shape[-2:] != (query.shape[-1], key.shape[-1]):
            raise ShapeError(
                f"bilinear expects a weight (..., {query.shape[-1]}, {key.shape[-1]}), query by key dimension, "
                f"got {tuple(self.weight.shape)}"
            )
        return query @ self.weight, key

    def scale(self, width: int) -> float:
        return 1 / self.temperature


@dataclass(frozen=True, eq=False)
class Additive:
    to_query: Tensor
    to_key: Tensor
    vector: Tensor

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        # In at least float32, as dot products are.
        dtype = _at_least_float32(query)
        to_query, to_key, vector = (weight.to(dtype) for weight in (self.to_query, self.to_key, self.vector))
        hidden = (query.to(dtype) @ to_query)[..., :, None, :] + (key.to(dtype) @ to_key)[..., None, :, :]
        return hidden.tanh() @ vector


def dot() -> DotScore:
    """Dot product.

    >>> dot()(torch.tensor([[[[2.0, -1.0]]]]), torch.tensor([[[[3.0, -1.0]]]])).item()
    7.0
    """
    return Dot(1.0)


def scaled_dot(temperature: float | None = None) -> DotScore:
    """Scaled dot product: divided by a temperature; default: sqrt(D) (Vaswani et al., 2017).

    >>> scaled_dot()(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4)).item()
    2.0
    >>> scaled_dot(temperature=0.5)(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4)).item()
    8.0
    """
    return Dot(None if temperature is None else _check_temperature(temperature))


def cosine(temperature: float = 1.0) -> DotScore:
    """Cosine similarity, divided by a temperature.

    >>> cosine()(torch.tensor([[[[3.0, 0.0]]]]), torch.tensor([[[[0.1, 0.0]]]])).item()
    1.0
    """
    return Cosine(_check_temperature(temperature))


def squared_distance(temperature: float = 1.0) -> DotScore:
    """Minus half the squared Euclidean distance, up to a constant per query, divided by a temperature.

    For keys of equal norm it is the dot product.

    >>> keys = torch.tensor([[[[1.0, 0.0], [5.0, 0.0]]]])
    >>> squared_distance()(keys, keys).argmax(-1)
    tensor([[[0, 1]]])
    """
    return SquaredDistance(_check_temperature(temperature))


def bilinear(weight: Float[Tensor, "*heads D E"], temperature: float = 1.0) -> DotScore:
    """Bilinear score (Luong et al., 2015): query . weight . key. One weight (D, D), or one per head (H, D, D).

    >>> bilinear(2 * torch.eye(2))(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2)).item()
    4.0
    """
    return Bilinear(weight, _check_temperature(temperature))


def additive(
    to_query: Float[Tensor, "*heads D A"], to_key: Float[Tensor, "*key_heads _ A"], vector: Float[Tensor, " A"]
) -> Additive:
    """Additive score (Bahdanau et al., 2015): vector . tanh(query . to_query + key . to_key).

    >>> weight = torch.zeros(3, 4)
    >>> additive(weight, weight, torch.ones(4))(torch.randn(1, 1, 2, 3), torch.randn(1, 1, 5, 3)).abs().max().item()
    0.0
    """
    return Additive(to_query, to_key, vector)


def _unit_vectors(x: Tensor) -> Tensor:
    """Vectors of norm 1, in at least float32: the epsilon that avoids 0 / 0 underflows in float16."""
    return torch.nn.functional.normalize(x.to(_at_least_float32(x)), dim=-1).to(x.dtype)


def _at_least_float32(like: Tensor) -> torch.dtype:
    return torch.float64 if like.dtype == torch.float64 else torch.float32


def _check_temperature(temperature: float) -> float:
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature expects a number above 0, got {temperature}")
    return float(temperature)


__all__ = ["Score", "additive", "bilinear", "cosine", "squared_distance", "dot", "scaled_dot"]
