"""Reference for `look`: its statistics computed from the dense map."""

import torch
from torch import Tensor

from softlook import Look

BINS, TOP_K = 64, 8
CHUNK = 1024
"""Queries per chunk of the float64 reference."""


def dense_scores(query: Tensor, key: Tensor, causal: bool, first_row: int = 0) -> Tensor:
    """Return the scores in at least float32. (B, H, t, S)"""
    scores = query @ key.mT * query.shape[-1] ** -0.5
    scores = scores.float() if scores.dtype != torch.float64 else scores
    if causal:
        rows = torch.arange(first_row, first_row + query.shape[2], device=query.device)[:, None]
        scores.masked_fill_(torch.arange(key.shape[2], device=query.device) > rows, -torch.inf)
    return scores


def dense_statistics(
    query: Tensor, key: Tensor, causal: bool, top_k: int | None = TOP_K, first_row: int = 0
) -> dict[str, Tensor]:
    """Return all statistics of the queries from `first_row` on."""
    scores = dense_scores(query, key, causal, first_row)
    statistics = {"lse": scores.logsumexp(-1)}
    weights = scores.softmax(-1)
    del scores
    statistics["entropy"] = torch.special.entr(weights).sum(-1)
    statistics["effective_keys"] = 1 / torch.linalg.vector_norm(weights, dim=-1).square()
    statistics["max_weight"] = weights.amax(-1)
    rows, columns = (torch.arange(n, device=query.device, dtype=weights.dtype) for n in weights.shape[2:])
    distance = (rows[:, None] + first_row - columns).abs()
    statistics["mean_distance"] = (weights * distance).sum(-1)
    if top_k is not None:
        statistics["top_weights"], statistics["top_indices"] = weights.topk(top_k, dim=-1)
    statistics["received"] = weights.sum(2)
    size = key.shape[2] // BINS
    bins = weights.unflatten(-1, (BINS, size)).unflatten(2, (-1, size))
    statistics["pooled_mean"], statistics["pooled_max"] = bins.mean((3, 5)), bins.amax((3, 5))
    return statistics


def look_errors(look: Look, query: Tensor, key: Tensor, causal: bool) -> dict[str, float]:
    """Relative error of each statistic of the last head of the last sequence, against float64."""
    query, key = query[-1:, -1:].double(), key[-1:, -1:].double()
    chunks = [
        dense_statistics(query[:, :, start : start + CHUNK], key, causal, first_row=start)
        for start in range(0, query.shape[2], CHUNK)
    ]
    errors = {}
    for name, values in look.values.items():
        is_sum = name == "received"
        expected = torch.stack([chunk[name] for chunk in chunks]).sum(0) if is_sum else _concatenate(chunks, name)
        actual = values[-1:, -1:].double()
        if name == "top_indices":  # the fraction of different indices among those with a visible key
            has_key = _concatenate(chunks, "top_weights") > 0
            errors[name] = float((actual.long() != expected)[has_key].double().mean())
        else:
            errors[name] = float((actual - expected).norm() / expected.norm())
    return errors


def _concatenate(chunks: list[dict[str, Tensor]], name: str) -> Tensor:
    return torch.cat([chunk[name] for chunk in chunks], 2)
