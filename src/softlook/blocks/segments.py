"""Segment recurrence: a long text is read piece by piece, and each piece looks back into the pieces before it."""

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.attention import MultiHead
from softlook.blocks.block import Around
from softlook.blocks.residual import PreNorm
from softlook.ops.masks import Mask
from softlook.ops.positions.relative import transformer_xl


class SegmentMemory:
    """The last `length` states that each layer was handed, without their gradients. It starts empty.

    It belongs to whoever reads the segments: pass the same one with each of them. `kept` is what to start from,
    (B, S, C) for each layer, where that is not nothing.

    >>> memory = SegmentMemory(4)
    >>> memory.exchange(0, torch.ones(1, 3, 8)) is None
    True
    >>> memory.exchange(0, torch.zeros(1, 3, 8)).shape, memory.kept[0].shape
    (torch.Size([1, 3, 8]), torch.Size([1, 4, 8]))
    """

    def __init__(self, length: int, kept: Iterable[Float[Tensor, "B S C"]] = ()) -> None:
        if length < 1:
            raise ConfigError(f"a memory of segments keeps at least one state; length={length} came. Pass none at all.")
        self.length = length
        self.kept = [states.detach()[:, -length:] for states in kept]

    @property
    def held(self) -> int:
        """How many states it holds of each layer now: keys that stand before the next segment."""
        return self.kept[0].shape[1] if self.kept else 0

    def exchange(self, layer: int, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B S C"] | None:
        """What this layer kept of the past; `x` goes in for the next segment. Layers come in turn."""
        if layer == len(self.kept):
            self.kept.append(x.detach()[:, -self.length :])
            return None
        past = self.kept[layer]
        if (past.shape[0], past.shape[2]) != (x.shape[0], x.shape[2]):
            raise ShapeError(
                f"this memory holds {past.shape[0]} sequences, {past.shape[2]} wide; {x.shape[0]} came, {x.shape[2]} "
                "wide. Begin other sequences, or another model, with a memory of their own."
            )
        self.kept[layer] = torch.cat([past, x.detach()], 1)[:, -self.length :]
        return past

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Go on with these rows of the batch, in this order; a row may come several times or not at all."""
        self.kept = [states[rows] for states in self.kept]


class RelativeAttention(MultiHead):
    """Self-attention of Transformer-XL: a segment looks at itself and at its past, by content and by distance.

    The score is (q + content) . k + (q + position) . r, where r is made of the vector of the distance.

    >>> attend = RelativeAttention(16, heads=4)
    >>> attend(torch.randn(2, 3, 16), torch.randn(2, 5, 16), torch.randn(8, 16)).shape
    torch.Size([2, 3, 16])
    """

    def __init__(
        self, dim: int, heads: int, *, head_width: int | None = None, bias: bool = False, mix: nn.Module | None = None
    ) -> None:
        super().__init__(dim, heads, head_width=head_width, bias=bias, mix=mix)
        self.to_relative = nn.Linear(dim, heads * self.head_width, bias=False)
        self.content = nn.Parameter(torch.zeros(heads, self.head_width))
        self.position = nn.Parameter(torch.zeros(heads, self.head_width))

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        past: Float[Tensor, "B S C"] | None,
        distances: Float[Tensor, "P C"],
        *,
        mask: Mask | Tensor | None = None,
    ) -> Float[Tensor, "B T C"]:
        """`distances` has a vector for each distance from 0 up: one for each state, past and present."""
        seen = x if past is None else torch.cat([past, x], 1)
        relative = self.split(self.to_relative(distances)[None])[0]
        bias = transformer_xl(relative, self.content, self.position)
        return self.join(self.mix(self.split(self.to_query(x)), *self.keys_values(seen), mask, bias))


class SegmentBlock(nn.Module):
    """Look at this segment and back into the last ones, then think.

    >>> from softlook.blocks import FeedForward, PostNorm
    >>> block = SegmentBlock(RelativeAttention(16, heads=4), FeedForward(16), lambda: PostNorm(nn.LayerNorm(16)))
    >>> block(torch.randn(2, 3, 16), None, torch.randn(3, 16)).shape
    torch.Size([2, 3, 16])
    """

    def __init__(self, attend: RelativeAttention, feed: nn.Module, around: Around) -> None:
        super().__init__()
        self.attend, self.around_attend = attend, around()
        self.feed, self.around_feed = feed, around()

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        past: Float[Tensor, "B S C"] | None,
        distances: Float[Tensor, "P C"],
        *,
        mask: Mask | Tensor | None = None,
    ) -> Float[Tensor, "B T C"]:
        if past is not None and isinstance(self.around_attend, PreNorm):
            past = self.around_attend.norm(past)  # states are kept as they came: old and new go through the same norm
        x = self.around_attend(x, lambda present: self.attend(present, past, distances, mask=mask))
        return self.around_feed(x, self.feed)
