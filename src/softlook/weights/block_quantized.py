"""Layers whose weights stay quantized in memory, as a GGUF file stores them, and are dequantized when used."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import WeightsError
from softlook.embed.tokens import TokenEmbedding, check_range
from softlook.weights.block_formats import BLOCK_FORMATS, dequantize_rows
from softlook.weights.meta import build_on_meta

MAX_CHUNK = 1 << 21
"""Numbers dequantized at once: 8 MiB in float32."""
BLOCKS = "blocks"
"""The tensor of a quantized layer in place of `weight`."""


class QuantizedLayer(nn.Module):
    """A weight as rows of quantized blocks. `weight` dequantizes all of it."""

    blocks: Tensor

    def __init__(self, blocks: Tensor, block_format: str, columns: int) -> None:
        super().__init__()
        self.block_format, self.columns = block_format, columns
        self.register_buffer(BLOCKS, blocks)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the dequantized weight."""
        return len(self.blocks), self.columns

    @property
    def weight(self) -> Float[Tensor, "M C"]:
        return torch.cat([rows for _, rows in self.chunks()])

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """The weight in float32, some rows at a time."""
        step = max(MAX_CHUNK // self.columns, 1)
        for begin in range(0, len(self.blocks), step):
            part = slice(begin, min(begin + step, len(self.blocks)))
            yield part, dequantize_rows(self.blocks[part], self.block_format)

    def extra_repr(self) -> str:
        return f"{self.shape[1]}, {self.shape[0]}, {self.block_format}"


class QuantizedLinear(QuantizedLayer):
    """A linear layer with a quantized weight.

    >>> layer = QuantizedLinear(torch.zeros(3, 2 * 34, dtype=torch.uint8), "Q8_0", 64)
    >>> layer(torch.randn(5, 64)).shape
    torch.Size([5, 3])
    """

    def __init__(self, blocks: Tensor, block_format: str, columns: int, bias: nn.Parameter | None = None) -> None:
        super().__init__(blocks, block_format, columns)
        self.bias = bias

    def forward(self, x: Float[Tensor, "*B C"]) -> Float[Tensor, "*B M"]:
        bias = self.bias
        parts = [F.linear(x, rows.to(x.dtype), None if bias is None else bias[part]) for part, rows in self.chunks()]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


class QuantizedEmbedding(QuantizedLayer):
    """A token embedding with a quantized weight: only the rows of the given ids are dequantized."""

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T C"]:
        check_range(ids, len(self.blocks), "token ids", "Were they made by the tokenizer of this model?")
        return dequantize_rows(self.blocks[ids.flatten()], self.block_format).unflatten(0, ids.shape)


def can_quantize(layer: nn.Module, block_format: str) -> bool:
    """Whether a layer has a quantized equivalent: a plain linear layer or token embedding of whole blocks."""
    if type(layer) is nn.Linear:
        columns = layer.in_features
    elif type(layer) is TokenEmbedding and layer.unrounded_scale == 1:
        columns = layer.embedding_dim
    else:
        return False
    return block_format in BLOCK_FORMATS and columns % BLOCK_FORMATS[block_format].size == 0


def replace_with_quantized(model: nn.Module, formats: Mapping[str, str]) -> None:
    """Replace layers of a model on the meta device by quantized ones, in place; tied weights stay tied.

    `formats`: names of layers -> names of block formats.
    """
    blocks: dict[int, Tensor] = {}
    for name, block_format in formats.items():
        layer: Any = dict(model.named_modules()).get(name)
        if layer is None or not can_quantize(layer, block_format):
            raise WeightsError(f"{name!r:.200} cannot be a quantized layer of type {block_format!r:.40}")
        rows, columns = layer.weight.shape
        found = BLOCK_FORMATS[block_format]
        empty = torch.empty(rows, columns // found.size * found.num_bytes, dtype=torch.uint8, device="meta")
        shared = blocks.setdefault(id(layer.weight), empty)
        is_linear = isinstance(layer, nn.Linear)
        new = (
            QuantizedLinear(shared, block_format, columns, layer.bias)
            if is_linear
            else QuantizedEmbedding(shared, block_format, columns)
        )
        model.set_submodule(name, new)


def quantized_layers(model: nn.Module) -> dict[str, QuantizedLayer]:
    """The quantized layers of a model by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, QuantizedLayer)}


def dequantize_layers(model: nn.Module) -> nn.Module:
    """Replace quantized layers by ordinary ones, in place; tied weights stay tied. Returns the model."""
    layers = quantized_layers(model)
    weights = {id(layer.blocks): layer for layer in layers.values()}
    weights = {key: nn.Parameter(layer.weight) for key, layer in weights.items()}
    for name, layer in layers.items():
        rows, columns = layer.shape
        if isinstance(layer, QuantizedLinear):
            new: Any = nn.Linear(columns, rows, bias=layer.bias is not None, device="meta")
            new.bias = layer.bias
        else:
            new = build_on_meta(partial(TokenEmbedding, rows, columns), Path(name))
        new.weight = weights[id(layer.blocks)]
        model.set_submodule(name, new.train(model.training))
    return model
