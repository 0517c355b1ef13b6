"""The Transformer; Marian, BART, mBART, Pegasus and M2M-100 are configurations of it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import (
    AttentionCore,
    CrossAttention,
    MakeAttention,
    SelfAttention,
    with_padding_mask,
)
from softlook.blocks.block import PostNormBlock, PostNormDecoderBlock, PreNormBlock, PreNormDecoderBlock
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.init import init_xavier
from softlook.blocks.kv_cache import KVCache, layer_caches, token_positions
from softlook.embed.positions import LearnedPositions, SinusoidalPositions
from softlook.embed.tokens import LabelEmbedding, TokenEmbedding, add_class_label
from softlook.heads.lm import build_lm_head
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask
from softlook.ops.masks.decoder import decoder_mask


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Hyperparameters of a Transformer. The defaults are those of the paper's base model."""

    vocab_size: int = 37000
    """Vocabulary size of the source."""
    target_vocab_size: int | None = None
    """Vocabulary size of the target, with an embedding of its own; default: shared with the source."""
    context: int = 1024
    """Maximum sequence length of learned positions."""
    dim: int = 512
    """Width of the hidden states."""
    depth: int = 6
    """Number of encoder blocks."""
    decoder_depth: int | None = None
    """Number of decoder blocks; default: depth."""
    heads: int = 8
    """Number of attention heads."""
    hidden: int | None = None
    """Width inside the feed-forward layers; default: 4 * dim."""
    activation: ActivationName = "relu"
    """Activation of the feed-forward layers."""
    dropout: float = 0.1
    """Dropout probability of embeddings, attention weights and layer outputs."""
    norm: Literal["post", "pre"] = "post"
    """Post-norm, as published, or pre-norm with a final norm of each stack."""
    positions: Literal["sinusoidal", "sinusoidal_half", "sinusoidal_tensor2tensor", "learned"] = "sinusoidal"
    """Sines and cosines interleaved, as published; all sines first, as in Marian; the latter with the lowest frequency
    at exactly 1/10000, as in tensor2tensor and M2M-100; or learned."""
    position_offset: int = 0
    """Position of the first token; BART and M2M-100 have 2."""
    scale_embeddings: bool = True
    """Whether token embeddings are multiplied by sqrt(dim)."""
    embedding_norm: bool = False
    """Whether a norm follows the embedding, as in BART."""
    head_bias: bool = False
    """Whether the LM head has a bias, as in BART and Marian."""
    tie_embeddings: bool = True
    """Whether the LM head shares the weight of the target embedding."""
    num_class_labels: int = 0
    """Number of class labels that the decoder can be conditioned on; 0: none."""


class InputEmbedding(nn.Module):
    """Token and position embeddings, the class label's embedding, norm and dropout."""

    def __init__(self, config: TransformerConfig, tokens: TokenEmbedding, num_class_labels: int = 0) -> None:
        super().__init__()
        self.token_embedding, self.position_embedding = tokens, build_positions(config)
        self.label_embedding = LabelEmbedding(num_class_labels, config.dim) if num_class_labels else None
        self.norm = nn.LayerNorm(config.dim) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(
        self, ids: Int[Tensor, "B T"], positions: Int[Tensor, "*B T"], class_label: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B T C"]:
        x = self.token_embedding(ids)
        x = x + self.position_embedding(positions).to(x.dtype)
        return self.dropout(self.norm(add_class_label(x, self.label_embedding, class_label)))


class TransformerEncoder(nn.Module):
    """The encoder: self-attention over the source."""

    def __init__(self, config: TransformerConfig, tokens: TokenEmbedding, attention: MakeAttention) -> None:
        super().__init__()
        c, block = config, {"pre": PreNormBlock, "post": PostNormBlock}[config.norm]
        self.embedding = InputEmbedding(c, tokens)
        self.blocks = nn.ModuleList(
            block(attention(layer), build_ffn(c), lambda: nn.LayerNorm(c.dim), dropout=c.dropout)
            for layer in range(c.depth)
        )
        self.final_norm = nn.LayerNorm(c.dim) if c.norm == "pre" else nn.Identity()

    def forward(
        self,
        ids: Int[Tensor, "B S"],
        *,
        mask: Mask | Tensor | None,
        bias: Bias | Tensor | None,
        positions: Int[Tensor, "*B S"] | None,
    ) -> Float[Tensor, "B S C"]:
        x = self.embedding(ids, token_positions(ids, positions, None))
        for block in self.blocks:
            x = block(x, mask=mask, bias=bias)
        return self.final_norm(x)


class TransformerDecoder(nn.Module):
    """The decoder: causal self-attention over the target, cross-attention to the encoded source."""

    def __init__(
        self,
        config: TransformerConfig,
        tokens: TokenEmbedding,
        attention: MakeAttention,
        cross_attention: MakeAttention,
    ) -> None:
        super().__init__()
        c, block = config, {"pre": PreNormDecoderBlock, "post": PostNormDecoderBlock}[config.norm]
        self.embedding = InputEmbedding(c, tokens, c.num_class_labels)
        self.blocks = nn.ModuleList(
            block(
                attention(layer),
                cross_attention(layer),
                build_ffn(c),
                lambda: nn.LayerNorm(c.dim),
                dropout=c.dropout,
            )
            for layer in range(c.depth if c.decoder_depth is None else c.decoder_depth)
        )
        self.final_norm = nn.LayerNorm(c.dim) if c.norm == "pre" else nn.Identity()

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        encoder_states: Float[Tensor, "N S C"],
        *,
        mask: Mask | Tensor | None,
        bias: Bias | Tensor | None,
        source_mask: Mask | Tensor | None,
        cross_bias: Bias | Tensor | None,
        positions: Int[Tensor, "*B T"] | None,
        class_label: Int[Tensor, " B"] | None,
        cache: KVCache | None,
    ) -> Float[Tensor, "B T C"]:
        x = self.embedding(ids, token_positions(ids, positions, cache), class_label)
        mask = decoder_mask(mask)
        masks = {"mask": mask, "bias": bias, "encoder_mask": source_mask, "cross_bias": cross_bias}
        for block, layer_cache in zip(self.blocks, layer_caches(cache, len(self.blocks)), strict=True):
            x = block(x, encoder_states, **masks, cache=layer_cache)
        return self.final_norm(x)


