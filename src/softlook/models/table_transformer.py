"""TableTransformer: our own model for tables. Columns as tokens that bend, and several answers to a row.

What it takes from where: tokens, [CLS] and blocks from FT-Transformer (Gorishniy et al. 2021), tokens of numbers from
Gorishniy et al. 2022, members that share nearly all weights from TabM (Gorishniy et al. 2024).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.blocks.columns import column_blocks
from softlook.blocks.onlooking import look_on
from softlook.embed.columns import CategoryTokens, NumberTokens, table
from softlook.embed.numbers import OrMissing, PeriodicTokens, PiecewiseTokens
from softlook.heads.beside import Beside

NumberTokensName = Literal["piecewise", "periodic", "linear"]


@dataclass(frozen=True, kw_only=True)
class TableTransformerConfig:
    """The sizes of a TableTransformer."""

    numbers: int
    """Number of numeric columns; may be 0."""
    categories: tuple[int, ...] = ()
    """How many values each categorical column has; may be empty."""
    classes: int = 1
    """Number of scores for a row; 1 for a number to be predicted."""
    members: int = 8
    """How many answers there are to a row; the mean of them is better than each."""
    shared: int | None = None
    """Number of blocks that all members go through together, before each goes its own way. All but the last where not
    told, which is nearly free; with 0 each member looks at a table of its own, and costs as much as a model."""
    number_tokens: NumberTokensName = "piecewise"
    """How numbers become tokens: by bins, by waves, or by a straight line each."""
    bins: int = 48
    """Bins of a numeric column at most; with waves, how many."""
    sigma: float = 0.1
    """Spread of the waves' frequencies."""
    dim: int = 192
    """Width of a token."""
    depth: int = 3
    """Number of blocks."""
    heads: int = 8
    """Heads in each block."""
    hidden: int | None = None
    """Width inside the feed-forward layers; 4/3 of `dim` where not told."""
    attention_dropout: float = 0.2
    """Share of attention weights dropped while training."""
    hidden_dropout: float = 0.1
    """Share dropped inside the feed-forward layers while training."""
    dropout: float = 0.0
    """Share dropped before each addition while training."""
    beside: bool = False
    """Whether each column also has a say by itself, in straight lines beside the rest. For few labels."""


