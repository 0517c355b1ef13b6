"""A unit of its own in front of a sequence, which may look at everything and gathers what the whole is about."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class GlobalUnit(nn.Module):
    """Puts one learned vector in front; after the encoder, `heads.FirstPool` reads what it has gathered.

    A mask over the sequence gets one more place in front as well.

    >>> GlobalUnit(4)(torch.randn(2, 3, 4)).shape
    torch.Size([2, 4, 4])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(dim))
        nn.init.normal_(self.vector, std=0.02)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T1 C"]:
        return torch.cat([self.vector.expand(x.shape[0], 1, -1), x], 1)
