"""Blocks: attention and feed-forward, each with a residual around it. Parts are handed in."""

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from softlook.blocks.memory import LayerMemory
from softlook.blocks.residual import PreNorm
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask
from softlook.ops.positions.rotary import Phases

Around = Callable[[], nn.Module]
"""Makes the residual arrangement of one layer: `lambda: PreNorm(nn.LayerNorm(dim), dropout)`."""


class Block(nn.Module):
    """Look, then think: an encoder block, or with a causal mask the block of a decoder that has no encoder.

    >>> import torch
    >>> from softlook.blocks import FeedForward, PreNorm, SelfAttention
    >>> block = Block(SelfAttention(16, heads=4), FeedForward(16), lambda: PreNorm(nn.LayerNorm(16)))
    >>> block(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, attend: nn.Module, feed: nn.Module, around: Around) -> None:
        super().__init__()
        self.attend, self.around_attend = attend, around()
        self.feed, self.around_feed = feed, around()

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        phases: Phases | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        look = partial(self.attend, mask=mask, bias=bias, phases=phases, memory=memory)
        return self.around_feed(self.around_attend(x, look), self.feed)


class DecoderBlock(nn.Module):
    """Look back at what was said, look across at what it is about, then think.

    >>> import torch
    >>> from softlook.blocks import CrossAttention, FeedForward, PostNorm, SelfAttention
    >>> parts = SelfAttention(16, heads=4), CrossAttention(16, heads=4), FeedForward(16)
    >>> block = DecoderBlock(*parts, lambda: PostNorm(nn.LayerNorm(16)))
    >>> block(torch.randn(2, 5, 16), torch.randn(2, 9, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, attend: nn.Module, cross: nn.Module, feed: nn.Module, around: Around) -> None:
        super().__init__()
        self.attend, self.around_attend = attend, around()
        self.cross, self.around_cross = cross, around()
        self.feed, self.around_feed = feed, around()

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        other: Float[Tensor, "N S C"],
        *,
        mask: Mask | Tensor | None = None,
        other_mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        x = self.around_attend(x, partial(self.attend, mask=mask, bias=bias, memory=memory))
        x = self.around_cross(x, partial(self.cross, other=other, mask=other_mask, memory=memory))
        return self.around_feed(x, self.feed)


class ParallelBlock(nn.Module):
    """Look and think at once: both read the same normed vector, and both are added."""

    def __init__(self, attend: nn.Module, feed: nn.Module, around: Around) -> None:
        super().__init__()
        self.attend, self.feed, self.around = attend, feed, around()

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        phases: Phases | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        look = partial(self.attend, mask=mask, bias=bias, phases=phases, memory=memory)
        return self.around(x, lambda normed: look(normed) + self.feed(normed))


class ParallelResidualBlock(nn.Module):
    """x + attend(norm(x)) + feed(another norm(x)): attention and feed-forward side by side, as in GPT-NeoX.

    >>> import torch
    >>> from softlook.blocks import FeedForward, PreNorm, SelfAttention
    >>> around = lambda: PreNorm(nn.LayerNorm(16))
    >>> ParallelResidualBlock(SelfAttention(16, heads=4), FeedForward(16), around)(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, attend: nn.Module, feed: nn.Module, around: Callable[[], PreNorm]) -> None:
        super().__init__()
        self.attend, self.around_attend = attend, around()
        self.feed, self.around_feed = feed, around()

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        phases: Phases | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        look = partial(self.attend, mask=mask, bias=bias, phases=phases, memory=memory)
        return self.around_attend(x, look) + self.around_feed.branch(x, self.feed)
