"""word2vec: skip-gram pairs, negative sampling distribution, similar words (Mikolov et al., 2013)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from softlook.base.errors import ShapeError

Ids = Int[Tensor, " P"]


def skipgram_pairs(
    ids: Int[Tensor, "B T"], window: int, *, padding_mask: Bool[Tensor, "B T"] | None = None
) -> tuple[Ids, Ids]:
    """Return all (center, context) pairs at most `window` positions apart, in both directions.

    `padding_mask` is False at padding.

    >>> centers, contexts = skipgram_pairs(torch.tensor([[7, 8, 9]]), window=1)
    >>> sorted(zip(centers.tolist(), contexts.tolist()))
    [(7, 8), (8, 7), (8, 9), (9, 8)]
    """
    real = torch.ones_like(ids, dtype=torch.bool) if padding_mask is None else padding_mask
    left, right = [ids[:0, 0]], [ids[:0, 0]]
    for offset in range(1, min(window, ids.shape[1] - 1) + 1):
        both = real[:, :-offset] & real[:, offset:]
        left.append(ids[:, :-offset][both])
        right.append(ids[:, offset:][both])
    return torch.cat(left + right), torch.cat(right + left)


def negative_distribution(counts: Int[Tensor, " V"], *, power: float = 0.75) -> Float[Tensor, " V"]:
    """Return the negative-sampling distribution: counts to a power, normalized.

    `torch.multinomial(negative_distribution(counts), n, replacement=True)` samples from it.

    >>> negative_distribution(torch.tensor([16, 1]))
    tensor([0.8889, 0.1111])
    """
    weights = counts.float() ** power * (counts > 0)
    return weights / weights.sum()


def most_similar(vectors: Float[Tensor, "V C"], ids: Int[Tensor, " B"], count: int) -> Int[Tensor, "B count"]:
    """Return the words with the highest cosine similarity, in descending order, without the word itself.

    >>> most_similar(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1]]), torch.tensor([0]), count=1)
    tensor([[2]])
    """
    if not 0 < count < vectors.shape[0]:
        raise ShapeError(f"count expects 1 to {vectors.shape[0] - 1} for {vectors.shape[0]} words, got {count}")
    unit = F.normalize(vectors, dim=-1)
    similarity = unit[ids] @ unit.mT
    return similarity.scatter(1, ids[:, None], -torch.inf).topk(count).indices
