"""Whole blocks for one word at a time: the same sums as in the plain ones, without all that is called around them.

For a few rows, calling modules takes longer than what they do. Hooks on a block, and on where it mixes, are heard as
ever; those on its other parts are not when it goes word by word.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.blocks.block import Block, DecoderBlock
from softlook.blocks.branches import Branch
from softlook.blocks.feed_forward import FeedForward
from softlook.blocks.memory import LayerMemory
from softlook.blocks.residual import PostNorm, PreNorm
from softlook.blocks.sharing import look_together
from softlook.decode.lean import CAUSAL, LeanCross, LeanSelf, watched
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask
from softlook.ops.masks.algebra import Dense
from softlook.ops.positions.rotary import Phases


class Around:
    """A residual arrangement with a layer norm, before or behind."""

    def __init__(self, plain: nn.Module) -> None:
        norm = plain.norm
        assert isinstance(norm, nn.LayerNorm)
        self.before = isinstance(plain, PreNorm)
        self.how = norm.normalized_shape, norm.weight, norm.bias, norm.eps

    def enter(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, *self.how) if self.before else x

    def leave(self, x: Tensor, added: Tensor) -> Tensor:
        return x + added if self.before else torch.layer_norm(x + added, *self.how)


class LeanBlock(nn.Module):
    """A block of a decoder whose parts are all plain. What is not one word of several ways goes the long way."""

    attend: Any
    cross: Any
    feed: Any

    def __init__(self, plain: Block | DecoderBlock) -> None:
        super().__init__()
        self.plain, self.attend, self.feed = plain, plain.attend, plain.feed
        self.cross = plain.cross if isinstance(plain, DecoderBlock) else None
        self.around_attend, self.around_feed = Around(plain.around_attend), Around(plain.around_feed)
        self.around_cross = Around(plain.around_cross) if isinstance(plain, DecoderBlock) else None

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        other: Float[Tensor, "N S C"] | None = None,
        *,
        mask: Mask | Tensor | None = None,
        other_mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        phases: Phases | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        plain = bias is None and phases is None and (mask is None or mask == CAUSAL)
        known = other_mask is None or (isinstance(other_mask, Dense) and other_mask.seen.shape[1:3] == (1, 1))
        if plain and known and isinstance(memory, Branch) and x.shape[1] == 1 and self._is_ready(memory):
            return self._word(x.squeeze(1), memory, memory.whole.shade(other_mask)).unsqueeze(1)  # pyright: ignore[reportArgumentType]
        if self.cross is None:
            return self.plain(x, mask=mask, bias=bias, phases=phases, memory=memory)
        return self.plain(x, other, mask=mask, other_mask=other_mask, bias=bias, memory=memory)

    def _is_ready(self, memory: Branch) -> bool:
        if memory.whole.paths is None or watched(self.attend.mix):
            return False
        return self.cross is None or (memory.other is not None and not watched(self.cross.mix))

    def _word(self, x: Float[Tensor, "B C"], memory: Branch, shade: Tensor | None) -> Float[Tensor, "B C"]:
        attend, around, ways = self.attend, self.around_attend, memory.whole.ways
        heads = attend.joined.forward(around.enter(x)).view(-1, ways, attend.heads + 2 * attend.kv_heads, attend.width)
        x = around.leave(x, attend.to_out.forward(memory.look(heads, attend.kv_heads, attend.scale)))
        cross, around = self.cross, self.around_cross
        if cross is not None and around is not None and memory.other is not None:
            query = cross.to_query.forward(around.enter(x)).view(-1, ways, cross.heads, cross.width).transpose(1, 2)
            looked = look_together(query, *memory.other, allowed=shade, scale=cross.scale)
            x = around.leave(x, cross.to_out.forward(looked))
        feed, around = self.feed, self.around_feed
        return around.leave(x, feed.to_out.forward(feed.act(feed.to_hidden.forward(around.enter(x)))))


def can_be_lean(block: nn.Module) -> bool:
    """Are all parts those that `LeanBlock` knows?"""
    if type(block) not in (Block, DecoderBlock) or type(block.feed) is not FeedForward:
        return False
    looks = [(block.attend, LeanSelf), *([(block.cross, LeanCross)] if type(block) is DecoderBlock else [])]
    arounds = [part for name, part in block.named_children() if name.startswith("around")]
    return all(type(look) is kind for look, kind in looks) and all(
        type(around) in (PostNorm, PreNorm) and type(around.norm) is nn.LayerNorm for around in arounds
    )
