"""TabTransformer (Huang et al. 2020): a category means something else beside other categories."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.blocks.attention import Mixing, SelfAttention
from softlook.blocks.block import Block
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.residual import PostNorm
from softlook.embed.columns import ColumnEmbedding, complete, table
from softlook.heads.beside import Beside


@dataclass(frozen=True, kw_only=True)
class TabTransformerConfig:
    """The sizes of a TabTransformer. Width, depth, heads, shared part and factors are the paper's; the rest is ours."""

    numbers: int
    """Number of numeric columns; may be 0."""
    categories: tuple[int, ...] = ()
    """How many values each categorical column has; may be empty."""
    classes: int = 1
    """Number of scores for a row; 1 for a number to be predicted."""
    dim: int = 32
    """Width of a category's vector."""
    depth: int = 6
    """Number of blocks."""
    heads: int = 8
    """Heads in each block."""
    shared: int | None = None
    """Width of the part of a vector that says which column it is; an eighth of `dim` where not told."""
    activation: ActivationName = "relu"
    """The bend inside the feed-forward layers."""
    factors: tuple[int, ...] = (4, 2)
    """Widths inside the last network, in widths of what goes into it."""
    dropout: float = 0.1
    """Share dropped inside attention and before each addition while training."""
    normed: bool = True
    """Whether the numbers of a row go through a norm, as in the paper; scaled ones are better off without."""
    beside: bool = False
    """Whether each column also has a say by itself, in straight lines beside the rest. For few labels."""


class TabTransformer(nn.Module):
    """Rows of a table in, scores out: categories look at one another, numbers join them at the end.

    >>> model = TabTransformer(TabTransformerConfig(numbers=3, categories=(2, 5), classes=4, depth=2))
    >>> model(torch.randn(6, 3), torch.tensor([[1, 4]] * 6)).shape
    torch.Size([6, 4])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: TabTransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.categories = ColumnEmbedding(config.categories, config.dim, shared=config.shared)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.depth))
        # The norm runs over the numbers of a row. Of a single one it would leave nothing, so that one is let through.
        self.norm = nn.LayerNorm(config.numbers) if config.normed and config.numbers > 1 else nn.Identity()
        self.head = self._head(len(config.categories) * config.dim + config.numbers)
        self.beside = self._beside() if config.beside else None

    def _block(self) -> Block:
        c = self.config
        return Block(
            SelfAttention(c.dim, c.heads, mix=Mixing(dropout=c.dropout)),
            FeedForward(c.dim, act=ACTIVATIONS[c.activation]),
            lambda: PostNorm(nn.LayerNorm(c.dim), c.dropout),
        )

    def _head(self, width: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        widths = [width, *(factor * width for factor in self.config.factors)]
        for inner, outer in pairwise(widths):
            layers += [nn.Linear(inner, outer), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], self.config.classes))

    def _beside(self) -> Beside:
        c = self.config
        return Beside(c.numbers, c.categories, tokens=len(c.categories), dim=c.dim, classes=c.classes)

    def forward(
        self, numbers: Float[Tensor, "N numbers"] | None = None, categories: Int[Tensor, "N categories"] | None = None
    ) -> Float[Tensor, "N K"]:
        """Leave out the part that the table does not have."""
        numbers, categories = table(numbers, categories, like=self.categories.columns)
        x = self.categories(categories)
        for block in self.blocks:
            x = block(x)
        known = self.norm(complete(numbers, self.config.numbers))
        scores = self.head(torch.cat([x.flatten(1), known], 1))
        return scores if self.beside is None else scores + self.beside(numbers, categories, x[:, None])[:, 0]
