"""Attention: output, weights, scores, log-sum-exp and the plan."""

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops import scores
from softlook.ops.arguments import cast_for_autocast, check_value, disable_autocast, is_autocast, prepare_args
from softlook.ops.backends import reference, tiled
from softlook.ops.backends.kernel_cache import cache_kernel, cached_kernels, call_key
from softlook.ops.backends.plan import Backend, Plan, plan
from softlook.ops.backends.reference import Stage
from softlook.ops.bias import Bias
from softlook.ops.masks.base import Mask
from softlook.ops.scores import Score


def attention(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S _"],
    value: Float[Tensor, "B G S E"],
    *,
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | float | None = None,
    dropout: float = 0.0,
    score: Score | None = None,
    backend: Backend = "auto",
) -> Float[Tensor, "B H T E"]:
    """Scaled dot-product attention (Vaswani et al., 2017) with masks, biases, softcap and sink.

    Computed in this order: scores -> scale -> softcap -> bias -> mask -> softmax -> dropout -> average of the values.

    - `mask`: a mask from `softlook.masks`, or a boolean tensor; True = visible. A fully masked query gets zeros.
    - `bias`: a tensor added to the scores, or a bias from `softlook.positions` or `softlook.bias`; differentiable.
    - `scale`: factor of the scores; default: 1/sqrt(D).
    - `softcap`: limits scores smoothly to [-softcap, softcap] by tanh (Gemma 2).
    - `sink`: logit of an attention sink that takes weight and has no value; one number, or one per head.
    - `dropout`: probability of dropping a weight. Always applied: pass it in training only.
    - `score`: how queries and keys are compared, from `softlook.scores` or any function; default: dot product.
    - `backend`: force a backend; all give the same result. `explain` returns the selected one and the reason.

    Grouped-query attention: H may be a multiple of G; each key head then serves H/G consecutive query heads.

    >>> import torch
    >>> from softlook import attention, masks
    >>> query, key, value = torch.randn(3, 2, 4, 5, 8)
    >>> attention(query, key, value, mask=masks.causal()).shape
    torch.Size([2, 4, 5, 8])
    """
    kernels, call = None, None
    if bias is softcap is sink is score is None and backend == "auto" and not torch.compiler.is_compiling():
        kernels = cached_kernels(mask)
        call = None if kernels is None else call_key(query, key, value, mask, scale, dropout)
        kernel = None if kernels is None or call is None else kernels.get(call)
        if kernel:
            return kernel(query, key, value)
        kernels = None if kernel is False else kernels
    args = prepare_args(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score)
    check_dropout(dropout)
    if is_autocast(value):
        (value,) = cast_for_autocast(value)
        check_value(args, value)
        with disable_autocast(value):
            return plan(args, value, dropout, backend).run()
    check_value(args, value)
    chosen = plan(args, value, dropout, backend)
    if kernels is not None and call is not None:
        cache_kernel(call, kernels, chosen)
    return chosen.run()


def attention_with_lse(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S _"],
    value: Float[Tensor, "B G S E"],
    *,
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | float | None = None,
    dropout: float = 0.0,
    score: Score | None = None,
) -> tuple[Float[Tensor, "B H T E"], Float[Tensor, "B H T"]]:
    """Return the output of `attention` and the log-sum-exp of each query's scores, both differentiable.

    The log-sum-exp includes the sink and is -inf for a fully masked query. Outputs over chunks of the keys are
    combined with their log-sum-exp by `softlook.ops.merge.merge_outputs` (ring attention, chunked KV caches).

    >>> import torch
    >>> query, key, value = torch.randn(3, 1, 1, 4, 8)
    >>> output, lse = attention_with_lse(query, key, value)
    >>> torch.allclose(lse, attention_scores(query, key).logsumexp(-1), atol=1e-6)
    True
    """
    args = prepare_args(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score)
    (value,) = cast_for_autocast(value)
    check_value(args, value)
    check_dropout(dropout)
    with disable_autocast(value):
        if 0 in args.sizes or 0 in value.shape:
            output, lse = reference.reference_attention(args, value, dropout), reference.reference_lse(args)
        else:
            output, lse = tiled.tiled_attention_with_lse(args, value, dropout)
    if output.requires_grad and not lse.requires_grad:  # only the values learn: the gradient of lse is zero
        lse.requires_grad_()
    return output, lse


