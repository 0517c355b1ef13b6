"""Norm-based attention: weights times the norms of the projected values."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import MultiHeadAttention
from softlook.lens.attention_trace import AttentionCall
from softlook.lens.copying import head_weights
from softlook.lens.trace import Trace


@torch.no_grad()
def value_weighted_attention(
    model: nn.Module,
    trace: Trace,
    layer: str,
    *,
    heads: slice = slice(None),
    rows: slice = slice(None),
    columns: slice = slice(None),
) -> Float[Tensor, "B h t s"]:
    """Attention weights times the norms of what they weight, p_ij |W_O v_j| (Kobayashi et al. 2020).

    A head may attend to a key whose value is nearly zero, as to an attention sink: this product is what arrives in
    the residual stream. The trace needs `values=True`. Only the selected part of the map is computed.

    >>> from softlook.lens import trace
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> with torch.no_grad(), trace(model, values=True) as recorded:
    ...     logits = model(torch.tensor([[3, 1, 4]]))
    >>> value_weighted_attention(model, recorded, "blocks.0.attn", rows=slice(2, 3)).shape
    torch.Size([1, 4, 1, 3])
    """
    attn, call = _attention_layer(model, layer), call_with_values(trace, layer)
    _, output = head_weights(attn)
    assert call.value is not None
    group_size = len(output) // call.value.shape[1]
    norms = [
        (call.value[:, head // group_size].to(output.dtype) @ output[head].T).norm(dim=-1)
        for head in range(len(output))[heads]
    ]
    part = trace[layer].weights(heads=heads, rows=rows, columns=columns)
    return part * torch.stack(norms, 1)[:, :, None, columns]


def _attention_layer(model: nn.Module, path: str) -> MultiHeadAttention:
    layer = model.get_submodule(path)
    if not isinstance(layer, MultiHeadAttention):
        raise ConfigError(f"expected multi-head attention at {path}, got {type(layer).__name__}")
    return layer


def call_with_values(recorded: Trace, path: str) -> AttentionCall:
    """The call of a layer that was called once, with its values and outputs."""
    calls = recorded[path].calls
    if len(calls) != 1:
        raise ConfigError(f"{path} was called {len(calls)} times: trace a single forward pass")
    if calls[0].value is None:
        raise ConfigError("the trace has no values: record it with trace(model, values=True)")
    return calls[0]
