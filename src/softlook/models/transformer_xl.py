"""Transformer-XL: a decoder-only Transformer that reads segment by segment and remembers the last ones."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import MaskError
from softlook.blocks.attention import Mixing
from softlook.blocks.feed_forward import FeedForward
from softlook.blocks.initial import start
from softlook.blocks.residual import PostNorm, PreNorm
from softlook.blocks.segments import RelativeAttention, SegmentBlock, SegmentMemory
from softlook.embed.places import SinusoidalPlaces
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.language import language_head
from softlook.ops.dropping import Dropout
from softlook.ops.masks import Mask
from softlook.ops.masks.order import decoder_mask, never_ahead


@dataclass(frozen=True, kw_only=True)
class TransformerXLConfig:
    """The sizes of a Transformer-XL. The defaults are those of the base model for WikiText-103, but for its vocabulary.

    How far it remembers is no part of the model: that is the length of the memory it is handed.
    """

    vocab: int = 32000
    """Number of token ids."""
    dim: int = 410
    """Width of the vectors between blocks."""
    depth: int = 16
    """Number of blocks."""
    heads: int = 10
    """Heads in each block."""
    head_width: int | None = None
    """Width of one head; `dim` / `heads` where not told."""
    hidden: int = 2100
    """Width inside the feed-forward layers."""
    farthest: int | None = None
    """The longest distance that is told from longer ones; None for no such limit."""
    shared_biases: bool = False
    """Do all blocks share the two biases u and v of their scores?"""
    pre_norm: bool = False
    """Does each layer norm what goes in, rather than what comes out? There is no closing norm either way."""
    dropout: float = 0.1
    """Share dropped after the embedding, in the feed-forward layers, before each addition and before the head."""
    attention_dropout: float = 0.0
    """Share of attention weights dropped while training."""
    eps: float = 1e-5
    """Added to the variance in layer norms."""
    tied: bool = True
    """Are words read and said with the same vectors?"""


class TransformerXL(nn.Module):
    """Ids in, scores of the next id out; with a memory, the segment before is looked at as well.

    >>> model = TransformerXL(TransformerXLConfig(vocab=10, dim=16, depth=2, heads=2, hidden=32)).eval()
    >>> ids, memory = torch.tensor([[3, 1, 4, 1]]), SegmentMemory(length=4)
    >>> segments = [model(ids[:, :2], memory=memory), model(ids[:, 2:], memory=memory)]
    >>> torch.allclose(torch.cat(segments, 1), model(ids), atol=1e-5)
    True
    """

    mode: ClassVar = "decoder-only"

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = TokenEmbedding(config.vocab, config.dim, scaled=True)
        self.places = SinusoidalPlaces(config.dim, layout="half")
        self.drop = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.depth))
        tied_to = self.tokens.table if config.tied else None
        self.head = language_head(config.dim, config.vocab, tied_to=tied_to, bias=True)
        self._start()

    def _block(self) -> SegmentBlock:
        c, norm = self.config, PreNorm if self.config.pre_norm else PostNorm
        mix = Mixing(dropout=c.attention_dropout)
        return SegmentBlock(
            RelativeAttention(c.dim, c.heads, head_width=c.head_width, mix=mix),
            FeedForward(c.dim, c.hidden, dropout=c.dropout),
            lambda: norm(nn.LayerNorm(c.dim, c.eps), c.dropout),
        )

    def _start(self) -> None:
        start(self)
        attends = [module for module in self.modules() if isinstance(module, RelativeAttention)]
        for attend in attends:
            nn.init.normal_(attend.content, std=0.02)
            nn.init.normal_(attend.position, std=0.02)
            if self.config.shared_biases:
                attend.content, attend.position = attends[0].content, attends[0].position

    def forward(
        self, ids: Int[Tensor, "B T"], *, mask: Mask | Tensor | None = None, memory: SegmentMemory | None = None
    ) -> Float[Tensor, "B T V"]:
        """`mask` is as in `decoder_mask`, but may not look ahead; its keys are those of the memory and then its own."""
        x, mask = self.drop(self.tokens(ids)), backward_mask(mask)
        distances = self._distances(ids.shape[1] + (0 if memory is None else memory.held), x)
        for layer, block in enumerate(self.blocks):
            past = None if memory is None else memory.exchange(layer, x)
            x = block(x, past, distances, mask=mask)
        return self.head(self.drop(x))

    def _distances(self, count: int, like: Tensor) -> Tensor:
        """The vectors of the distances from 0 up; beyond the farthest, all are one."""
        farthest = self.config.farthest
        numbers = torch.arange(count, device=like.device)
        vectors = self.places(numbers if farthest is None else numbers.clamp(max=farthest))
        return self.drop(vectors.to(like.dtype))


def backward_mask(mask: Mask | Tensor | None) -> Mask | None:
    """As `decoder_mask`, for a model that has vectors only for distances backwards."""
    own = decoder_mask(mask)
    if own is not None and not never_ahead(own):
        raise MaskError(
            f"Transformer-XL has no vector for a key ahead of its query, and this mask may show one: {own}. "
            "Hide the future with causal() & mask, or use a GPT or a Llama."
        )
    return own
