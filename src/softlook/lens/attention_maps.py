"""Attention maps of a model: the weights of every attention layer in a forward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError
from softlook.blocks.attention import AttentionCore

CORE = ".core"
"""The name of the attention function inside an attention layer."""


def attention_maps(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, Float[Tensor, "B H T S"]]:
    """Run a model and return the attention weights of each layer, by the path of the attention module.

    The weights are those of the forward pass, before dropout, with its masks and biases, and the scale, softcap and
    sink of each layer. The model is called with the remaining arguments, without gradients.

    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> {path: tuple(weights.shape) for path, weights in attention_maps(model, torch.tensor([[3, 1, 4]])).items()}
    {'blocks.0.attn': (1, 4, 3, 3), 'blocks.1.attn': (1, 4, 3, 3)}
    """
    with torch.no_grad(), record_attention(model) as maps:
        model(*args, **kwargs)
    return {path: calls[0] if len(calls) == 1 else torch.cat(calls, 2) for path, calls in maps.items() if calls}


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, list[Float[Tensor, "B H T S"]]]]:
    """Record the attention weights of every call inside the context: a list for each layer, by its path.

    A layer is called once in a forward pass; that of a recurrent decoder once for each query.

    >>> from softlook.blocks import SelfAttention
    >>> layer = SelfAttention(8, heads=2)
    >>> with record_attention(layer) as maps:
    ...     output = layer(torch.randn(1, 5, 8))
    >>> maps["core"][0].shape
    torch.Size([1, 2, 5, 5])
    """
    cores = {path: module for path, module in model.named_modules() if isinstance(module, AttentionCore)}
    if not cores:
        raise ConfigError(f"{type(model).__name__} has no attention layers")
    maps: dict[str, list[Tensor]] = {path.removesuffix(CORE): [] for path in cores}
    hooks = [
        core.register_forward_hook(_recorder(maps[path.removesuffix(CORE)]), with_kwargs=True)
        for path, core in cores.items()
    ]
    try:
        yield maps
    finally:
        for hook in hooks:
            hook.remove()


def _recorder(calls: list[Tensor]) -> Any:
    """A forward hook that appends the weights of a call."""

    def record(core: AttentionCore, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        names = ("query", "key", "value", "mask", "bias")
        given = dict(zip(names, args, strict=False)) | kwargs
        given.pop("value")
        calls.append(core.weights(**given).detach())

    return record
