"""Five layers that read a sequence, each in the same small model, for comparisons on artificial tasks."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from softlook import masks
from softlook.blocks import ConvolutionStack, DeltaRuleAttention, FeedForward, LinearAttention, SelfAttention

DIM = 32
COLORS = {"attention": "query", "delta rule": "output", "sum": "value", "GRU": "key", "convolution": "weight"}


class CausalAttention(SelfAttention):
    """Self-attention with a causal mask: a layer like the others, x in and x out."""

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x, mask=masks.causal())


class GRU(nn.GRU):
    """A recurrent network with gates, the states without the last one again."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(x)[0]


def dilated_convolutions(dim: int, length: int) -> ConvolutionStack:
    """Convolutions of size 2 whose dilations double until the last output depends on the first input."""
    depth = max((length - 1).bit_length(), 1)
    return ConvolutionStack(dim, 2, [2**layer for layer in range(depth)])


LAYERS: Mapping[str, Callable[[int], nn.Module]] = {
    "attention": lambda length: CausalAttention(DIM, heads=1),
    "delta rule": lambda length: DeltaRuleAttention(DIM, heads=1),
    "sum": lambda length: LinearAttention(DIM, heads=1),
    "GRU": lambda length: GRU(DIM),
    "convolution": lambda length: dilated_convolutions(DIM, length),
}
"""Name -> a layer that can relate the ends of so many positions."""


class SequenceModel(nn.Module):
    """Sums of embeddings, one layer that reads the sequence, a feed-forward layer, and a head."""

    def __init__(self, layer: nn.Module, vocab_size: int, classes: int, length: int, *, positions: bool) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocab_size, DIM), nn.Linear(DIM, classes)
        self.positions = nn.Parameter(torch.randn(length, DIM)) if positions else None
        self.layer, self.layer_norm = layer, nn.LayerNorm(DIM)
        self.ffn, self.ffn_norm = FeedForward(DIM), nn.LayerNorm(DIM)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits at every position, from ids (B, T) or several ids at each position (B, T, J)."""
        x = self.embedding(ids) if ids.ndim == 2 else self.embedding(ids).sum(2)
        x = x if self.positions is None else x + self.positions
        x = x + self.layer(self.layer_norm(x))
        return self.head(x + self.ffn(self.ffn_norm(x)))
