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


def filled_left(
    rows: Sequence[Sequence[int]], device: torch.device
) -> tuple[Int[Tensor, "N T"], Int[Tensor, " N"] | None]:
    """Rows filled up on the left, as prompts are read on, and how long each is, unless all are alike.

    >>> filled_left([[3, 1], [4]], torch.device("cpu"))
    (tensor([[3, 1],
            [4, 4]]), tensor([2, 1]))
    """
    lengths = [len(row) for row in rows]
    ids = torch.tensor([[*[row[0]] * (max(lengths) - len(row)), *row] for row in rows], device=device)
    return ids, None if min(lengths) == max(lengths) else torch.tensor(lengths, device=device)
