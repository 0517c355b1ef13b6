"""Blocks of FT-Transformer, and weight absorption for the CPU."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError
from softlook.base.tensors import can_read
from softlook.blocks.attention import AttentionCore, MakeAttention, MultiHeadAttention, SelfAttention
from softlook.blocks.block import PreNormBlock
from softlook.blocks.feed_forward import GatedFeedForward
from softlook.ops.bias import Bias

Attend = Callable[[MultiHeadAttention, Tensor, Tensor, "Bias | Tensor | None"], Tensor]
"""(attention, x, context, bias) -> what `x` gathers from the context."""


def attend_to(attn: MultiHeadAttention, x: Tensor, context: Tensor, bias: Bias | Tensor | None) -> Tensor:
    """Multi-head attention with queries of `x` and keys and values of `context`."""
    query, (key, value) = attn.project_q(x), attn.project_kv(context)
    return attn.merge_heads(attn.core(query, key, value, None, bias))


class FTBlock(PreNormBlock):
    """Pre-norm block of FT-Transformer, in which some tokens may attend to all: in the last block, [CLS] alone.

    >>> from softlook.blocks import FeedForward
    >>> block = FTBlock(SelfAttention(16, heads=4), FeedForward(16), lambda: nn.LayerNorm(16))
    >>> x = torch.randn(2, 5, 16)
    >>> torch.testing.assert_close(block(x[:, :1], context=x), block(x)[:, :1])
    """

    _attend: Attend = staticmethod(attend_to)

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]  (no masks, rotary positions or caches in tables)
        self,
        x: Float[Tensor, "B T C"],
        *,
        context: Float[Tensor, "B S C"] | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "B T C"]:
        """`context`: the tokens that `x` attends to; default: `x` itself."""
        if context is None:
            return super().forward(x, bias=bias)
        if not isinstance(self.attn, MultiHeadAttention):
            raise ConfigError(f"the last block needs a MultiHeadAttention, got a {type(self.attn).__name__}")
        x = x + self.dropout(self._attend(self.attn, self.attn_norm(x), self.attn_norm(context), bias))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))


def ft_blocks(
    depth: int,
    dim: int,
    heads: int,
    *,
    hidden: int | None = None,
    attention_dropout: float = 0.0,
    hidden_dropout: float = 0.0,
    dropout: float = 0.0,
    attention: MakeAttention | None = None,
) -> nn.ModuleList:
    """The blocks of FT-Transformer (Gorishniy et al. 2021): pre-norm, ReGLU of width `hidden` (default: 4/3 dim).

    Attention biases start at zero. `attention` builds the attention of each layer from its index.

    >>> first, second = ft_blocks(2, 16, heads=4)
    >>> second(first(torch.randn(5, 3, 16))).shape
    torch.Size([5, 3, 16])
    """
    blocks = nn.ModuleList()
    for layer in range(depth):
        attn = _ft_attention(dim, heads, attention_dropout) if attention is None else attention(layer)
        ffn = GatedFeedForward(
            dim, dim * 4 // 3 if hidden is None else hidden, F.relu, bias=True, dropout=hidden_dropout
        )
        block = FTBlock(attn, ffn, lambda: nn.LayerNorm(dim), dropout=dropout)
        if layer == 0:  # the authors leave the first norm out, and call that crucial
            block.attn_norm = nn.Identity()
        blocks.append(block)
    return blocks


def _ft_attention(dim: int, heads: int, dropout: float) -> SelfAttention:
    attn = SelfAttention(dim, heads, core=AttentionCore(dropout=dropout))
    for projection in (attn.to_query, attn.to_key, attn.to_value, attn.to_out):
        nn.init.zeros_(projection.bias)
    return attn


def absorbed_attend_to(attn: MultiHeadAttention, x: Tensor, context: Tensor, bias: Bias | Tensor | None) -> Tensor:
    """`attend_to` with the key and value projections absorbed into the query and output side, where that is cheaper.

    q . (W_k c) = (W_k^T q) . c, and a mean of W_v c is W_v of the mean: no key or value is computed for any token of
    the context. For few queries this takes fewer products, which on a CPU is less time. (MLA's weight absorption.)
    """
    return (
        _absorbed(attn, x, context)
        if bias is None and _is_cheaper(attn, x, context)
        else attend_to(attn, x, context, bias)
    )


def _absorbed(attn: MultiHeadAttention, x: Tensor, context: Tensor) -> Tensor:
    """The context is the one key head that all query heads share.

    A key bias shifts all scores of a query alike, which the softmax ignores. The value bias counts as often as weights
    survive dropout: a column of ones in the values counts them.
    """
    D = attn.head_dim
    query = attn.split_heads(attn.to_query(x))  # (B, H, T, D)
    (B, H, T, _), C = query.shape, context.shape[-1]
    to_key, to_value = (layer.weight.view(H, D, C) for layer in (attn.to_key, attn.to_value))
    query = (query.transpose(0, 1).reshape(H, B * T, D) * (C / D) ** 0.5) @ to_key  # width C, scaled as for width D
    values = F.pad(context, (0, 1), value=1.0)[:, None]
    output = attn.core(query.view(H, B, T, C).transpose(0, 1), context[:, None], values)  # (B, H, T, C + 1)
    mean, count = output.transpose(0, 1).reshape(H, B * T, C + 1).split([C, 1], -1)
    # Contiguous: with rows at different alignments to 64 bytes, the last bits would depend on the alignment.
    value = mean.contiguous() @ to_value.mT
    if attn.to_value.bias is not None:
        value = torch.addcmul(value, count, attn.to_value.bias.view(H, 1, D))
    return attn.merge_heads(value.view(H, B, T, D).transpose(0, 1))


def _is_cheaper(attn: nn.Module, x: Tensor, context: Tensor) -> bool:
    """On a CPU, with few queries, and plain dot-product attention."""
    if not can_read(x) or not x.shape[1] or type(attn) is not SelfAttention:
        return False
    layers, core, (T, C), S = (attn.to_key, attn.to_value), attn.core, x.shape[1:], context.shape[1]
    is_plain = type(core) is AttentionCore and core.scale is None and core.score is None and core.sink is None
    is_square = all(type(layer) is nn.Linear and layer.weight.shape == (C, C) for layer in layers)
    heads = C // attn.head_dim
    return is_plain and is_square and T * (C + heads * S) < S * C
