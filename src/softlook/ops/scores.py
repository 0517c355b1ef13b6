"""How well does a key answer a query? The kinds of score, each a function `(query, key) -> scores`.

Hand one to `attention(..., score=...)`, or hand in any function of your own that takes
`(B, H, T, D)` and `(B, H, S, D)` and returns `(B, H, T, S)`.

All but `additive` are a dot product of something made from the query alone with something made
from the key alone, so they run on every fast path.

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
    """Anything that compares queries with keys."""

    def __call__(self, query: Tensor, key: Tensor, /) -> Tensor:
        """(B, H, T, D), (B, H, S, D) -> (B, H, T, S)"""
        ...


class DotScore:
    """A score that is a dot product once query and key have each been prepared on their own."""

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """What to take the dot product of. `query` is (B, H, T, D), `key` (B, G, S, D)."""
        return query, key

    def scale(self, width: int) -> float:
        """What the dot product is multiplied with."""
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
        return _direction(query), _direction(key)

    def scale(self, width: int) -> float:
        return 1 / self.temperature


@dataclass(frozen=True, eq=False)
class Distance(DotScore):
    temperature: float

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        # -|q - k|^2 / 2 = q.k - |k|^2 / 2, up to a number per query, which a softmax does not see.
        # Half precision would round |k|^2 / 2 by more than the scores differ: what it rounds off is kept apart.
        ones = query.new_ones((*query.shape[:-1], 2))
        half_square = key.to(_at_least_single(key)).square().sum(-1, keepdim=True) / 2
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
                f"bilinear wants a weight that ends in ({query.shape[-1]}, {key.shape[-1]}), query width by key width; "
                f"{tuple(self.weight.shape)} came"
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
        # In single precision at least, as dot products are.
        numbers = _at_least_single(query)
        to_query, to_key, vector = (weight.to(numbers) for weight in (self.to_query, self.to_key, self.vector))
        hidden = (query.to(numbers) @ to_query)[..., :, None, :] + (key.to(numbers) @ to_key)[..., None, :, :]
        return hidden.tanh() @ vector


def dot() -> DotScore:
    """The plain dot product: minds magnitude and sign.

    >>> dot()(torch.tensor([[[[2.0, -1.0]]]]), torch.tensor([[[[3.0, -1.0]]]])).item()
    7.0
    """
    return Dot(1.0)


def scaled(temperature: float | None = None) -> DotScore:
    """The dot product divided by a temperature, which is the root of the width where none is given.

    >>> scaled()(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4)).item()
    2.0
    >>> scaled(temperature=0.5)(torch.ones(1, 1, 1, 4), torch.ones(1, 1, 1, 4)).item()
    8.0
    """
    return Dot(None if temperature is None else _warm(temperature))


def cosine(temperature: float = 1.0) -> DotScore:
    """The dot product of directions, -1 to 1, divided by a temperature.

    >>> cosine()(torch.tensor([[[[3.0, 0.0]]]]), torch.tensor([[[[0.1, 0.0]]]])).item()
    1.0
    """
    return Cosine(_warm(temperature))


def distance(temperature: float = 1.0) -> DotScore:
    """Minus half the squared distance (up to a number per query): nobody matches a key better than itself.

    Among keys of one length it is the dot product.

    >>> keys = torch.tensor([[[[1.0, 0.0], [5.0, 0.0]]]])
    >>> distance()(keys, keys).argmax(-1)
    tensor([[[0, 1]]])
    """
    return Distance(_warm(temperature))


def bilinear(weight: Float[Tensor, "*heads D E"], temperature: float = 1.0) -> DotScore:
    """The general score of Luong: query . weight . key. One weight for all heads (D, D) or one each (H, D, D).

    >>> bilinear(2 * torch.eye(2))(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2)).item()
    4.0
    """
    return Bilinear(weight, _warm(temperature))


def additive(
    to_query: Float[Tensor, "*heads D A"], to_key: Float[Tensor, "*key_heads _ A"], vector: Float[Tensor, " A"]
) -> Additive:
    """The small network of Bahdanau: vector . tanh(query . to_query + key . to_key).

    >>> weight = torch.zeros(3, 4)
    >>> additive(weight, weight, torch.ones(4))(torch.randn(1, 1, 2, 3), torch.randn(1, 1, 5, 3)).abs().max().item()
    0.0
    """
    return Additive(to_query, to_key, vector)


def _direction(x: Tensor) -> Tensor:
    """Vectors of length 1. In single precision at least: float16 holds no number small enough to keep 0 from 0 / 0."""
    return torch.nn.functional.normalize(x.to(_at_least_single(x)), dim=-1).to(x.dtype)


def _at_least_single(like: Tensor) -> torch.dtype:
    return torch.float64 if like.dtype == torch.float64 else torch.float32


def _warm(temperature: float) -> float:
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f"a temperature is a number above 0; {temperature} came")
    return float(temperature)


__all__ = ["Score", "additive", "bilinear", "cosine", "distance", "dot", "scaled"]
