"""Padded batches of token ids, and edits of logits by token id."""

from array import array
from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NO_TOKEN = -1
"""Padding id of `pad_segments`."""


def pad_right(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Int[Tensor, "N S"], Bool[Tensor, "N S"]]:
    """Rows padded on the right, as encoders read them, and the padding mask (True for tokens).

    >>> pad_right([[3, 1], [4]], torch.device("cpu"))[0]
    tensor([[3, 1],
            [4, 0]])
    """
    length = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows], device=device)
    return ids, torch.arange(length, device=device) < torch.tensor([[len(row)] for row in rows], device=device)


def pad_left(
    rows: Sequence[Sequence[int]], device: torch.device
) -> tuple[Int[Tensor, "N T"], Int[Tensor, " N"] | None]:
    """Rows padded on the left, as decoders continue them, and their lengths; None if all are equal.

    >>> pad_left([[3, 1], [4]], torch.device("cpu"))
    (tensor([[3, 1],
            [4, 4]]), tensor([2, 1]))
    """
    lengths = [len(row) for row in rows]
    ids = torch.tensor([[*[row[0]] * (max(lengths) - len(row)), *row] for row in rows], device=device)
    return ids, None if min(lengths) == max(lengths) else torch.tensor(lengths, device=device)


def pad_segments(rows: Sequence[Sequence[Sequence[int]]]) -> Int[Tensor, "N T"]:
    """Rows of ids, each given as several segments, concatenated and padded on the left with `NO_TOKEN`.

    >>> pad_segments([([1], [2, 3]), ([4],)])
    tensor([[ 1,  2,  3],
            [-1, -1,  4]])
    """
    lengths = [sum(map(len, segments)) for segments in rows]
    max_length, flat = max(lengths, default=0), array("q")
    for segments, length in zip(rows, lengths, strict=True):
        flat.extend(array("q", [NO_TOKEN]) * (max_length - length))
        for segment in segments:
            flat.extend(array("q", segment))
    if not flat:
        return torch.empty(len(rows), 0, dtype=torch.long)
    return torch.frombuffer(flat, dtype=torch.long).view(len(rows), max_length)


def flat_indices(
    logits: Float[Tensor, "N V"], ids: Int[Tensor, "N T"], selected: Bool[Tensor, "N T"] | None = None
) -> Int[Tensor, " P"]:
    """Indices of each row's ids in the flattened logits. Ids outside the vocabulary are skipped."""
    V = logits.shape[-1]
    is_valid = (ids >= 0) & (ids < V)
    is_valid = is_valid if selected is None else is_valid & selected
    return (ids + torch.arange(len(ids))[:, None] * V)[is_valid].to(logits.device)


def replace_at(
    logits: Float[Tensor, "N V"], indices: Int[Tensor, " P"], values: Float[Tensor, " P"] | float
) -> Float[Tensor, "N V"]:
    """A copy of the logits with other values at flat indices; repeated indices must have equal values."""
    if not len(indices):
        return logits
    out = logits.clone(memory_format=torch.contiguous_format)
    out.view(-1)[indices] = values
    return out


def count_tokens(logits: Float[Tensor, "N V"], ids: Int[Tensor, "N T"]) -> Float[Tensor, "N V"]:
    """Number of occurrences of each token in each row. Ids outside the vocabulary are skipped."""
    ids = ids.to(logits.device)
    is_valid = (ids >= 0) & (ids < logits.shape[-1])
    return torch.zeros_like(logits).scatter_add_(1, ids * is_valid, is_valid.to(logits))


def penalize_tokens(logits: Float[Tensor, "N V"], ids: Int[Tensor, "N T"], penalty: float) -> Float[Tensor, "N V"]:
    """Divide the logits of each row's ids by the penalty; negative ones are multiplied."""
    if not ids.shape[1]:
        return logits
    ids = ids.to(logits.device)
    is_valid = (ids >= 0) & (ids < logits.shape[-1])
    any_valid, first = is_valid.max(1, keepdim=True)  # the first valid id stands in for invalid ones
    columns = torch.where(is_valid, ids, ids.gather(1, first)) * any_valid
    old = logits.gather(1, columns)
    new = torch.where(old < 0, old * penalty, old / penalty)
    return logits.scatter(1, columns, torch.where(any_valid, new, old))


def ngram_continuations(
    texts: Int[Tensor, "N S"], ids: Int[Tensor, "N T"], size: int
) -> tuple[Int[Tensor, "N W"], Bool[Tensor, "N W"]]:
    """Tokens of each text that follow the last `size - 1` ids of the same row: candidate ids, and which of them match.

    >>> ids, matches = ngram_continuations(torch.tensor([[1, 2, 3, 1]]), torch.tensor([[1, 2, 3, 1]]), 2)
    >>> ids[matches]
    tensor([2])
    """
    (N, S), prefix = texts.shape, size - 1
    if size > S or ids.shape[1] < prefix:
        return texts[:, :0], torch.zeros(N, 0, dtype=torch.bool)
    last, windows = ids[:, ids.shape[1] - prefix :], S - prefix
    matches = (last != NO_TOKEN).all(1)[:, None].expand(N, windows)
    for offset in range(prefix):
        matches = matches & (texts[:, offset : offset + windows] == last[:, offset : offset + 1])
    return texts[:, prefix:], matches


def token_mask(logits: Float[Tensor, "N V"], ids: Sequence[Iterable[int]]) -> Bool[Tensor, "N V"]:
    """True for the tokens listed for each row. Ids outside the vocabulary are skipped."""
    indices = flat_indices(logits, pad_segments([(list(tokens),) for tokens in ids]))
    out = torch.zeros(logits.shape, dtype=torch.bool, device=logits.device)
    out.view(-1)[indices] = True
    return out


def mask_tokens(logits: Float[Tensor, "N V"], ids: Sequence[Iterable[int]]) -> Float[Tensor, "N V"]:
    """Set the logits of the tokens listed for each row to -inf."""
    return replace_at(logits, flat_indices(logits, pad_segments([(list(tokens),) for tokens in ids])), -torch.inf)


def force_tokens(logits: Float[Tensor, "N V"], ids: Sequence[Sequence[int]]) -> Float[Tensor, "N V"]:
    """In rows that list tokens, allow only those, even if an earlier processor masked them."""
    if not any(ids):
        return logits
    is_forced = torch.tensor([bool(tokens) for tokens in ids], device=logits.device)[:, None]
    only = torch.where(token_mask(logits, ids), 0.0, -torch.inf).to(logits)
    return torch.where(is_forced, only, logits)
