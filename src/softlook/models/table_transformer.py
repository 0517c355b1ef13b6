"""TableTransformer, softlook's own model for tables."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.blocks.attention import MakeAttention
from softlook.blocks.ft_blocks import ft_blocks
from softlook.embed.features import (
    CategoricalEmbedding,
    LinearFeatureEmbedding,
    PeriodicEmbedding,
    PiecewiseLinearEmbedding,
    WithMissing,
    check_table,
)
from softlook.heads.classification import LinearSkip
from softlook.ops.bias import Bias

NumEmbeddingsName = Literal["piecewise", "periodic", "linear"]


@dataclass(frozen=True, kw_only=True)
class TableTransformerConfig:
    """Hyperparameters of a TableTransformer."""

    n_numeric: int
    """Number of numeric columns; may be 0."""
    cardinalities: tuple[int, ...] = ()
    """Number of categories of each categorical column; may be empty."""
    classes: int = 1
    """Number of logits; 1 for regression."""
    ensemble_size: int = 8
    """Number of ensemble members (TabM's k); their mean is better than each."""
    shared_blocks: int | None = None
    """Number of blocks that all members share before each has its own activations; default: all but the last, which is
    nearly free. With 0, each member costs as much as a model."""
    num_embeddings: NumEmbeddingsName = "piecewise"
    """Embedding of numeric features: piecewise linear, periodic or linear."""
    bins: int = 48
    """Maximum number of bins of a numeric column; number of frequencies of periodic embeddings."""
    sigma: float = 0.1
    """Standard deviation of the initial frequencies of periodic embeddings."""
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


class TableTransformer(nn.Module):
    """TableTransformer: rows in, the logits of each ensemble member out. A missing number is NaN.

    Tokens, [CLS] and blocks are those of FT-Transformer (Gorishniy et al. 2021), embeddings of numbers those of
    Gorishniy et al. 2022, members that share nearly all weights those of TabM (Gorishniy et al. 2024).

    `edges` are the bins of the numbers, from `softlook.embed.compute_bins`; default: quantiles of a standard normal
    distribution. `attention(layer)` builds the attention of each layer, a `MultiHeadAttention`.

    >>> sizes = {"n_numeric": 3, "cardinalities": (2, 5), "classes": 4, "ensemble_size": 7, "dim": 16, "heads": 2}
    >>> TableTransformer(TableTransformerConfig(**sizes))(torch.randn(6, 3), torch.tensor([[1, 4]] * 6)).shape
    torch.Size([6, 7, 4])
    """

    mode: ClassVar = "encoder-only"

    def __init__(
        self,
        config: TableTransformerConfig,
        *,
        edges: Float[Tensor, "J _"] | None = None,
        attention: MakeAttention | None = None,
    ) -> None:
        super().__init__()
        self.config = c = config
        last, columns = c.depth - 1, c.n_numeric + len(c.cardinalities)
        self.shared_blocks = last if c.shared_blocks is None else c.shared_blocks
        if c.ensemble_size < 1 or not 0 <= self.shared_blocks <= last:
            raise ConfigError(
                f"expected ensemble_size >= 1 and shared_blocks from 0 to {last}, "
                f"got {c.ensemble_size} and {self.shared_blocks}"
            )
        bound = c.dim**-0.5
        self.cls_token = nn.Parameter(torch.empty(c.dim).uniform_(-bound, bound))
        self.numeric_embedding = WithMissing(build_num_embedding(c, edges), c.n_numeric, c.dim)
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
        tokens = 1 if self.shared_blocks == last else 1 + columns
        self.member_scale = nn.Parameter(torch.randint(0, 2, (c.ensemble_size, tokens, c.dim)) * 2.0 - 1.0)
        self.final_norm = nn.LayerNorm(c.dim)
        self.head_weight = nn.Parameter(torch.empty(c.ensemble_size, c.dim, c.classes).uniform_(-bound, bound))
        self.head_bias = nn.Parameter(torch.empty(c.ensemble_size, c.classes).uniform_(-bound, bound))
        self.linear_skip = None
        if c.linear_skip:
            self.linear_skip = LinearSkip(c.n_numeric, c.cardinalities, tokens=columns, dim=c.dim, classes=c.classes)

    def forward(
        self,
        numbers: Float[Tensor, "N numbers"] | None = None,
        categories: Int[Tensor, "N categories"] | None = None,
        *,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "N E K"]:
        """Logits (N, ensemble_size, classes). A part that the table does not have is None."""
        numbers, categories = check_table(numbers, categories, like=self.cls_token)
        x = self._encode(numbers, categories, bias)
        if self.linear_skip is None:
            return self.classify(self._cls_states(x, len(numbers), bias))
        states = self.blocks[-1](x, bias=bias)[:, 1:].unflatten(0, (len(numbers), -1))
        skip = self.linear_skip(numbers, categories, states)
        return self.classify(self._cls_states(x, len(numbers), bias)) + skip

    def states(
        self, numbers: Float[Tensor, "N numbers"] | None = None, categories: Int[Tensor, "N categories"] | None = None
    ) -> Float[Tensor, "N E C"]:
        """The final [CLS] state of each row and member."""
        numbers, categories = check_table(numbers, categories, like=self.cls_token)
        return self._cls_states(self._encode(numbers, categories, None), len(numbers), None)

    def _encode(
        self, numbers: Float[Tensor, "N _"], categories: Int[Tensor, "N _"], bias: Bias | Tensor | None
    ) -> Float[Tensor, "_ T C"]:
        """[CLS] and all columns before the last block; once per member after the shared blocks."""
        x = torch.cat([self.numeric_embedding(numbers), self.categorical_embedding(categories)], 1)
        x = torch.cat([self.cls_token.expand(x.shape[0], 1, -1), x], 1)
        for layer, block in enumerate(self.blocks[:-1]):
            x = block(self.expand_members(x) if layer == self.shared_blocks else x, bias=bias)
        return x

    def _cls_states(self, x: Float[Tensor, "_ T C"], rows: int, bias: Bias | Tensor | None) -> Float[Tensor, "N E C"]:
        """The last block, in which only [CLS] attends."""
        cls = x[:, :1]
        last: Any = self.blocks[-1]
        if self.shared_blocks == self.config.depth - 1:  # the members' [CLS] tokens attend to the same columns
            cls = self.expand_members(cls).view(rows, -1, self.config.dim)
        return F.relu(self.final_norm(last(cls, context=x, bias=bias))).view(rows, -1, self.config.dim)

    def classify(self, states: Float[Tensor, "N E C"]) -> Float[Tensor, "N E K"]:
        """The logits of each member, from its [CLS] states."""
        return torch.einsum("nec,eck->nek", states, self.head_weight) + self.head_bias

    def expand_members(self, x: Float[Tensor, "N T C"]) -> Float[Tensor, "NE T C"]:
        """Every row once per member, scaled by the member's signs."""
        return (x[:, None] * self.member_scale).flatten(0, 1)


def build_num_embedding(config: TableTransformerConfig, edges: Tensor | None) -> nn.Module:
    """The embedding of numeric features that the config names."""
    c = config
    if c.num_embeddings == "linear":
        return LinearFeatureEmbedding(c.n_numeric, c.dim)
    if c.num_embeddings == "periodic":
        return PeriodicEmbedding(c.n_numeric, c.dim, frequencies=c.bins, sigma=c.sigma)
    if c.num_embeddings != "piecewise":
        raise ConfigError(f"num_embeddings must be piecewise, periodic or linear, got {c.num_embeddings!r}")
    normal = torch.special.ndtri(torch.linspace(0, 1, c.bins + 3)[1:-1])
    edges = normal.expand(c.n_numeric, -1) if edges is None else edges
    if edges.shape != (c.n_numeric, c.bins + 1):
        raise ConfigError(
            f"expected edges of shape {(c.n_numeric, c.bins + 1)}, got {tuple(edges.shape)}. "
            f"Use compute_bins(numbers, max_bins={c.bins})."
        )
    return PiecewiseLinearEmbedding(edges, c.dim, activation=True)
