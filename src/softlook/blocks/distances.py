"""Distances between tokens as a learned bias on the scores, one for all layers of a stack."""

from jaxtyping import Float
from torch import Tensor, nn

from softlook.ops.bias import Bias
from softlook.ops.positions.biases import t5


class Distances(nn.Module):
    """One learned number for each head and bucket of distances, the same for all layers of a stack, which add it to
    their scores. As in T5, and in MPNet.

    The bias is computed once for all of them.

    >>> import torch
    >>> bias = Distances(32, heads=4)(torch.zeros(2, 5, 16))
    """

    def __init__(self, buckets: int, heads: int, *, max_distance: int = 128, bidirectional: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)
        self.max_distance, self.bidirectional = max_distance, bidirectional

    def forward(self, x: Float[Tensor, "B T C"], past: int = 0) -> Bias:
        bias = t5(self.table.weight, bidirectional=self.bidirectional, max_distance=self.max_distance)
        return bias.for_layers(self.table.embedding_dim, x.shape[1], past + x.shape[1], x)
