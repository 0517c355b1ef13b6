"""FT-Transformer for tables."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.blocks.attention import MakeAttention
from softlook.blocks.ft_blocks import ft_blocks
from softlook.embed.features import CategoricalEmbedding, LinearFeatureEmbedding, check_table
from softlook.heads.classification import LinearSkip
from softlook.ops.bias import Bias


@dataclass(frozen=True, kw_only=True)
class FTTransformerConfig:
    """Hyperparameters of an FT-Transformer. The defaults are the paper's."""

    n_numeric: int
    """Number of numeric columns; may be 0."""
    cardinalities: tuple[int, ...] = ()
    """Number of categories of each categorical column; may be empty."""
    classes: int = 1
    """Number of logits; 1 for regression."""
    dim: int = 192
    """Width of a token."""
    depth: int = 3
    """Number of blocks."""
    heads: int = 8
    """Number of attention heads."""
    hidden: int | None = None
    """Width inside the feed-forward layers; default: 4/3 * dim."""
    attention_dropout: float = 0.2
    """Dropout probability of the attention weights."""
    hidden_dropout: float = 0.1
    """Dropout probability inside the feed-forward layers."""
    dropout: float = 0.0
    """Dropout probability of layer outputs."""
    linear_skip: bool = False
    """Whether a linear model of the columns is added to the logits; helps with few labels."""


class FTTransformer(nn.Module):
    """FT-Transformer (Gorishniy et al. 2021): every column is a token; logits are read from a [CLS] token.

    `attention(layer)` builds the attention of each layer, a `MultiHeadAttention`; default: that of the config.
    `softlook.models.optimize_for_cpu` makes it faster on a CPU.

    >>> model = FTTransformer(FTTransformerConfig(n_numeric=3, cardinalities=(2, 5), classes=4, dim=16, heads=2))
    >>> model(torch.randn(6, 3), torch.tensor([[1, 4]] * 6)).shape
    torch.Size([6, 4])
    """

    mode: ClassVar = "encoder-only"
    _first_block: Callable[..., Tensor] | None = None
    """Set by `optimize_for_cpu`."""

    def __init__(self, config: FTTransformerConfig, *, attention: MakeAttention | None = None) -> None:
        super().__init__()
        self.config = c = config
        if c.depth < 1:
            raise ConfigError(f"depth must be at least 1, got {c.depth}")
        bound = c.dim**-0.5
        self.cls_token = nn.Parameter(torch.empty(c.dim).uniform_(-bound, bound))
        self.numeric_embedding = LinearFeatureEmbedding(c.n_numeric, c.dim)
        self.categorical_embedding = CategoricalEmbedding(c.cardinalities, c.dim)
        self.blocks = ft_blocks(
            c.depth,
            c.dim,
            c.heads,
            hidden=c.hidden,
            attention_dropout=c.attention_dropout,
            hidden_dropout=c.hidden_dropout,
            dropout=c.dropout,
            attention=attention,
        )
        self.final_norm = nn.LayerNorm(c.dim)
        self.head = nn.Linear(c.dim, c.classes)
        self.linear_skip = None
        if c.linear_skip:
            tokens = c.n_numeric + len(c.cardinalities)
            self.linear_skip = LinearSkip(c.n_numeric, c.cardinalities, tokens=tokens, dim=c.dim, classes=c.classes)

    def forward(
        self,
        numbers: Float[Tensor, "N numbers"] | None = None,
        categories: Int[Tensor, "N categories"] | None = None,
        *,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "N K"]:
        """Logits (N, classes). A part that the table does not have is None; `bias` is added to the attention logits."""
        numbers, categories = check_table(numbers, categories, like=self.cls_token)
        x = torch.cat([self.numeric_embedding(numbers), self.categorical_embedding(categories)], 1)
        x = torch.cat([self.cls_token.expand(x.shape[0], 1, -1), x], 1)
        for layer, block in enumerate(self.blocks[:-1]):
            if layer == 0 and self._first_block is not None and bias is None:
                x = self._first_block(self, x, numbers, categories)
            else:
                x = block(x, bias=bias)
        last: Any = self.blocks[-1]
        skip = None
        if self.linear_skip is not None:
            skip = self.linear_skip(numbers, categories, last(x, bias=bias)[:, None, 1:])[:, 0]
        cls = last(x[:, :1], context=x, bias=bias)[:, 0]  # the logits need nothing else of the last block
        logits = self.head(F.relu(self.final_norm(cls)))
        return logits if skip is None else skip + logits
