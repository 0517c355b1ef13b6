"""Documents that share a row, answered one by one: nothing is spent on what they may not see."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from softlook.base.tracing import can_read
from softlook.ops.masks.algebra import Both, Mask
from softlook.ops.masks.kinds import Band, Documents
from softlook.ops.masks.prepared import prepared
from softlook.ops.question import Question

FEWEST = 16
"""Tokens a document has on average, below which one large map is less work than many small calls."""


def lengths(question: Question) -> list[int] | None:
    """How long each of the row's documents is, where they can be answered apart; None where they cannot."""
    (B, _, T, S), mask = question.sizes, question.mask
    documents, _ = _parted(mask)
    if mask is None or documents is None or question.bias is not None or not can_read(documents.keys):
        return None
    if T != S or question.first_key or 1 not in (B, documents.keys.shape[0]):
        return None  # queries are the last keys; a GPU would have to be waited for, and has a kernel of its own
    return prepared(mask, "apart", S, lambda: _runs(documents.keys[0]))


def attend(question: Question, value: Tensor, answer: Callable[[Question, Tensor], Tensor]) -> Tensor:
    """Each document's own answer, put back one behind the other. (B, H, T, E)"""
    runs, (_, rest) = lengths(question), _parted(question.mask)
    assert runs is not None
    B, H, _, _ = question.sizes
    # One split per tensor: its gradient is put together once, where slices would each bring a whole tensor of zeros.
    parts = zip(question.query.split(runs, 2), question.key.split(runs, 2), value.split(runs, 2), strict=True)
    answers = [
        answer(replace(question, query=query, key=key, mask=rest, sizes=(B, H, query.shape[2], key.shape[2])), values)
        for query, key, values in parts
    ]
    return torch.cat([each.transpose(1, 2) for each in answers], 1).transpose(1, 2)  # laid out as heads are joined


def _parted(mask: Mask | None) -> tuple[Documents | None, Band | None]:
    """A mask that is documents, alone or with a band, as these two."""
    if isinstance(mask, Documents):
        return (mask, None) if mask.queries is None else (None, None)
    if isinstance(mask, Both):
        for one, other in ((mask.one, mask.other), (mask.other, mask.one)):
            if isinstance(one, Band) and isinstance(other, Documents) and other.queries is None:
                return other, one
    return None, None


def _runs(ids: Tensor) -> list[int] | None:
    names, counts = ids.unique_consecutive(return_counts=True)
    in_one_piece = names.numel() == names.unique().numel()
    many_small = ids.numel() < FEWEST * names.numel()
    return counts.tolist() if in_one_piece and not many_small else None
