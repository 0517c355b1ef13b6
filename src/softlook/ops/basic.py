"""Attention with no parameters at all, where the story begins: y_j = sum_i w_ij x_i."""

import torch
from jaxtyping import Float
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops import scores
from softlook.ops.masks.algebra import Mask
from softlook.ops.operation import attention, attention_scores


def self_attention(
    x: Float[Tensor, "*B T C"],
    *,
    softmax: bool = True,
    temperature: float = 1.0,
    mask: Mask | Tensor | None = None,
    form: Float[Tensor, "C C"] | None = None,
    to_value: Float[Tensor, "C E"] | None = None,
) -> Float[Tensor, "*B T E"]:
    """Each element of a set becomes a weighted sum of all of them, by how much they resemble it.

    The weight is the dot product of two elements over a temperature, softmaxed over the set or, with
    `softmax=False`, as it is. Order plays no part: shuffle the set, and the outputs are shuffled alike.

    `form` and `to_value` put parameters in: softmax(X form X^T) X to_value. With `form` = W_Q W_K^T / sqrt(d) and
    `to_value` = W_V that is the attention of one head, read as a bilinear form.

    >>> x = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> self_attention(x, softmax=False)
    tensor([[8., 0.],
            [0., 1.]])
    >>> self_attention(x)
    tensor([[1.9640, 0.0180],
            [0.5379, 0.7311]])
    """
    if x.ndim not in (2, 3):
        raise ShapeError(f"self_attention wants a set (T, C) or a batch of them (B, T, C); {tuple(x.shape)} came")
    batched = x if x.ndim == 3 else x[None]
    query, key = batched[:, None], batched[:, None]
    value = key if to_value is None else key @ to_value
    score = scores.scaled(temperature) if form is None else scores.bilinear(form, temperature)
    if softmax:
        output = attention(query, key, value, mask=mask, score=score)
    else:
        weights = attention_scores(query, key, mask=mask, score=score)
        output = weights.masked_fill(weights == -torch.inf, 0) @ value
    return output[:, 0] if x.ndim == 3 else output[0, 0]
