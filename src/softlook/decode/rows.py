"""Rows of ids that are not equally long, as one tensor."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def filled(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Int[Tensor, "N S"], Bool[Tensor, "N S"]]:
    """Rows filled up on the right, as sources are read, and where there is something.

    >>> filled([[3, 1], [4]], torch.device("cpu"))[0]
    tensor([[3, 1],
            [4, 0]])
    """
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)
    return ids, torch.arange(longest, device=device) < torch.tensor([[len(row)] for row in rows], device=device)
