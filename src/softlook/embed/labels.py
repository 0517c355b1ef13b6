"""A label as a vector: what a sequence is to be about."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ShapeError
from softlook.base.tracing import can_read


class LabelEmbedding(nn.Module):
    """One vector for each label, to be added at every position of the sequence that it conditions.

    >>> import torch
    >>> LabelEmbedding(3, 4)(torch.tensor([2, 0])).shape
    torch.Size([2, 1, 4])
    """

    def __init__(self, labels: int, dim: int) -> None:
        super().__init__()
        self.table = nn.Embedding(labels, dim) if labels else None  # an empty table would be kept in every file

    def forward(self, label: Int[Tensor, " B"]) -> Float[Tensor, "B 1 C"]:
        if self.table is None:
            raise ShapeError("this model was made without labels. Leave label out, or make it with labels=")
        known = self.table.num_embeddings
        if label.numel() and can_read(label):
            low, high = (int(bound) for bound in label.aminmax())
            if low < 0 or high >= known:
                raise ShapeError(f"this model knows labels 0 to {known - 1}; {low} to {high} came")
        return self.table(label)[:, None]
