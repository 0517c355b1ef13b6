"""GPT-2: a decoder-only Transformer. It reads the past and says what comes next."""

import math
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.blocks.attention import Mixing, SelfAttention
from softlook.blocks.block import Block
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.initial import start
from softlook.blocks.memory import Memory, check_memory, memories, places
from softlook.blocks.residual import PreNorm
from softlook.embed.labels import LabelEmbedding
from softlook.embed.places import LearnedPlaces
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.language import language_head
from softlook.ops.dropping import Dropout
from softlook.ops.masks import Mask
from softlook.ops.masks.order import CAUSAL, decoder_mask


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
        self.tokens = TokenEmbedding(config.vocab, config.dim)
        self.places = LearnedPlaces(config.context, config.dim)
        self.label = LabelEmbedding(config.labels, config.dim)
        self.drop = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim, config.eps)
        tied_to = self.tokens.table if config.tied else None
        self.head = language_head(config.dim, config.vocab, tied_to=tied_to)
        self._start()

    def _block(self) -> Block:
        c = self.config
        return Block(
            SelfAttention(c.dim, c.heads, mix=Mixing(dropout=c.dropout)),
            FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation]),
            lambda: PreNorm(nn.LayerNorm(c.dim, c.eps), c.dropout),
        )

    def _start(self) -> None:
        start(self)
        for name, weight in self.named_parameters():
            if name.endswith("to_out.weight"):  # 2 * depth of these are added up on the residual path
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * self.config.depth))

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        label: Int[Tensor, " B"] | None = None,
        mask: Mask | Tensor | None = None,
        positions: Int[Tensor, "*B T"] | None = None,
        memory: Memory | None = None,
        last: int | None = None,
    ) -> Float[Tensor, "B _ V"]:
        """`mask` hides padding and other documents beside the future, or replaces the causal mask: see `decoder_mask`.
        `positions` are for packed or left-padded rows. `last`: the logits of the last so many positions are all that
        is wanted, and the others are not computed."""
        check_memory(memory, causal=self.config.causal)
        x = self.tokens(ids) + self.places(places(ids, positions, memory))
        if label is not None:
            x = x + self.label(label)
        x, mask = self.drop(x), decoder_mask(mask, CAUSAL if self.config.causal else None)
        for block, kept in zip(self.blocks, memories(memory, len(self.blocks)), strict=True):
            x = block(x, mask=mask, memory=kept)
        return self.head(self.norm(x if last is None else x[:, -last:]))
