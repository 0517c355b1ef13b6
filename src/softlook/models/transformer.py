"""The Transformer: an encoder that reads a sentence, and a decoder that says another about it.

One config covers the paper's own, Marian's translation models, BART, mBART, Pegasus and M2M-100.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import CrossAttention, Mixing, SelfAttention
from softlook.blocks.block import Block, DecoderBlock
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.initial import start_xavier
from softlook.blocks.memory import Memory, memories, places
from softlook.blocks.present import among
from softlook.blocks.residual import PostNorm, PreNorm
from softlook.embed.labels import LabelEmbedding
from softlook.embed.places import LearnedPlaces, SinusoidalPlaces
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.language import language_head
from softlook.ops.dropping import Dropout
from softlook.ops.masks import Mask
from softlook.ops.masks.order import decoder_mask


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """The sizes of a Transformer. The defaults are those of the paper's base model."""

    vocab: int = 37000
    """Number of token ids in the source."""
    target_vocab: int | None = None
    """Number of token ids in the target, with vectors of their own; where not told, both share all vectors."""
    context: int = 1024
    """The longest sequence it has learned positions for; sinusoidal ones have no end."""
    dim: int = 512
    """Width of the vectors between blocks."""
    depth: int = 6
    """Number of blocks in the encoder."""
    decoder_depth: int | None = None
    """Number of blocks in the decoder; as many as in the encoder where not told."""
    heads: int = 8
    """Heads in each attention."""
    hidden: int | None = None
    """Width inside the feed-forward layers; four times `dim` where not told."""
    activation: ActivationName = "relu"
    """The bend inside the feed-forward layers."""
    dropout: float = 0.1
    """Share dropped after the embedding, inside attention and before each addition, while training."""
    norm: Literal["post", "pre"] = "post"
    """Norms behind each addition, as published, or before each layer, with one more to close each stack."""
    places: Literal["sinusoidal", "sinusoidal_half", "sinusoidal_tensor2tensor", "learned"] = "sinusoidal"
    """Positions: sines and cosines in turn, as published; first all sines, as Marian has them; or with the slowest
    frequency at exactly 1/10000, as tensor2tensor and M2M-100 have them; or learned."""
    offset: int = 0
    """Positions before that of the first token, which stand for none; BART and M2M-100 have 2."""
    scaled: bool = True
    """Are the tokens' vectors multiplied with the root of `dim`?"""
    embedding_norm: bool = False
    """Is there a norm behind the embedding, as in BART?"""
    head_bias: bool = False
    """Has each word a score of its own, whatever came before, as in BART and Marian?"""
    tied: bool = True
    """Are words of the target read and said with the same vectors?"""
    labels: int = 0
    """Number of labels that what is said can be conditioned on; 0 for none."""


class Entrance(nn.Module):
    """Ids in; out a vector for what stands there and where, and for what it is to be about."""

    def __init__(self, config: TransformerConfig, tokens: TokenEmbedding, labels: int = 0) -> None:
        super().__init__()
        self.tokens, self.places = tokens, made_places(config)
        self.label = LabelEmbedding(labels, config.dim)
        self.norm = nn.LayerNorm(config.dim) if config.embedding_norm else nn.Identity()
        self.drop = Dropout(config.dropout)

    def forward(
        self, ids: Int[Tensor, "B T"], places: Int[Tensor, "*B T"], label: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B T C"]:
        x = self.tokens(ids)
        x = x + self.places(places).to(x.dtype)
        if label is not None:
            x = x + self.label(label)
        return self.drop(self.norm(x))


class Encoder(nn.Module):
    """Every word looks at every other, again and again."""

    def __init__(self, config: TransformerConfig, tokens: TokenEmbedding) -> None:
        super().__init__()
        self.entrance = Entrance(config, tokens)
        self.blocks = nn.ModuleList(encoder_block(config) for _ in range(config.depth))
        self.norm = closing(config)

    def forward(
        self, ids: Int[Tensor, "B S"], mask: Mask | Tensor | None, positions: Int[Tensor, "*B S"] | None
    ) -> Float[Tensor, "B S C"]:
        x = self.entrance(ids, places(ids, positions, None))
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x)


class Decoder(nn.Module):
    """Every word looks at those before it and at the source, again and again."""

    def __init__(self, config: TransformerConfig, tokens: TokenEmbedding) -> None:
        super().__init__()
        self.entrance = Entrance(config, tokens, config.labels)
        depth = config.depth if config.decoder_depth is None else config.decoder_depth
        self.blocks = nn.ModuleList(decoder_block(config) for _ in range(depth))
        self.norm = closing(config)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        encoded: Float[Tensor, "N S C"],
        *,
        mask: Mask | Tensor | None,
        source_mask: Mask | Tensor | None,
        positions: Int[Tensor, "*B T"] | None,
        label: Int[Tensor, " B"] | None,
        memory: Memory | None,
    ) -> Float[Tensor, "B T C"]:
        x = self.entrance(ids, places(ids, positions, memory), label)
        mask = decoder_mask(mask)
        for block, kept in zip(self.blocks, memories(memory, len(self.blocks)), strict=True):
            x = block(x, encoded, mask=mask, other_mask=source_mask, memory=kept)
        return self.norm(x)


