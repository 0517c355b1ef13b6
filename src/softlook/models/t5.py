"""T5: an encoder-decoder that knows positions only as distances, and no biases anywhere else; and its encoder alone.

mT5 is a T5 v1.1 for many languages.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.blocks.attention import CrossAttention, Mixing, SelfAttention
from softlook.blocks.block import Block, DecoderBlock
from softlook.blocks.distances import Distances
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward, GatedFeedForward
from softlook.blocks.memory import Memory, memories
from softlook.blocks.norms import RMSNorm
from softlook.blocks.present import among
from softlook.blocks.residual import PreNorm
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.language import language_head
from softlook.heads.pooling import pooled_head
from softlook.ops.dropping import Dropout
from softlook.ops.masks import Mask
from softlook.ops.masks.order import decoder_mask


@dataclass(frozen=True, kw_only=True)
class T5Sizes:
    """The sizes of a T5 that its encoder alone has too. The defaults are those of the first small one."""

    vocab: int = 32128
    """Number of token ids."""
    dim: int = 512
    """Width of the vectors between blocks."""
    depth: int = 6
    """Number of blocks in the encoder."""
    heads: int = 8
    """Heads in each attention."""
    head_width: int = 64
    """Width of one head; all heads together need not be as wide as `dim`."""
    hidden: int = 2048
    """Width inside the feed-forward layers."""
    activation: ActivationName = "relu"
    """The bend inside the feed-forward layers; "gelu_tanh" in v1.1."""
    gated: bool = False
    """Does one half of the feed-forward layers open and close the other, as in v1.1?"""
    buckets: int = 32
    """Number of distances that are told apart."""
    max_distance: int = 128
    """From here on all distances are one."""
    dropout: float = 0.1
    """Share dropped at both ends of a stack, inside each layer and before each addition, while training."""
    eps: float = 1e-6
    """Added to the mean square in norms."""


@dataclass(frozen=True, kw_only=True)
class T5Config(T5Sizes):
    """The sizes of a T5. The defaults are those of the first small one; v1.1 is gated, neither tied nor scaled."""

    decoder_depth: int | None = None
    """Number of blocks in the decoder; as many as in the encoder where not told."""
    tied: bool = True
    """Are words read and said with the same vectors?"""
    scaled: bool = True
    """Is what the head sees divided by the root of `dim`, as in v1.0?"""


@dataclass(frozen=True, kw_only=True)
class T5EncoderConfig(T5Sizes):
    """The sizes of a T5's encoder alone, and what is asked of it."""

    context: int = 512
    """The longest sequence it is meant for. There is no table that ends there."""
    head: Literal["states", "pooled", "embedding"] = "states"
    """What is asked: vectors of the tokens, of the whole, or of the whole with length one."""
    pooling: Literal["first", "mean"] = "mean"
    """How the whole becomes one vector."""
    segments: ClassVar[int] = 0
    """It does not tell the texts of a pair apart."""


class Encoder(nn.Module):
    """Every word looks at every other, again and again."""

    def __init__(self, config: T5Sizes) -> None:
        super().__init__()
        self.distances = distances(config, bidirectional=True)
        self.blocks = nn.ModuleList(encoder_block(config) for _ in range(config.depth))
        self.norm, self.drop = RMSNorm(config.dim, config.eps), Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B S C"], mask: Mask | Tensor | None) -> Float[Tensor, "B S C"]:
        x, bias = self.drop(x), self.distances(x)
        for block in self.blocks:
            x = block(x, mask=mask, bias=bias)
        return self.drop(self.norm(x))


