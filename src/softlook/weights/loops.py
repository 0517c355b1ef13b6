"""Recurrent layers as loops that a graph can hold: traced word by word, they would be for one length only."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan  # the one loop that torch's exporters know

from softlook.blocks.alignment import Source
from softlook.blocks.recurrent import BahdanauDecoder, Carried, LuongDecoder, RecurrentEncoder


class LoopedUnits(nn.Module):
    """What an nn.GRU of one layer does, one word after the other."""

    def __init__(self, units: nn.GRU) -> None:
        super().__init__()
        self.cell = nn.GRUCell(units.input_size, units.hidden_size)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            setattr(self.cell, name, getattr(units, f"{name}_l0"))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        def step(state: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
            state = self.cell(word, state)
            return state, state.clone()

        last, read = scan(step, x.new_zeros(x.shape[0], self.cell.hidden_size), x.transpose(0, 1))
        return read.transpose(0, 1), last


class LoopedDecoder(nn.Module):
    """What a recurrent decoder does, called with one word at a time."""

    def __init__(self, decoder: BahdanauDecoder | LuongDecoder) -> None:
        super().__init__()
        self.decoder, self.align, self.start = decoder, decoder.align, decoder.start

    def forward(self, x: Tensor, source: Source, carried: Carried) -> tuple[Tensor, Carried]:
        source = replace(source, key=source.key.clone())  # a loop wants all that it looks at to be apart

        def step(held: tuple[Tensor, ...], word: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            state, number, *fed = held
            before: Any = Carried(state, number, *fed)  # pyright: ignore[reportArgumentType]  (a number, as a tensor)
            said, after = self.decoder(word[:, None], source, before)
            return tuple(part.clone() for part in (after.state, number + 1, after.fed) if part is not None), said[:, 0]

        start = (carried.state, torch.tensor(carried.step), *(() if carried.fed is None else (carried.fed,)))
        _, said = scan(step, start, x.transpose(0, 1))
        return said.transpose(0, 1), carried


@contextmanager
def looped(model: nn.Module) -> Iterator[None]:
    """Recurrent layers are loops in here, and what they were again afterwards."""
    changed: list[tuple[nn.Module, str, nn.Module]] = []
    for module in list(model.modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, BahdanauDecoder | LuongDecoder):
                changed.append((module, name, part))
                setattr(module, name, LoopedDecoder(part))
            elif isinstance(module, RecurrentEncoder) and isinstance(part, nn.GRU):
                changed.append((module, name, part))
                setattr(module, name, LoopedUnits(part))
    try:
        yield
    finally:
        for module, name, part in changed:
            setattr(module, name, part)
