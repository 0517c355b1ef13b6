"""Self-attention with QK-norm: queries and keys are normalised head by head, as in Qwen3 and Gemma 3."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from softlook.blocks.attention import SelfAttention


class QKNormAttention(SelfAttention):
    """Self-attention whose queries and keys are normalised per head, before rotary positions are applied.

    `norm` makes each of the two norms from the width of a head; all other arguments are `SelfAttention`'s.

    >>> import torch
    >>> from softlook.blocks import RMSNorm
    >>> QKNormAttention(16, heads=4, norm=RMSNorm)(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, dim: int, heads: int, *, norm: Callable[[int], nn.Module], **arguments: Any) -> None:
        super().__init__(dim, heads, **arguments)
        self.query_norm, self.key_norm = norm(self.head_width), norm(self.head_width)

    def queries(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B H T D"]:
        return self.query_norm(super().queries(x))

    def keys_values(self, x: Float[Tensor, "B S C"]) -> tuple[Float[Tensor, "B G S D"], Float[Tensor, "B G S D"]]:
        key, value = super().keys_values(x)
        return self.key_norm(key), value