class Decoder(nn.Module):
    """Every word looks at those before it and at the source, again and again; in the source, distances are not felt."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.distances = distances(config, bidirectional=False)
        depth = config.depth if config.decoder_depth is None else config.decoder_depth
        self.blocks = nn.ModuleList(decoder_block(config) for _ in range(depth))
        self.norm, self.drop = RMSNorm(config.dim, config.eps), Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        encoded: Float[Tensor, "N S C"],
        *,
        mask: Mask | Tensor | None,
        source_mask: Mask | Tensor | None,
        memory: Memory | None,
    ) -> Float[Tensor, "B T C"]:
        x, bias = self.drop(x), self.distances(x, 0 if memory is None else memory.length)
        mask = decoder_mask(mask)
        for block, kept in zip(self.blocks, memories(memory, len(self.blocks)), strict=True):
            x = block(x, encoded, mask=mask, other_mask=source_mask, bias=bias, memory=kept)
        return self.drop(self.norm(x))


class T5(nn.Module):
    """Ids of a source and of a target in, scores of the target's next ids out.

    >>> import torch
    >>> model = T5(T5Config(vocab=10, dim=16, depth=2, heads=2, head_width=8, hidden=32))
    >>> model(torch.tensor([[3, 1, 4, 1]]), torch.tensor([[0, 7]])).shape
    torch.Size([1, 2, 10])
    """

    mode: ClassVar = "encoder-decoder"

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.config = c = config
        self.tokens = TokenEmbedding(c.vocab, c.dim)
        self.encoder, self.decoder = Encoder(c), Decoder(c)
        self.head = language_head(c.dim, c.vocab, tied_to=self.tokens.table if c.tied else None)
        self.scale = c.dim**-0.5 if c.scaled else 1.0
        start_as_t5(self, c)

    def encode(
        self,
        source: Int[Tensor, "B S"],
        *,
        present: Bool[Tensor, "B S"] | None = None,
        mask: Mask | Tensor | None = None,
    ) -> Float[Tensor, "B S C"]:
        """What was understood of the source. `present` is True where there is a token; `mask` is for packed rows, in
        which distances are right as they are."""
        return self.encoder(self.tokens(source), among(present, mask))

    def decode(
        self,
        target: Int[Tensor, "B T"],
        encoded: Float[Tensor, "N S C"],
        *,
        source_present: Bool[Tensor, "N S"] | None = None,
        source_mask: Mask | Tensor | None = None,
        mask: Mask | Tensor | None = None,
        memory: Memory | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Scores of what comes next. `mask` hides padding beside the future, or replaces the causal mask: see
        `decoder_mask`. `source_mask` hides some of the source. With a `memory`, what was made of the target so far, and
        of the source, is not made again. Where there are fewer sources than targets, neighbours share one."""
        across = among(source_present, source_mask)
        x = self.decoder(self.tokens(target), encoded, mask=mask, source_mask=across, memory=memory)
        return self.head(x * self.scale)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        *,
        source_present: Bool[Tensor, "B S"] | None = None,
        target_mask: Mask | Tensor | None = None,
        memory: Memory | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Read, then say. Whoever says one word at a time calls `encode` once and `decode` for each."""
        encoded = self.encode(source, present=source_present)
        return self.decode(target, encoded, source_present=source_present, mask=target_mask, memory=memory)


class T5Encoder(nn.Module):
    """Ids in, out vectors of the tokens, or one for the whole.

    >>> import torch
    >>> model = T5Encoder(T5EncoderConfig(vocab=10, dim=16, depth=2, heads=2, head_width=8, hidden=32, head="pooled"))
    >>> model(torch.tensor([[3, 1, 4, 1]])).shape
    torch.Size([1, 16])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: T5EncoderConfig) -> None:
        super().__init__()
        self.config = c = config
        self.tokens, self.encoder = TokenEmbedding(c.vocab, c.dim), Encoder(c)
        self.head = pooled_head(c.head, c.pooling)
        start_as_t5(self, c)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        segments: None = None,
        present: Bool[Tensor, "B T"] | None = None,
        mask: Mask | Tensor | None = None,
    ) -> Float[Tensor, "B *states"]:
        """`present` is True where there is a token; `mask` is for packed rows. There are no segments."""
        return self.head(self.encoder(self.tokens(ids), among(present, mask)), present)


def distances(config: T5Sizes, *, bidirectional: bool) -> Distances:
    """The bias by distance of one stack."""
    return Distances(config.buckets, config.heads, max_distance=config.max_distance, bidirectional=bidirectional)


def encoder_block(config: T5Sizes) -> Block:
    return Block(attention(SelfAttention, config), feed(config), around(config))


def decoder_block(config: T5Config) -> DecoderBlock:
    looks = attention(SelfAttention, config), attention(CrossAttention, config)
    return DecoderBlock(*looks, feed(config), around(config))


def attention(kind: type[nn.Module], config: T5Sizes) -> nn.Module:
    """Self- or cross-attention. The scores are not divided by the root of the width: the queries begin smaller."""
    mix = Mixing(scale=1.0, dropout=config.dropout)
    return kind(config.dim, config.heads, head_width=config.head_width, bias=False, mix=mix)


def feed(config: T5Sizes) -> nn.Module:
    """A feed-forward layer, gated in v1.1."""
    kind = GatedFeedForward if config.gated else FeedForward
    return kind(config.dim, config.hidden, ACTIVATIONS[config.activation], bias=False, dropout=config.dropout)


def around(config: T5Sizes) -> Callable[[], nn.Module]:
    """Makes the residual arrangement of one layer."""
    return lambda: PreNorm(RMSNorm(config.dim, config.eps), config.dropout)


def start_as_t5(model: nn.Module, config: T5Sizes) -> None:
    """Normal weights that keep the variance from layer to layer, and words and their scores with a variance of one."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            smaller = config.head_width if name.endswith("to_query") else 1
            nn.init.normal_(module.weight, std=(module.in_features * smaller) ** -0.5)
        if isinstance(module, Distances):
            nn.init.normal_(module.table.weight, std=config.dim**-0.5)
    own = dict(model.named_parameters(remove_duplicate=False))
    for table in ("head.weight", "tokens.table.weight"):
        if table in own:
            nn.init.normal_(own[table])
