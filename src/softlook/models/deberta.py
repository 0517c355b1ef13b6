"""DeBERTa, v2 and v3: an encoder-only Transformer whose attention scores content and distance apart."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import Mixing, SelfAttention
from softlook.blocks.block import Block
from softlook.blocks.disentangled import DisentangledAttention, RelativePositions
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.initial import start
from softlook.blocks.memory import places
from softlook.blocks.present import among
from softlook.blocks.residual import PostNorm
from softlook.embed.places import LearnedPlaces
from softlook.embed.segments import SegmentEmbedding
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.classify import ClassHead, Problem, SpanHead, States, TagHead
from softlook.heads.pooling import DensePool, LengthOne, pool_of
from softlook.heads.words import WordHead
from softlook.ops.dropping import Dropout
from softlook.ops.masks import Mask

DebertaHead = Literal["states", "pooled", "embedding", "words", "classes", "choices", "tags", "spans"]


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution beside the first block, as in the two largest DeBERTa v2."""

    kernel: int = 3
    """How many tokens it sees at once; odd."""
    groups: int = 1
    """Into how many parts the width is divided, each convolved by itself."""
    activation: ActivationName = "tanh"
    """The activation behind it."""


@dataclass(frozen=True, kw_only=True)
class DebertaConfig:
    """The sizes of a DeBERTa, and what is asked of it. The defaults are those of DeBERTa-v3-base."""

    vocab: int = 128100
    """Number of token ids."""
    context: int = 512
    """The longest sequence it is made for, and has absolute positions for, where it has those."""
    absolute: bool = False
    """Are absolute positions added to the embedding?"""
    segments: int = 0
    """Number of segments that a token may belong to; 0 for none."""
    dim: int = 768
    """Width of the vectors between blocks."""
    embedding: int | None = None
    """Width of the embedding, where it is not `dim`; a layer then widens it."""
    depth: int = 12
    """Number of blocks."""
    heads: int = 12
    """Heads in each block."""
    hidden: int | None = None
    """Width inside the feed-forward layers; four times `dim` where not told."""
    activation: ActivationName = "gelu"
    """The activation in the feed-forward layers and the head for words."""
    relative: tuple[Literal["c2p", "p2c"], ...] = ("c2p", "p2c")
    """Parts of the scores beside content to content: content to position, position to content; () for none."""
    reach: int = 512
    """Distances beyond this are one."""
    buckets: int = 256
    """Number of distances each way that are told apart, far ones in growing steps; 0 for all up to `reach`."""
    shared: bool = True
    """Are positions projected by the layers for content?"""
    relative_norm: bool = True
    """Is there a norm behind the vectors of distances?"""
    convolution: Convolution | None = None
    """A convolution beside the first block, if there is one."""
    dropout: float = 0.1
    """Share dropped after the embedding, inside attention, before each addition and in the head, while training."""
    eps: float = 1e-7
    """Added to the variance in layer norms."""
    head: DebertaHead = "words"
    """What is asked, as in `BertConfig`."""
    tied: bool = True
    """Does the head for words use the token embedding backwards?"""
    classes: int = 2
    """Number of classes or tags."""
    problem: Problem | None = None
    """What the logits of the classes stand for; where it is not given, one class has a probability of its own, and
    several exclude each other."""
    pooling: Literal["first", "mean"] = "first"
    """How the whole becomes one vector."""
    pooler: ActivationName | None = "gelu"
    """The activation behind the dense layer that a pooled vector goes through; None where there is no such layer."""


