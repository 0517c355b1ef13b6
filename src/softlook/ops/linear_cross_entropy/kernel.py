"""Triton kernel of the cross entropy of rows of logits, which it replaces by their gradients.

Without Triton the kernel can be imported, but not run.
"""
# ruff: noqa: PLR0917  (kernels take pointers and sizes as positional arguments)
# pyright: reportMissingImports=false, reportInvalidTypeForm=false

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, no_type_check  # shape checks in tests would wrap the function that Triton compiles

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None  # included in torch builds for GPUs
if HAS_TRITON:
    import triton as installed_triton
    import triton.language as triton_language

    triton: Any = installed_triton
    tl: Any = triton_language
else:
    triton = SimpleNamespace(jit=lambda kernel: kernel)
    tl = SimpleNamespace(constexpr=object)

BLOCK, NUM_WARPS = 4096, 8
"""Logits that a program reads at a time. Few rows are in flight at once: the second pass reads them from the cache."""


@triton.jit
@no_type_check
def cross_entropy_kernel(
    logits, labels, losses, num_rows, num_classes, stride, ignore, smoothing,
    BLOCK: tl.constexpr, SMOOTHED: tl.constexpr, WITH_GRADS: tl.constexpr,
):  # fmt: skip
    """One row per program: `losses` (2, N), smoothed and plain; the row becomes its gradient."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    logits += row * stride
    label = tl.load(labels + row)
    if label == ignore:
        tl.store(losses + row, 0.0)
        tl.store(losses + num_rows + row, 0.0)
        if WITH_GRADS:
            for start in range(0, stride, BLOCK):
                at = start + columns
                tl.store(logits + at, tl.zeros([BLOCK], logits.dtype.element_ty), mask=at < stride)
        return
    largest = tl.full([], float("-inf"), tl.float32)
    total = tl.zeros([], tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, num_classes, BLOCK):
        at = start + columns
        x = tl.load(logits + at, mask=at < num_classes, other=float("-inf")).to(tl.float32)
        new = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(x - new), 0)
        largest = new
        if SMOOTHED:
            sums += tl.where(at < num_classes, x, 0.0)
    lse = largest + tl.log(total)
    plain = lse - tl.load(logits + label).to(tl.float32)
    loss = plain
    if SMOOTHED:
        loss = (1 - smoothing) * plain + smoothing * (lse - tl.sum(sums, 0) / num_classes)
    tl.store(losses + row, loss)
    tl.store(losses + num_rows + row, plain)
    if WITH_GRADS:
        tl.debug_barrier()  # every thread has read the logit of the label before one overwrites it
        for start in range(0, stride, BLOCK):
            at = start + columns
            x = tl.load(logits + at, mask=at < num_classes, other=float("-inf")).to(tl.float32)
            grad = tl.exp(x - lse) - tl.where(at == label, 1 - smoothing, 0.0)
            if SMOOTHED:
                grad -= tl.where(at < num_classes, smoothing / num_classes, 0.0)
            tl.store(logits + at, grad.to(logits.dtype.element_ty), mask=at < stride)


def cross_entropy_triton_(
    logits: Tensor, labels: Tensor, num_classes: int, *, ignore: int, smoothing: float, with_grads: bool
) -> Tensor:
    """Losses (2, N), smoothed and plain. Columns from `num_classes` on are padding; with grads, the logits change."""
    losses = torch.empty(2, len(logits), device=logits.device)
    with torch.cuda.device(logits.device):
        cross_entropy_kernel[(len(logits),)](
            logits, labels, losses, len(logits), num_classes, logits.stride(0), ignore, smoothing,
            BLOCK=BLOCK, SMOOTHED=smoothing > 0, WITH_GRADS=with_grads, num_warps=NUM_WARPS,
        )  # fmt: skip
    return losses
