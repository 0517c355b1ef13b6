"""Transformer blocks: attention and feed-forward, with residuals and norms."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from softlook.blocks.kv_cache import LayerCache
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask
from softlook.ops.positions.rotary import RotaryAngles

MakeNorm = Callable[[], nn.Module]
"""Builds one norm: `lambda: nn.LayerNorm(dim)`."""


class PreNormBlock(nn.Module):
    """Pre-norm block, x + layer(norm(x)), as in GPT-2 and Llama: stable without warm-up. The model ends with a norm.

    An encoder block, or with a causal mask the block of a decoder-only model. Dropout applies to what each layer adds.

    >>> import torch
    >>> from softlook.blocks import FeedForward, SelfAttention
    >>> block = PreNormBlock(SelfAttention(16, heads=4), FeedForward(16), lambda: nn.LayerNorm(16))
    >>> block(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, attn: nn.Module, ffn: nn.Module, norm: MakeNorm, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.attn, self.attn_norm = attn, norm()
        self.ffn, self.ffn_norm = ffn, norm()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        x = x + self.dropout(self.attn(self.attn_norm(x), mask=mask, bias=bias, rotary=rotary, cache=cache))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))


class PostNormBlock(nn.Module):
    """Post-norm block, norm(x + layer(x)), as in the original Transformer and BERT. Training needs warm-up.

    >>> import torch
    >>> from softlook.blocks import FeedForward, SelfAttention
    >>> block = PostNormBlock(SelfAttention(16, heads=4), FeedForward(16), lambda: nn.LayerNorm(16))
    >>> block(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, attn: nn.Module, ffn: nn.Module, norm: MakeNorm, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.attn, self.attn_norm = attn, norm()
        self.ffn, self.ffn_norm = ffn, norm()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        x = self.attn_norm(x + self.dropout(self.attn(x, mask=mask, bias=bias, rotary=rotary, cache=cache)))
        return self.ffn_norm(x + self.dropout(self.ffn(x)))


class SandwichNormBlock(nn.Module):
    """Norms before and after each layer, x + post_norm(layer(norm(x))), as in Gemma 2: bounds what a layer adds."""

    def __init__(self, attn: nn.Module, ffn: nn.Module, norm: MakeNorm, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.attn, self.attn_norm, self.attn_post_norm = attn, norm(), norm()
        self.ffn, self.ffn_norm, self.ffn_post_norm = ffn, norm(), norm()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        attended = self.attn(self.attn_norm(x), mask=mask, bias=bias, rotary=rotary, cache=cache)
        x = x + self.dropout(self.attn_post_norm(attended))
        return x + self.dropout(self.ffn_post_norm(self.ffn(self.ffn_norm(x))))


class ParallelBlock(nn.Module):
    """Attention and feed-forward in parallel, x + attn(norm(x)) + ffn(norm'(x)), as in GPT-NeoX.

    >>> import torch
    >>> from softlook.blocks import FeedForward, SelfAttention
    >>> block = ParallelBlock(SelfAttention(16, heads=4), FeedForward(16), lambda: nn.LayerNorm(16))
    >>> block(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, attn: nn.Module, ffn: nn.Module, norm: MakeNorm, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.attn, self.attn_norm = attn, norm()
        self.ffn, self.ffn_norm = ffn, norm()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        attended = self.dropout(self.attn(self.attn_norm(x), mask=mask, bias=bias, rotary=rotary, cache=cache))
        return x + attended + self.dropout(self.ffn(self.ffn_norm(x)))


class SharedNormParallelBlock(nn.Module):
    """Parallel block with one norm for both layers, x + attn(norm(x)) + ffn(norm(x)), as in GPT-J and PaLM."""

    def __init__(self, attn: nn.Module, ffn: nn.Module, norm: MakeNorm, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.attn, self.ffn, self.norm, self.dropout = attn, ffn, norm(), Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        rotary: RotaryAngles | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        normed = self.norm(x)
        attended = self.attn(normed, mask=mask, bias=bias, rotary=rotary, cache=cache)
        return x + self.dropout(attended + self.ffn(normed))


class PreNormDecoderBlock(nn.Module):
    """Pre-norm block of an encoder-decoder's decoder: self-attention, cross-attention, feed-forward.

    >>> import torch
    >>> from softlook.blocks import CrossAttention, FeedForward, SelfAttention
    >>> layers = SelfAttention(16, heads=4), CrossAttention(16, heads=4), FeedForward(16)
    >>> block = PreNormDecoderBlock(*layers, lambda: nn.LayerNorm(16))
    >>> block(torch.randn(2, 5, 16), torch.randn(2, 9, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self, attn: nn.Module, cross_attn: nn.Module, ffn: nn.Module, norm: MakeNorm, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attn, self.attn_norm = attn, norm()
        self.cross_attn, self.cross_attn_norm = cross_attn, norm()
        self.ffn, self.ffn_norm = ffn, norm()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        encoder_states: Float[Tensor, "N S C"],
        *,
        mask: Mask | Tensor | None = None,
        encoder_mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        cross_bias: Bias | Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        x = x + self.dropout(self.attn(self.attn_norm(x), mask=mask, bias=bias, cache=cache))
        normed = self.cross_attn_norm(x)
        x = x + self.dropout(self.cross_attn(normed, encoder_states, mask=encoder_mask, bias=cross_bias, cache=cache))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))


class PostNormDecoderBlock(nn.Module):
    """Post-norm block of an encoder-decoder's decoder, as in the original Transformer.

    >>> import torch
    >>> from softlook.blocks import CrossAttention, FeedForward, SelfAttention
    >>> layers = SelfAttention(16, heads=4), CrossAttention(16, heads=4), FeedForward(16)
    >>> block = PostNormDecoderBlock(*layers, lambda: nn.LayerNorm(16))
    >>> block(torch.randn(2, 5, 16), torch.randn(2, 9, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self, attn: nn.Module, cross_attn: nn.Module, ffn: nn.Module, norm: MakeNorm, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.attn, self.attn_norm = attn, norm()
        self.cross_attn, self.cross_attn_norm = cross_attn, norm()
        self.ffn, self.ffn_norm = ffn, norm()
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T C"],
        encoder_states: Float[Tensor, "N S C"],
        *,
        mask: Mask | Tensor | None = None,
        encoder_mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
        cross_bias: Bias | Tensor | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "B T C"]:
        x = self.attn_norm(x + self.dropout(self.attn(x, mask=mask, bias=bias, cache=cache)))
        attended = self.cross_attn(x, encoder_states, mask=encoder_mask, bias=cross_bias, cache=cache)
        x = self.cross_attn_norm(x + self.dropout(attended))
        return self.ffn_norm(x + self.dropout(self.ffn(x)))
