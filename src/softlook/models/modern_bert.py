"""ModernBERT."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import (
    AttentionCore,
    MakeAttention,
    SelfAttention,
    default_head_dim,
    with_padding_mask,
)
from softlook.blocks.block import PreNormBlock
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, GatedFeedForward
from softlook.blocks.init import init_normal
from softlook.blocks.kv_cache import token_positions
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.classification import Problem
from softlook.heads.pooling import PoolName, build_pool, build_pooled_head
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask, window
from softlook.ops.positions.rotary import rotary_angles

ModernBertHead = Literal[
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
class ModernBertConfig:
    """Hyperparameters of a ModernBERT, and its head. The defaults are those of ModernBERT-base."""

    vocab_size: int = 50368
    """Vocabulary size."""
    context: int = 8192
    """Sequence length that the model is trained for."""
    dim: int = 768
    """Width of the hidden states."""
    depth: int = 22
    """Number of blocks."""
    heads: int = 12
    """Number of attention heads."""
    hidden: int = 1152
    """Width inside the feed-forward layers."""
    activation: ActivationName = "gelu"
    """Activation of the gates."""
    sliding_window: int = 64
    """Number of tokens on each side that a windowed layer attends to."""
    windowed_layers: tuple[int, ...] | None = None
    """Layers with a sliding window; default: all but every third from the first on."""
    rope_theta: float = 160_000.0
    """Base of the rotary frequencies of layers without a window."""
    local_rope_theta: float = 10_000.0
    """Base of the rotary frequencies of windowed layers."""
    eps: float = 1e-5
    """Epsilon of the layer norms."""
    norm_bias: bool = False
    """Whether layer norms have biases."""
    attention_bias: bool = False
    """Whether the projections of attention have biases."""
    ffn_bias: bool = False
    """Whether the feed-forward layers have biases."""
    dropout: float = 0.0
    """Dropout probability of embeddings, attention weights, layer outputs and the head."""
    head: ModernBertHead = "masked_lm"
    """What the model returns: hidden states, a pooled vector, a unit-length embedding, or the logits of a task."""
    classes: int = 2
    """Number of classes."""
    problem: Problem | None = None
    """What the classification logits stand for; default: single_label, or for one class its probability."""
    pooling: PoolName = "cls"
    """Pooling by the [CLS] token or by the mean."""
    head_activation: ActivationName = "gelu"
    """Activation of the head."""
    head_bias: bool = False
    """Whether the dense layer of the head has a bias."""
    lm_head_bias: bool = True
    """Whether the output layer of the masked LM head has a bias."""
    tie_embeddings: bool = True
    """Whether the masked LM head shares the weight of the token embedding."""
    token_types: ClassVar[int] = 0
    """It has no token types."""


class PredictionHead(nn.Module):
    """ModernBERT's head: pooling or not, dense, activation, norm, dropout, logits."""

    def __init__(self, config: ModernBertConfig, to_classes: nn.Linear, pool: nn.Module | None = None) -> None:
        super().__init__()
        self.pool, self.dense = pool, nn.Linear(config.dim, config.dim, bias=config.head_bias)
        self.activation, self.norm = ACTIVATIONS[config.head_activation], build_norm(config)
        self.dropout, self.to_classes = Dropout(config.dropout), to_classes

    def forward(
        self, x: Float[Tensor, "B T C"], padding_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B *K"]:
        x = x if self.pool is None else self.pool(x, padding_mask)
        return self.to_classes(self.dropout(self.norm(self.activation(self.dense(x)))))


class ModernBert(nn.Module):
    """ModernBERT (Warner et al. 2024): RoPE, sliding windows in most layers, GeGLU, pre-norm.

    `attention(layer)` builds the self-attention of each layer; default: `SelfAttention` with the sizes of the config.

    >>> import torch
    >>> sizes = {"vocab_size": 10, "dim": 16, "depth": 3, "heads": 2, "hidden": 24, "sliding_window": 2}
    >>> ModernBert(ModernBertConfig(**sizes, head="classification", classes=3))(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: ModernBertConfig, *, attention: MakeAttention | None = None) -> None:
        super().__init__()
        self.config, self.windowed_layers = config, windowed_layers(config)
        self.head_dim = default_head_dim(config.dim, config.heads)
        self.token_embedding, self.embedding_norm = TokenEmbedding(config.vocab_size, config.dim), build_norm(config)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._block(layer, attention) for layer in range(config.depth))
        self.blocks[0].attn_norm = nn.Identity()  # the embedding has a norm already
        self.final_norm = build_norm(config)
        self.head = build_head(config, self.token_embedding)
        init_normal(self)

    def _block(self, layer: int, attention: MakeAttention | None) -> PreNormBlock:
        c = self.config
        if attention is None:
            core = AttentionCore(dropout=c.dropout)
            attn: nn.Module = SelfAttention(c.dim, c.heads, qkv_bias=c.attention_bias, core=core)
        else:
            attn = attention(layer)
        ffn = GatedFeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation], bias=c.ffn_bias, dropout=c.dropout)
        return PreNormBlock(attn, ffn, lambda: build_norm(c), dropout=c.dropout)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        token_types: None = None,
        padding_mask: Bool[Tensor, "B T"] | None = None,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
    ) -> Float[Tensor, "B *logits"]:
        """`padding_mask` is True where there is a token; `mask` and `positions` are for packed or left-padded rows;
        `bias` is added to the attention logits of every layer."""
        c, positions = self.config, token_positions(ids, positions, None)
        x, mask = self.dropout(self.embedding_norm(self.token_embedding(ids))), with_padding_mask(padding_mask, mask)
        near = window(c.sliding_window, c.sliding_window)
        local_mask = near if mask is None else near & mask
        rotary = rotary_angles(positions, self.head_dim, theta=c.rope_theta)
        local_rotary = rotary_angles(positions, self.head_dim, theta=c.local_rope_theta)
        for layer, block in enumerate(self.blocks):
            if layer in self.windowed_layers:
                x = block(x, mask=local_mask, bias=bias, rotary=local_rotary)
            else:
                x = block(x, mask=mask, bias=bias, rotary=rotary)
        return self.head(self.final_norm(x), padding_mask)


def build_norm(config: ModernBertConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.dim, config.eps, bias=config.norm_bias)


def windowed_layers(config: ModernBertConfig) -> frozenset[int]:
    """Indices of the layers with a sliding window."""
    c = config
    if c.sliding_window < 0:
        raise ConfigError(f"sliding_window must be at least 0, got {c.sliding_window}")
    layers = [layer for layer in range(c.depth) if layer % 3] if c.windowed_layers is None else c.windowed_layers
    unknown = sorted(set(layers) - set(range(c.depth)))
    if unknown:
        raise ConfigError(f"windowed_layers must be from 0 to {c.depth - 1}, got {unknown[0]}")
    return frozenset(layers)


def build_head(config: ModernBertConfig, embedding: nn.Embedding) -> nn.Module:
    """The head that the config names."""
    c = config
    outputs = {
        "classification": c.classes,
        "token_classification": c.classes,
        "multiple_choice": 1,
        "question_answering": 2,
    }
    if c.head == "masked_lm":
        to_logits = nn.Linear(c.dim, c.vocab_size, bias=c.lm_head_bias)
        if c.tie_embeddings:
            to_logits.weight = embedding.weight
        return PredictionHead(c, to_logits)
    if c.head in outputs:
        pool = build_pool(c.pooling) if c.head in ("classification", "multiple_choice") else None
        return PredictionHead(c, nn.Linear(c.dim, outputs[c.head]), pool)
    return build_pooled_head(c.head, c.pooling)
