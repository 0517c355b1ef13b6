"""FT-Transformer (Gorishniy et al. 2021): every column of a row is a token, numbers and categories alike."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.base.tracing import can_read
from softlook.blocks.columns import column_blocks
from softlook.blocks.onlooking import look_on
from softlook.embed.columns import CategoryTokens, NumberTokens, table
from softlook.heads.beside import Beside


@dataclass(frozen=True, kw_only=True)
class FTTransformerConfig:
    """The sizes of an FT-Transformer. The defaults are the paper's."""

    numbers: int
    """Number of numeric columns; may be 0."""
    categories: tuple[int, ...] = ()
    """How many values each categorical column has; may be empty."""
    classes: int = 1
    """Number of scores for a row; 1 for a number to be predicted."""
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


class FTTransformer(nn.Module):
    """Rows of a table in, scores out, read off a token of its own that has looked at all columns.

    >>> model = FTTransformer(FTTransformerConfig(numbers=3, categories=(2, 5), classes=4, dim=16, heads=2))
    >>> model(torch.randn(6, 3), torch.tensor([[1, 4]] * 6)).shape
    torch.Size([6, 4])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: FTTransformerConfig) -> None:
        super().__init__()
        self.config = c = config
        if c.depth < 1:
            raise ConfigError(f"an FT-Transformer has one block at least; depth={c.depth} came")
        bound = c.dim**-0.5
        self.summary = nn.Parameter(torch.empty(c.dim).uniform_(-bound, bound))
        self.numbers = NumberTokens(c.numbers, c.dim)
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
        self.norm = nn.LayerNorm(c.dim)
        self.head = nn.Linear(c.dim, c.classes)
        tokens = c.numbers + len(c.categories)
        lines = Beside(c.numbers, c.categories, tokens=tokens, dim=c.dim, classes=c.classes) if c.beside else None
        self.beside = lines

    def forward(
        self, numbers: Float[Tensor, "N numbers"] | None = None, categories: Int[Tensor, "N categories"] | None = None
    ) -> Float[Tensor, "N K"]:
        """Leave out the part that the table does not have."""
        numbers, categories = table(numbers, categories, like=self.summary)
        x = torch.cat([self.numbers(numbers), self.categories(categories)], 1)
        x = torch.cat([self.summary.expand(x.shape[0], 1, -1), x], 1)
        if len(self.blocks) > 1:
            x = self._first(x, numbers, categories)
        for block in self.blocks[1:-1]:
            x = block(x)
        last: Any = self.blocks[-1]
        lines = None if self.beside is None else self.beside(numbers, categories, last(x)[:, None, 1:])[:, 0]
        seen = look_on(last, x[:, :1], x)[:, 0]  # all that an answer needs of the last block
        scores = self.head(F.relu(self.norm(seen)))
        return scores if lines is None else lines + scores

    def _first(
        self, x: Float[Tensor, "N T C"], numbers: Float[Tensor, "N _"], categories: Int[Tensor, "N _"]
    ) -> Float[Tensor, "N T C"]:
        """The first block. No norm comes before it: its queries, keys and values are tokens themselves, of other
        vectors, and fewer products lead to them where there are more cells than vectors."""
        block: Any = self.blocks[0]
        c = self.config
        layers = [block.attend.to_query, block.attend.to_key, block.attend.to_value]
        plain = all(type(layer) is nn.Linear for layer in layers)
        if not plain or not can_read(x) or 2 * c.numbers + sum(c.categories) >= x.shape[0]:
            return block(x)
        weight, bias = (torch.cat([getattr(layer, name) for layer in layers]) for name in ("weight", "bias"))
        summary = F.linear(self.summary, weight, bias).expand(x.shape[0], 1, -1)
        parts = [summary, self.numbers.behind(numbers, weight, bias), self.categories.behind(categories, weight, bias)]
        query, key, value = (block.attend.split(part) for part in torch.cat(parts, 1).chunk(3, -1))
        x = x + block.around_attend.drop(block.attend.join(block.attend.mix(query, key, value)))
        return block.around_feed(x, block.feed)
