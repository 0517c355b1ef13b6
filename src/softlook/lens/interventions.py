"""Interventions on attention: temperature of heads, and keys that no query may attend to."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.attention import AttentionCore
from softlook.lens.trace import attention_cores
from softlook.ops.bias import as_bias, from_function
from softlook.ops.masks import Mask, dense

ARGUMENTS = ("query", "key", "value", "mask", "bias")
"""The arguments of an attention function, in order."""
Change = Callable[[dict[str, Any]], dict[str, Any]]
"""Returns the arguments of an attention function by name, changed."""


@contextmanager
def attention_temperature(
    model: nn.Module, layer: str, heads: int | Sequence[int], temperature: float
) -> Iterator[None]:
    """Divide the scores of heads, biases included, by a temperature inside the context.

    Below 1 attention becomes sharper, above 1 broader. Contexts nest, and the model is unchanged afterwards, also
    after an exception.

    - `layer`: the path of the attention module, such as "blocks.3.attn".

    >>> from softlook.lens import attention_maps
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> with attention_temperature(model, "blocks.0.attn", heads=2, temperature=1e6):
    ...     weights = attention_maps(model, torch.tensor([[3, 1, 4, 1]]))["blocks.0.attn"][0, 2, 3]
    >>> weights.round(decimals=4)
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    if not temperature > 0:
        raise ConfigError(f"temperature must be positive, got {temperature}")
    core = attention_core(model, layer)
    if core.sink is not None:
        raise ConfigError(f"{layer} has a sink logit, which is no score of a key: a temperature does not apply to it")
    chosen = head_indices(heads)

    def change(given: dict[str, Any]) -> dict[str, Any]:
        query, bias = given["query"], given["bias"]
        check_heads(layer, chosen, query.shape[1])
        factor = torch.ones(query.shape[1], device=query.device).index_fill(
            0, torch.tensor(chosen, device=query.device), 1 / temperature
        )
        scale = from_function(lambda score, b, h, q_idx, kv_idx: score * factor[h])
        return given | {"bias": scale if bias is None else as_bias(bias) + scale}

    with change_arguments([core], change):
        yield


@contextmanager
def mask_keys(
    model: nn.Module, positions: Sequence[int] | Bool[Tensor, "B S"], *, layers: Sequence[str] | None = None
) -> Iterator[None]:
    """Hide tokens from attention inside the context: no query may attend to the keys at these positions.

    The tokens keep their own residual stream; a query that sees no other key gets zeros. Contexts nest, and the model
    is unchanged afterwards, also after an exception.

    - `positions`: positions among the keys, or a mask that is True where a key is hidden.
    - `layers`: paths of attention modules; default: all. Name them in an encoder-decoder, where cross-attention has
      the keys of the source.

    >>> from softlook.lens import attention_maps
    >>> from softlook.models import GPT, GPTConfig
    >>> model = GPT(GPTConfig(vocab_size=10, context=8, dim=16, depth=2, heads=4)).eval()
    >>> with mask_keys(model, [1, 2]):
    ...     weights = attention_maps(model, torch.tensor([[3, 1, 4, 1]]))["blocks.0.attn"]
    >>> weights[0, 0, 3] > 0
    tensor([ True, False, False,  True])
    """
    cores = [attention_core(model, layer) for layer in (attention_cores(model) if layers is None else layers)]

    def change(given: dict[str, Any]) -> dict[str, Any]:
        visible = _visible_keys(positions, given["key"])
        mask = given["mask"]
        return given | {"mask": visible if mask is None else visible & mask}

    with change_arguments(cores, change):
        yield


@contextmanager
def change_arguments(cores: Sequence[AttentionCore], change: Change) -> Iterator[None]:
    """Change the arguments of attention functions inside the context."""

    def hook(
        core: AttentionCore, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        changed = change(dict.fromkeys(ARGUMENTS) | dict(zip(ARGUMENTS, args, strict=False)) | kwargs)
        return tuple(changed[name] for name in ARGUMENTS), {}

    with ExitStack() as hooks:
        for core in cores:
            hooks.callback(core.register_forward_pre_hook(hook, with_kwargs=True).remove)
        yield


def attention_core(model: nn.Module, layer: str) -> AttentionCore:
    """The attention function of the layer at a path."""
    cores = attention_cores(model)
    if layer not in cores:
        raise ConfigError(f"no attention layer {layer!r}: expected one of {', '.join(cores)}")
    return cores[layer]


def head_indices(heads: int | Sequence[int]) -> list[int]:
    """One head or several as a list."""
    return [heads] if isinstance(heads, int) else list(heads)


def check_heads(layer: str, heads: Sequence[int], count: int) -> None:
    """Raise an error for a head that the layer does not have."""
    if bad := [head for head in heads if not 0 <= head < count]:
        raise ConfigError(f"{layer} has the heads 0 to {count - 1}, got {bad[0]}")


def _visible_keys(positions: Sequence[int] | Tensor, key: Tensor) -> Mask:
    """The mask that hides keys at some positions."""
    batch, keys = key.shape[0], key.shape[2]
    if isinstance(positions, Tensor):
        if positions.dtype != torch.bool or positions.shape not in ((batch, keys), (1, keys)):
            raise ShapeError(
                f"expected positions as a list or as booleans shaped {(batch, keys)}, "
                f"got {positions.dtype} shaped {tuple(positions.shape)}"
            )
        return dense(~positions[:, None, None])
    if bad := [position for position in positions if not -keys <= position < keys]:
        raise ShapeError(f"position {bad[0]} is not among {keys} keys")
    visible = torch.ones(1, 1, 1, keys, dtype=torch.bool, device=key.device)
    visible[..., list(positions)] = False
    return dense(visible)
