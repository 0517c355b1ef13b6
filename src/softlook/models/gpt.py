"""GPT-2; GPT-NeoX, OPT and Bloom are configurations of it."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.base.tensors import to_device
from softlook.blocks.all_attention import AllAttention, AllAttentionBlock, PreNormAllAttentionBlock
from softlook.blocks.attention import (
    AttentionCore,
    MakeAttention,
    SelfAttention,
    add_bias,
    default_head_dim,
    with_padding_mask,
)
from softlook.blocks.block import ParallelBlock, PostNormBlock, PreNormBlock
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.init import init_normal, init_residual_projections
from softlook.blocks.kv_cache import KVCache, check_cache, layer_caches, token_positions, with_cached_ids
from softlook.blocks.product_key import ProductKeyConfig, ProductKeyMemory
from softlook.embed.positions import LearnedPositions
from softlook.embed.rotary import RopeScaling, frequency_scaling, rotary_dim
from softlook.embed.tokens import LabelEmbedding, TokenEmbedding, add_class_label
from softlook.heads.classification import Problem
from softlook.heads.lm import DecoderHead, build_decoder_head
from softlook.heads.ngram_lm import NGramLM, NGramLMConfig
from softlook.heads.pooling import non_padding
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask
from softlook.ops.masks.decoder import CAUSAL, decoder_mask
from softlook.ops.positions.relative_bias import alibi
from softlook.ops.positions.rotary import RotaryAngles, rotary_angles


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """Hyperparameters of a GPT. The defaults are those of the smallest GPT-2."""

    vocab_size: int = 50257
    """Vocabulary size."""
    context: int = 1024
    """Maximum sequence length of learned positions."""
    dim: int = 768
    """Width of the hidden states."""
    depth: int = 12
    """Number of blocks."""
    heads: int = 12
    """Number of attention heads."""
    hidden: int | None = None
    """Width inside the feed-forward layers; default: 4 * dim."""
    activation: ActivationName = "gelu_tanh"
    """Activation of the feed-forward layers."""
    dropout: float = 0.1
    """Dropout probability of embeddings, attention weights and layer outputs."""
    eps: float = 1e-5
    """Epsilon of the layer norms."""
    tie_embeddings: bool = True
    """Whether the LM head shares the weight of the token embedding."""
    num_class_labels: int = 0
    """Number of class labels that generation can be conditioned on; 0: none."""
    positions: Literal["learned", "rotary", "alibi"] = "learned"
    """Learned position embeddings, RoPE (GPT-NeoX) or ALiBi (Bloom)."""
    position_offset: int = 0
    """Unused rows at the start of the learned positions; OPT has 2."""
    rope_theta: float = 10_000.0
    """Base of the rotary frequencies."""
    rope_scaling: RopeScaling | None = None
    """RoPE scaling beyond the original context."""
    partial_rotary_factor: float = 1.0
    """Fraction of each head that is rotated."""
    norm: Literal["pre", "post"] = "pre"
    """Pre-norm with a final norm, or post-norm."""
    parallel: bool = False
    """Whether attention and feed-forward are computed in parallel, as in GPT-NeoX."""
    embedding_norm: bool = False
    """Whether a norm follows the embedding, as in Bloom."""
    embedding_dim: int | None = None
    """Width of the token embedding, projected to `dim` and back; default: dim."""
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
    product_keys: ProductKeyConfig | None = None
    """A product-key memory in place of the feed-forward layer of one block."""
    persistent: int = 0
    """Persistent keys and values of each head, in place of all feed-forward layers (all-attention); 0: none."""


class GPT(nn.Module):
    """GPT-2 (Radford et al. 2019): ids in, logits of the next token out.

    `attention(layer)` builds the self-attention of each layer; default: `SelfAttention` with the sizes of the config.

    >>> import torch
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2))
    >>> model(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 10])
    """

    mode: Literal["decoder-only", "encoder-only"] = "decoder-only"

    def __init__(self, config: GPTConfig, *, attention: MakeAttention | None = None) -> None:
        super().__init__()
        self.config = c = config
        self.mode = "decoder-only" if c.causal else "encoder-only"
        _check_config(c)
        self.rotary_dim = None
        if c.positions == "rotary":
            self.rotary_dim = rotary_dim(default_head_dim(c.dim, c.heads), c.partial_rotary_factor)
        self.frequency_scaling = frequency_scaling(c.rope_scaling)
        width = c.dim if c.embedding_dim is None else c.embedding_dim
        is_learned = c.positions == "learned"
        self.token_embedding = TokenEmbedding(c.vocab_size, width)
        self.project_in = _projection(width, c.dim)
        self.position_embedding = LearnedPositions(c.context, c.dim, offset=c.position_offset) if is_learned else None
        self.label_embedding = LabelEmbedding(c.num_class_labels, c.dim) if c.num_class_labels else None
        self.embedding_norm = nn.LayerNorm(c.dim, c.eps) if c.embedding_norm else nn.Identity()
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(self._block(layer, attention) for layer in range(c.depth))
        self.final_norm = nn.LayerNorm(c.dim, c.eps) if c.norm == "pre" else nn.Identity()
        self.project_out = _projection(c.dim, width)
        tie_to = self.token_embedding if c.tie_embeddings else None
        self.lm_head = build_decoder_head(c.head, width, c.vocab_size, classes=c.classes, tie_to=tie_to)
        self.ngrams = None if c.ngrams is None or c.head != "causal_lm" else NGramLM(c.ngrams, c.vocab_size)
        init_normal(self)
        init_residual_projections(self, c.depth)

    def _block(self, layer: int, attention: MakeAttention | None) -> nn.Module:
        c, norm = self.config, partial(nn.LayerNorm, self.config.dim, self.config.eps)
        attn = self._attention() if attention is None else attention(layer)
        if c.persistent:
            all_attention = PreNormAllAttentionBlock if c.norm == "pre" else AllAttentionBlock
            return all_attention(attn, norm, dropout=c.dropout)
        block = ParallelBlock if c.parallel else PreNormBlock if c.norm == "pre" else PostNormBlock
        return block(attn, self._ffn(layer), norm, dropout=c.dropout)

    def _attention(self) -> nn.Module:
        c, core = self.config, AttentionCore(dropout=self.config.dropout)
        if c.persistent:
            return AllAttention(c.dim, c.heads, persistent=c.persistent, core=core)
        return SelfAttention(c.dim, c.heads, core=core)

    def _ffn(self, layer: int) -> nn.Module:
        c, keys = self.config, self.config.product_keys
        if keys is not None and keys.layer == layer:
            return ProductKeyMemory(c.dim, keys.heads, n_subkeys=keys.n_subkeys, top_k=keys.top_k)
        return FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        class_label: Int[Tensor, " B"] | None = None,
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
        - `mask`: narrows the causal mask, or replaces it if it mentions order: see `decoder_mask`.
        - `bias`: added to the attention logits of every layer.
        - `positions`: for packed or left-padded rows; default: consecutive.
        - `logits_to_keep`: compute only the logits of so many last positions.
        - `hidden_states`: return what `lm_head` would make logits of.
        """
        check_cache(cache, causal=self.config.causal)
        positions = token_positions(ids, positions, cache)
        mask = decoder_mask(with_padding_mask(padding_mask, mask), CAUSAL if self.config.causal else None)
        x = self.project_in(self.token_embedding(ids))
        x = x if self.position_embedding is None else x + self.position_embedding(positions)
        x = self.dropout(self.embedding_norm(add_class_label(x, self.label_embedding, class_label)))
        rotary, bias = self._rotary(positions), add_bias(self._alibi(x), bias)
        caches = layer_caches(cache, len(self.blocks) + (self.ngrams is not None))
        for block, layer_cache in zip(self.blocks, caches[: len(self.blocks)], strict=True):
            x = block(x, mask=mask, bias=bias, rotary=rotary, cache=layer_cache)
        x = self.project_out(self.final_norm(x if logits_to_keep is None else x[:, -logits_to_keep:]))
        if hidden_states:
            return x
        if self.config.head == "classification":
            return self.lm_head(x, non_padding(ids, padding_mask, self.config.pad_id))
        logits = self.lm_head(x)
        return logits if self.ngrams is None else self.ngrams(logits, with_cached_ids(ids, caches[-1]), positions)

    def _rotary(self, positions: Int[Tensor, "*B T"]) -> RotaryAngles | None:
        if self.rotary_dim is None:
            return None
        return rotary_angles(positions, self.rotary_dim, theta=self.config.rope_theta, scaling=self.frequency_scaling)

    def _alibi(self, x: Tensor) -> Bias | None:
        return to_device(alibi(self.config.heads), x.device) if self.config.positions == "alibi" else None


def _check_config(config: GPTConfig) -> None:
    """Check that the options of a config fit together."""
    keys = config.product_keys
    if config.parallel and config.norm != "pre":
        raise ConfigError("parallel=True requires norm='pre'")
    if config.persistent and (config.parallel or keys is not None):
        raise ConfigError("persistent replaces the feed-forward layers, which parallel and product_keys need: set one")
    if keys is not None and not 0 <= keys.layer < config.depth:
        raise ConfigError(f"product_keys.layer must be from 0 to depth - 1 = {config.depth - 1}, got {keys.layer}")


def _projection(in_dim: int, out_dim: int) -> nn.Module:
    return nn.Identity() if in_dim == out_dim else nn.Linear(in_dim, out_dim, bias=False)
