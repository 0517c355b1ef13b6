"""The all-attention layer: vectors that are learned stand beside the context, and no feed-forward layer is needed."""

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import MultiHead
from softlook.blocks.beside import bias_beside, mask_beside
from softlook.blocks.block import Around
from softlook.blocks.memory import LayerMemory
from softlook.ops.bias import Bias
from softlook.ops.masks import Mask


class AllAttention(MultiHead):
    """Self-attention with `vectors` persistent keys and values in each head: one softmax over those and the context.

    They are what a model knows, whatever it reads: never hidden, at no position, and no part of the memory of the
    past. They stand in front, so the first `vectors` columns of the map are theirs. Positions come in as a bias,
    which speaks of the context alone.

    >>> from softlook import masks
    >>> attend = AllAttention(16, heads=4, vectors=32)
    >>> attend(torch.randn(2, 5, 16), mask=masks.causal()).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        vectors: int,
        kv_heads: int | None = None,
        head_width: int | None = None,
        bias: bool = True,
        mix: nn.Module | None = None,
    ) -> None:
        super().__init__(dim, heads, kv_heads=kv_heads, head_width=head_width, bias=bias, mix=mix)
        if vectors < 1:
            raise ConfigError(f"all-attention wants at least one persistent vector; {vectors} came. Use SelfAttention.")
        shape = (heads if kv_heads is None else kv_heads, vectors, self.head_width)
        self.vectors = vectors
        self.keys = nn.Parameter(torch.randn(shape) / math.sqrt(self.head_width))
        self.values = nn.Parameter(torch.randn(shape) / math.sqrt(vectors))

    def persistent(self, batch: int) -> tuple[Float[Tensor, "B G N D"], Float[Tensor, "B G N D"]]:
        """The persistent keys and values at their full size.

        They are learned small, as other weights are, and scaled at use: keys to the size of keys that are worked out,
        values so that an even look at all of them is not lost in the average.
        """
        key, value = self.keys * math.sqrt(self.head_width), self.values * math.sqrt(self.vectors)
        return key.expand(batch, -1, -1, -1), value.expand(batch, -1, -1, -1)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        key, value = self.keys_values(x)
        if memory is not None:
            key, value = memory.extend(key, value)
        first_key, first_value = self.persistent(len(x))
        key, value = torch.cat([first_key, key], 2), torch.cat([first_value, value], 2)
        mask, bias = mask_beside(mask, self.vectors), bias_beside(bias, self.vectors)
        return self.join(self.mix(self.split(self.to_query(x)), key, value, mask, bias))


class AllAttentionBlock(nn.Module):
    """A block of one layer: to look is to think.

    >>> from softlook.blocks import PostNorm
    >>> block = AllAttentionBlock(AllAttention(16, heads=4, vectors=32), lambda: PostNorm(nn.LayerNorm(16)))
    >>> block(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, attend: nn.Module, around: Around) -> None:
        super().__init__()
        self.attend, self.around_attend = attend, around()

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        memory: LayerMemory | None = None,
    ) -> Float[Tensor, "B T C"]:
        return self.around_attend(x, partial(self.attend, mask=mask, bias=bias, memory=memory))
