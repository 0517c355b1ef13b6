"""Sequence packing: several sequences in one row, without padding."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops import masks
from softlook.ops.masks import Mask


@dataclass(frozen=True, eq=False)
class PackedSequences:
    """One row of token ids, with the mask and positions that keep its sequences separate."""

    ids: Tensor
    """(1, N): the concatenated sequences."""
    document_ids: Tensor
    """(1, N): the index of the sequence that each token belongs to."""
    positions: Tensor
    """(1, N): the position of each token within its sequence."""
    mask: Mask
    """Attention within each sequence only."""
    lengths: tuple[int, ...]

    def unpack(self, row: Tensor) -> list[Tensor]:
        """Split a model output for the row, (1, N, ...), into one tensor per sequence."""
        if row.shape[:2] != self.ids.shape:
            raise ShapeError(f"unpack expects a row of {self.ids.shape[1]} tokens, got {tuple(row.shape)}")
        return list(row[0].split(self.lengths))


def pack(sequences: Sequence[Int[Tensor, " _"]]) -> PackedSequences:
    """Concatenate sequences into one row. A model gives the same outputs as for each alone, without padding.

    >>> packed = pack([torch.tensor([5, 6, 7]), torch.tensor([8, 9])])
    >>> packed.ids, packed.positions
    (tensor([[5, 6, 7, 8, 9]]), tensor([[0, 1, 2, 0, 1]]))
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=2)).eval()
    >>> row = model(packed.ids, mask=packed.mask, positions=packed.positions)
    >>> torch.allclose(packed.unpack(row)[1], model(torch.tensor([[8, 9]]))[0], atol=1e-5)
    True
    """
    if not sequences:
        raise ShapeError("pack expects at least one sequence, got none")
    lengths = tuple(len(sequence) for sequence in sequences)
    device = sequences[0].device
    document_ids = torch.arange(len(sequences)).repeat_interleave(torch.tensor(lengths))
    positions = torch.cat([torch.arange(length) for length in lengths])
    document_ids, positions = document_ids.to(device)[None], positions.to(device)[None]
    ids = torch.cat(list(sequences))[None]
    return PackedSequences(ids, document_ids, positions, masks.documents(document_ids), lengths)
