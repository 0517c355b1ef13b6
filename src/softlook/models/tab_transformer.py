"""TabTransformer for tables."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.blocks.attention import AttentionCore, MakeAttention, SelfAttention
from softlook.blocks.block import PostNormBlock
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.embed.features import ColumnEmbedding, check_complete, check_table
from softlook.heads.classification import LinearSkip
from softlook.ops.bias import Bias


@dataclass(frozen=True, kw_only=True)
class TabTransformerConfig:
    """Hyperparameters of a TabTransformer. Width, depth, heads, shared part and MLP factors are the paper's."""

    n_numeric: int
    """Number of numeric columns; may be 0."""
    cardinalities: tuple[int, ...] = ()
    """Number of categories of each categorical column; may be empty."""
    classes: int = 1
    """Number of logits; 1 for regression."""
    dim: int = 32
    """Width of a token."""
    depth: int = 6
    """Number of blocks."""
    heads: int = 8
    """Number of attention heads."""
    shared_dim: int | None = None
    """Width of the part of a token that its column shares; default: dim / 8."""
    activation: ActivationName = "relu"
    """Activation of the feed-forward layers."""
    mlp_factors: tuple[int, ...] = (4, 2)
    """Hidden widths of the final MLP, as multiples of its input width."""
    dropout: float = 0.1
    """Dropout probability of attention weights and layer outputs."""
    norm_numbers: bool = True
    """Whether the numbers of a row pass a layer norm, as in the paper; standardized numbers do better without."""
    linear_skip: bool = False
    """Whether a linear model of the columns is added to the logits; helps with few labels."""


class TabTransformer(nn.Module):
    """TabTransformer (Huang et al. 2020): attention among categorical columns; numbers join them in a final MLP.

    `attention(layer)` builds the attention of each layer; default: `SelfAttention` with the sizes of the config.

    >>> model = TabTransformer(TabTransformerConfig(n_numeric=3, cardinalities=(2, 5), classes=4, depth=2))
    >>> model(torch.randn(6, 3), torch.tensor([[1, 4]] * 6)).shape
    torch.Size([6, 4])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: TabTransformerConfig, *, attention: MakeAttention | None = None) -> None:
        super().__init__()
        self.config = c = config
        self.categorical_embedding = ColumnEmbedding(c.cardinalities, c.dim, shared=c.shared_dim)
        self.blocks = nn.ModuleList(self._block(layer, attention) for layer in range(c.depth))
        # The norm runs over the numbers of a row; of a single number it would leave nothing.
        self.numeric_norm = nn.LayerNorm(c.n_numeric) if c.norm_numbers and c.n_numeric > 1 else nn.Identity()
        self.head = self._mlp(len(c.cardinalities) * c.dim + c.n_numeric)
        self.linear_skip = None
        if c.linear_skip:
            tokens = len(c.cardinalities)
            self.linear_skip = LinearSkip(c.n_numeric, c.cardinalities, tokens=tokens, dim=c.dim, classes=c.classes)

    def _block(self, layer: int, attention: MakeAttention | None) -> PostNormBlock:
        c = self.config
        if attention is None:
            attn: nn.Module = SelfAttention(c.dim, c.heads, core=AttentionCore(dropout=c.dropout))
        else:
            attn = attention(layer)
        ffn = FeedForward(c.dim, activation=ACTIVATIONS[c.activation])
        return PostNormBlock(attn, ffn, lambda: nn.LayerNorm(c.dim), dropout=c.dropout)

    def _mlp(self, width: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        widths = [width, *(factor * width for factor in self.config.mlp_factors)]
        for inner, outer in pairwise(widths):
            layers += [nn.Linear(inner, outer), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], self.config.classes))

    def forward(
        self,
        numbers: Float[Tensor, "N numbers"] | None = None,
        categories: Int[Tensor, "N categories"] | None = None,
        *,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "N K"]:
        """Logits (N, classes). A part that the table does not have is None; `bias` is added to the attention logits."""
        numbers, categories = check_table(numbers, categories, like=self.categorical_embedding.columns)
        x = self.categorical_embedding(categories)
        for block in self.blocks:
            x = block(x, bias=bias)
        normed = self.numeric_norm(check_complete(numbers, self.config.n_numeric))
        logits = self.head(torch.cat([x.flatten(1), normed], 1))
        return logits if self.linear_skip is None else logits + self.linear_skip(numbers, categories, x[:, None])[:, 0]
