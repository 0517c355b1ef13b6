"""T5 (v1.0, v1.1, mT5) and its encoder."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.blocks.attention import (
    AttentionCore,
    CrossAttention,
    MakeAttention,
    SelfAttention,
    add_bias,
    with_padding_mask,
)
from softlook.blocks.block import PreNormBlock, PreNormDecoderBlock
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward, GatedFeedForward
from softlook.blocks.kv_cache import KVCache, layer_caches
from softlook.blocks.norms import RMSNorm
from softlook.embed.positions import RelativePositionBias
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.lm import build_lm_head
from softlook.heads.pooling import PoolName, build_pooled_head
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask
from softlook.ops.masks.decoder import decoder_mask


@dataclass(frozen=True, kw_only=True)
class T5BaseConfig:
    """Hyperparameters of a T5 encoder. The defaults are those of t5-small."""

    vocab_size: int = 32128
    """Vocabulary size."""
    dim: int = 512
    """Width of the hidden states."""
    depth: int = 6
    """Number of encoder blocks."""
    heads: int = 8
    """Number of attention heads."""
    head_dim: int = 64
    """Width of one head."""
    hidden: int = 2048
    """Width inside the feed-forward layers."""
    activation: ActivationName = "relu"
    """Activation of the feed-forward layers; "gelu_tanh" in v1.1."""
    gated: bool = False
    """Whether the feed-forward layers are gated, as in v1.1."""
    buckets: int = 32
    """Number of buckets of the relative position bias."""
    max_distance: int = 128
    """Distance from which on all share one bucket."""
    dropout: float = 0.1
    """Dropout probability at both ends of a stack, inside each layer and of layer outputs."""
    eps: float = 1e-6
    """Epsilon of the norms."""


@dataclass(frozen=True, kw_only=True)
class T5Config(T5BaseConfig):
    """Hyperparameters of a T5. The defaults are those of t5-small; v1.1 is gated, neither tied nor scaled."""

    decoder_depth: int | None = None
    """Number of decoder blocks; default: depth."""
    tie_embeddings: bool = True
    """Whether the LM head shares the weight of the token embedding."""
    scale_decoder_outputs: bool = True
    """Whether the decoder's outputs are divided by sqrt(dim) before the LM head, as in v1.0."""


@dataclass(frozen=True, kw_only=True)
class T5EncoderConfig(T5BaseConfig):
    """Hyperparameters of a T5 encoder without decoder, and its head."""

    context: int = 512
    """Sequence length that the model is trained for."""
    head: Literal["hidden_states", "pooled", "embedding"] = "hidden_states"
    """What the model returns: hidden states, a pooled vector, or a unit-length embedding."""
    pooling: PoolName = "mean"
    """Pooling by the first token or by the mean."""
    token_types: ClassVar[int] = 0
    """It has no token types."""


class T5EncoderStack(nn.Module):
    """The encoder, with one relative position bias for all layers."""

    def __init__(self, config: T5BaseConfig, attention: MakeAttention) -> None:
        super().__init__()
        c = config
        self.relative_bias = build_relative_bias(c, bidirectional=True)
        self.blocks = nn.ModuleList(
            PreNormBlock(attention(layer), build_ffn(c), lambda: RMSNorm(c.dim, c.eps), dropout=c.dropout)
            for layer in range(c.depth)
        )
        self.final_norm, self.dropout = RMSNorm(c.dim, c.eps), Dropout(c.dropout)

    def forward(
        self, x: Float[Tensor, "B S C"], *, mask: Mask | Tensor | None, bias: Bias | Tensor | None
    ) -> Float[Tensor, "B S C"]:
        x = self.dropout(x)
        bias = add_bias(self.relative_bias(x), bias)
        for block in self.blocks:
            x = block(x, mask=mask, bias=bias)
        return self.dropout(self.final_norm(x))


class T5DecoderStack(nn.Module):
    """The decoder: causal self-attention with a relative position bias, cross-attention without."""

    def __init__(self, config: T5Config, attention: MakeAttention, cross_attention: MakeAttention) -> None:
        super().__init__()
        c = config
        self.relative_bias = build_relative_bias(c, bidirectional=False)
        self.blocks = nn.ModuleList(
            PreNormDecoderBlock(
                attention(layer),
                cross_attention(layer),
                build_ffn(c),
                lambda: RMSNorm(c.dim, c.eps),
                dropout=c.dropout,
            )
            for layer in range(c.depth if c.decoder_depth is None else c.decoder_depth)
        )
        self.final_norm, self.dropout = RMSNorm(c.dim, c.eps), Dropout(c.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        encoder_states: Float[Tensor, "N S C"],
        *,
        mask: Mask | Tensor | None,
        bias: Bias | Tensor | None,
        source_mask: Mask | Tensor | None,
        cross_bias: Bias | Tensor | None,
        cache: KVCache | None,
    ) -> Float[Tensor, "B T C"]:
        x = self.dropout(x)
        bias = add_bias(self.relative_bias(x, 0 if cache is None else cache.length), bias)
        masks = {"mask": decoder_mask(mask), "bias": bias, "encoder_mask": source_mask, "cross_bias": cross_bias}
        for block, layer_cache in zip(self.blocks, layer_caches(cache, len(self.blocks)), strict=True):
            x = block(x, encoder_states, **masks, cache=layer_cache)
        return self.dropout(self.final_norm(x))


