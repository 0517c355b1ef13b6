"""Llama, and with it Mistral and Qwen2: a decoder-only Transformer with rotary positions and gated feed-forward."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.blocks.attention import Mixing, SelfAttention, head_width_of
from softlook.blocks.block import Block
from softlook.blocks.feed_forward import GatedFeedForward
from softlook.blocks.initial import start
from softlook.blocks.memory import Memory, check_memory, memories, places
from softlook.blocks.norms import RMSNorm
from softlook.blocks.residual import PreNorm
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.language import language_head
from softlook.ops.masks import Mask
from softlook.ops.masks.kinds import Band
from softlook.ops.masks.order import CAUSAL, decoder_mask
from softlook.ops.positions.frequencies import Scaling, linear, llama3, ntk, yarn
from softlook.ops.positions.rotary import phases


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """How positions are stretched beyond the length that a model was first trained for."""

    kind: Literal["linear", "ntk", "llama3", "yarn"]
    """All positions alike, by a larger base, or fast and slow pairs apart, in one of two ways."""
    factor: float
    """How many times longer."""
    context: int | None = None
    """The length first trained for; only "llama3" and "yarn" ask."""
    low: float = 1.0
    """Pairs that turn fewer times than this in that length are stretched in full; likewise."""
    high: float | None = None
    """Pairs that turn more often than this stay; 4 ("llama3") or 32 ("yarn") where not told."""
    magnitude: float | None = None
    """What the phases are multiplied with; where not told 1, or in "yarn" what follows from the factor."""


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
    eps: float = 1e-5
    """Added to the mean square in norms."""
    base: float = 100_000.0
    """The slowest pair of a head turns about once in this many positions, times 2π."""
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
    head: Literal["words", "states"] = "words"
    """Scores of words, or the normed vectors that they would be made from."""
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
        if self.head_width % 2:
            raise ConfigError(
                f"rotary positions turn pairs of numbers; a head {self.head_width} wide is not made of pairs"
            )
        if config.base <= 0 or (config.base == 1 and config.stretch is not None and config.stretch.kind == "yarn"):
            raise ConfigError(f"rotary positions want a base above 0, and yarn one other than 1; {config.base} came")
        self.scaling, self.reaches = scaling_of(config.stretch), reaches_of(config)
        self.tokens = TokenEmbedding(config.vocab, config.dim)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.depth))
        self.norm = RMSNorm(config.dim, config.eps)
        tied_to = self.tokens.table if config.tied else None
        words = config.head == "words"
        self.head = language_head(config.dim, config.vocab, tied_to=tied_to) if words else nn.Identity()
        self._start()

    def _block(self) -> Block:
        c = self.config
        look = Mixing(dropout=c.dropout)
        attend = SelfAttention(
            c.dim, c.heads, kv_heads=c.kv_heads, head_width=self.head_width, bias=c.biases, out_bias=False, mix=look
        )
        feed = GatedFeedForward(c.dim, c.dim * 8 // 3 if c.hidden is None else c.hidden, F.silu)
        return Block(attend, feed, lambda: PreNorm(RMSNorm(c.dim, c.eps)))

    def _start(self) -> None:
        start(self)
        for name, weight in self.named_parameters():
            if name.endswith("to_out.weight"):  # 2 * depth of these are added up on the residual path
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * self.config.depth))

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        mask: Mask | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
        memory: Memory | None = None,
        last: int | None = None,
    ) -> Float[Tensor, "B _ V"]:
        """`mask` hides padding and other documents beside the future, or replaces the causal mask: see `decoder_mask`.
        Layers with a window keep it. `positions` are for packed or left-padded rows. `last`: the logits of the last so
        many positions are all that is wanted, and the others are not computed."""
        check_memory(memory, causal=self.config.causal)
        x, where = self.tokens(ids), places(ids, positions, memory)
        turns = phases(where, self.head_width, base=self.config.base, scaling=self.scaling)
        masks = {reach: decoder_mask(mask, reach) for reach in self.reaches}  # one for all alike layers
        kept = memories(memory, len(self.blocks))
        for block, reach, own in zip(self.blocks, self.reaches, kept, strict=True):
            x = block(x, mask=masks[reach], phases=turns, memory=own)
        return self.head(self.norm(x if last is None else x[:, -last:]))


def scaling_of(stretch: Stretch | None) -> Scaling | None:
    """What is done to the frequencies."""
    if stretch is None:
        return None
    factor, context, low = stretch.factor, stretch.context, stretch.low
    high = {"llama3": 4.0}.get(stretch.kind, 32.0) if stretch.high is None else stretch.high
    if factor <= 0 or not 0 < low < high:
        raise ConfigError(f"a stretch wants factor > 0 and 0 < low < high; {factor=}, {low=}, {high=} came")
    if stretch.kind in ("linear", "ntk"):
        made = {"linear": linear, "ntk": ntk}[stretch.kind](factor)
    elif context is None:
        raise ConfigError(f"to stretch positions as {stretch.kind!r}, say for which context it was first trained")
    elif stretch.kind == "llama3":
        made = llama3(factor, context=context, low=low, high=high)
    else:
        made = yarn(factor, context=context, slow=low, fast=high)
    return made if stretch.magnitude is None else replace(made, magnitude=stretch.magnitude)


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
