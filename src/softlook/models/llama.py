"""Llama, and with it Mistral, Qwen, Gemma and Phi-3: a decoder-only Transformer with rotary positions and gated
feed-forward layers."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import Mixing, SelfAttention, head_width_of
from softlook.blocks.block import Block
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, GatedFeedForward
from softlook.blocks.initial import start
from softlook.blocks.memory import Memory, check_memory, memories, places
from softlook.blocks.norms import RMSNorm, ZeroCenteredRMSNorm
from softlook.blocks.present import among
from softlook.blocks.qk_norm import QKNormAttention
from softlook.blocks.residual import PreNorm, Sandwich
from softlook.embed.rotary import Stretch, rotary_width_of, scaling_of
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.classify import Problem
from softlook.heads.decoder import DecoderHead, decoder_head
from softlook.heads.pooling import readable
from softlook.ops.masks import Mask
from softlook.ops.masks.kinds import Band
from softlook.ops.masks.order import CAUSAL, decoder_mask
from softlook.ops.positions.rotary import phases


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """The sizes of a Llama. The defaults are about those of SmolLM2-135M."""

    vocab: int = 49152
    """Number of token ids."""
    context: int = 8192
    """The longest sequence it is made for. There is no table that ends there."""
    dim: int = 576
    """Width of the vectors between blocks."""
    depth: int = 30
    """Number of blocks."""
    heads: int = 9
    """Query heads in each block."""
    kv_heads: int | None = None
    """Key and value heads, each serving several query heads; as many as `heads` where not told."""
    head_width: int | None = None
    """Width of one head; `dim` shared out among them where not told."""
    hidden: int | None = None
    """Width inside the feed-forward layers; 8/3 of `dim` where not told."""
    activation: ActivationName = "silu"
    """The activation of the gates inside the feed-forward layers."""
    eps: float = 1e-5
    """Added to the mean square in norms."""
    zero_centered_norm: bool = False
    """Do norms scale by 1 + weight, as in Gemma?"""
    sandwich_norm: bool = False
    """Does a norm stand behind each layer as well, before it is added, as in Gemma?"""
    qk_norm: bool = False
    """Are queries and keys normalised per head, as in Qwen3 and Gemma 3?"""
    attention_scale: float | None = None
    """What the attention scores are multiplied with; one over the root of the head's width where not told."""
    attention_logit_softcap: float | None = None
    """The soft cap of the attention scores, if there is one."""
    final_logit_softcap: float | None = None
    """The soft cap of the scores of words, if there is one."""
    scaled_embeddings: bool = False
    """Are token vectors multiplied with the root of `dim`, in the precision of the weights, as in Gemma?"""
    base: float = 100_000.0
    """The slowest pair of a head turns about once in this many positions, times 2π."""
    local_base: float | None = None
    """The base of the layers with a window, whose positions are never stretched; that of all layers where not told."""
    partial_rotary_factor: float = 1.0
    """Share of each head that is rotated; the rest has no position."""
    stretch: Stretch | None = None
    """How positions are stretched beyond the first trained length, if they are."""
    window: int | None = None
    """How many tokens a query sees, itself included; all of the past where not told."""
    windowed: tuple[int, ...] | None = None
    """Numbers of the layers that look through the window; all of them where not told."""
    biases: bool = False
    """Do the projections to queries, keys and values have biases, as in Qwen2?"""
    tied: bool = True
    """Are words read and said with the same vectors?"""
    dropout: float = 0.0
    """Share of the looks dropped while training."""
    head: DecoderHead = "words"
    """Scores of words, the normed vectors that they would be made from, or scores of classes for the whole."""
    classes: int = 2
    """Number of classes."""
    problem: Problem | None = None
    """What the logits of the classes stand for; where it is not given, one class has a probability of its own, and
    several exclude each other."""
    pad: int | None = None
    """The id of padding: classes are read off the last token that has another id."""
    causal: bool = True
    """Does a token see only those before it? Where not, the model is an encoder, as for text embeddings."""


