"""Tokens as vectors: a one-hot vector times a matrix, which is a row of it."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from softlook.base.errors import ShapeError
from softlook.base.tracing import can_read


class TokenEmbedding(nn.Module):
    """One vector for each token; multiplied with the root of the width where `scaled`, as Vaswani et al. do.

    With `rounded`, that root is first rounded to the precision of the weights, as Gemma does.

    >>> TokenEmbedding(10, 4)(torch.tensor([[3, 1, 4]])).shape
    torch.Size([1, 3, 4])
    """

    def __init__(self, vocab: int, dim: int, *, scaled: bool = False, rounded: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab, dim)
        self.root, self.rounded = math.sqrt(dim) if scaled else 1.0, rounded

    @property
    def scale(self) -> float:
        """What the vectors are multiplied with."""
        return self._rounded().item() if self.rounded else self.root

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        self._check(ids)
        vectors = self.table(ids)
        if self.root == 1.0:
            return vectors
        return vectors * (self._rounded() if self.rounded else self.root)

    def _rounded(self) -> Tensor:
        return torch.tensor(self.root, dtype=self.table.weight.dtype, device="cpu")

    def _check(self, ids: Tensor) -> None:
        """On a GPU this would make the host wait for the device, and in a graph it has no place."""
        if not ids.numel() or not can_read(ids):
            return
        low, high = (int(bound) for bound in ids.aminmax())
        if low < 0 or high >= self.table.num_embeddings:
            raise ShapeError(
                f"this model knows ids 0 to {self.table.num_embeddings - 1}; {low} to {high} came. "
                "Were they made by the tokenizer that belongs to the model?"
            )
