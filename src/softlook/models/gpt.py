"""GPT-2, and with it GPT-NeoX, OPT and Bloom: a decoder-only Transformer, which says what comes next."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.base.moving import moved
from softlook.blocks.attention import Mixing, SelfAttention, head_width_of
from softlook.blocks.block import Block, ParallelResidualBlock
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.initial import start
from softlook.blocks.memory import Memory, check_memory, memories, places
from softlook.blocks.present import among
from softlook.blocks.residual import PostNorm, PreNorm
from softlook.embed.labels import LabelEmbedding
from softlook.embed.places import LearnedPlaces
from softlook.embed.rotary import Stretch, rotary_width_of, scaling_of
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.classify import Problem
from softlook.heads.decoder import DecoderHead, decoder_head
from softlook.heads.pooling import readable
from softlook.ops.dropping import Dropout
from softlook.ops.masks import Mask
from softlook.ops.masks.order import CAUSAL, decoder_mask
from softlook.ops.positions.biases import alibi
from softlook.ops.positions.rotary import phases


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The sizes of a GPT. The defaults are GPT-2's smallest."""

    vocab: int = 50257
    """Number of token ids."""
    context: int = 1024
    """The longest sequence it has positions for."""
    dim: int = 768
    """Width of the vectors between blocks."""
    depth: int = 12
    """Number of blocks."""
    heads: int = 12
    """Heads in each block."""
    hidden: int | None = None
    """Width inside the feed-forward layers; four times `dim` where not told."""
    activation: ActivationName = "gelu_tanh"
    """The bend inside the feed-forward layers."""
    dropout: float = 0.1
    """Share dropped after the embedding, inside attention and before each addition, while training."""
    eps: float = 1e-5
    """Added to the variance in layer norms."""
    tied: bool = True
    """Are words read and said with the same vectors?"""
    labels: int = 0
    """Number of labels that what is said can be conditioned on; 0 for none."""
    positions: Literal["learned", "rotary", "alibi"] = "learned"
    """Vectors that are added, rotations of queries and keys (GPT-NeoX), or biases by distance (Bloom)."""
    position_offset: int = 0
    """Rows at the start of the table of learned positions that are not used; OPT has two."""
    base: float = 10_000.0
    """The slowest pair of a head turns about once in this many positions, times 2π; only rotary positions ask."""
    stretch: Stretch | None = None
    """How rotary positions are stretched beyond the first trained length, if they are."""
    partial_rotary_factor: float = 1.0
    """Share of each head that is rotated; the rest has no position."""
    norm: Literal["pre", "post"] = "pre"
    """Norms before each layer and at the end, or behind each layer."""
    parallel: bool = False
    """Do attention and feed-forward read the same vector, as in GPT-NeoX?"""
    embedding_norm: bool = False
    """Is there a norm behind the embedding, as in Bloom?"""
    embedding_width: int | None = None
    """Width of the vectors of words, which a layer brings to `dim` and back; `dim` where not told."""
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


class GPT(nn.Module):
    """Ids in, scores of the next id out.

    >>> import torch
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=2, heads=2))
    >>> model(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 10])
    """

    mode: Literal["decoder-only", "encoder-only"] = "decoder-only"

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.mode = "decoder-only" if config.causal else "encoder-only"
        if config.parallel and config.norm != "pre":
            raise ConfigError("attention and feed-forward in parallel have their norms before them: use norm='pre'")
        if config.positions == "rotary":
            rotary_width_of(head_width_of(config.dim, config.heads), config.partial_rotary_factor)  # or an error
        width = config.dim if config.embedding_width is None else config.embedding_width
        learned = config.positions == "learned"
        self.scaling = scaling_of(config.stretch)
        self.tokens = TokenEmbedding(config.vocab, width)
        self.project_in = _between(width, config.dim)
        self.places = LearnedPlaces(config.context, config.dim, offset=config.position_offset) if learned else None
        self.label = LabelEmbedding(config.labels, config.dim)
        self.embedding_norm = self._norm() if config.embedding_norm else nn.Identity()
        self.drop = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.depth))
        self.norm = self._norm() if config.norm == "pre" else nn.Identity()
        self.project_out = _between(config.dim, width)
        tied_to = self.tokens.table if config.tied else None
        self.head = decoder_head(config.head, width, config.vocab, classes=config.classes, tied_to=tied_to)
        self._start()

    def _norm(self) -> nn.LayerNorm:
        return nn.LayerNorm(self.config.dim, self.config.eps)

    def _block(self) -> nn.Module:
        c = self.config
        attend = SelfAttention(c.dim, c.heads, mix=Mixing(dropout=c.dropout))
        feed = FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])
        if c.parallel:
            return ParallelResidualBlock(attend, feed, lambda: PreNorm(self._norm(), c.dropout))
        return Block(attend, feed, lambda: (PreNorm if c.norm == "pre" else PostNorm)(self._norm(), c.dropout))

    def _start(self) -> None:
        start(self)
        for name, weight in self.named_parameters():
            if name.endswith("to_out.weight"):  # 2 * depth of these are added up on the residual path
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * self.config.depth))

    def _inside(self, where: Int[Tensor, "*B T"], x: Float[Tensor, "B T C"]) -> dict[str, Any]:
        """What attention is told of positions, where they are not added to the vectors."""
        c = self.config
        if c.positions == "rotary":
            width = rotary_width_of(head_width_of(c.dim, c.heads), c.partial_rotary_factor)
            return {"phases": phases(where, width, base=c.base, scaling=self.scaling)}
        return {"bias": moved(alibi(c.heads), x.device)} if c.positions == "alibi" else {}

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        label: Int[Tensor, " B"] | None = None,
        present: Bool[Tensor, "B T"] | None = None,
        mask: Mask | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
        memory: Memory | None = None,
        last: int | None = None,
    ) -> Float[Tensor, "B *scores"]:
        """`present` is True where there is a token. `mask` hides other documents beside the future, or replaces the
        causal mask: see `decoder_mask`. `positions` are for packed or left-padded rows. `last`: the logits of the last
        so many positions are all that is wanted, and the others are not computed."""
        check_memory(memory, causal=self.config.causal)
        where, mask = places(ids, positions, memory), among(present, mask)
        x = self.project_in(self.tokens(ids))
        x = x if self.places is None else x + self.places(where)
        if label is not None:
            x = x + self.label(label)
        x, mask = self.drop(self.embedding_norm(x)), decoder_mask(mask, CAUSAL if self.config.causal else None)
        inside = self._inside(where, x)
        for block, kept in zip(self.blocks, memories(memory, len(self.blocks)), strict=True):
            x = block(x, mask=mask, memory=kept, **inside)
        x = self.project_out(self.norm(x if last is None else x[:, -last:]))
        return self.head(x, readable(ids, present, self.config.pad)) if self.config.head == "classes" else self.head(x)


def _between(width: int, other: int) -> nn.Module:
    """From one width to another; nothing where they are one."""
    return nn.Identity() if width == other else nn.Linear(width, other, bias=False)
