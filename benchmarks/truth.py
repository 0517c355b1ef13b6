"""Ground truth: the textbook formula in float64 on part of a case."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import SOFTCAP, Case, Inputs, distance_bias, visible_keys

ROWS = 64
"""Queries that are checked without a gradient; with one, all are."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}
RANDOM_TOLERANCE = 5e-2
"""Tolerance with dropout, relative to the output without it."""


def textbook(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    *,
    softcap: float | None = None,
    added: Tensor | None = None,
    sink: Tensor | None = None,
) -> Tensor:
    """softmax(cap(scale QK') + added) V with the whole map; a sink is one more logit per row."""
    scores = query @ key.mT * scale
    if softcap is not None:
        scores = softcap * (scores / softcap).tanh()
    if added is not None:
        scores = scores + added
    if sink is None:
        return scores.softmax(-1) @ value
    nothing = sink.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([scores, nothing], -1).softmax(-1)[..., :-1] @ value


@dataclass(frozen=True, eq=False)
class Truth:
    """The output of some queries of the last key head of the last sequence, and its gradients."""

    case: Case
    rows: Tensor
    parts: list[Tensor]

    def error(self, answer: Any) -> float:
        """The largest relative error among output and gradients: norm of the difference over norm of the truth."""
        found: tuple[Tensor, ...] = answer if isinstance(answer, tuple) else (answer,)
        if self.case.dropout:
            output, right = self._same(found)[0].double(), self.parts[0]
            return abs(float((output * right).sum() / right.square().sum()) - 1)
        return max(relative(part, right) for part, right in zip(self._same(found), self.parts, strict=True))

    def passes(self, error: float) -> bool:
        return error < (RANDOM_TOLERANCE if self.case.dropout else TOLERANCE[self.case.dtype])

    def _same(self, found: tuple[Tensor, ...]) -> list[Tensor]:
        """Return the part of an output that is compared."""
        R = self.case.group_size
        heads = slice(-R, None)
        output = found[0][-1:, heads][:, :, self.rows]
        if len(found) == 1:
            return [output]
        picked = [output, found[1][-1:, heads], found[2][-1:, -1:], found[3][-1:, -1:]]
        return picked + ([found[4][:, heads]] if len(found) > 4 else [])


def relative(found: Tensor, right: Tensor) -> float:
    """Return the relative error; NaN counts as infinite."""
    error = float((found.double() - right).norm() / right.norm().clamp(min=1e-30))
    return error if error == error else float("inf")


def truth(case: Case, inputs: Inputs) -> Truth:
    """Compute the ground truth for part of the case."""
    _, H, T, _, _ = case.shape
    R, device = case.group_size, inputs.query.device
    everyone = torch.arange(T, device=device)
    rows = everyone if case.backward else torch.linspace(0, T - 1, min(T, ROWS), device=device).round().long().unique()
    with torch.enable_grad():
        query, key, value, table = (
            part.detach().double().requires_grad_(case.backward)
            for part in (inputs.query[-1:, H - R :], inputs.key[-1:, -1:], inputs.value[-1:, -1:], inputs.table)
        )
        own = Inputs(
            query, key, value, inputs.grad, inputs.lengths, inputs.slopes.double(), table, inputs.sink.double()
        )
        output = textbook(
            query[:, :, rows],
            key,
            value,
            case.scale,
            softcap=SOFTCAP if case.extra == "softcap" else None,
            added=_added(case, own, rows),
            sink=own.sink[-R:] if case.extra == "sink" else None,
        )
        if not case.backward:
            return Truth(case, rows, [output])
        learned = (query, key, value) + ((table,) if case.extra == "t5" else ())
        grads = torch.autograd.grad(output, learned, inputs.grad[-1:, H - R :].double())
    parts = [output.detach(), *grads[:3]] + ([grads[3][:, -R:]] if case.extra == "t5" else [])
    return Truth(case, rows, parts)


def _added(case: Case, inputs: Inputs, rows: Tensor) -> Tensor | None:
    """Bias and mask of the last key head of the last sequence."""
    bias, allowed = distance_bias(case, inputs, rows), visible_keys(case, inputs, rows)
    added = None if bias is None else bias[:, -case.group_size :]
    if allowed is None:
        return added
    hidden = torch.zeros(allowed[-1:].shape, dtype=torch.float64, device=allowed.device)
    hidden = hidden.masked_fill(~allowed[-1:], -torch.inf)
    return hidden if added is None else added + hidden
