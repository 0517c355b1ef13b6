"""Sequences of different lengths in one row, with no padding between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops import masks
from softlook.ops.masks import Mask


@dataclass(frozen=True, eq=False)
class Packed:
    """One row of ids, and what a model must be told so that its documents do not meet."""

    ids: Tensor
    """(1, N): the documents, one behind the other."""
    documents: Tensor
    """(1, N): the document that each id belongs to, counted from 0."""
    positions: Tensor
    """(1, N): where each id stands in its own document."""
    mask: Mask
    """Look within your own document."""
    lengths: tuple[int, ...]

    def unpack(self, row: Tensor) -> list[Tensor]:
        """What a model made of the row, (1, N, ...), document by document."""
        if row.shape[:2] != self.ids.shape:
            raise ShapeError(f"this row has {self.ids.shape[1]} places; {tuple(row.shape)} came")
        return list(row[0].split(self.lengths))


def pack(rows: Sequence[Int[Tensor, " _"]]) -> Packed:
    """Put sequences into one row. A model answers each as if it were alone, and no time is spent on padding.

    >>> packed = pack([torch.tensor([5, 6, 7]), torch.tensor([8, 9])])
    >>> packed.ids, packed.positions
    (tensor([[5, 6, 7, 8, 9]]), tensor([[0, 1, 2, 0, 1]]))
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab=10, context=8, dim=16, depth=2, heads=2)).eval()
    >>> row = model(packed.ids, mask=packed.mask, positions=packed.positions)
    >>> torch.allclose(packed.unpack(row)[1], model(torch.tensor([[8, 9]]))[0], atol=1e-5)
    True
    """
    if not rows:
        raise ShapeError("pack wants at least one sequence; none came")
    lengths = tuple(len(row) for row in rows)
    device = rows[0].device
    documents = torch.arange(len(rows)).repeat_interleave(torch.tensor(lengths))
    positions = torch.cat([torch.arange(length) for length in lengths])
    documents, positions = documents.to(device)[None], positions.to(device)[None]
    return Packed(torch.cat(list(rows))[None], documents, positions, masks.documents(documents), lengths)
