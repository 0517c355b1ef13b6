"""Positions as vectors that are added to what stands there."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops.positions.frequencies import Layout, numbered


def sinusoidal(
    positions: int | Int[Tensor, "*places"], width: int, *, base: float = 10_000.0, layout: Layout = "interleaved"
) -> Float[Tensor, "*places {width}"]:
    """Sines and cosines of overlaid frequencies: every position its own vector, at any length.

    `positions` are the numbers themselves, or how many from 0 on. Sines and cosines take turns
    ("interleaved", as published), or all sines come first ("half").

    >>> sinusoidal(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    if width % 2:
        raise ShapeError(f"sinusoidal wants an even width, a sine and a cosine for each frequency; {width} came")
    places = numbered(positions)
    frequencies = base ** -(torch.arange(0, width, 2, device=places.device, dtype=torch.float32) / width)
    angles = places[..., None].float() * frequencies
    pairs = (angles.sin(), angles.cos())
    return torch.stack(pairs, -1).flatten(-2) if layout == "interleaved" else torch.cat(pairs, -1)


def learned(table: Float[Tensor, "P C"], positions: int | Int[Tensor, "*places"]) -> Float[Tensor, "*places C"]:
    """Look positions up in a learned table, which promises nothing beyond its own length.

    >>> learned(torch.tensor([[1.0], [2.0], [3.0]]), 2)
    tensor([[1.],
            [2.]])
    """
    places = numbered(positions).to(table.device)
    if places.numel() and not 0 <= int(places.min()) <= int(places.max()) < table.shape[0]:
        raise ShapeError(
            f"this table knows positions 0 to {table.shape[0] - 1}; {int(places.min())} to {int(places.max())} were "
            "asked for. Shorten the sequence, or use sinusoidal or relative positions, which have no end."
        )
    return table[places]
