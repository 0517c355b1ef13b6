"""`linear_cross_entropy` as a custom operator, which computes its gradients in the forward pass."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from softlook.base.errors import ShapeError
from softlook.ops.arguments import HALF_DTYPES
from softlook.ops.linear_cross_entropy.kernel import HAS_TRITON, cross_entropy_triton_

IGNORE_INDEX = -100
CHUNK_BYTES = 1 << 30
"""Logits that are held at a time."""
CLASS_MULTIPLE = 64
"""On a GPU the weight is padded to a multiple of this many classes: matrix products are several times as fast."""


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = IGNORE_INDEX,
) -> tuple[Tensor, Tensor]:
    """The cross entropy of `linear(hidden, weight, bias)`, summed over all labels: with label smoothing, and without.

    The second sum has no gradient. The gradients of half-precision `hidden` are computed in its dtype, and those of
    `weight` are summed in float32.

    >>> from torch.nn.functional import cross_entropy
    >>> hidden, weight, labels = torch.randn(5, 8), torch.randn(7, 8), torch.tensor([3, 0, 6, -100, 2])
    >>> total, plain = linear_cross_entropy(hidden, weight, None, labels, label_smoothing=0.1)
    >>> logits = hidden @ weight.T
    >>> torch.allclose(total, cross_entropy(logits, labels, label_smoothing=0.1, reduction="sum"))
    True
    >>> torch.allclose(plain, cross_entropy(logits, labels, reduction="sum"))
    True
    """
    if hidden.shape[:-1] != labels.shape or hidden.shape[-1:] != weight.shape[1:]:
        raise ShapeError(
            f"expected a label for each hidden state and a weight of {hidden.shape[-1]} columns, got hidden states "
            f"{tuple(hidden.shape)}, labels {tuple(labels.shape)} and a weight {tuple(weight.shape)}"
        )
    rows, width = labels.numel(), hidden.element_size() * len(weight)
    chunk = max(1, min(rows, -(-rows // max(1, -(-rows * width // CHUNK_BYTES)))))
    with_grads = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (hidden, weight, bias)
    )
    sums, *_ = _linear_cross_entropy(
        hidden.flatten(0, -2), weight, bias, labels.flatten(), label_smoothing, ignore_index, chunk, with_grads
    )
    return sums[0], sums[1].detach()


@torch.library.custom_op("softlook::linear_cross_entropy", mutates_args=())
def _linear_cross_entropy(  # noqa: PLR0917
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    ignore: int,
    chunk: int,
    with_grads: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums (2,), smoothed and plain; the gradients of hidden states, weight and bias, empty if not needed."""
    with torch.autocast(hidden.device.type, enabled=False):
        classes, sum_dtype = len(weight), _sum_dtype(hidden)
        cast = _cast_weight(weight, hidden)
        shift = None if bias is None else pad(bias.to(hidden.dtype), (0, len(cast) - classes))
        sums = torch.zeros(2, device=hidden.device, dtype=sum_dtype)
        grads = [torch.empty_like(hidden) if with_grads else hidden.new_empty(0), *_empty(hidden, weight, bias, False)]
        for start in range(0, len(hidden), chunk):
            part = hidden[start : start + chunk]
            logits = part @ cast.T if shift is None else torch.addmm(shift, part, cast.T)
            losses = _cross_entropy_(logits, labels[start : start + chunk], classes, ignore, smoothing, with_grads)
            sums += losses.sum(1, dtype=sum_dtype)
            if not with_grads:
                continue
            torch.mm(logits, cast, out=grads[0][start : start + chunk])
            # Rows of padding are cut off after the product: with an odd number of classes it is slow.
            grad_weight = _product(logits.T, part, sum_dtype)[:classes]
            grads[1] = grad_weight if not start else grads[1].add_(grad_weight)
            if bias is not None:
                grad_bias = logits[:, :classes].sum(0, dtype=sum_dtype)
                grads[2] = grad_bias if not start else grads[2].add_(grad_bias)
        return sums, grads[0], grads[1], grads[2]


@_linear_cross_entropy.register_fake
def _(  # noqa: PLR0917
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    smoothing: float,
    ignore: int,
    chunk: int,
    with_grads: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    sums = hidden.new_empty(2, dtype=_sum_dtype(hidden))
    grad_hidden = torch.empty_like(hidden) if with_grads else hidden.new_empty(0)
    grad_weight, grad_bias = _empty(hidden, weight, bias, with_grads)
    return sums, grad_hidden, grad_weight, grad_bias


def _save_grads(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])
    ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in inputs[:3]]
    ctx.save_for_backward(*output[1:])


def _scale_grads(ctx: Any, grad_sums: Tensor | None, *others: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad_sums is None:
        return (None,) * 8
    saved = zip(ctx.saved_tensors, ctx.dtypes, strict=True)
    grads = (None if dtype is None else (grad * grad_sums[0]).to(dtype) for grad, dtype in saved)
    return *grads, *(None,) * 5


_linear_cross_entropy.register_autograd(_scale_grads, setup_context=_save_grads)


def _sum_dtype(hidden: Tensor) -> torch.dtype:
    return torch.float32 if hidden.dtype in HALF_DTYPES else hidden.dtype


def _empty(hidden: Tensor, weight: Tensor, bias: Tensor | None, with_grads: bool) -> list[Tensor]:
    """Tensors for the gradients of weight and bias."""
    dtype, size = _sum_dtype(hidden), weight.shape if with_grads else (0,)
    has_bias = with_grads and bias is not None
    return [hidden.new_empty(size, dtype=dtype), hidden.new_empty(len(weight) if has_bias else 0, dtype=dtype)]


def _cast_weight(weight: Tensor, hidden: Tensor) -> Tensor:
    """The weight in the dtype of the hidden states, on a GPU padded with classes of zeros."""
    padding = -len(weight) % CLASS_MULTIPLE if _uses_kernel(hidden) else 0
    if not padding:
        return weight.to(hidden.dtype)
    padded = weight.new_zeros(len(weight) + padding, weight.shape[1], dtype=hidden.dtype)
    padded[: len(weight)] = weight
    return padded


def _uses_kernel(hidden: Tensor) -> bool:
    return HAS_TRITON and hidden.is_cuda and hidden.dtype != torch.float64


def _product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """The matrix product, summed and returned in `dtype`."""
    if left.is_cuda and left.dtype in HALF_DTYPES:
        return torch.mm(left, right, out_dtype=dtype)
    return torch.mm(left, right).to(dtype)


def _cross_entropy_(
    logits: Tensor, labels: Tensor, classes: int, ignore: int, smoothing: float, with_grads: bool
) -> Tensor:
    """Losses (2, N), smoothed and plain; the logits are replaced by their gradients."""
    if _uses_kernel(logits):
        return cross_entropy_triton_(logits, labels, classes, ignore=ignore, smoothing=smoothing, with_grads=with_grads)
    log_probs = logits.to(_sum_dtype(logits)).log_softmax(-1)
    has_label = labels != ignore
    index = labels.where(has_label, 0)[:, None]
    plain = -log_probs.gather(1, index)[:, 0]
    losses = torch.stack([(1 - smoothing) * plain - smoothing * log_probs.mean(1), plain]).where(has_label, 0)
    if with_grads:
        grads = log_probs.exp_().sub_(smoothing / classes)
        grads.scatter_add_(1, index, grads.new_full((1, 1), smoothing - 1).expand_as(index))
        logits.copy_(grads.mul_(has_label[:, None]))
    return losses
