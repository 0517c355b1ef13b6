"""Segment-level recurrence and relative attention (Transformer-XL)."""

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.attention import MultiHeadAttention
from softlook.blocks.block import MakeNorm
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask
from softlook.ops.positions.relative_bias import transformer_xl


class SegmentCache:
    """The last `length` hidden states that entered each layer, without gradients (Transformer-XL's memory).

    Pass the same cache with every segment. `states` are initial states, (B, S, C) for each layer.

    >>> cache = SegmentCache(4)
    >>> cache.update(0, torch.ones(1, 3, 8)) is None
    True
    >>> cache.update(0, torch.zeros(1, 3, 8)).shape, cache.states[0].shape
    (torch.Size([1, 3, 8]), torch.Size([1, 4, 8]))
    """

    def __init__(self, length: int, states: Iterable[Float[Tensor, "B S C"]] = ()) -> None:
        if length < 1:
            raise ConfigError(f"the length of a segment cache must be at least 1, got {length}. Use cache=None.")
        self.length = length
        self.states = [layer.detach()[:, -length:] for layer in states]

    @property
    def held(self) -> int:
        """Number of states of each layer: keys before the next segment."""
        return self.states[0].shape[1] if self.states else 0

    def update(self, layer: int, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B S C"] | None:
        """The cached states of this layer; `x` is cached for the next segment. Layers are updated in order."""
        if layer == len(self.states):
            self.states.append(x.detach()[:, -self.length :])
            return None
        past = self.states[layer]
        if (past.shape[0], past.shape[2]) != (x.shape[0], x.shape[2]):
            raise ShapeError(
                f"the cache holds states of (batch, width) {(past.shape[0], past.shape[2])}, "
                f"got {(x.shape[0], x.shape[2])}. Use a new cache for another batch or model."
            )
        self.states[layer] = torch.cat([past, x.detach()], 1)[:, -self.length :]
        return past

    def reorder(self, rows: Int[Tensor, " N"]) -> None:
        """Select rows of the batch, in this order; a row may occur several times or not at all."""
        self.states = [layer[rows] for layer in self.states]


class RelativeAttention(MultiHeadAttention):
    """Transformer-XL's self-attention: the score is (q + content_bias) . k + (q + position_bias) . r.

    r is the projected sinusoidal embedding of the distance.

    >>> attn = RelativeAttention(16, heads=4)
    >>> attn(torch.randn(2, 3, 16), torch.randn(2, 5, 16), torch.randn(8, 16)).shape
    torch.Size([2, 3, 16])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        head_dim: int | None = None,
        qkv_bias: bool = False,
        core: nn.Module | None = None,
    ) -> None:
        super().__init__(dim, heads, head_dim=head_dim, qkv_bias=qkv_bias, core=core)
        self.to_relative = nn.Linear(dim, heads * self.head_dim, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(heads, self.head_dim))
        self.position_bias = nn.Parameter(torch.zeros(heads, self.head_dim))

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        past: Float[Tensor, "B S C"] | None,
        distances: Float[Tensor, "P C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "B T C"]:
        """`distances` holds the embedding of each distance from 0 on: one per key, cached or not."""
        context = x if past is None else torch.cat([past, x], 1)
        relative = self.split_heads(self.to_relative(distances)[None])[0]
        own_bias = transformer_xl(relative, self.content_bias, self.position_bias)
        bias = own_bias if bias is None else own_bias + bias
        return self.merge_heads(self.core(self.project_q(x), *self.project_kv(context), mask, bias))


class PreNormSegmentBlock(nn.Module):
    """Pre-norm block of Transformer-XL. Cached states were not normalized: they pass the same norm as `x`."""

    def __init__(self, attn: nn.Module, ffn: nn.Module, norm: MakeNorm, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.attn, self.attn_norm = attn, norm()
        self.ffn, self.ffn_norm = ffn, norm()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        past: Float[Tensor, "B S C"] | None,
        distances: Float[Tensor, "P C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "B T C"]:
        past = None if past is None else self.attn_norm(past)
        x = x + self.dropout(self.attn(self.attn_norm(x), past, distances, mask=mask, bias=bias))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))


class PostNormSegmentBlock(nn.Module):
    """Post-norm block of Transformer-XL, as published (Dai et al. 2019).

    >>> from softlook.blocks import FeedForward
    >>> block = PostNormSegmentBlock(RelativeAttention(16, heads=4), FeedForward(16), lambda: nn.LayerNorm(16))
    >>> block(torch.randn(2, 3, 16), None, torch.randn(3, 16)).shape
    torch.Size([2, 3, 16])
    """

    def __init__(self, attn: nn.Module, ffn: nn.Module, norm: MakeNorm, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.attn, self.attn_norm = attn, norm()
        self.ffn, self.ffn_norm = ffn, norm()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        past: Float[Tensor, "B S C"] | None,
        distances: Float[Tensor, "P C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "B T C"]:
        x = self.attn_norm(x + self.dropout(self.attn(x, past, distances, mask=mask, bias=bias)))
        return self.ffn_norm(x + self.dropout(self.ffn(x)))
