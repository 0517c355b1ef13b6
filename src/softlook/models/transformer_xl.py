"""Transformer-XL."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import MaskError
from softlook.blocks.attention import AttentionCore, MakeAttention
from softlook.blocks.feed_forward import FeedForward
from softlook.blocks.init import init_normal
from softlook.blocks.segments import PostNormSegmentBlock, PreNormSegmentBlock, RelativeAttention, SegmentCache
from softlook.embed.positions import SinusoidalPositions
from softlook.embed.tokens import TokenEmbedding
from softlook.heads.lm import build_lm_head
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask
from softlook.ops.masks.decoder import decoder_mask, hides_future


@dataclass(frozen=True, kw_only=True)
class TransformerXLConfig:
    """Hyperparameters of a Transformer-XL. The defaults are those of the base model for WikiText-103, but for `vocab`.

    The length of the memory is that of the `SegmentCache` passed to the model.
    """

    vocab_size: int = 32000
    """Vocabulary size."""
    dim: int = 410
    """Width of the hidden states."""
    depth: int = 16
    """Number of blocks."""
    heads: int = 10
    """Number of attention heads."""
    head_dim: int | None = None
    """Width of one head; default: dim / heads."""
    hidden: int = 2100
    """Width inside the feed-forward layers."""
    max_distance: int | None = None
    """Distances are clamped to this; default: no limit."""
    share_biases: bool = False
    """Whether all blocks share the biases u and v of their scores."""
    pre_norm: bool = False
    """Whether norms come before each layer. There is no final norm either way."""
    dropout: float = 0.1
    """Dropout probability of embeddings, feed-forward layers, layer outputs and of the input of the LM head."""
    attention_dropout: float = 0.0
    """Dropout probability of the attention weights."""
    eps: float = 1e-5
    """Epsilon of the layer norms."""
    tie_embeddings: bool = True
    """Whether the LM head shares the weight of the token embedding."""


class TransformerXL(nn.Module):
    """Transformer-XL (Dai et al. 2019): ids in, logits out; with a cache, attends to the segments before.

    `attention(layer)` builds the attention of each layer; default: `RelativeAttention` with the sizes of the config.

    >>> model = TransformerXL(TransformerXLConfig(vocab_size=10, dim=16, depth=2, heads=2, hidden=32)).eval()
    >>> ids, cache = torch.tensor([[3, 1, 4, 1]]), SegmentCache(length=4)
    >>> segments = [model(ids[:, :2], cache=cache), model(ids[:, 2:], cache=cache)]
    >>> torch.allclose(torch.cat(segments, 1), model(ids), atol=1e-5)
    True
    """

    mode: ClassVar = "decoder-only"

    def __init__(self, config: TransformerXLConfig, *, attention: MakeAttention | None = None) -> None:
        super().__init__()
        self.config = c = config
        self.token_embedding = TokenEmbedding(c.vocab_size, c.dim, scale=True)
        self.distance_embedding = SinusoidalPositions(c.dim, layout="half")
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(self._block(layer, attention) for layer in range(c.depth))
        tie_to = self.token_embedding if c.tie_embeddings else None
        self.lm_head = build_lm_head(c.dim, c.vocab_size, tie_to=tie_to, bias=True)
        self._init_weights()

    def _block(self, layer: int, attention: MakeAttention | None) -> nn.Module:
        c = self.config
        if attention is None:
            core = AttentionCore(dropout=c.attention_dropout)
            attn: nn.Module = RelativeAttention(c.dim, c.heads, head_dim=c.head_dim, core=core)
        else:
            attn = attention(layer)
        ffn = FeedForward(c.dim, c.hidden, dropout=c.dropout)
        block = PreNormSegmentBlock if c.pre_norm else PostNormSegmentBlock
        return block(attn, ffn, lambda: nn.LayerNorm(c.dim, c.eps), dropout=c.dropout)

    def _init_weights(self) -> None:
        init_normal(self)
        attentions = [module for module in self.modules() if isinstance(module, RelativeAttention)]
        for attn in attentions:
            nn.init.normal_(attn.content_bias, std=0.02)
            nn.init.normal_(attn.position_bias, std=0.02)
            if self.config.share_biases:
                attn.content_bias, attn.position_bias = attentions[0].content_bias, attentions[0].position_bias

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        cache: SegmentCache | None = None,
    ) -> Float[Tensor, "B T V"]:
        """`mask` is as in `decoder_mask`, but must hide the future; its keys are the cached ones, then the segment's.
        `bias` is added to the attention logits of every layer."""
        x, mask = self.dropout(self.token_embedding(ids)), causal_mask(mask)
        distances = self._embed_distances(ids.shape[1] + (0 if cache is None else cache.held), x)
        for layer, block in enumerate(self.blocks):
            past = None if cache is None else cache.update(layer, x)
            x = block(x, past, distances, mask=mask, bias=bias)
        return self.lm_head(self.dropout(x))

    def _embed_distances(self, count: int, like: Tensor) -> Tensor:
        """Embeddings of the distances from 0 to count - 1, clamped to `max_distance`."""
        max_distance = self.config.max_distance
        distances = torch.arange(count, device=like.device)
        vectors = self.distance_embedding(distances if max_distance is None else distances.clamp(max=max_distance))
        return self.dropout(vectors.to(like.dtype))


def causal_mask(mask: Mask | Tensor | None) -> Mask | None:
    """As `decoder_mask`, for a model that has embeddings of backward distances only."""
    own = decoder_mask(mask)
    if own is not None and not hides_future(own):
        raise MaskError(
            f"Transformer-XL has no embedding for keys after the query, which this mask may show: {own}. "
            "Use causal() & mask, or a GPT or a Llama."
        )
    return own