class TableTransformer(nn.Module):
    """Rows of a table in, each member's scores out. A missing number is NaN, and has a token of its own.

    `edges` are the bins of the numbers, from `softlook.embed.bin_edges`; those of numbers spread like a bell around 0
    where none are given.

    >>> sizes = TableTransformerConfig(numbers=3, categories=(2, 5), classes=4, members=7, dim=16, heads=2)
    >>> TableTransformer(sizes)(torch.randn(6, 3), torch.tensor([[1, 4]] * 6)).shape
    torch.Size([6, 7, 4])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: TableTransformerConfig, *, edges: Float[Tensor, "J _"] | None = None) -> None:
        super().__init__()
        self.config = c = config
        last = c.depth - 1
        self.shared = last if c.shared is None else c.shared
        if c.members < 1 or not 0 <= self.shared <= last:
            raise ConfigError(
                f"at least one member, and 0 to {last} of {c.depth} blocks shared; {c.members} and {self.shared} came"
            )
        bound = c.dim**-0.5
        self.summary = nn.Parameter(torch.empty(c.dim).uniform_(-bound, bound))
        self.numbers = OrMissing(_number_tokens(c, edges), c.numbers, c.dim)
        self.categories = CategoryTokens(c.categories, c.dim)
        self.blocks = column_blocks(
            c.depth,
            c.dim,
            c.heads,
            hidden=c.hidden,
            attention_dropout=c.attention_dropout,
            hidden_dropout=c.hidden_dropout,
            dropout=c.dropout,
        )
        places = 1 if self.shared == last else 1 + c.numbers + len(c.categories)
        self.members = nn.Parameter(torch.randint(0, 2, (c.members, places, c.dim)) * 2.0 - 1.0)
        self.norm = nn.LayerNorm(c.dim)
        self.head = nn.Parameter(torch.empty(c.members, c.dim, c.classes).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(c.members, c.classes).uniform_(-bound, bound))
        tokens = c.numbers + len(c.categories)
        lines = Beside(c.numbers, c.categories, tokens=tokens, dim=c.dim, classes=c.classes) if c.beside else None
        self.beside = lines

    def forward(
        self, numbers: Float[Tensor, "N numbers"] | None = None, categories: Int[Tensor, "N categories"] | None = None
    ) -> Float[Tensor, "N E K"]:
        """Leave out the part that the table does not have."""
        numbers, categories = table(numbers, categories, like=self.summary)
        x = self._looked(numbers, categories)
        if self.beside is None:
            return self.read(self._summed_up(x, len(numbers)))
        cells = self.blocks[-1](x)[:, 1:].unflatten(0, (len(numbers), -1))
        return self.read(self._summed_up(x, len(numbers))) + self.beside(numbers, categories, cells)

    def states(
        self, numbers: Float[Tensor, "N numbers"] | None = None, categories: Int[Tensor, "N categories"] | None = None
    ) -> Float[Tensor, "N E C"]:
        """What [CLS] has seen of each row, as each member sees it: all that an answer is read off."""
        numbers, categories = table(numbers, categories, like=self.summary)
        return self._summed_up(self._looked(numbers, categories), len(numbers))

    def _looked(self, numbers: Float[Tensor, "N _"], categories: Int[Tensor, "N _"]) -> Float[Tensor, "_ T C"]:
        """[CLS] and all cells before the last block; once for each member where they have parted."""
        x = torch.cat([self.numbers(numbers), self.categories(categories)], 1)
        x = torch.cat([self.summary.expand(x.shape[0], 1, -1), x], 1)
        for layer, block in enumerate(self.blocks[:-1]):
            x = block(self.apart(x) if layer == self.shared else x)
        return x

    def _summed_up(self, x: Float[Tensor, "_ T C"], rows: int) -> Float[Tensor, "N E C"]:
        """The last block, in which [CLS] alone looks."""
        own = x[:, :1]
        last: Any = self.blocks[-1]
        if self.shared == self.config.depth - 1:  # the members of a row are as many onlookers of the same columns
            own = self.apart(own).view(rows, -1, self.config.dim)
        return F.relu(self.norm(look_on(last, own, x))).view(rows, -1, self.config.dim)

    def read(self, states: Float[Tensor, "N E C"]) -> Float[Tensor, "N E K"]:
        """Each member's scores for what it has seen."""
        return torch.einsum("nec,eck->nek", states, self.head) + self.bias

    def apart(self, x: Float[Tensor, "N T C"]) -> Float[Tensor, "NE T C"]:
        """Every row once for each member, seen in that member's own light."""
        return (x[:, None] * self.members).flatten(0, 1)


def _number_tokens(config: TableTransformerConfig, edges: Tensor | None) -> nn.Module:
    c = config
    if c.number_tokens == "linear":
        return NumberTokens(c.numbers, c.dim)
    if c.number_tokens == "periodic":
        return PeriodicTokens(c.numbers, c.dim, frequencies=c.bins, sigma=c.sigma)
    if c.number_tokens != "piecewise":
        raise ConfigError(f"number_tokens wants piecewise, periodic or linear; {c.number_tokens!r} came")
    bell = torch.special.ndtri(torch.linspace(0, 1, c.bins + 3)[1:-1])
    edges = bell.expand(c.numbers, -1) if edges is None else edges
    if edges.shape != (c.numbers, c.bins + 1):
        raise ConfigError(
            f"{c.numbers} columns of at most {c.bins} bins have edges of the shape {(c.numbers, c.bins + 1)}; "
            f"{tuple(edges.shape)} came. Use bin_edges(numbers, most={c.bins})."
        )
    return PiecewiseTokens(edges, c.dim, bends=True)
