"""Joining what was learned from parts of the keys into what holds for all of them. Exact.

>>> import torch
>>> from softlook import look
>>> query, key = torch.randn(2, 1, 1, 4, 8)
>>> halves = [look(query, key[:, :, start : start + 2], part=(start, 4), ask=("lse", "entropy")) for start in (0, 2)]
>>> torch.allclose(merge_looks(halves).entropy, look(query, key).entropy, atol=1e-6)
True
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from softlook.ops.looking import Look
from softlook.ops.statistics import least_log


def merge_looks(looks: Sequence[Look]) -> Look:
    """One look at all keys, from looks at consecutive parts of them, in order.

    Either looks for statistics per query, which are joined through their `lse` (every part must have been
    asked for it), or looks taken with the merged `lse=` for what adds up per key.
    """
    if not looks:
        raise ValueError("there is nothing to merge: no looks came")
    names = set(looks[0].found)
    if any(set(look.found) != names for look in looks):
        raise ValueError(f"looks at parts must be asked the same: {[sorted(look.found) for look in looks]} came")
    parts = {name: [look.found[name] for look in looks] for name in names}
    if all(look.total is not None for look in looks):
        return Look({name: _ADDED[name](parts[name]) for name in names})
    if "lse" not in names:
        raise ValueError(f"to be merged, each part must be asked for 'lse' as well; {sorted(names)} came")
    if "top_indices" in names and "top_weights" not in names:
        raise ValueError("which keys are the strongest of all is told by their weights: ask for 'top_weights' as well")
    return Look(_per_query(parts))


def merge_outputs(outputs: Sequence[Tensor], lses: Sequence[Tensor]) -> Tensor:
    """The output over all keys from outputs (B, H, T, E) over parts of them and their `lse` (B, H, T).

    Gradients flow through both: `look(...).lse` is differentiable, so that merging trains as `attention` itself does.
    """
    shares, _ = _shares(lses)
    merged = sum((share[..., None] * output.to(share.dtype) for share, output in zip(shares, outputs, strict=True)))
    assert isinstance(merged, Tensor)
    return merged.to(outputs[0].dtype)


def _per_query(parts: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    shares, total = _shares(parts["lse"])
    merged = {"lse": total}
    for name in parts.keys() & {"entropy", "distance", "strongest"}:
        scaled = torch.stack([share * part for share, part in zip(shares, parts[name], strict=True)])
        merged[name] = scaled.amax(0) if name == "strongest" else scaled.sum(0)
    if "entropy" in merged:  # which part a query looks at is uncertain too
        merged["entropy"] = merged["entropy"] - _plogp(parts["lse"], shares, total)
    if "effective_keys" in parts:
        squares = [
            share.square() / keys.clamp(min=1) for share, keys in zip(shares, parts["effective_keys"], strict=True)
        ]
        square = torch.stack(squares).sum(0)
        blind = square == 0
        merged["effective_keys"] = (1 / square.masked_fill(blind, 1)).masked_fill(blind, 0)
    if "top_weights" in parts:
        weights = [share[..., None] * part for share, part in zip(shares, parts["top_weights"], strict=True)]
        merged["top_weights"], order = torch.cat(weights, -1).topk(weights[0].shape[-1], dim=-1)
        if "top_indices" in parts:
            merged["top_indices"] = torch.cat(parts["top_indices"], -1).gather(-1, order)
    return merged


def _shares(lses: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """What share of each query's weight each part holds, and the log-sum-exp over all parts."""
    total = torch.stack(list(lses)).logsumexp(0)
    return [(lse - _finite(total)).exp() for lse in lses], total


def _plogp(lses: Sequence[Tensor], shares: Sequence[Tensor], total: Tensor) -> Tensor:
    """Sum of share * log(share). Shares of 0 add 0, with a gradient of 0."""
    logs = [(lse - _finite(total)).clamp(min=least_log(total.dtype)) for lse in lses]
    return torch.stack([share * log for share, log in zip(shares, logs, strict=True)]).sum(0)


def _finite(total: Tensor) -> Tensor:
    return total.masked_fill(total == -torch.inf, 0)


_ADDED: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "received": lambda parts: torch.cat(parts, -1),
    "heat_mean": lambda parts: torch.stack(parts).sum(0),
    "heat_max": lambda parts: torch.stack(parts).amax(0),
}