def attention_weights(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S _"],
    *,
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | float | None = None,
    score: Score | None = None,
) -> Float[Tensor, "B H T S"]:
    """Return the attention weights of `attention`, before dropout.

    Rows sum to one, to zero where fully masked, and to less than one with a sink.
    The map has T x S entries per head: `look` computes statistics of it without holding it.

    >>> import torch
    >>> query, key = torch.randn(2, 1, 1, 3, 4)
    >>> attention_weights(query, key).sum(-1)
    tensor([[[1.0000, 1.0000, 1.0000]]])
    """
    return attention_scores(
        query, key, stage="weights", mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score
    )


def attention_scores(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S _"],
    *,
    stage: Stage = "masked",
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | float | None = None,
    score: Score | None = None,
) -> Float[Tensor, "B H T S"]:
    """Return the attention map at a stage of its computation.

    `stage`: "scaled" (after the scale), "softcapped" (after the softcap), "masked" (after bias and mask; masked
    entries are -inf) or "weights" (after the softmax).

    >>> import torch
    >>> from softlook import masks
    >>> query = key = torch.eye(2).view(1, 1, 2, 2)
    >>> attention_scores(query, key, scale=3.0, mask=masks.causal())
    tensor([[[[3., -inf],
              [0., 3.]]]])
    """
    args = prepare_args(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score)
    with disable_autocast(args.query):
        return reference.attention_map(args, stage).to(args.query.dtype)


def explain(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S _"],
    value: Float[Tensor, "B G S E"],
    *,
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | float | None = None,
    dropout: float = 0.0,
    score: Score | None = None,
    backend: Backend = "auto",
) -> Plan:
    """Return the plan that `attention` executes for the same arguments: kernel, reason, bytes of temporary memory.

    >>> import torch
    >>> query, key, value = torch.randn(3, 1, 1, 3, 4)
    >>> print(explain(query, key, value, sink=0.0))
    tiled: torch's kernels have no attention sink; tiled attention is exact and never holds the whole map (0.0 MiB ...)
    """
    args = prepare_args(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score)
    (value,) = cast_for_autocast(value)
    check_value(args, value)
    return plan(args, value, check_dropout(dropout), backend)


def check_dropout(dropout: float) -> float:
    """Require a probability in [0, 1)."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout expects a probability in [0, 1), got {dropout}")
    return dropout


def self_attention(
    x: Float[Tensor, "*B T C"],
    *,
    softmax: bool = True,
    temperature: float = 1.0,
    mask: Mask | Tensor | None = None,
    form: Float[Tensor, "C C"] | None = None,
    to_value: Float[Tensor, "C E"] | None = None,
) -> Float[Tensor, "*B T E"]:
    """Self-attention without parameters: y_j = sum_i w_ij x_i.

    The weights are dot products over a temperature, normalized by a softmax or, with `softmax=False`, as they are.
    It is permutation-equivariant: permuting the input permutes the output.

    `form` and `to_value` add parameters: softmax(X form X^T) X to_value. With `form` = W_Q W_K^T / sqrt(d) and
    `to_value` = W_V this is one attention head, written as a bilinear form.

    >>> x = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> self_attention(x, softmax=False)
    tensor([[8., 0.],
            [0., 1.]])
    >>> self_attention(x)
    tensor([[1.9640, 0.0180],
            [0.5379, 0.7311]])
    """
    if x.ndim not in (2, 3):
        raise ShapeError(f"self_attention expects a set (T, C) or a batch of sets (B, T, C), got {tuple(x.shape)}")
    batched = x if x.ndim == 3 else x[None]
    query, key = batched[:, None], batched[:, None]
    value = key if to_value is None else key @ to_value
    score = scores.scaled_dot(temperature) if form is None else scores.bilinear(form, temperature)
    if softmax:
        output = attention(query, key, value, mask=mask, score=score)
    else:
        weights = attention_scores(query, key, mask=mask, score=score)
        output = weights.masked_fill(weights == -torch.inf, 0) @ value
    return output[:, 0] if x.ndim == 3 else output[0, 0]