class Transformer(nn.Module):
    """The Transformer (Vaswani et al. 2017): source and target ids in, logits of the next target ids out.

    `attention(layer)` builds the self-attention of encoder layers, and of decoder layers without `decoder_attention`;
    `cross_attention(layer)` builds the cross-attention.

    >>> import torch
    >>> model = Transformer(TransformerConfig(vocab_size=10, dim=16, depth=2, heads=2))
    >>> model(torch.tensor([[3, 1, 4, 1]]), torch.tensor([[2, 7]])).shape
    torch.Size([1, 2, 10])
    """

    mode: ClassVar = "encoder-decoder"

    def __init__(
        self,
        config: TransformerConfig,
        *,
        attention: MakeAttention | None = None,
        decoder_attention: MakeAttention | None = None,
        cross_attention: MakeAttention | None = None,
    ) -> None:
        super().__init__()
        self.config = c = config
        if c.norm not in ("pre", "post"):
            raise ConfigError(f"norm must be pre or post, got {c.norm!r}")
        source = TokenEmbedding(c.vocab_size, c.dim, scale=c.scale_embeddings)
        target = source
        if c.target_vocab_size is not None:
            target = TokenEmbedding(c.target_vocab_size, c.dim, scale=c.scale_embeddings)
        self.encoder = TransformerEncoder(c, source, attention or self._self_attention)
        self_attention = decoder_attention or attention or self._self_attention
        self.decoder = TransformerDecoder(c, target, self_attention, cross_attention or self._cross_attention)
        tie_to = target if c.tie_embeddings else None
        self.lm_head = build_lm_head(c.dim, target.num_embeddings, tie_to=tie_to, bias=c.head_bias)
        init_xavier(self)

    def _self_attention(self, layer: int) -> nn.Module:
        return SelfAttention(self.config.dim, self.config.heads, core=AttentionCore(dropout=self.config.dropout))

    def _cross_attention(self, layer: int) -> nn.Module:
        return CrossAttention(self.config.dim, self.config.heads, core=AttentionCore(dropout=self.config.dropout))

    def encode(
        self,
        source: Int[Tensor, "B S"],
        *,
        padding_mask: Bool[Tensor, "B S"] | None = None,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        positions: Int[Tensor, "*B S"] | None = None,
    ) -> Float[Tensor, "B S C"]:
        """Hidden states of the source. `padding_mask` is True where there is a token; `mask` and `positions` are for
        packed or left-padded rows; `bias` is added to the attention logits."""
        return self.encoder(source, mask=with_padding_mask(padding_mask, mask), bias=bias, positions=positions)

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
        positions: Int[Tensor, "*B T"] | None = None,
        class_label: Int[Tensor, " B"] | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits (B, T, vocab) of the target.

        - `source_padding_mask`, `source_mask`: of the cross-attention.
        - `mask`: narrows the causal mask, or replaces it if it mentions order: see `decoder_mask`.
        - `bias`, `cross_bias`: added to the logits of self-attention and of cross-attention.
        - `cache`: reuses keys and values of earlier target tokens and of the source.

        With a batch of target rows that is a multiple of the sources, consecutive rows (beams) share a source.
        """
        x = self.decoder(
            target,
            encoder_states,
            mask=mask,
            bias=bias,
            source_mask=with_padding_mask(source_padding_mask, source_mask),
            cross_bias=cross_bias,
            positions=positions,
            class_label=class_label,
            cache=cache,
        )
        return self.lm_head(x)

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
        positions: Int[Tensor, "*B T"] | None = None,
        class_label: Int[Tensor, " B"] | None = None,
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
            positions=positions,
            class_label=class_label,
            cache=cache,
        )


def build_ffn(config: TransformerConfig) -> nn.Module:
    return FeedForward(config.dim, config.hidden, ACTIVATIONS[config.activation])


def build_positions(config: TransformerConfig) -> nn.Module:
    """The position embedding that the config names."""
    c, pairs = config, config.dim // 2
    if c.positions == "learned":
        return LearnedPositions(c.context, c.dim, offset=c.position_offset)
    if c.positions == "sinusoidal":
        return SinusoidalPositions(c.dim, offset=c.position_offset)
    if c.positions == "sinusoidal_half":
        return SinusoidalPositions(c.dim, layout="half", offset=c.position_offset)
    if c.positions == "sinusoidal_tensor2tensor":
        theta = 10_000.0 ** (pairs / max(pairs - 1, 1))  # puts the last frequency at 1/10000
        return SinusoidalPositions(c.dim, layout="half", theta=theta, offset=c.position_offset)
    raise ConfigError(
        f"positions must be sinusoidal, sinusoidal_half, sinusoidal_tensor2tensor or learned, got {c.positions!r}"
    )
