"""ModernBERT: an encoder-only Transformer with rotary positions, windows in most layers, gated feed-forward layers and
norms before each layer."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import Mixing, SelfAttention, head_width_of
from softlook.blocks.block import Block
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, GatedFeedForward
from softlook.blocks.initial import start
from softlook.blocks.memory import places
from softlook.blocks.present import among
from softlook.blocks.residual import PreNorm
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.classify import Problem
from softlook.heads.pooling import pool_of, pooled_head
from softlook.ops.dropping import Dropout
from softlook.ops.masks import Mask, window
from softlook.ops.positions.rotary import phases


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig:
    """The sizes of a ModernBERT, and what is asked of it. The defaults are those of ModernBERT-base."""

    vocab: int = 50368
    """Number of token ids."""
    context: int = 8192
    """The longest sequence it is made for. There is no table that ends there."""
    dim: int = 768
    """Width of the vectors between blocks."""
    depth: int = 22
    """Number of blocks."""
    heads: int = 12
    """Heads in each block."""
    hidden: int = 1152
    """Width inside the feed-forward layers."""
    activation: ActivationName = "gelu"
    """The activation of the gates in the feed-forward layers."""
    window: int = 64
    """How many tokens to each side a local layer sees."""
    local: tuple[int, ...] | None = None
    """Numbers of the layers that look through the window; all but every third from the first on where not told."""
    base: float = 160_000.0
    """The base of the rotary positions in layers that see everything."""
    local_base: float = 10_000.0
    """The base of the rotary positions in local layers."""
    eps: float = 1e-5
    """Added to the variance in layer norms."""
    norm_biases: bool = False
    """Do layer norms have biases?"""
    attention_biases: bool = False
    """Do the projections of attention have biases?"""
    feed_biases: bool = False
    """Do the feed-forward layers have biases?"""
    dropout: float = 0.0
    """Share dropped after the embedding, inside attention, before each addition and in the head, while training."""
    head: Literal["states", "pooled", "embedding", "words", "classes", "choices", "tags", "spans"] = "words"
    """What is asked: vectors of the tokens, of the whole, or of the whole with length one; hidden words; classes or a
    choice's score for the whole; tags for the tokens; or spans."""
    classes: int = 2
    """Number of classes or tags."""
    problem: Problem | None = None
    """What the logits of the classes stand for; where it is not given, one class has a probability of its own, and
    several exclude each other."""
    pooling: Literal["first", "mean"] = "first"
    """How the whole becomes one vector."""
    head_activation: ActivationName = "gelu"
    """The activation in the head."""
    head_bias: bool = False
    """Has the dense layer of the head a bias?"""
    word_bias: bool = True
    """Has each word a score of its own?"""
    tied: bool = True
    """Are words read and said with the same vectors?"""
    segments: ClassVar[int] = 0
    """It does not tell the texts of a pair apart."""


class PredictionHead(nn.Module):
    """Scores through a dense layer, an activation and a norm: of the whole where it pools, or of every token."""

    def __init__(self, config: ModernBertConfig, to_classes: nn.Linear, pool: nn.Module | None = None) -> None:
        super().__init__()
        self.pool, self.to_hidden = pool, nn.Linear(config.dim, config.dim, bias=config.head_bias)
        self.act, self.norm = ACTIVATIONS[config.head_activation], layer_norm(config)
        self.drop, self.to_classes = Dropout(config.dropout), to_classes

    def forward(self, x: Float[Tensor, "B T C"], present: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B *K"]:
        x = x if self.pool is None else self.pool(x, present)
        return self.to_classes(self.drop(self.norm(self.act(self.to_hidden(x)))))


class ModernBert(nn.Module):
    """Ids in, out what the head is asked for.

    >>> import torch
    >>> sizes = ModernBertConfig(vocab=10, dim=16, depth=3, heads=2, hidden=24, window=2, head="classes", classes=3)
    >>> ModernBert(sizes)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.config, self.local = config, local_layers(config)
        self.head_width = head_width_of(config.dim, config.heads)
        self.tokens, self.entry_norm = TokenEmbedding(config.vocab, config.dim), layer_norm(config)
        self.drop = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.depth))
        self.blocks[0].around_attend.norm = nn.Identity()  # pyright: ignore[reportArgumentType]  # the entry has one
        self.norm = layer_norm(config)
        self.head = made_head(config, self.tokens.table)
        start(self)

    def _block(self) -> Block:
        c = self.config
        return Block(
            SelfAttention(c.dim, c.heads, bias=c.attention_biases, mix=Mixing(dropout=c.dropout)),
            GatedFeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation], bias=c.feed_biases, dropout=c.dropout),
            lambda: PreNorm(layer_norm(c), c.dropout),
        )

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        segments: None = None,
        present: Bool[Tensor, "B T"] | None = None,
        mask: Mask | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
    ) -> Float[Tensor, "B *scores"]:
        """`present` is True where there is a token; `mask` and `positions` are for packed or left-padded rows. It
        has no segments."""
        c, where = self.config, places(ids, positions, None)
        x, everywhere = self.drop(self.entry_norm(self.tokens(ids))), among(present, mask)
        near = window(c.window, c.window)
        masks = {False: everywhere, True: near if everywhere is None else near & everywhere}
        bases = {False: c.base, True: c.local_base}
        turns = {local: phases(where, self.head_width, base=base) for local, base in bases.items()}
        for number, block in enumerate(self.blocks):
            local = number in self.local
            x = block(x, mask=masks[local], phases=turns[local])
        return self.head(self.norm(x), present)


def layer_norm(config: ModernBertConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.dim, config.eps, bias=config.norm_biases)


def local_layers(config: ModernBertConfig) -> frozenset[int]:
    """Numbers of the layers that look through the window."""
    if config.window < 0:
        raise ConfigError(f"a window sees 0 or more tokens to each side; {config.window} came")
    local = [number for number in range(config.depth) if number % 3] if config.local is None else config.local
    strangers = sorted(set(local) - set(range(config.depth)))
    if strangers:
        raise ConfigError(f"there is no layer {strangers[0]} to be local; layers are 0 to {config.depth - 1}")
    return frozenset(local)


def made_head(config: ModernBertConfig, table: nn.Embedding) -> nn.Module:
    """The head that the config names."""
    c = config
    sizes = {"classes": c.classes, "tags": c.classes, "choices": 1, "spans": 2}
    if c.head == "words":
        to_words = nn.Linear(c.dim, c.vocab, bias=c.word_bias)
        if c.tied:
            to_words.weight = table.weight
        return PredictionHead(c, to_words)
    if c.head in sizes:
        pool = pool_of(c.pooling) if c.head in ("classes", "choices") else None
        return PredictionHead(c, nn.Linear(c.dim, sizes[c.head]), pool)
    return pooled_head(c.head, c.pooling)