class Beside(nn.Module):
    """Adds a convolution of what goes into a block to what comes out of it."""

    def __init__(self, dim: int, eps: float, dropout: float, sizes: Convolution) -> None:
        super().__init__()
        if sizes.kernel < 1 or sizes.kernel % 2 == 0:
            raise ConfigError(f"a convolution that keeps the length has an odd kernel; {sizes.kernel} came")
        self.convolve = nn.Conv1d(dim, dim, sizes.kernel, padding=sizes.kernel // 2, groups=sizes.groups)
        self.act, self.norm, self.drop = ACTIVATIONS[sizes.activation], nn.LayerNorm(dim, eps), Dropout(dropout)

    def forward(self, before: Float[Tensor, "B T C"], after: Float[Tensor, "B T C"]) -> Float[Tensor, "B T C"]:
        return self.norm(after + self.act(self.drop(self.convolve(before.mT).mT)))


class Deberta(nn.Module):
    """Ids in, out what the head is asked for.

    >>> import torch
    >>> sizes = DebertaConfig(vocab=10, dim=16, depth=2, heads=2, reach=8, buckets=4, head="classes", classes=3)
    >>> Deberta(sizes)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: DebertaConfig) -> None:
        super().__init__()
        self.config = c = config
        width = c.dim if c.embedding is None else c.embedding
        self.tokens, self.segments = TokenEmbedding(c.vocab, width), SegmentEmbedding(c.segments, width)
        self.places = LearnedPlaces(c.context, width) if c.absolute else None
        self.widen = nn.Identity() if width == c.dim else nn.Linear(width, c.dim, bias=False)
        self.norm, self.drop = nn.LayerNorm(c.dim, c.eps), Dropout(c.dropout)
        norm = nn.LayerNorm(c.dim, c.eps) if c.relative_norm else None
        distances = RelativePositions(c.dim, reach=c.reach, buckets=c.buckets, norm=norm) if c.relative else None
        self.distances = distances
        self.blocks = nn.ModuleList(self._block(distances) for _ in range(c.depth))
        self.beside = None if c.convolution is None else Beside(c.dim, c.eps, c.dropout, c.convolution)
        self.head = made_head(c, self.tokens.table)
        start(self)

    def _block(self, distances: RelativePositions | None) -> Block:
        c = self.config
        if distances is None:
            attend: nn.Module = SelfAttention(c.dim, c.heads, mix=Mixing(dropout=c.dropout))
        else:
            parts = {"c2p": "c2p" in c.relative, "p2c": "p2c" in c.relative, "shared": c.shared}
            attend = DisentangledAttention(c.dim, c.heads, distances, **parts, dropout=c.dropout)
        feed = FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])
        return Block(attend, feed, lambda: PostNorm(nn.LayerNorm(c.dim, c.eps), c.dropout))

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        segments: Int[Tensor, "B T"] | None = None,
        present: Bool[Tensor, "B T"] | None = None,
        mask: Mask | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
    ) -> Float[Tensor, "B *scores"]:
        """`present` is True where there is a token; `mask` and `positions` are for packed or left-padded rows. A
        convolution, where there is one, does not stop at the ends of packed rows."""
        x = self.segments(self.tokens(ids), segments)
        x = x if self.places is None else x + self.places(places(ids, positions, None))
        x = self.norm(self.widen(x))
        x = self.drop(x if present is None else x.masked_fill(~present[..., None], 0.0))
        entry, mask = x, among(present, mask)
        for number, block in enumerate(self.blocks):
            x = block(x, mask=mask)
            if number == 0 and self.beside is not None:
                x = self.beside(entry, x)
        return self.head(x, present)


def made_head(config: DebertaConfig, table: nn.Embedding) -> nn.Module:
    """The head that the config names."""
    c = config

    def pool() -> nn.Module:
        plain = pool_of(c.pooling)
        return plain if c.pooler is None else DensePool(plain, c.dim, ACTIVATIONS[c.pooler])

    makers: dict[DebertaHead, Callable[[], nn.Module]] = {
        "states": States,
        "pooled": pool,
        "embedding": lambda: LengthOne(pool()),
        "words": lambda: WordHead(table, ACTIVATIONS[c.activation], dim=c.dim, eps=c.eps, tied=c.tied),
        "classes": lambda: ClassHead(pool(), c.dim, c.classes, dropout=c.dropout),
        "choices": lambda: ClassHead(pool(), c.dim, 1, dropout=c.dropout),
        "tags": lambda: TagHead(c.dim, c.classes, dropout=c.dropout),
        "spans": lambda: SpanHead(c.dim, dropout=c.dropout),
    }
    if c.head not in makers:
        raise ConfigError(f"DeBERTa has no head {c.head!r}; it has {', '.join(makers)}")
    return makers[c.head]()
