"""Activation patching: head outputs or the residual stream, replaced by those of another forward pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.lens.interventions import attention_core, check_heads, head_indices
from softlook.lens.trace import Trace


@contextmanager
def patch(
    model: nn.Module,
    source: Trace,
    path: str,
    *,
    positions: Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
) -> Iterator[None]:
    """Replace activations by those of `source` inside the context (activation patching, Vig et al. 2020).

    - `path`: an attention layer, such as "blocks.3.attn", whose head outputs before the output projection are
      replaced (the source needs `values=True`); or a block, such as "blocks.3", for the residual stream after it.
    - `positions`: the positions that are replaced; default: all.
    - `heads`: the heads of the attention layer that are replaced; default: all.

    The source has the length of the patched input, and its batch size or 1. Contexts nest, and the model is unchanged
    afterwards, also after an exception.

    >>> from softlook.lens import trace
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> one, other = torch.tensor([[3, 1, 4]]), torch.tensor([[3, 9, 4]])
    >>> with torch.no_grad(), trace(model) as recorded:
    ...     logits = model(other)
    >>> with torch.no_grad(), patch(model, recorded, "blocks.0"):
    ...     patched = model(one)
    >>> torch.equal(patched, logits)
    True
    """
    if path in source.residual:
        module, activation, chosen = model.get_submodule(path), source.residual[path], None
        if heads is not None:
            raise ConfigError(f"heads belong to an attention layer, and {path} is a block")
    elif path in source.layers:
        module, activation = attention_core(model, path), _head_outputs(source, path)
        chosen = range(activation.shape[1]) if heads is None else head_indices(heads)
        check_heads(path, chosen, activation.shape[1])
    else:
        expected = ", ".join([*source, *source.residual]) or "nothing: it is empty"
        raise ConfigError(f"no activation {path!r} in the source: expected one of {expected}")

    def replace(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        own = output[0] if isinstance(output, tuple) else output
        _check_shape(path, activation, own)
        mask = _patched_mask(own, positions, chosen)
        patched = torch.where(mask, activation.to(own), own)
        return (patched, *output[1:]) if isinstance(output, tuple) else patched

    hook = module.register_forward_hook(replace)
    try:
        yield
    finally:
        hook.remove()


def _head_outputs(source: Trace, path: str) -> Tensor:
    calls = source[path].calls
    if len(calls) != 1:
        raise ConfigError(f"{path} was called {len(calls)} times in the source: trace a single forward pass")
    if calls[0].output is None:
        raise ConfigError("the source has no head outputs: record it with trace(model, values=True)")
    return calls[0].output


def _check_shape(path: str, activation: Tensor, own: Tensor) -> None:
    if activation.shape[1:] != own.shape[1:] or len(activation) not in (1, len(own)):
        raise ShapeError(f"{path} is {tuple(own.shape)} here and {tuple(activation.shape)} in the source: align them")


def _patched_mask(own: Tensor, positions: Sequence[int] | None, heads: Sequence[int] | None) -> Tensor:
    """True where the activation is replaced: (T, 1), or with heads (H, T, 1)."""
    length = own.shape[-2]
    if bad := [position for position in positions or () if not -length <= position < length]:
        raise ShapeError(f"position {bad[0]} is not among {length} positions")
    mask = torch.zeros(length, 1, dtype=torch.bool, device=own.device)
    mask[slice(None) if positions is None else list(positions)] = True
    if heads is None:
        return mask
    chosen = torch.zeros(own.shape[1], 1, 1, dtype=torch.bool, device=own.device)
    chosen[list(heads)] = True
    return mask & chosen
