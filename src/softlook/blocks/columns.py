"""The blocks of FT-Transformer (Gorishniy et al. 2021), in which the tokens of a row's columns look at one another."""

from torch import nn
from torch.nn import functional as F

from softlook.blocks.attention import Mixing, SelfAttention
from softlook.blocks.block import Block
from softlook.blocks.feed_forward import GatedFeedForward
from softlook.blocks.residual import PreNorm


def column_blocks(
    depth: int,
    dim: int,
    heads: int,
    *,
    hidden: int | None = None,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    dropout: float = 0.0,
) -> nn.ModuleList:
    """Pre-norm blocks with a ReGLU, `hidden` wide or 4/3 of `dim`; attention begins without biases.

    >>> import torch
    >>> first, second = column_blocks(2, 16, heads=4)
    >>> second(first(torch.randn(5, 3, 16))).shape
    torch.Size([5, 3, 16])
    """
    blocks = nn.ModuleList()
    for _ in range(depth):
        attend = SelfAttention(dim, heads, mix=Mixing(dropout=attention_dropout))
        for projection in (attend.to_query, attend.to_key, attend.to_value, attend.to_out):
            nn.init.zeros_(projection.bias)
        feed = GatedFeedForward(
            dim, dim * 4 // 3 if hidden is None else hidden, F.relu, bias=True, dropout=hidden_dropout
        )
        block = Block(attend, feed, lambda: PreNorm(nn.LayerNorm(dim), dropout))
        if not blocks:  # the authors leave the very first norm out, and call that crucial
            block.around_attend = PreNorm(nn.Identity(), dropout)
        blocks.append(block)
    return blocks
