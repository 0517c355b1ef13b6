"""The statistics of `look`, computed from the whole map."""

import torch
from torch import Tensor

from softlook import Look

BINS, TOP = 64, 8
CHUNK = 1024
"""Queries per chunk of the ground truth."""


def dense_scores(query: Tensor, key: Tensor, causal: bool, first_row: int = 0) -> Tensor:
    """Return the scores in at least float32. (B, H, t, S)"""
    scores = query @ key.mT * query.shape[-1] ** -0.5
    scores = scores.float() if scores.dtype != torch.float64 else scores
    if causal:
        rows = torch.arange(first_row, first_row + query.shape[2], device=query.device)[:, None]
        scores.masked_fill_(torch.arange(key.shape[2], device=query.device) > rows, -torch.inf)
    return scores


def dense_statistics(
    query: Tensor, key: Tensor, causal: bool, top: int | None = TOP, first_row: int = 0
) -> dict[str, Tensor]:
    """Return all statistics of the queries from `first_row` on."""
    scores = dense_scores(query, key, causal, first_row)
    found = {"lse": scores.logsumexp(-1)}
    weights = scores.softmax(-1)
    del scores
    found["entropy"] = torch.special.entr(weights).sum(-1)
    found["effective_keys"] = 1 / torch.linalg.vector_norm(weights, dim=-1).square()
    found["max_weight"] = weights.amax(-1)
    rows, columns = (torch.arange(n, device=query.device, dtype=weights.dtype) for n in weights.shape[2:])
    gap = (rows[:, None] + first_row - columns).abs()
    found["mean_distance"] = (weights * gap).sum(-1)
    if top is not None:
        found["top_weights"], found["top_indices"] = weights.topk(top, dim=-1)
    found["received"] = weights.sum(2)
    side = key.shape[2] // BINS
    cells = weights.unflatten(-1, (BINS, side)).unflatten(2, (-1, side))
    found["pooled_mean"], found["pooled_max"] = cells.mean((3, 5)), cells.amax((3, 5))
    return found


def look_errors(seen: Look, query: Tensor, key: Tensor, causal: bool) -> dict[str, float]:
    """Relative error of each statistic of the last head of the last sequence, against float64."""
    query, key = query[-1:, -1:].double(), key[-1:, -1:].double()
    parts = [
        dense_statistics(query[:, :, start : start + CHUNK], key, causal, first_row=start)
        for start in range(0, query.shape[2], CHUNK)
    ]
    errors = {}
    for name, found in seen.values.items():
        right = torch.stack([part[name] for part in parts]).sum(0) if name == "received" else _joined(parts, name)
        mine = found[-1:, -1:].double()
        if name == "top_indices":  # the share of places that differ, of those that have a key
            there = _joined(parts, "top_weights") > 0
            errors[name] = float((mine.long() != right)[there].double().mean())
        else:
            errors[name] = float((mine - right).norm() / right.norm())
    return errors


def _joined(parts: list[dict[str, Tensor]], name: str) -> Tensor:
    return torch.cat([part[name] for part in parts], 2)
