"""Position embeddings (learned, sinusoidal) and the relative position bias."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.embed.tokens import check_range
from softlook.ops.bias import Bias
from softlook.ops.positions.absolute import sinusoidal
from softlook.ops.positions.relative_bias import t5
from softlook.ops.positions.rotary import Layout


class LearnedPositions(nn.Embedding):
    """Learned absolute position embedding for positions below `context`.

    `offset` rows at the start of the table are not used: RoBERTa and BART reserve two.

    >>> import torch
    >>> LearnedPositions(8, 4)(torch.arange(3)).shape
    torch.Size([3, 4])
    """

    def __init__(self, context: int, dim: int, *, offset: int = 0) -> None:
        super().__init__(context + offset, dim)
        self.context, self.offset = context, offset

    def forward(self, input: Int[Tensor, "*positions"]) -> Float[Tensor, "*positions C"]:
        check_range(input, self.context, "positions", "The sequence is longer than the model's context.")
        return super().forward(input + self.offset if self.offset else input)


class SinusoidalPositions(nn.Module):
    """Sinusoidal position embedding (Vaswani et al. 2017): no parameters, and no maximum length.

    Wavelengths grow geometrically from 2π towards 2π times `theta`. `offset` is the position of the first token.

    >>> import torch
    >>> SinusoidalPositions(4)(torch.arange(2))
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """

    def __init__(self, dim: int, *, layout: Layout = "interleaved", theta: float = 10_000.0, offset: int = 0) -> None:
        super().__init__()
        self.dim, self.theta, self.offset = dim, theta, offset
        self.layout: Layout = layout

    def forward(self, positions: Int[Tensor, "*positions"]) -> Float[Tensor, "*positions C"]:
        return sinusoidal(positions + self.offset, self.dim, theta=self.theta, layout=self.layout)


class RelativePositionBias(nn.Embedding):
    """T5's relative position bias: one learned number per head and bucket of distances, shared by all layers.

    The bias is computed once and added to the attention logits of every layer. MPNet has it as well.

    >>> import torch
    >>> bias = RelativePositionBias(32, heads=4)(torch.zeros(2, 5, 16))
    """

    def __init__(self, buckets: int, heads: int, *, max_distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__(buckets, heads)
        self.max_distance, self.bidirectional = max_distance, bidirectional

    def forward(self, input: Float[Tensor, "B T C"], past: int = 0) -> Bias:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The bias for the hidden states `input`, behind `past` cached positions."""
        bias = t5(self.weight, bidirectional=self.bidirectional, max_distance=self.max_distance)
        return bias.precompute(self.embedding_dim, input.shape[1], past + input.shape[1], input)
