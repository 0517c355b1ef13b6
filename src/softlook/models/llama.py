"""Llama; Mistral, Qwen, Gemma and Phi-3 are configurations of it."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import (
    AttentionCore,
    MakeAttention,
    QKNormAttention,
    SelfAttention,
    default_head_dim,
    with_padding_mask,
)
from softlook.blocks.block import PreNormBlock, SandwichNormBlock
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, GatedFeedForward
from softlook.blocks.init import init_normal, init_residual_projections
from softlook.blocks.kv_cache import KVCache, check_cache, layer_caches, token_positions, with_cached_ids
from softlook.blocks.norms import RMSNorm, ZeroCenteredRMSNorm
from softlook.embed.rotary import RopeScaling, frequency_scaling, rotary_dim
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.classification import Problem
from softlook.heads.lm import DecoderHead, build_decoder_head
from softlook.heads.ngram_lm import NGramLM, NGramLMConfig
from softlook.heads.pooling import non_padding
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask
from softlook.ops.masks.decoder import CAUSAL, decoder_mask
from softlook.ops.masks.masks import WindowMask
from softlook.ops.positions.rotary import rotary_angles


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """Hyperparameters of a Llama. The defaults are close to SmolLM2-135M."""

    vocab_size: int = 49152
    """Vocabulary size."""
    context: int = 8192
    """Sequence length that the model is trained for."""
    dim: int = 576
    """Width of the hidden states."""
    depth: int = 30
    """Number of blocks."""
    heads: int = 9
    """Number of query heads."""
    kv_heads: int | None = None
    """Number of key and value heads (grouped-query attention); default: heads."""
    head_dim: int | None = None
    """Width of one head; default: dim / heads."""
    hidden: int | None = None
    """Width inside the feed-forward layers; default: 8/3 * dim."""
    activation: ActivationName = "silu"
    """Activation of the gates."""
    eps: float = 1e-5
    """Epsilon of the norms."""
    zero_centered_norm: bool = False
    """Whether norms scale by 1 + weight, as in Gemma."""
    sandwich_norm: bool = False
    """Whether norms also follow each layer, as in Gemma 2."""
    qk_norm: bool = False
    """Whether queries and keys are normalized per head, as in Qwen3 and Gemma 3."""
    attention_scale: float | None = None
    """Factor of the attention logits; default: 1 / sqrt(head_dim)."""
    attention_logit_softcap: float | None = None
    """Soft cap of the attention logits."""
    final_logit_softcap: float | None = None
    """Soft cap of the logits."""
    scale_embeddings: bool = False
    """Whether token embeddings are multiplied by sqrt(dim), in the dtype of the weights, as in Gemma."""
    rope_theta: float = 100_000.0
    """Base of the rotary frequencies."""
    local_rope_theta: float | None = None
    """Base of the windowed layers, which have no RoPE scaling then; default: rope_theta."""
    partial_rotary_factor: float = 1.0
    """Fraction of each head that is rotated."""
    rope_scaling: RopeScaling | None = None
    """RoPE scaling beyond the original context."""
    sliding_window: int | None = None
    """Number of tokens that a query attends to, itself included; default: all before it."""
    windowed_layers: tuple[int, ...] | None = None
    """Layers with a sliding window; default: all."""
    qkv_bias: bool = False
    """Whether the query, key and value projections have biases, as in Qwen2."""
    tie_embeddings: bool = True
    """Whether the LM head shares the weight of the token embedding."""
    dropout: float = 0.0
    """Dropout probability of the attention weights."""
    head: DecoderHead = "causal_lm"
    """Logits of the next token, the final hidden states, or classification of the sequence."""
    classes: int = 2
    """Number of classes of the classification head."""
    problem: Problem | None = None
    """What the classification logits stand for; default: single_label, or for one class its probability."""
    pad_id: int | None = None
    """Id of padding: classification reads the last token with another id."""
    causal: bool = True
    """False: a bidirectional encoder, as for text embeddings."""
    ngrams: NGramLMConfig | None = None
    """An n-gram model beside the attention; with the causal LM head only."""


class Llama(nn.Module):
    """Llama (Touvron et al. 2023): RoPE, grouped-query attention, SwiGLU, RMSNorm. Ids in, logits out.

    `attention(layer)` builds the self-attention of each layer; default: `SelfAttention` with the sizes of the config.

    >>> import torch
    >>> model = Llama(LlamaConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4, kv_heads=2))
    >>> model(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 10])
    """

    mode: Literal["decoder-only", "encoder-only"] = "decoder-only"

    def __init__(self, config: LlamaConfig, *, attention: MakeAttention | None = None) -> None:
        super().__init__()
        self.config = c = config
        self.mode = "decoder-only" if c.causal else "encoder-only"
        self.head_dim = default_head_dim(c.dim, c.heads) if c.head_dim is None else c.head_dim
        self.rotary_dim = rotary_dim(self.head_dim, c.partial_rotary_factor)
        is_yarn = c.rope_scaling is not None and c.rope_scaling.rope_type == "yarn"
        if c.rope_theta <= 0 or (c.rope_theta == 1 and is_yarn):
            raise ConfigError(f"rope_theta must be above 0, and for yarn other than 1, got {c.rope_theta}")
        self.frequency_scaling, self.windows = frequency_scaling(c.rope_scaling), layer_windows(c)
        self.token_embedding = TokenEmbedding(
            c.vocab_size, c.dim, scale=c.scale_embeddings, round_scale=c.scale_embeddings
        )
        self.blocks = nn.ModuleList(self._block(layer, attention) for layer in range(c.depth))
        self.final_norm = self._norm(c.dim)
        tie_to, softcap = self.token_embedding if c.tie_embeddings else None, c.final_logit_softcap
        self.lm_head = build_decoder_head(
            c.head, c.dim, c.vocab_size, classes=c.classes, tie_to=tie_to, softcap=softcap
        )
        self.ngrams = None if c.ngrams is None or c.head != "causal_lm" else NGramLM(c.ngrams, c.vocab_size)
        init_normal(self)
        init_residual_projections(self, c.depth)

    def _norm(self, width: int) -> nn.Module:
        return (ZeroCenteredRMSNorm if self.config.zero_centered_norm else RMSNorm)(width, self.config.eps)

    def _attention(self, layer: int) -> nn.Module:
        c = self.config
        core = AttentionCore(scale=c.attention_scale, softcap=c.attention_logit_softcap, dropout=c.dropout)
        attention = partial(QKNormAttention, norm=self._norm) if c.qk_norm else SelfAttention
        sizes = {"kv_heads": c.kv_heads, "head_dim": self.head_dim}
        return attention(c.dim, c.heads, **sizes, qkv_bias=c.qkv_bias, out_bias=False, core=core)

    def _block(self, layer: int, attention: MakeAttention | None) -> nn.Module:
        c = self.config
        ffn_hidden = c.dim * 8 // 3 if c.hidden is None else c.hidden
        attn = (attention or self._attention)(layer)
        ffn = GatedFeedForward(c.dim, ffn_hidden, ACTIVATIONS[c.activation])
        return (SandwichNormBlock if c.sandwich_norm else PreNormBlock)(attn, ffn, lambda: self._norm(c.dim))

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        padding_mask: Bool[Tensor, "B T"] | None = None,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
        cache: KVCache | None = None,
        logits_to_keep: int | None = None,
        hidden_states: bool = False,
    ) -> Float[Tensor, "B *logits"]:
        """Logits (B, T, vocab).

        - `padding_mask`: True where there is a token.
        - `mask`: narrows the causal mask, or replaces it if it mentions order: see `decoder_mask`. Windows stay.
        - `bias`: added to the attention logits of every layer.
        - `positions`: for packed or left-padded rows; default: consecutive.
        - `logits_to_keep`: compute only the logits of so many last positions.
        - `hidden_states`: return what `lm_head` would make logits of.
        """
        c = self.config
        check_cache(cache, causal=c.causal)
        x, positions = self.token_embedding(ids), token_positions(ids, positions, cache)
        mask = with_padding_mask(padding_mask, mask)
        masks = {window: decoder_mask(mask, window) for window in self.windows}  # one mask for all layers of a kind
        rotary = rotary_angles(positions, self.rotary_dim, theta=c.rope_theta, scaling=self.frequency_scaling)
        local = rotary
        if c.local_rope_theta is not None:
            local = rotary_angles(positions, self.rotary_dim, theta=c.local_rope_theta)
        caches = layer_caches(cache, len(self.blocks) + (self.ngrams is not None))
        for block, window, layer_cache in zip(self.blocks, self.windows, caches[: c.depth], strict=True):
            angles = rotary if window in (CAUSAL, None) else local
            x = block(x, mask=masks[window], bias=bias, rotary=angles, cache=layer_cache)
        x = self.final_norm(x if logits_to_keep is None else x[:, -logits_to_keep:])
        if hidden_states:
            return x
        if c.head == "classification":
            return self.lm_head(x, non_padding(ids, padding_mask, c.pad_id))
        logits = self.lm_head(x)
        return logits if self.ngrams is None else self.ngrams(logits, with_cached_ids(ids, caches[-1]), positions)


def layer_windows(config: LlamaConfig) -> list[WindowMask | None]:
    """The mask of each layer; None: no mask. A bidirectional window covers `sliding_window` tokens on each side."""
    c = config
    full = CAUSAL if c.causal else None
    if c.sliding_window is None:
        return [full] * c.depth
    if c.sliding_window < 1:
        raise ConfigError(f"sliding_window must be at least 1 (the token itself), got {c.sliding_window}")
    windowed = range(c.depth) if c.windowed_layers is None else c.windowed_layers
    unknown = sorted(set(windowed) - set(range(c.depth)))
    if unknown:
        raise ConfigError(f"windowed_layers must be from 0 to {c.depth - 1}, got {unknown[0]}")
    window = WindowMask(c.sliding_window - 1, 0) if c.causal else WindowMask(c.sliding_window, c.sliding_window)
    return [window if layer in windowed else full for layer in range(c.depth)]
