"""Biases as values: numbers added to the scores, said in symbols and worked out tile by tile."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from softlook.base.errors import DtypeError
from softlook.base.shapes import Tile
from softlook.ops.masks.algebra import Sizes, check_fits, cut, four_axes

At = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(batch, head, query, key) numbers -> what is added to the score there."""


def score_dtype(dtype: torch.dtype) -> torch.dtype:
    """What scores of queries of this kind are computed in, and every number that is added to them: single at least."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Bias:
    """What is added to the scores before the softmax. Combine with `+`."""

    def on(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        """The bias on a tile, broadcasting to (b, h, t, s); what depends on the content is in `score_dtype`.

        `query` (b, h, t, D) and `key` (b, g, s, D) are the tile's own, for biases that depend on them.
        """
        raise AssertionError(f"{type(self).__name__} does not say what it adds")

    def entry(self, queries: int, keys: int) -> At | None:
        """The bias of single entries of a T x S map, for compiled kernels; None where it depends on the content."""
        return None

    def check(self, sizes: Sizes, width: int) -> None:
        """Raise unless the bias fits a map of these sizes with heads of this width."""

    def added_value(self, weights: Tensor, tile: Tile) -> Tensor | None:
        """What the relation between positions itself adds to the output (Shaw), (b, h, t, E)."""
        return None

    @property
    def adds_value(self) -> bool:
        return False

    @property
    def may_hide(self) -> bool:
        """Can it hold -inf, which hides a key as a mask does?"""
        return False

    @property
    def written_out(self) -> bool:
        """Is it a tensor of T x S numbers already?"""
        return False

    @property
    def uses_content(self) -> bool:
        """Does it depend on queries or keys, so that a gradient flows through it to them?"""
        return False

    @property
    def learned(self) -> bool:
        """Does a gradient have to flow into it?"""
        return any(isinstance(part, Tensor) and part.requires_grad for part in vars(self).values())

    def __add__(self, other: "Bias | Tensor") -> "Bias":
        return Sum(self, as_bias(other))


@dataclass(frozen=True, eq=False)
class Sum(Bias):
    """Two biases together."""

    one: Bias
    other: Bias

    def on(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        return self.one.on(query, key, scale, tile) + self.other.on(query, key, scale, tile)

    def entry(self, queries: int, keys: int) -> At | None:
        one, other = self.one.entry(queries, keys), self.other.entry(queries, keys)
        if one is None or other is None:
            return None
        return lambda b, h, i, j: one(b, h, i, j) + other(b, h, i, j)

    def check(self, sizes: Sizes, width: int) -> None:
        self.one.check(sizes, width)
        self.other.check(sizes, width)

    def added_value(self, weights: Tensor, tile: Tile) -> Tensor | None:
        added = [part for bias in (self.one, self.other) if (part := bias.added_value(weights, tile)) is not None]
        return sum(added[1:], added[0]) if added else None

    @property
    def adds_value(self) -> bool:
        return self.one.adds_value or self.other.adds_value

    @property
    def may_hide(self) -> bool:
        return self.one.may_hide or self.other.may_hide

    @property
    def written_out(self) -> bool:
        return self.one.written_out and self.other.written_out

    @property
    def uses_content(self) -> bool:
        return self.one.uses_content or self.other.uses_content

    @property
    def learned(self) -> bool:
        return self.one.learned or self.other.learned

    def __str__(self) -> str:
        return f"{self.one} + {self.other}"


@dataclass(frozen=True, eq=False)
class DenseBias(Bias):
    """A bias written out as a tensor. -inf hides a key as a mask would."""

    numbers: Tensor
    finite: bool = False
    """Is it known to hold no -inf? Then nobody has to look for one."""

    def on(self, query: Tensor, key: Tensor, scale: float, tile: Tile) -> Tensor:
        return cut(self.numbers, tile)

    def entry(self, queries: int, keys: int) -> At:
        numbers = self.numbers
        B, H, T, _ = numbers.shape

        def at(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            zero = j - j
            return numbers[b if B > 1 else zero, h if H > 1 else zero, i if T > 1 else zero, j]

        return at

    def check(self, sizes: Sizes, width: int) -> None:
        check_fits("bias", self.numbers, sizes)

    @property
    def may_hide(self) -> bool:
        return not self.finite

    @property
    def written_out(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"dense({'x'.join(map(str, self.numbers.shape))})"


def as_bias(bias: Bias | Tensor) -> Bias:
    """A bias as it is, a tensor of numbers as a bias."""
    if isinstance(bias, Bias):
        return bias
    if not isinstance(bias, Tensor):
        raise TypeError(
            f"bias expects a bias from softlook.positions or a floating-point tensor, got {type(bias).__name__}"
        )
    if not bias.is_floating_point():
        raise DtypeError(
            f"a bias holds numbers to add to the scores; this one holds {bias.dtype}. "
            "True and False go in as mask=; whole numbers become a bias with .float()."
        )
    return DenseBias(four_axes("bias", bias))
