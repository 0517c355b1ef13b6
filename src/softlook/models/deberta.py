"""DeBERTa v2 and v3."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore, MakeAttention, SelfAttention, with_padding_mask
from softlook.blocks.block import PostNormBlock
from softlook.blocks.disentangled import DisentangledAttention, RelativePositionEmbedding
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.init import init_normal
from softlook.blocks.kv_cache import token_positions
from softlook.embed.positions import LearnedPositions
from softlook.embed.tokens import TokenEmbedding, TokenTypeEmbedding, add_token_types
from softlook.heads.classification import (
    ClassificationHead,
    HiddenStates,
    Problem,
    SpanHead,
    TokenClassificationHead,
)
from softlook.heads.lm import MaskedLMHead
from softlook.heads.pooling import L2Normalize, Pooler, PoolName, build_pool
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask

DebertaHead = Literal[
    "hidden_states",
    "pooled",
    "embedding",
    "masked_lm",
    "classification",
    "multiple_choice",
    "token_classification",
    "question_answering",
]


@dataclass(frozen=True, kw_only=True)
class ConvolutionConfig:
    """A convolution parallel to the first block, as in the two largest DeBERTa v2."""

    kernel_size: int = 3
    """Kernel size; odd."""
    groups: int = 1
    """Number of groups of channels."""
    activation: ActivationName = "tanh"
    """Activation of the convolution."""


@dataclass(frozen=True, kw_only=True)
class DebertaConfig:
    """Hyperparameters of a DeBERTa, and its head. The defaults are those of DeBERTa-v3-base."""

    vocab_size: int = 128100
    """Vocabulary size."""
    context: int = 512
    """Sequence length that the model is trained for, and the maximum of absolute positions."""
    absolute_positions: bool = False
    """Whether absolute positions are added to the embedding."""
    token_types: int = 0
    """Number of token types (sentences of a pair); 0: none."""
    dim: int = 768
    """Width of the hidden states."""
    embedding_dim: int | None = None
    """Width of the embedding, projected to `dim`; default: dim."""
    depth: int = 12
    """Number of blocks."""
    heads: int = 12
    """Number of attention heads."""
    hidden: int | None = None
    """Width inside the feed-forward layers; default: 4 * dim."""
    activation: ActivationName = "gelu"
    """Activation of the feed-forward layers and of the masked LM head."""
    relative_attention: tuple[Literal["c2p", "p2c"], ...] = ("c2p", "p2c")
    """Relative position scores: content-to-position, position-to-content; (): none."""
    max_distance: int = 512
    """Maximum relative distance."""
    buckets: int = 256
    """Buckets of relative distances in each direction, far ones in logarithmic steps; 0: one per distance."""
    share_projections: bool = True
    """Whether positions are projected by the query and key layers of the content."""
    relative_norm: bool = True
    """Whether the relative position embedding has a norm."""
    convolution: ConvolutionConfig | None = None
    """A convolution parallel to the first block."""
    dropout: float = 0.1
    """Dropout probability of embeddings, attention weights, layer outputs and the head."""
    eps: float = 1e-7
    """Epsilon of the layer norms."""
    head: DebertaHead = "masked_lm"
    """What the model returns, as in `BertConfig`."""
    tie_embeddings: bool = True
    """Whether the masked LM head shares the weight of the token embedding."""
    classes: int = 2
    """Number of classes."""
    problem: Problem | None = None
    """What the classification logits stand for; default: single_label, or for one class its probability."""
    pooling: PoolName = "cls"
    """Pooling by the [CLS] token or by the mean."""
    pooler: ActivationName | None = "gelu"
    """Activation of the pooler's dense layer; None: no pooler."""


