"""Ablation: the output of attention heads, replaced during a forward pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore
from softlook.lens.interventions import attention_core, check_heads, head_indices

Replacement = Literal["zero", "mean", "resample"]


@contextmanager
def ablate(
    model: nn.Module,
    layer: str,
    heads: int | Sequence[int],
    replacement: Replacement = "zero",
    *,
    amount: float = 1.0,
) -> Iterator[None]:
    """Replace the output of heads, before the output projection, inside the context.

    - `layer`: the path of the attention module, such as "blocks.3.attn".
    - `replacement`: "zero", the same as zeros in the head's columns of the output projection; "mean", the mean over
      the sequences and positions of the batch; "resample", the output for the previous sequence of the batch.
    - `amount`: from 0, no change, to 1, completely replaced.

    Contexts nest, and the model is unchanged afterwards, also after an exception.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> ids = torch.tensor([[3, 1, 4]])
    >>> with torch.no_grad(), ablate(model, "blocks.0.attn", heads=2):
    ...     ablated = model(ids)
    >>> torch.equal(model(ids), ablated)
    False
    """
    chosen, core = head_indices(heads), attention_core(model, layer)
    _check(replacement, amount)

    def replace(core: AttentionCore, args: tuple[Any, ...], output: Tensor) -> Tensor:
        check_heads(layer, chosen, output.shape[1])
        changed = output.clone()
        changed[:, chosen] = torch.lerp(output[:, chosen], ablated_output(output[:, chosen], replacement), amount)
        return changed

    hook = core.register_forward_hook(replace)
    try:
        yield
    finally:
        hook.remove()


def ablated_output(output: Float[Tensor, "B h T E"], replacement: Replacement) -> Float[Tensor, "B h T E"]:
    """What replaces the output of heads."""
    if replacement == "zero":
        return torch.zeros_like(output)
    if replacement == "mean":
        return output.mean((0, 2), keepdim=True).expand_as(output)
    if len(output) < 2:
        raise ConfigError('"resample" takes the output for another sequence: expected a batch of at least 2, got 1')
    return output.roll(1, 0)


def _check(replacement: str, amount: float) -> None:
    if replacement not in get_args(Replacement):
        raise ConfigError(f"replacement must be one of {', '.join(get_args(Replacement))}, got {replacement!r}")
    if not 0 <= amount <= 1:
        raise ConfigError(f"amount must be from 0 to 1, got {amount}")