class Llama(nn.Module):
    """Ids in, scores of the next id out.

    >>> import torch
    >>> model = Llama(LlamaConfig(vocab=10, context=8, dim=16, depth=2, heads=4, kv_heads=2))
    >>> model(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 10])
    """

    mode: Literal["decoder-only", "encoder-only"] = "decoder-only"

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.mode = "decoder-only" if config.causal else "encoder-only"
        self.head_width = head_width_of(config.dim, config.heads) if config.head_width is None else config.head_width
        self.rotary_width = rotary_width_of(self.head_width, config.partial_rotary_factor)
        if config.base <= 0 or (config.base == 1 and config.stretch is not None and config.stretch.kind == "yarn"):
            raise ConfigError(f"rotary positions want a base above 0, and yarn one other than 1; {config.base} came")
        self.scaling, self.reaches = scaling_of(config.stretch), reaches_of(config)
        scaled = config.scaled_embeddings
        self.tokens = TokenEmbedding(config.vocab, config.dim, scaled=scaled, rounded=scaled)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.depth))
        self.norm = self._norm(config.dim)
        self.head = decoder_head(
            config.head,
            config.dim,
            config.vocab,
            classes=config.classes,
            tied_to=self.tokens.table if config.tied else None,
            softcap=config.final_logit_softcap,
        )
        self._start()

    def _norm(self, width: int) -> nn.Module:
        return (ZeroCenteredRMSNorm if self.config.zero_centered_norm else RMSNorm)(width, self.config.eps)

    def _block(self) -> Block:
        c, norm = self.config, self._norm
        sizes = {"kv_heads": c.kv_heads, "head_width": self.head_width, "bias": c.biases, "out_bias": False}
        look = Mixing(scale=c.attention_scale, softcap=c.attention_logit_softcap, dropout=c.dropout)
        kind = partial(QKNormAttention, norm=norm) if c.qk_norm else SelfAttention
        feed = GatedFeedForward(c.dim, c.dim * 8 // 3 if c.hidden is None else c.hidden, ACTIVATIONS[c.activation])

        def around() -> nn.Module:
            return Sandwich(norm(c.dim), norm(c.dim)) if c.sandwich_norm else PreNorm(norm(c.dim))

        return Block(kind(c.dim, c.heads, mix=look, **sizes), feed, around)

    def _start(self) -> None:
        start(self)
        for name, weight in self.named_parameters():
            if name.endswith("to_out.weight"):  # 2 * depth of these are added up on the residual path
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * self.config.depth))

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        present: Bool[Tensor, "B T"] | None = None,
        mask: Mask | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
        memory: Memory | None = None,
        last: int | None = None,
    ) -> Float[Tensor, "B *scores"]:
        """`present` is True where there is a token. `mask` hides other documents beside the future, or replaces the
        causal mask: see `decoder_mask`. Layers with a window keep it. `positions` are for packed or left-padded rows.
        `last`: the logits of the last so many positions are all that is wanted, and the others are not computed."""
        check_memory(memory, causal=self.config.causal)
        x, where, mask = self.tokens(ids), places(ids, positions, memory), among(present, mask)
        masks = {reach: decoder_mask(mask, reach) for reach in self.reaches}  # one for all alike layers
        far = phases(where, self.rotary_width, base=self.config.base, scaling=self.scaling)
        near = far if self.config.local_base is None else phases(where, self.rotary_width, base=self.config.local_base)
        kept = memories(memory, len(self.blocks))
        for block, reach, own in zip(self.blocks, self.reaches, kept, strict=True):
            x = block(x, mask=masks[reach], phases=far if reach in (CAUSAL, None) else near, memory=own)
        x = self.norm(x if last is None else x[:, -last:])
        return self.head(x, readable(ids, present, self.config.pad)) if self.config.head == "classes" else self.head(x)


def reaches_of(config: LlamaConfig) -> list[Band | None]:
    """How far each layer looks; None for everywhere. Both ways, a window reaches `window` tokens to each side."""
    far = CAUSAL if config.causal else None
    if config.window is None:
        return [far] * config.depth
    if config.window < 1:
        raise ConfigError(f"a window of {config.window} tokens, oneself included, has no room for oneself")
    windowed = range(config.depth) if config.windowed is None else config.windowed
    strangers = sorted(set(windowed) - set(range(config.depth)))
    if strangers:
        raise ConfigError(
            f"there is no layer {strangers[0]} to look through a window; layers are 0 to {config.depth - 1}"
        )
    near = Band(config.window - 1, 0) if config.causal else Band(config.window, config.window)
    return [near if layer in windowed else far for layer in range(config.depth)]
