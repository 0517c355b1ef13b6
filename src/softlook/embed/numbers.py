"""Numbers as tokens that bend: piecewise linear between edges, or as waves; and what stands for a missing one.

A plain `NumberTokens` moves along one straight line as its number grows. These can turn.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.base.tracing import can_read
from softlook.embed.columns import check_columns, uniform


class PiecewiseTokens(nn.Module):
    """A column's range in bins, each with a vector of its own: sum_t e_t(x) W_t + b.

    e_t(x) = (x - edge_t) / (edge_(t+1) - edge_t), kept between 0 and 1: bins that x has passed are 1, its own is
    filled in part, those ahead are 0. So a token moves along a line within a bin and turns at an edge (Gorishniy et
    al. 2022). Outside of all edges it stays where it is, as a tree's answer does.

    `edges` come from `bin_edges`, (J, bins + 1), rising; an edge that is repeated makes no bin, so columns may have
    fewer. They are kept with the weights, and not learned. `bends` puts a ReLU behind.

    >>> numbers = torch.randn(100, 3)
    >>> PiecewiseTokens(bin_edges(numbers, most=10), 8)(numbers).shape
    torch.Size([100, 3, 8])
    """

    edges: Tensor

    def __init__(self, edges: Float[Tensor, "J _"], dim: int, *, bends: bool = False) -> None:
        super().__init__()
        columns, bins = edges.shape[0], edges.shape[1] - 1
        if bins < 1 or (can_read(edges) and not (edges.diff(dim=1) >= 0).all()):
            raise ConfigError("edges want a row of rising numbers for each column, two at least; use bin_edges")
        self.register_buffer("edges", edges.detach().clone())
        self.weight, self.bias = uniform(bins, columns, bins, dim), uniform(dim, columns, dim)
        self.bends = bends

    def forward(self, numbers: Float[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        check_columns(numbers, self.edges.shape[0])
        tokens = _each_column(piecewise(numbers, self.edges), self.weight, self.bias)
        return F.relu(tokens) if self.bends else tokens


class PeriodicTokens(nn.Module):
    """Waves of learned frequencies, then a linear map and a ReLU: relu([cos(2 pi f x), sin(2 pi f x)] W + b).

    Each column has its own `frequencies`, drawn around 0 with a spread of `sigma`: the larger, the more its tokens
    wiggle. Each has its own W and b too; with `lite`, all share one (PLR and PLR(lite) of Gorishniy et al. 2022).

    >>> PeriodicTokens(3, 8, frequencies=16)(torch.randn(5, 3)).shape
    torch.Size([5, 3, 8])
    """

    def __init__(
        self, columns: int, dim: int, *, frequencies: int = 48, sigma: float = 0.1, lite: bool = False
    ) -> None:
        super().__init__()
        if frequencies < 1 or not sigma > 0:
            raise ConfigError(f"waves want a frequency at least, and a spread above 0; {frequencies} and {sigma} came")
        self.frequencies = nn.Parameter(torch.empty(columns, frequencies))
        nn.init.trunc_normal_(self.frequencies, std=sigma, a=-3 * sigma, b=3 * sigma)
        own = () if lite else (columns,)
        self.weight = uniform(2 * frequencies, *own, 2 * frequencies, dim)
        self.bias = uniform(2 * frequencies, *own, dim)

    def forward(self, numbers: Float[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        check_columns(numbers, self.frequencies.shape[0])
        angles = 2 * math.pi * self.frequencies * numbers[..., None]
        waves = torch.cat([angles.cos(), angles.sin()], -1)
        if self.weight.ndim == 2:
            return F.relu(waves @ self.weight + self.bias)
        return F.relu(_each_column(waves, self.weight, self.bias))


class OrMissing(nn.Module):
    """Tokens of numbers, and where a number is missing (NaN) a vector that its column has learned for that.

    >>> from softlook.embed import NumberTokens
    >>> tokens = OrMissing(NumberTokens(2, 8), columns=2, dim=8)
    >>> bool((tokens(torch.tensor([[0.5, torch.nan]]))[0, 1] == tokens.missing[1]).all())
    True
    """

    def __init__(self, tokens: nn.Module, columns: int, dim: int) -> None:
        super().__init__()
        self.tokens, self.missing = tokens, uniform(dim, columns, dim)

    def forward(self, numbers: Float[Tensor, "N J"]) -> Float[Tensor, "N J C"]:
        missing = numbers.isnan()
        if can_read(numbers) and not missing.any():
            return self.tokens(numbers)
        return torch.where(missing[..., None], self.missing, self.tokens(numbers.masked_fill(missing, 0)))


def piecewise(numbers: Float[Tensor, "N J"], edges: Float[Tensor, "J _"]) -> Float[Tensor, "N J _"]:
    """How far each number has filled each bin of its column, from 0 to 1; a bin without width stays empty.

    >>> piecewise(torch.tensor([[-1.0], [1.0], [4.0]]), torch.tensor([[0.0, 2.0, 6.0]]))[:, 0]
    tensor([[0.0000, 0.0000],
            [0.5000, 0.0000],
            [1.0000, 0.5000]])
    """
    inside = numbers.clamp(edges[:, 0], edges[:, -1])  # first of all, so that an infinite number has an answer as well
    widths = edges.diff(dim=1)
    return (inside[..., None] - edges[:, :-1]).div(widths.masked_fill(widths == 0, torch.inf)).clamp(0, 1)


def bin_edges(numbers: Float[Tensor, "N J"], most: int = 48) -> Float[Tensor, "J _"]:
    """Edges of at most so many bins a column, with as many of the numbers in one as in another: its quantiles.

    A column with few different numbers has an edge at each of them. A number so common that it would fill a bin alone
    has an edge too, and the quantiles are those of the others: where most are 0, the rest is still told apart.
    Missing ones (NaN) do not count; what is short of `most` bins is filled up with the last edge, and a column without
    any number has its edges at 0.

    >>> bin_edges(torch.tensor([[0.0, 5.0], [1.0, 5.0], [2.0, torch.nan], [9.0, 5.0]]), most=3)
    tensor([[0., 1., 2., 9.],
            [5., 5., 5., 5.]])
    """
    if most < 1:
        raise ConfigError(f"a column has one bin at least; most={most} came")
    rows = [_edges_of(column[~column.isnan()], most) for column in numbers.detach().unbind(1)]
    return torch.stack(rows) if rows else numbers.new_zeros(0, most + 1)


def _edges_of(known: Tensor, most: int) -> Tensor:
    """Of one column: the different ones where they are few, else quantiles, and the last edge again and again."""
    known = known.sort().values
    edges, counts = known.unique_consecutive(return_counts=True)
    if len(edges) > most + 1:
        is_common = counts > len(known) / most
        common, others = edges[is_common], known[~is_common.repeat_interleave(counts)]
        edges = torch.cat([common, _quantiles_of(others, most + 1 - len(common))]).sort().values.unique_consecutive()
    last = edges[-1:] if len(edges) else edges.new_zeros(1)
    return torch.cat([edges, last.expand(most + 1 - len(edges))])


def _quantiles_of(known: Tensor, count: int) -> Tensor:
    """So many, from the least to the greatest, of what is in order."""
    places = torch.linspace(0, len(known) - 1, count, dtype=torch.float64, device=known.device)
    below, above = known[places.floor().long()], known[places.ceil().long()]
    return torch.lerp(below.double(), above.double(), places.frac()).to(known.dtype)


def _each_column(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(N, J, M) features through a map of each column's own, (J, M, C) and (J, C)."""
    return torch.baddbmm(bias[:, None], features.transpose(0, 1), weight).transpose(0, 1)
