"""Merge attention outputs and looks over chunks of the keys. Exact.

>>> import torch
>>> from softlook import look
>>> query, key = torch.randn(2, 1, 1, 4, 8)
>>> halves = [look(query, key[:, :, start : start + 2], part=(start, 4), stats=("lse", "entropy")) for start in (0, 2)]
>>> torch.allclose(merge_looks(halves).entropy, look(query, key).entropy, atol=1e-6)
True
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from softlook.ops.look import Look
from softlook.ops.statistics import min_log


def merge_looks(looks: Sequence[Look]) -> Look:
    """Merge looks at consecutive chunks of the keys, in order, into one look at all keys.

    Statistics per query are merged through their `lse`, which every chunk must hold; statistics per key must have been
    computed with the merged `lse=`.
    """
    if not looks:
        raise ValueError("merge_looks expects at least one look, got none")
    names = set(looks[0].values)
    if any(set(look.values) != names for look in looks):
        raise ValueError(f"merge_looks expects equal stats, got {[sorted(look.values) for look in looks]}")
    parts = {name: [look.values[name] for look in looks] for name in names}
    if all(look.total_lse is not None for look in looks):
        return Look({name: _SUMMED[name](parts[name]) for name in names})
    if "lse" not in names:
        raise ValueError(f"merge_looks needs 'lse' among the stats of each chunk, got {sorted(names)}")
    if "top_indices" in names and "top_weights" not in names:
        raise ValueError("merging 'top_indices' needs 'top_weights' among the stats of each chunk")
    return Look(_merge_per_query(parts))


def merge_outputs(outputs: Sequence[Tensor], lses: Sequence[Tensor]) -> Tensor:
    """Merge attention outputs (B, H, T, E) over chunks of the keys by their log-sum-exp (B, H, T).

    Differentiable in both: take them from `attention_with_lse`. Raises an error if an output needs a gradient and its
    log-sum-exp carries none, since queries and keys would silently get a wrong gradient.
    """
    for number, (output, lse) in enumerate(zip(outputs, lses, strict=True)):
        if torch.is_grad_enabled() and output.requires_grad and not lse.requires_grad:
            raise ValueError(
                f"output {number} requires a gradient, but its lse does not, so the gradient of the merged output "
                "would be wrong. Use attention_with_lse; if only the values are trained, call lse.requires_grad_()."
            )
    shares, _ = _shares(lses)
    merged = sum((share[..., None] * output.to(share.dtype) for share, output in zip(shares, outputs, strict=True)))
    assert isinstance(merged, Tensor)
    return merged.to(outputs[0].dtype)


def _merge_per_query(parts: dict[str, list[Tensor]]) -> dict[str, Tensor]:
    shares, total = _shares(parts["lse"])
    merged = {"lse": total}
    for name in parts.keys() & {"entropy", "mean_distance", "max_weight"}:
        scaled = torch.stack([share * part for share, part in zip(shares, parts[name], strict=True)])
        merged[name] = scaled.amax(0) if name == "max_weight" else scaled.sum(0)
    if "entropy" in merged:  # the distribution over chunks has entropy too
        merged["entropy"] = merged["entropy"] - _plogp(parts["lse"], shares, total)
    if "effective_keys" in parts:
        squares = [
            share.square() / keys.clamp(min=1) for share, keys in zip(shares, parts["effective_keys"], strict=True)
        ]
        square = torch.stack(squares).sum(0)
        masked = square == 0
        merged["effective_keys"] = (1 / square.masked_fill(masked, 1)).masked_fill(masked, 0)
    if "top_weights" in parts:
        weights = [share[..., None] * part for share, part in zip(shares, parts["top_weights"], strict=True)]
        merged["top_weights"], order = torch.cat(weights, -1).topk(weights[0].shape[-1], dim=-1)
        if "top_indices" in parts:
            merged["top_indices"] = torch.cat(parts["top_indices"], -1).gather(-1, order)
    return merged


def _shares(lses: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Each chunk's share of a query's weight, and the log-sum-exp over all chunks."""
    total = torch.stack(list(lses)).logsumexp(0)
    return [(lse - _finite(total)).exp() for lse in lses], total


def _plogp(lses: Sequence[Tensor], shares: Sequence[Tensor], total: Tensor) -> Tensor:
    """Sum of share * log(share); a share of 0 adds 0, with a gradient of 0."""
    logs = [(lse - _finite(total)).clamp(min=min_log(total.dtype)) for lse in lses]
    return torch.stack([share * log for share, log in zip(shares, logs, strict=True)]).sum(0)


def _finite(total: Tensor) -> Tensor:
    return total.masked_fill(total == -torch.inf, 0)


_SUMMED: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "received": lambda parts: torch.cat(parts, -1),
    "pooled_mean": lambda parts: torch.stack(parts).sum(0),
    "pooled_max": lambda parts: torch.stack(parts).amax(0),
}
