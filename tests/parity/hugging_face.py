"""softlook's attention with the signature of transformers' attention interface."""

from typing import Any

import torch
from torch import Tensor, nn

from softlook import attention, masks

NAME = "softlook"


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    sliding_window: int | None = None,
    **unused: Any,
) -> tuple[Tensor, None]:
    """(B, H, T, D), (B, G, S, D), (B, G, S, E) -> (B, T, H, E)"""
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    mask, bias = None, position_bias
    if attention_mask is None and is_causal and query.shape[2] > 1:
        # Without a mask, the kernel is causal. A window is left to the kernel only if it masks nothing.
        mask = masks.causal() if sliding_window is None else masks.window(sliding_window - 1)
    elif attention_mask is not None and attention_mask.dtype == torch.bool:
        mask = masks.dense(attention_mask)
    elif attention_mask is not None:
        bias = attention_mask if bias is None else bias + attention_mask
    output = attention(
        query, key, value, mask=mask, bias=bias, scale=scaling, softcap=softcap, sink=s_aux, dropout=dropout
    )
    return output.transpose(1, 2).contiguous(), None