class ParallelConvolution(nn.Module):
    """Adds a convolution of a block's input to the block's output."""

    def __init__(self, dim: int, eps: float, dropout: float, config: ConvolutionConfig) -> None:
        super().__init__()
        if config.kernel_size < 1 or config.kernel_size % 2 == 0:
            raise ConfigError(f"kernel_size must be odd, got {config.kernel_size}")
        padding = config.kernel_size // 2
        self.conv = nn.Conv1d(dim, dim, config.kernel_size, padding=padding, groups=config.groups)
        self.activation, self.norm = ACTIVATIONS[config.activation], nn.LayerNorm(dim, eps)
        self.dropout = Dropout(dropout)

    def forward(self, before: Float[Tensor, "B T C"], after: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.norm(after + self.activation(self.dropout(self.conv(before.mT).mT)))


class Deberta(nn.Module):
    """DeBERTa (He et al. 2021): an encoder with disentangled attention. Ids in, the output of the head out.

    `attention(layer)` builds the self-attention of each layer; default: that of the config.

    >>> import torch
    >>> sizes = {"vocab_size": 10, "dim": 16, "depth": 2, "heads": 2, "max_distance": 8, "buckets": 4}
    >>> Deberta(DebertaConfig(**sizes, head="classification", classes=3))(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: DebertaConfig, *, attention: MakeAttention | None = None) -> None:
        super().__init__()
        self.config = c = config
        width = c.dim if c.embedding_dim is None else c.embedding_dim
        self.token_embedding = TokenEmbedding(c.vocab_size, width)
        self.type_embedding = TokenTypeEmbedding(c.token_types, width) if c.token_types else None
        self.position_embedding = LearnedPositions(c.context, width) if c.absolute_positions else None
        self.project_in = nn.Identity() if width == c.dim else nn.Linear(width, c.dim, bias=False)
        self.embedding_norm, self.dropout = nn.LayerNorm(c.dim, c.eps), Dropout(c.dropout)
        self.relative_embedding = self._relative_embedding() if c.relative_attention else None
        self.blocks = nn.ModuleList(self._block(layer, attention or self._attention) for layer in range(c.depth))
        convolution = None if c.convolution is None else ParallelConvolution(c.dim, c.eps, c.dropout, c.convolution)
        self.convolution = convolution
        self.head = build_head(c, self.token_embedding)
        init_normal(self)

    def _relative_embedding(self) -> RelativePositionEmbedding:
        c = self.config
        norm = nn.LayerNorm(c.dim, c.eps) if c.relative_norm else None
        return RelativePositionEmbedding(c.dim, max_distance=c.max_distance, buckets=c.buckets, norm=norm)

    def _attention(self, layer: int) -> nn.Module:
        c = self.config
        if self.relative_embedding is None:
            return SelfAttention(c.dim, c.heads, core=AttentionCore(dropout=c.dropout))
        return DisentangledAttention(
            c.dim,
            c.heads,
            self.relative_embedding,
            c2p="c2p" in c.relative_attention,
            p2c="p2c" in c.relative_attention,
            share_projections=c.share_projections,
            dropout=c.dropout,
        )

    def _block(self, layer: int, attention: MakeAttention) -> PostNormBlock:
        c = self.config
        attn, ffn = attention(layer), FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])
        return PostNormBlock(attn, ffn, lambda: nn.LayerNorm(c.dim, c.eps), dropout=c.dropout)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        token_types: Int[Tensor, "B T"] | None = None,
        padding_mask: Bool[Tensor, "B T"] | None = None,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
    ) -> Float[Tensor, "B *logits"]:
        """`padding_mask` is True where there is a token; `mask` and `positions` are for packed or left-padded rows;
        `bias` is added to the attention logits of every layer. A convolution crosses the borders of packed rows."""
        x = add_token_types(self.token_embedding(ids), self.type_embedding, token_types)
        if self.position_embedding is not None:
            x = x + self.position_embedding(token_positions(ids, positions, None))
        x = self.embedding_norm(self.project_in(x))
        x = self.dropout(x if padding_mask is None else x.masked_fill(~padding_mask[..., None], 0.0))
        embedded, mask = x, with_padding_mask(padding_mask, mask)
        for layer, block in enumerate(self.blocks):
            x = block(x, mask=mask, bias=bias)
            if layer == 0 and self.convolution is not None:
                x = self.convolution(embedded, x)
        return self.head(x, padding_mask)


def build_head(config: DebertaConfig, embedding: nn.Embedding) -> nn.Module:
    """The head that the config names."""
    c = config

    def pool() -> nn.Module:
        plain = build_pool(c.pooling)
        return plain if c.pooler is None else Pooler(plain, c.dim, ACTIVATIONS[c.pooler])

    def masked_lm() -> nn.Module:
        activation = ACTIVATIONS[c.activation]
        return MaskedLMHead(embedding, activation, dim=c.dim, eps=c.eps, tie_embeddings=c.tie_embeddings)

    heads: dict[DebertaHead, Callable[[], nn.Module]] = {
        "hidden_states": HiddenStates,
        "pooled": pool,
        "embedding": lambda: L2Normalize(pool()),
        "masked_lm": masked_lm,
        "classification": lambda: ClassificationHead(pool(), c.dim, c.classes, dropout=c.dropout),
        "multiple_choice": lambda: ClassificationHead(pool(), c.dim, 1, dropout=c.dropout),
        "token_classification": lambda: TokenClassificationHead(c.dim, c.classes, dropout=c.dropout),
        "question_answering": lambda: SpanHead(c.dim, dropout=c.dropout),
    }
    if c.head not in heads:
        raise ConfigError(f"expected a head of DeBERTa ({', '.join(heads)}), got {c.head!r}")
    return heads[c.head]()
