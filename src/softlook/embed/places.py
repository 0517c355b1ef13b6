"""Positions as vectors, to be added to what stands there."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ShapeError
from softlook.base.tracing import can_read
from softlook.ops.positions.frequencies import Layout
from softlook.ops.positions.tables import sinusoidal


class LearnedPlaces(nn.Module):
    """One learned vector for each position up to `context`, and no promise beyond.

    `offset` rows at the start of the table are passed over: RoBERTa and BART keep two there for other uses.

    >>> import torch
    >>> LearnedPlaces(8, 4)(torch.arange(3)).shape
    torch.Size([3, 4])
    """

    def __init__(self, context: int, dim: int, *, offset: int = 0) -> None:
        super().__init__()
        self.table = nn.Embedding(context + offset, dim)
        self.context, self.offset = context, offset

    def forward(self, places: Int[Tensor, "*places"]) -> Float[Tensor, "*places C"]:
        if places.numel() and can_read(places):
            low, high = (int(bound) for bound in places.aminmax())
            if low < 0 or high >= self.context:
                raise ShapeError(
                    f"this model knows positions 0 to {self.context - 1}; {low} to {high} came. Shorten the sequence."
                )
        return self.table(places + self.offset if self.offset else places)


class SinusoidalPlaces(nn.Module):
    """Sines and cosines of overlaid frequencies: nothing is learned, and there is no end.

    Wavelengths grow from 2π up to, but not including, 2π times `base`. `offset` is the number of the first position.

    >>> import torch
    >>> SinusoidalPlaces(4)(torch.arange(2))
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """

    def __init__(self, dim: int, *, layout: Layout = "interleaved", base: float = 10_000.0, offset: int = 0) -> None:
        super().__init__()
        self.dim, self.base, self.offset = dim, base, offset
        self.layout: Layout = layout

    def forward(self, places: Int[Tensor, "*places"]) -> Float[Tensor, "*places C"]:
        return sinusoidal(places + self.offset, self.dim, base=self.base, layout=self.layout)
