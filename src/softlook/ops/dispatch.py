"""Which path answers a question, and why."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from softlook.base.errors import BackendError
from softlook.ops import apart, blocks, flex, reference, sdpa
from softlook.ops.question import FEWEST_ROWS, Question

Backend = Literal["auto", "reference", "sdpa", "flex", "blocks"]

EMPTY = "a size is 0, and there is nothing for a kernel to do"
LONG = 4096
"""Queries and keys from which on a mask is not written out on a GPU."""
PATHS = {"reference": reference.attend, "sdpa": sdpa.attend, "flex": flex.attend, "blocks": blocks.attend}


@dataclass(frozen=True)
class Choice:
    """Which path a call takes, why, and what memory it needs beside its inputs and its output."""

    backend: str
    reason: str
    bytes: int

    def __str__(self) -> str:
        return f"{self.backend}: {self.reason} ({self.bytes / 2**20:.1f} MiB on the way)"


def choose(question: Question, value: Tensor, dropout: float, backend: Backend) -> Choice:
    """The path that will answer; BackendError if the one asked for cannot."""
    name, reason = _path(question, value, dropout, backend)
    return Choice(name, reason, _bytes(name, question, value, dropout))


def answer(question: Question, value: Tensor, dropout: float, backend: Backend) -> Tensor:
    """Take the chosen path."""
    name, _ = _path(question, value, dropout, backend)
    return PATHS[name](question, value, dropout)


def _path(question: Question, value: Tensor, dropout: float, backend: Backend) -> tuple[str, str]:
    empty = 0 in question.sizes or 0 in value.shape
    if backend == "auto":
        return ("reference", EMPTY) if empty else _best(question, value, dropout)
    if backend not in PATHS:
        raise BackendError(f"backend wants one of auto, {', '.join(PATHS)}; {backend!r} came")
    refused = _why_not(backend, question, value, dropout)
    if refused is not None:
        raise BackendError(
            f"backend={backend!r} cannot answer this: {refused}. "
            f"Leave backend out, and it takes {_best(question, value, dropout)[0]!r}."
        )
    return ("reference", EMPTY) if empty else (backend, "asked for")


def _best(question: Question, value: Tensor, dropout: float) -> tuple[str, str]:
    reason = sdpa.why_not(question)
    if reason is None and question.bias is not None and not question.bias.written_out:
        reason = f"for torch's kernels the bias {question.bias} would have to be written out"
    if reason is None:
        return _best_of_three(question, value, dropout)
    why_not_flex = flex.why_not(question, value, dropout) if question.query.is_cuda else None
    if question.query.is_cuda and why_not_flex is None:
        return "flex", f"{reason}; a compiled kernel works it out on the way"
    if question.query.is_cuda:
        return "blocks", f"{reason}, and the compiled kernel cannot help: {why_not_flex}"
    return "blocks", f"{reason}; block by block is exact and holds no map"


def _best_of_three(question: Question, value: Tensor, dropout: float) -> tuple[str, str]:
    """torch's kernels can answer; where a mask hides much, a path that passes over what is hidden may be faster."""
    (_, _, T, S), through_sdpa = question.sizes, ("sdpa", sdpa.way(question, value, dropout).reason)
    if sdpa.is_plain(question) or question.mask is None or apart.lengths(question) is not None:
        return through_sdpa
    if torch.compiler.is_exporting():
        return through_sdpa  # sizes are symbols, which cannot be compared
    if question.query.is_cuda:
        if min(T, S) >= LONG and question.bias is None and flex.why_not(question, value, dropout) is None:
            return "flex", f"a compiled kernel passes over what {question.mask} hides"
    elif _reached(question) <= (1 / 3 if question.learns_with(value) else 1 / 2):
        return "blocks", f"{question.mask} hides most of the map, and block by block passes over it"
    return through_sdpa


def _reached(question: Question) -> float:
    """The share of the map that block by block would work on, by a few strips of it."""
    mask, tile, (_, _, T, S) = question.mask, question.tile, question.sizes
    assert mask is not None
    starts = range(0, T, max(blocks.ROWS, T // 8))
    strips = [replace(tile, rows=range(start, min(start + blocks.ROWS, T))) for start in starts]
    return sum(len(mask.reach(strip)) for strip in strips) / (len(strips) * S) if strips and S else 1.0


def _why_not(name: str, question: Question, value: Tensor, dropout: float) -> str | None:
    if name == "sdpa":
        return sdpa.why_not(question)
    if name == "flex":
        return flex.why_not(question, value, dropout)
    return None


def _bytes(name: str, question: Question, value: Tensor, dropout: float) -> int:
    B, H, T, S = question.sizes
    number = 8 if question.query.element_size() == 8 else 4
    if name == "sdpa":
        return sdpa.map_bytes(question, value, dropout)
    if name == "flex":
        return flex.block_mask_bytes(question)
    if name == "reference":
        return 2 * B * H * T * S * number
    strip = min(T, FEWEST_ROWS) * min(S, blocks.COLUMNS) * question.repeats
    return 3 * number * min(B * H * T * S, max(blocks.elements(question.query.device), strip))
