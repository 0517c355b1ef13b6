"""Which sentence of a pair a token belongs to, as a vector."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ShapeError
from softlook.base.tracing import can_read


class SegmentEmbedding(nn.Module):
    """Adds to each token the vector of its segment. Where nobody says, all tokens are in the first.

    With `segments` = 0 there are no such vectors, and nothing is added.

    >>> import torch
    >>> x = torch.zeros(1, 3, 4)
    >>> SegmentEmbedding(2, 4)(x, torch.tensor([[0, 0, 1]])).shape
    torch.Size([1, 3, 4])
    >>> SegmentEmbedding(0, 4)(x) is x
    True
    """

    def __init__(self, segments: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(segments, dim) if segments else None  # an empty table would be kept in every file

    def forward(self, x: Float[Tensor, "B T C"], segments: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B T C"]:
        if self.table is None:
            if segments is not None:
                raise ShapeError("this model was made without segments. Leave segments out, or make it with segments=")
            return x
        if segments is None:
            return x + self.table.weight[0]
        _check(segments, self.table.num_embeddings)
        return x + self.table(segments)


def _check(segments: Tensor, known: int) -> None:
    if segments.numel() and can_read(segments):
        low, high = (int(bound) for bound in segments.aminmax())
        if low < 0 or high >= known:
            raise ShapeError(f"this model knows segments 0 to {known - 1}; {low} to {high} came")
