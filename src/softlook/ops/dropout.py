"""Dropout with a faster RNG on the CPU.

torch draws 32 or more random bits per element, one after the other, which on a CPU can be a sixth of a training step.
Here each element gets 16 bits of torch's own generator, four elements from one 64-bit number.
"""

import torch
from jaxtyping import Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.tensors import can_read

LEVELS = 1 << 16
"""Values of 16 random bits: probabilities are rounded to one in this many."""
MIN_ELEMENTS = 1 << 13
"""Below this size torch's dropout is as fast: launching six small operations costs as much."""
HALF_DTYPES = (torch.float16, torch.bfloat16)


def dropout(x: Shaped[Tensor, "*dims"], p: float) -> Shaped[Tensor, "*dims"]:
    """Zero elements with probability `p` and scale the others by 1 / (1 - p). Always applied.

    On a CPU `p` is rounded to 1/65536 and the scale uses the rounded value: the expectation is exact, the probability
    within 1/131072. Small tensors, compiled and traced models, other devices and probabilities that round to 0 or 1 use
    torch's dropout. Random numbers come from torch's default generator.

    >>> import torch
    >>> x = torch.ones(100_000)
    >>> dropout(x, 0.25).unique()
    tensor([0.0000, 1.3333])
    >>> dropout(x, 0.0) is x
    True
    """
    if p == 0:
        return x
    if not _is_supported(x) or not 0 < (dropped := round(p * LEVELS)) < LEVELS:
        return F.dropout(x, p)
    keep, scale = _keep_mask(x, dropped), LEVELS / (LEVELS - dropped)
    if x.dtype in HALF_DTYPES:
        return (x * keep).mul_(scale)  # in half precision the scale itself would be rounded
    return x * keep.mul_(scale)


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` with the RNG of `dropout`: a fifth of the forward time on a CPU.

    >>> import torch
    >>> drop, x = Dropout(0.1), torch.ones(3)
    >>> drop.eval()(x) is x
    True
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return input
        return super().forward(input) if self.inplace else dropout(input, self.p)


def _is_supported(x: Tensor) -> bool:
    """Whether it is a large plain CPU tensor. Transforms need torch's dropout: `vmap` has its own randomness rules."""
    return x.numel() >= MIN_ELEMENTS and can_read(x)


def _keep_mask(x: Tensor, dropped: int) -> Tensor:
    """One where an element is kept, zero where its 16 bits fall below `dropped` levels."""
    numbers = torch.empty(-(-x.numel() // 4), dtype=torch.int64, device=x.device).random_(-(2**63), None)
    uniforms = numbers.view(torch.int16)[: x.numel()].view(x.shape)
    # Compared in place and converted: a comparison that writes booleans takes four times as long.
    return uniforms.ge_(dropped - LEVELS // 2).to(x.dtype)
