"""How words get vectors from the company they keep: what word2vec asks about, and what can be asked of the result."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from softlook.base.errors import ShapeError

Ids = Int[Tensor, " P"]


def window_pairs(
    ids: Int[Tensor, "B T"], window: int, *, present: Bool[Tensor, "B T"] | None = None
) -> tuple[Ids, Ids]:
    """Every word with every other word at most `window` places away: (centres, neighbours), both ways round.

    `present` is False where a sentence is only filled up.

    >>> centres, neighbours = window_pairs(torch.tensor([[7, 8, 9]]), window=1)
    >>> sorted(zip(centres.tolist(), neighbours.tolist()))
    [(7, 8), (8, 7), (8, 9), (9, 8)]
    """
    there = torch.ones_like(ids, dtype=torch.bool) if present is None else present
    left, right = [ids[:0, 0]], [ids[:0, 0]]
    for gap in range(1, min(window, ids.shape[1] - 1) + 1):
        both = there[:, :-gap] & there[:, gap:]
        left.append(ids[:, :-gap][both])
        right.append(ids[:, gap:][both])
    return torch.cat(left + right), torch.cat(right + left)


def noise(counts: Int[Tensor, " V"], *, power: float = 0.75) -> Float[Tensor, " V"]:
    """How likely each word is to be drawn as a wrong neighbour: its count to a power, so that rare words get a chance.

    `torch.multinomial(noise(counts), count, replacement=True)` draws.

    >>> noise(torch.tensor([16, 1]))
    tensor([0.8889, 0.1111])
    """
    weights = counts.float() ** power * (counts > 0)
    return weights / weights.sum()


def nearest(vectors: Float[Tensor, "V C"], ids: Int[Tensor, " B"], count: int) -> Int[Tensor, "B near"]:
    """The words whose vectors point most nearly the same way, nearest first; the word itself is left out.

    >>> nearest(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1]]), torch.tensor([0]), count=1)
    tensor([[2]])
    """
    if not 0 < count < vectors.shape[0]:
        raise ShapeError(f"each of {vectors.shape[0]} words has {vectors.shape[0] - 1} others; {count} were asked for")
    directions = F.normalize(vectors, dim=-1)
    alike = directions[ids] @ directions.mT
    return alike.scatter(1, ids[:, None], -torch.inf).topk(count).indices
