"""Statistics beside a map: lanes along its rows and columns, its strongest columns and diagonals."""

from typing import Any

import torch
from torch import Tensor

from softlook.base.errors import DataError
from softlook.lens.attention_trace import AttentionTrace
from softlook.studio.answers.selection import MAX_CELLS, one_head, to_slice
from softlook.studio.frames import Statistic, encode_frame

MAX_LISTED = 2048
"""Rows of lanes that are listed as JSON."""
SAMPLED_ROWS = 512
TOP_KEYS, STRONG_COLUMNS, STRONG_DIAGONALS = 8, 64, 16
LANES = {
    "entropy": "entropy",
    "max": "max_weight",
    "mean_distance": "mean_distance",
    "received_mass": "received",
}
"""Fields of `AttentionTrace.lanes` by the name of the lane."""


def lanes(layer: AttentionTrace, *, head: str) -> dict[str, Any]:
    """Lanes of one head, and the strongest keys of each query, as lists."""
    if max(layer.shape[2:]) > MAX_LISTED:
        raise DataError(f"lanes of more than {MAX_LISTED:,} tokens are frames: ask for one with name=entropy")
    number = one_head(layer, head)
    found = layer.lanes(heads=slice(number, number + 1), top_k=min(TOP_KEYS, layer.shape[3]))
    pairs = zip(found["top_indices"][0, 0].tolist(), found["top_weights"][0, 0].tolist(), strict=True)
    top = [[[j, p] for j, p in zip(*one, strict=True) if j >= 0] for one in pairs]
    return {name: found[field][0, 0].tolist() for name, field in LANES.items()} | {"top": top}


def lane(layer: AttentionTrace, *, head: str, name: str) -> bytes:
    """One lane as a frame. Of a very long map it has evenly spaced rows, and says "sampled"."""
    if name not in LANES:
        raise DataError(f"name expects one of {', '.join(LANES)}, got {name!r:.40}")
    number = one_head(layer, head)
    _, _, T, S = layer.shape
    if T * S <= MAX_CELLS:
        return encode_frame(layer.lanes(heads=slice(number, number + 1))[LANES[name]][0, 0])
    weights, rows, statistic = sample_rows(layer, number)
    return encode_frame(_lane(weights, rows, name), statistic)


def _lane(weights: Tensor, rows: Tensor, name: str) -> Tensor:
    """A lane of some rows; the mass of a key is the mean over these rows, times all rows."""
    if name == "entropy":
        return -torch.xlogy(weights, weights).sum(-1)
    if name == "max":
        return weights.amax(-1)
    if name == "received_mass":
        return weights.mean(0) * (int(rows[-1]) + 1)
    distance = (rows[:, None] - torch.arange(weights.shape[1])).abs()
    return (weights * distance).sum(-1)


def sample_rows(layer: AttentionTrace, head: int) -> tuple[Tensor, Tensor, Statistic]:
    """Whole rows of a head, their indices, and whether they are all rows. (t, S), (t)"""
    T = layer.shape[2]
    chosen = range(T) if T <= SAMPLED_ROWS else range(T - 1, -1, -(T // SAMPLED_ROWS))[::-1]
    weights = layer.weights(heads=slice(head, head + 1), rows=to_slice(chosen))[0, 0].float().cpu()
    return weights, torch.tensor(chosen), "exact" if len(chosen) == T else "sampled"


def strong(layer: AttentionTrace, *, head: str) -> dict[str, Any]:
    """The columns and diagonals with the largest mean weight, which one cell in many would miss.

    A column is that of a key; a diagonal is that of an offset i - j.
    """
    weights, rows, statistic = sample_rows(layer, one_head(layer, head))
    S = weights.shape[1]
    columns, keys = weights.mean(0).topk(min(STRONG_COLUMNS, S))
    offsets = (rows[:, None] - torch.arange(S) + S - 1).flatten()
    size = int(rows[-1]) + S
    total = torch.zeros(size).index_add_(0, offsets, weights.flatten())
    count = torch.zeros(size).index_add_(0, offsets, torch.ones(weights.numel()))
    is_long = count >= max(2, len(rows) // 8)  # the mean of a corner is that of few weights
    diagonals, positions = (total / count.clamp(min=1)).masked_fill(~is_long, 0).topk(min(STRONG_DIAGONALS, size))
    return {
        "columns": [[j, p] for j, p in zip(keys.tolist(), columns.tolist(), strict=True) if p > 0],
        "diagonals": [[i - S + 1, p] for i, p in zip(positions.tolist(), diagonals.tolist(), strict=True) if p > 0],
        "statistic": statistic,
    }
