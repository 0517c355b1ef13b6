"""Attention: every value, each to the extent that its key matches the query."""

from jaxtyping import Float
from torch import Tensor

from softlook.ops import reference
from softlook.ops.bias import Bias
from softlook.ops.dispatch import Backend, Choice, answer, choose
from softlook.ops.masks.algebra import Mask
from softlook.ops.question import ask, autocast, check_value, full_precision
from softlook.ops.reference import Stage
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
    """Average the values, weighted by how well each key answers the query.

    In this order: scores -> scale -> soft cap -> bias -> mask -> softmax -> dropout -> average.

    - `mask`: a mask from `softlook.masks`, or True/False written out; True = may look. A query that may look
      nowhere gets zeros.
    - `bias`: numbers added to the scores, written out or from `softlook.positions`; gradients flow into it.
    - `scale`: what the score is multiplied with; 1/sqrt(D) where none is given.
    - `softcap`: squeezes scores smoothly between -softcap and softcap.
    - `sink`: the score of looking at nothing, one number or one per head; 0 is a null key.
    - `dropout`: the share of weights set to zero. It is always on when given: pass it in training only.
    - `score`: how queries and keys are compared, from `softlook.scores` or any function; the dot product if none.
    - `backend`: pin the path; all give the same answer. `explain` tells which one is taken and why.

    H may be a multiple of G: each key head then serves H/G query heads that stand side by side.

    >>> import torch
    >>> from softlook import attention, masks
    >>> query, key, value = torch.randn(3, 2, 4, 5, 8)
    >>> attention(query, key, value, mask=masks.causal()).shape
    torch.Size([2, 4, 5, 8])
    """
    question = ask(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score)
    (value,) = autocast(value)
    check_value(question, value)
    with full_precision(value):
        return answer(question, value, share(dropout), backend)


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
    """The map `attention` averages with, before dropout, for each head.

    Rows sum to one; to zero where nothing may be seen; to less than one where a sink takes its share.
    The whole map takes T x S numbers per head: `look` tells about it without holding it.

    >>> import torch
    >>> query, key = torch.randn(2, 1, 1, 3, 4)
    >>> attention_weights(query, key).sum(-1)
    tensor([[[1.0000, 1.0000, 1.0000]]])
    """
    question = ask(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score)
    with full_precision(question.query):
        return reference.score_map(question, "softmaxed").to(question.query.dtype)


def attention_scores(
    query: Float[Tensor, "B H T D"],
    key: Float[Tensor, "B G S _"],
    *,
    stage: Stage = "biased",
    mask: Mask | Tensor | None = None,
    bias: Bias | Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sink: Tensor | float | None = None,
    score: Score | None = None,
) -> Float[Tensor, "B H T S"]:
    """The map on its way to the softmax.

    `stage` says where to look at it: "raw" (after the scale), "capped" (after the soft cap),
    "biased" (after bias and mask; what is hidden is -inf), "softmaxed" (the weights).

    >>> import torch
    >>> from softlook import masks
    >>> query = key = torch.eye(2).view(1, 1, 2, 2)
    >>> attention_scores(query, key, scale=3.0, mask=masks.causal())
    tensor([[[[3., -inf],
              [0., 3.]]]])
    """
    question = ask(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score)
    with full_precision(question.query):
        return reference.score_map(question, stage).to(question.query.dtype)


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
) -> Choice:
    """Which path `attention` takes for the same arguments, why, and the bytes it needs on the way.

    >>> import torch
    >>> query, key, value = torch.randn(3, 1, 1, 3, 4)
    >>> print(explain(query, key, value, softcap=30.0))
    blocks: torch's kernels have no soft cap; block by block is exact and holds no map (0.0 MiB on the way)
    """
    question = ask(query, key, mask=mask, bias=bias, scale=scale, softcap=softcap, sink=sink, score=score)
    (value,) = autocast(value)
    check_value(question, value)
    return choose(question, value, share(dropout), backend)


def share(dropout: float) -> float:
    """A share that can be dropped."""
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout wants a share from 0 up to, not including, 1; {dropout} came")
    return dropout
