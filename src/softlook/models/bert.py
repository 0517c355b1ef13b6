"""BERT: an encoder-only Transformer. Every token looks both ways; what is asked of the result is the head's affair.

RoBERTa is a BERT whose positions start at 2, DistilBERT one without segments, MPNet one that also feels distances, and
ELECTRA one whose embedding may be narrower than its blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import Mixing, SelfAttention
from softlook.blocks.block import Block
from softlook.blocks.distances import Distances
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.initial import start
from softlook.blocks.memory import places
from softlook.blocks.present import among
from softlook.blocks.residual import PostNorm
from softlook.embed.places import LearnedPlaces
from softlook.embed.segments import SegmentEmbedding
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.classify import ClassHead, Problem, ReplacedHead, SpanHead, States, TagHead
from softlook.heads.pooling import DensePool, FirstPool, LengthOne, MeanPool
from softlook.heads.words import Pretraining, PretrainingHead, WordHead
from softlook.ops.dropping import Dropout
from softlook.ops.masks import Mask

BertHead = Literal[
    "states", "pooled", "embedding", "words", "next", "pretraining", "replaced", "classes", "choices", "tags", "spans"
]


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """The sizes of a BERT, and what is asked of it. The defaults are those of BERT-base."""

    vocab: int = 30522
    """Number of token ids."""
    context: int = 512
    """The longest sequence it has positions for."""
    offset: int = 0
    """Rows at the start of the position table that are passed over; 2 in RoBERTa."""
    segments: int = 2
    """Number of segments that a token may belong to; 0 for none, as in DistilBERT."""
    buckets: int = 0
    """Number of distances told apart by a learned bias on the scores of all blocks; 0 for no such bias, 32 in MPNet."""
    dim: int = 768
    """Width of the vectors between blocks."""
    embedding: int | None = None
    """Width of the embedding, where it is not `dim`; a layer then widens it, as in ELECTRA."""
    depth: int = 12
    """Number of blocks."""
    heads: int = 12
    """Heads in each block."""
    hidden: int | None = None
    """Width inside the feed-forward layers; four times `dim` where not told."""
    activation: ActivationName = "gelu"
    """The bend inside the feed-forward layers and the head for words."""
    dropout: float = 0.1
    """Share dropped after the embedding, inside attention, before each addition and in the head, while training."""
    eps: float = 1e-12
    """Added to the variance in layer norms."""
    head: BertHead = "words"
    """What is asked: vectors of the tokens (states), of the whole (pooled) or of the whole with length one
    (embedding); hidden words, next sentence, or both (pretraining); which tokens were replaced; classes or a choice's
    score for the whole, tags for the tokens, or spans."""
    tied: bool = True
    """Do the heads for words use the token embedding backwards? If not, they have a matrix of their own."""
    classes: int = 2
    """Number of classes or tags."""
    problem: Problem | None = None
    """What the logits of the classes stand for; where it is not given, one class has a probability of its own, and
    several exclude each other."""
    pooling: Literal["first", "mean"] = "first"
    """How the whole becomes one vector: by its first token, which is a global unit, or by the mean."""
    pooler: ActivationName | None = "tanh"
    """The bend behind the dense layer that a pooled vector goes through; None where there is no such layer."""


class Bert(nn.Module):
    """Ids in, out what the head is asked for.

    >>> import torch
    >>> sizes = BertConfig(vocab=10, context=8, dim=16, depth=2, heads=2, head="classes", classes=3)
    >>> Bert(sizes)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        width = config.dim if config.embedding is None else config.embedding
        self.tokens = TokenEmbedding(config.vocab, width)
        self.places = LearnedPlaces(config.context, width, offset=config.offset)
        self.segments = SegmentEmbedding(config.segments, width)
        self.norm = nn.LayerNorm(width, config.eps)
        self.drop = Dropout(config.dropout)
        self.widen = nn.Identity() if width == config.dim else nn.Linear(width, config.dim)
        self.distances = Distances(config.buckets, config.heads) if config.buckets else None
        self.blocks = nn.ModuleList(self._block() for _ in range(config.depth))
        self.head = made_head(config, self.tokens.table)
        start(self)

    def _block(self) -> Block:
        c = self.config
        return Block(
            SelfAttention(c.dim, c.heads, mix=Mixing(dropout=c.dropout)),
            FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation]),
            lambda: PostNorm(nn.LayerNorm(c.dim, c.eps), c.dropout),
        )

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        segments: Int[Tensor, "B T"] | None = None,
        present: Bool[Tensor, "B T"] | None = None,
        mask: Mask | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
    ) -> Float[Tensor, "B *scores"] | Pretraining:
        """`present` is True where there is a token; `mask` and `positions` are for packed or left-padded rows."""
        x = self.tokens(ids) + self.places(places(ids, positions, None))
        x = self.widen(self.drop(self.norm(self.segments(x, segments))))
        mask, bias = among(present, mask), None if self.distances is None else self.distances(x)
        for block in self.blocks:
            x = block(x, mask=mask, bias=bias)
        return self.head(x, present)


def made_head(config: BertConfig, table: nn.Embedding) -> nn.Module:
    """The head that the config names."""
    c = config

    def pool() -> nn.Module:
        plain = {"first": FirstPool, "mean": MeanPool}[c.pooling]()
        return plain if c.pooler is None else DensePool(plain, c.dim, ACTIVATIONS[c.pooler])

    def words() -> nn.Module:
        return WordHead(table, ACTIVATIONS[c.activation], dim=c.dim, eps=c.eps, tied=c.tied)

    makers: dict[BertHead, Callable[[], nn.Module]] = {
        "states": States,
        "pooled": pool,
        "embedding": lambda: LengthOne(pool()),
        "words": words,
        "next": lambda: ClassHead(pool(), c.dim, 2),
        "pretraining": lambda: PretrainingHead(words(), ClassHead(pool(), c.dim, 2)),
        "replaced": lambda: ReplacedHead(c.dim, ACTIVATIONS[c.activation]),
        "classes": lambda: ClassHead(pool(), c.dim, c.classes, dropout=c.dropout),
        "choices": lambda: ClassHead(pool(), c.dim, 1, dropout=c.dropout),
        "tags": lambda: TagHead(c.dim, c.classes, dropout=c.dropout),
        "spans": lambda: SpanHead(c.dim, dropout=c.dropout),
    }
    if c.head not in makers:
        raise ConfigError(f"BERT has no head {c.head!r}; it has {', '.join(makers)}")
    return makers[c.head]()
