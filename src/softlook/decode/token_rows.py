"""Ids of many sequences beside their scores, without a loop over ids in Python: where they stand, what follows them."""

from array import array
from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NOTHING = -1
"""What rows are filled up with: no token has this id."""


def padded(rows: Sequence[Sequence[Sequence[int]]]) -> Int[Tensor, "N T"]:
    """Rows of ids, each in several parts, filled up on the left to the longest.

    >>> padded([([1], [2, 3]), ([4],)])
    tensor([[ 1,  2,  3],
            [-1, -1,  4]])
    """
    lengths = [sum(map(len, parts)) for parts in rows]
    longest, flat = max(lengths, default=0), array("q")
    for parts, length in zip(rows, lengths, strict=True):
        flat.extend(array("q", [NOTHING]) * (longest - length))
        for part in parts:
            flat.extend(array("q", part))
    if not flat:
        return torch.empty(len(rows), 0, dtype=torch.long)
    return torch.frombuffer(flat, dtype=torch.long).view(len(rows), longest)


def places_of(
    scores: Float[Tensor, "N V"], ids: Int[Tensor, "N T"], chosen: Bool[Tensor, "N T"] | None = None
) -> Int[Tensor, " P"]:
    """Where each row's ids stand among all scores, one after the other; what has no score is passed over."""
    V = scores.shape[-1]
    there = (ids >= 0) & (ids < V)
    there = there if chosen is None else there & chosen
    return (ids + torch.arange(len(ids))[:, None] * V)[there].to(scores.device)


def with_values(
    scores: Float[Tensor, "N V"], places: Int[Tensor, " P"], values: Float[Tensor, " P"] | float
) -> Float[Tensor, "N V"]:
    """The scores with other values in some places; a place that comes several times has the same value each time."""
    if not len(places):
        return scores
    made = scores.clone(memory_format=torch.contiguous_format)
    made.view(-1)[places] = values
    return made


def counts(scores: Float[Tensor, "N V"], ids: Int[Tensor, "N T"]) -> Float[Tensor, "N V"]:
    """How often each word stands in each row; ids that have no score are passed over."""
    ids = ids.to(scores.device)
    there = (ids >= 0) & (ids < scores.shape[-1])
    return torch.zeros_like(scores).scatter_add_(1, ids * there, there.to(scores))


def penalised(scores: Float[Tensor, "N V"], ids: Int[Tensor, "N T"], penalty: float) -> Float[Tensor, "N V"]:
    """The scores, those of each row's ids divided by the penalty, or multiplied where they are negative."""
    if not ids.shape[1]:
        return scores
    ids = ids.to(scores.device)
    there = (ids >= 0) & (ids < scores.shape[-1])
    some, first = there.max(1, keepdim=True)  # what has no score stands for the first that has one
    columns = torch.where(there, ids, ids.gather(1, first)) * some
    own = scores.gather(1, columns)
    new = torch.where(own < 0, own * penalty, own / penalty)
    return scores.scatter(1, columns, torch.where(some, new, own))


def followers(
    texts: Int[Tensor, "N S"], ids: Int[Tensor, "N T"], length: int
) -> tuple[Int[Tensor, "N W"], Bool[Tensor, "N W"]]:
    """What stands in each row of texts behind the last `length - 1` ids of the same row: ids, and which of them.

    >>> ids, follows = followers(torch.tensor([[1, 2, 3, 1]]), torch.tensor([[1, 2, 3, 1]]), 2)
    >>> ids[follows]
    tensor([2])
    """
    (N, S), before = texts.shape, length - 1
    if length > S or ids.shape[1] < before:
        return texts[:, :0], torch.zeros(N, 0, dtype=torch.bool)
    last, windows = ids[:, ids.shape[1] - before :], S - before
    follows = (last != NOTHING).all(1)[:, None].expand(N, windows)
    for at in range(before):
        follows = follows & (texts[:, at : at + windows] == last[:, at : at + 1])
    return texts[:, before:], follows


def among(scores: Float[Tensor, "N V"], ids: Sequence[Iterable[int]]) -> Bool[Tensor, "N V"]:
    """Which words are among those of their row? Ids that have no score are passed over."""
    places = places_of(scores, padded([(list(words),) for words in ids]))
    made = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    made.view(-1)[places] = True
    return made


def without(scores: Float[Tensor, "N V"], ids: Sequence[Iterable[int]]) -> Float[Tensor, "N V"]:
    """The scores, but for words that must not come."""
    return with_values(scores, places_of(scores, padded([(list(words),) for words in ids])), -torch.inf)


def forced(scores: Float[Tensor, "N V"], ids: Sequence[Sequence[int]]) -> Float[Tensor, "N V"]:
    """In rows that are told words, those and no others, even where an earlier rule forbade them."""
    if not any(ids):
        return scores
    told = torch.tensor([bool(words) for words in ids], device=scores.device)[:, None]
    only = torch.where(among(scores, ids), 0.0, -torch.inf).to(scores)
    return torch.where(told, only, scores)
