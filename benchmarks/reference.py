"""Reference outputs: dense attention in float64, for a part of a case."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import SOFTCAP, Case, Inputs, distance_bias, visible_keys

MAX_ROWS = 64
"""Queries that are checked without a gradient; with one, all are."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}
DROPOUT_TOLERANCE = 5e-2
"""Tolerance with dropout, relative to the output without dropout."""


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    *,
    softcap: float | None = None,
    bias: Tensor | None = None,
    sink: Tensor | None = None,
) -> Tensor:
    """softmax(softcap(scale QK') + bias) V from the whole map; a sink is one more logit per row."""
    scores = query @ key.mT * scale
    if softcap is not None:
        scores = softcap * (scores / softcap).tanh()
    if bias is not None:
        scores = scores + bias
    if sink is None:
        return scores.softmax(-1) @ value
    sinks = sink.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1] @ value


@dataclass(frozen=True, eq=False)
class Reference:
    """The output of some queries of the last key head of the last sequence, and its gradients."""

    case: Case
    rows: Tensor
    expected: list[Tensor]

    def error(self, outputs: Any) -> float:
        """The largest relative error of output and gradients: norm of the difference over norm of the reference."""
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        if self.case.dropout:
            output, expected = self._select(outputs)[0].double(), self.expected[0]
            return abs(float((output * expected).sum() / expected.square().sum()) - 1)
        return max(relative_error(*pair) for pair in zip(self._select(outputs), self.expected, strict=True))

    def passes(self, error: float) -> bool:
        return error < (DROPOUT_TOLERANCE if self.case.dropout else TOLERANCE[self.case.dtype])

    def _select(self, outputs: tuple[Tensor, ...]) -> list[Tensor]:
        """Return the parts of output and gradients that are compared."""
        heads = slice(-self.case.group_size, None)
        output = outputs[0][-1:, heads][:, :, self.rows]
        if len(outputs) == 1:
            return [output]
        grads = [outputs[1][-1:, heads], outputs[2][-1:, -1:], outputs[3][-1:, -1:]]
        return [output, *grads, *(grad[:, heads] for grad in outputs[4:])]


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return the relative error; NaN counts as infinite."""
    error = float((actual.double() - expected).norm() / expected.norm().clamp(min=1e-30))
    return error if error == error else float("inf")


def compute_reference(case: Case, inputs: Inputs) -> Reference:
    """Compute the reference for a part of the case."""
    _, H, T, _, _ = case.shape
    R, device = case.group_size, inputs.query.device
    rows = torch.arange(T, device=device)
    if not case.backward:
        rows = torch.linspace(0, T - 1, min(T, MAX_ROWS), device=device).round().long().unique()
    with torch.enable_grad():
        query, key, value, table = (
            part.detach().double().requires_grad_(case.backward)
            for part in (inputs.query[-1:, H - R :], inputs.key[-1:, -1:], inputs.value[-1:, -1:], inputs.table)
        )
        own = Inputs(
            query, key, value, inputs.grad, inputs.lengths, inputs.slopes.double(), table, inputs.sink.double()
        )
        output = dense_attention(
            query[:, :, rows],
            key,
            value,
            case.scale,
            softcap=SOFTCAP if case.extra == "softcap" else None,
            bias=_additive_mask(case, own, rows),
            sink=own.sink[-R:] if case.extra == "sink" else None,
        )
        if not case.backward:
            return Reference(case, rows, [output])
        leaves = (query, key, value) + ((table,) if case.extra == "t5" else ())
        grads = torch.autograd.grad(output, leaves, inputs.grad[-1:, H - R :].double())
    expected = [output.detach(), *grads[:3]] + ([grads[3][:, -R:]] if case.extra == "t5" else [])
    return Reference(case, rows, expected)


def _additive_mask(case: Case, inputs: Inputs, rows: Tensor) -> Tensor | None:
    """Bias and mask of the last key head of the last sequence."""
    bias, allowed = distance_bias(case, inputs, rows), visible_keys(case, inputs, rows)
    bias = None if bias is None else bias[:, -case.group_size :]
    if allowed is None:
        return bias
    mask = torch.zeros(allowed[-1:].shape, dtype=torch.float64, device=allowed.device)
    mask = mask.masked_fill(~allowed[-1:], -torch.inf)
    return mask if bias is None else bias + mask