class Transformer(nn.Module):
    """Ids of a source and of a target in, scores of the target's next ids out.

    >>> import torch
    >>> model = Transformer(TransformerConfig(vocab=10, dim=16, depth=2, heads=2))
    >>> model(torch.tensor([[3, 1, 4, 1]]), torch.tensor([[2, 7]])).shape
    torch.Size([1, 2, 10])
    """

    mode: ClassVar = "encoder-decoder"

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = c = config
        source = TokenEmbedding(c.vocab, c.dim, scaled=c.scaled)
        target = source if c.target_vocab is None else TokenEmbedding(c.target_vocab, c.dim, scaled=c.scaled)
        self.encoder, self.decoder = Encoder(c, source), Decoder(c, target)
        tied_to, vocab = target.table if c.tied else None, target.table.num_embeddings
        self.head = language_head(c.dim, vocab, tied_to=tied_to, bias=c.head_bias)
        start_xavier(self)

    def encode(
        self,
        source: Int[Tensor, "B S"],
        *,
        present: Bool[Tensor, "B S"] | None = None,
        mask: Mask | Tensor | None = None,
        positions: Int[Tensor, "*B S"] | None = None,
    ) -> Float[Tensor, "B S C"]:
        """What was understood of the source. `present` is True where there is a token; `mask` and `positions` are for
        packed or left-padded rows."""
        return self.encoder(source, among(present, mask), positions)

    def decode(
        self,
        target: Int[Tensor, "B T"],
        encoded: Float[Tensor, "N S C"],
        *,
        source_present: Bool[Tensor, "N S"] | None = None,
        source_mask: Mask | Tensor | None = None,
        mask: Mask | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
        label: Int[Tensor, " B"] | None = None,
        memory: Memory | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Scores of what comes next. `mask` hides padding beside the future, or replaces the causal mask: see
        `decoder_mask`. `source_mask` hides some of the source. With a `memory`, what was made of the target so far, and
        of the source, is not made again. Where there are fewer sources than targets, neighbours share one."""
        across = among(source_present, source_mask)
        x = self.decoder(
            target, encoded, mask=mask, source_mask=across, positions=positions, label=label, memory=memory
        )
        return self.head(x)

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        *,
        source_present: Bool[Tensor, "B S"] | None = None,
        target_mask: Mask | Tensor | None = None,
        target_positions: Int[Tensor, "*B T"] | None = None,
        label: Int[Tensor, " B"] | None = None,
        memory: Memory | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Read, then say. Whoever says one word at a time calls `encode` once and `decode` for each."""
        return self.decode(
            target,
            self.encode(source, present=source_present),
            source_present=source_present,
            mask=target_mask,
            positions=target_positions,
            label=label,
            memory=memory,
        )


def encoder_block(config: TransformerConfig) -> Block:
    return Block(attention(SelfAttention, config), feed(config), around(config))


def decoder_block(config: TransformerConfig) -> DecoderBlock:
    looks = attention(SelfAttention, config), attention(CrossAttention, config)
    return DecoderBlock(*looks, feed(config), around(config))


def attention(kind: type[nn.Module], config: TransformerConfig) -> nn.Module:
    """Self- or cross-attention of the config's sizes."""
    return kind(config.dim, config.heads, mix=Mixing(dropout=config.dropout))


def feed(config: TransformerConfig) -> nn.Module:
    """A feed-forward layer of the config's sizes."""
    return FeedForward(config.dim, config.hidden, ACTIVATIONS[config.activation])


def around(config: TransformerConfig) -> Callable[[], nn.Module]:
    """Makes the residual arrangement of one layer."""
    kinds = {"post": PostNorm, "pre": PreNorm}
    if config.norm not in kinds:
        raise ConfigError(f"norm wants one of {', '.join(kinds)}; {config.norm!r} came")
    return lambda: kinds[config.norm](nn.LayerNorm(config.dim), config.dropout)


def closing(config: TransformerConfig) -> nn.Module:
    """The norm at the end of a stack: with norms before each layer, what they added up has had none yet."""
    return nn.LayerNorm(config.dim) if config.norm == "pre" else nn.Identity()


def made_places(config: TransformerConfig) -> nn.Module:
    """The positions that the config names."""
    pairs = config.dim // 2
    slower = 10_000.0 ** (pairs / max(pairs - 1, 1))  # with this base, the last of the pairs is at 1/10000
    kinds: dict[str, Callable[[], nn.Module]] = {
        "sinusoidal": lambda: SinusoidalPlaces(config.dim, offset=config.offset),
        "sinusoidal_half": lambda: SinusoidalPlaces(config.dim, layout="half", offset=config.offset),
        "sinusoidal_tensor2tensor": lambda: SinusoidalPlaces(
            config.dim, layout="half", base=slower, offset=config.offset
        ),
        "learned": lambda: LearnedPlaces(config.context, config.dim, offset=config.offset),
    }
    if config.places not in kinds:
        raise ConfigError(f"places wants one of {', '.join(kinds)}; {config.places!r} came")
    return kinds[config.places]()