class T5(nn.Module):
    """T5 (Raffel et al. 2020): source and target ids in, logits of the next target ids out.

    `attention(layer)` builds the self-attention of encoder layers, and of decoder layers without `decoder_attention`;
    `cross_attention(layer)` builds the cross-attention.

    >>> import torch
    >>> model = T5(T5Config(vocab_size=10, dim=16, depth=2, heads=2, head_dim=8, hidden=32))
    >>> model(torch.tensor([[3, 1, 4, 1]]), torch.tensor([[0, 7]])).shape
    torch.Size([1, 2, 10])
    """

    mode: ClassVar = "encoder-decoder"

    def __init__(
        self,
        config: T5Config,
        *,
        attention: MakeAttention | None = None,
        decoder_attention: MakeAttention | None = None,
        cross_attention: MakeAttention | None = None,
    ) -> None:
        super().__init__()
        self.config = c = config
        self.token_embedding = TokenEmbedding(c.vocab_size, c.dim)
        self_attention = attention or (lambda layer: build_attention(SelfAttention, c))
        across = cross_attention or (lambda layer: build_attention(CrossAttention, c))
        self.encoder = T5EncoderStack(c, self_attention)
        self.decoder = T5DecoderStack(c, decoder_attention or self_attention, across)
        self.lm_head = build_lm_head(c.dim, c.vocab_size, tie_to=self.token_embedding if c.tie_embeddings else None)
        self.output_scale = c.dim**-0.5 if c.scale_decoder_outputs else 1.0
        init_t5(self, c)

    def encode(
        self,
        source: Int[Tensor, "B S"],
        *,
        padding_mask: Bool[Tensor, "B S"] | None = None,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "B S C"]:
        """Hidden states of the source. `padding_mask` is True where there is a token; `mask` is for packed rows, which
        need no positions; `bias` is added to the attention logits."""
        return self.encoder(self.token_embedding(source), mask=with_padding_mask(padding_mask, mask), bias=bias)

    def decode(
        self,
        target: Int[Tensor, "B T"],
        encoder_states: Float[Tensor, "N S C"],
        *,
        source_padding_mask: Bool[Tensor, "N S"] | None = None,
        source_mask: Mask | Tensor | None = None,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        cross_bias: Bias | Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits (B, T, vocab) of the target; arguments as in `Transformer.decode`."""
        x = self.decoder(
            self.token_embedding(target),
            encoder_states,
            mask=mask,
            bias=bias,
            source_mask=with_padding_mask(source_padding_mask, source_mask),
            cross_bias=cross_bias,
            cache=cache,
        )
        return self.lm_head(x * self.output_scale)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        *,
        source_padding_mask: Bool[Tensor, "B S"] | None = None,
        source_bias: Bias | Tensor | None = None,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        cross_bias: Bias | Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "B T V"]:
        """`encode` and `decode`. For generation, call `encode` once and `decode` for each token."""
        return self.decode(
            target,
            self.encode(source, padding_mask=source_padding_mask, bias=source_bias),
            source_padding_mask=source_padding_mask,
            mask=mask,
            bias=bias,
            cross_bias=cross_bias,
            cache=cache,
        )


class T5Encoder(nn.Module):
    """The encoder of T5 alone: ids in, hidden states or a pooled vector out.

    >>> import torch
    >>> sizes = {"vocab_size": 10, "dim": 16, "depth": 2, "heads": 2, "head_dim": 8, "hidden": 32}
    >>> model = T5Encoder(T5EncoderConfig(**sizes, head="pooled"))
    >>> model(torch.tensor([[3, 1, 4, 1]])).shape
    torch.Size([1, 16])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: T5EncoderConfig, *, attention: MakeAttention | None = None) -> None:
        super().__init__()
        self.config = c = config
        self.token_embedding = TokenEmbedding(c.vocab_size, c.dim)
        self.encoder = T5EncoderStack(c, attention or (lambda layer: build_attention(SelfAttention, c)))
        self.head = build_pooled_head(c.head, c.pooling)
        init_t5(self, c)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        token_types: None = None,
        padding_mask: Bool[Tensor, "B T"] | None = None,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "B *states"]:
        """`padding_mask` is True where there is a token; `mask` is for packed rows; `bias` is added to the attention
        logits."""
        x = self.encoder(self.token_embedding(ids), mask=with_padding_mask(padding_mask, mask), bias=bias)
        return self.head(x, padding_mask)


def build_relative_bias(config: T5BaseConfig, *, bidirectional: bool) -> RelativePositionBias:
    c = config
    return RelativePositionBias(c.buckets, c.heads, max_distance=c.max_distance, bidirectional=bidirectional)


def build_attention(kind: type[nn.Module], config: T5BaseConfig) -> nn.Module:
    """Self- or cross-attention. Scores are not divided by sqrt(head_dim): queries are initialized smaller instead."""
    core = AttentionCore(scale=1.0, dropout=config.dropout)
    return kind(config.dim, config.heads, head_dim=config.head_dim, qkv_bias=False, core=core)


def build_ffn(config: T5BaseConfig) -> nn.Module:
    kind = GatedFeedForward if config.gated else FeedForward
    return kind(config.dim, config.hidden, ACTIVATIONS[config.activation], bias=False, dropout=config.dropout)


def init_t5(model: nn.Module, config: T5BaseConfig) -> None:
    """T5's initialization: normal weights that preserve variance, embeddings and LM head with variance 1."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            factor = config.head_dim if name.endswith("to_query") else 1
            nn.init.normal_(module.weight, std=(module.in_features * factor) ** -0.5)
        if isinstance(module, RelativePositionBias):
            nn.init.normal_(module.weight, std=config.dim**-0.5)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name in ("lm_head.weight", "token_embedding.weight"):
        if name in parameters:
            nn.init.normal_(parameters[name])
