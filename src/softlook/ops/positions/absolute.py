"""Absolute position embeddings: sinusoidal and learned."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from softlook.base.errors import ShapeError
from softlook.ops.positions.rotary import Layout, as_positions


def sinusoidal(
    positions: int | Int[Tensor, "*positions"], dim: int, *, theta: float = 10_000.0, layout: Layout = "interleaved"
) -> Float[Tensor, "*positions {dim}"]:
    """Sinusoidal position embedding (Vaswani et al., 2017), for any length.

    `positions` are indices, or their number. Sines and cosines alternate ("interleaved", as in the paper), or all
    sines come first ("half").

    >>> sinusoidal(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    if dim % 2:
        raise ShapeError(f"sinusoidal expects an even dim, a sine and a cosine for each frequency, got {dim}")
    indices = as_positions(positions)
    frequencies = theta ** -(torch.arange(0, dim, 2, device=indices.device, dtype=torch.float32) / dim)
    angles = indices[..., None].float() * frequencies
    pairs = (angles.sin(), angles.cos())
    return torch.stack(pairs, -1).flatten(-2) if layout == "interleaved" else torch.cat(pairs, -1)


def learned(table: Float[Tensor, "P C"], positions: int | Int[Tensor, "*positions"]) -> Float[Tensor, "*positions C"]:
    """Look up positions in a learned embedding table.

    >>> learned(torch.tensor([[1.0], [2.0], [3.0]]), 2)
    tensor([[1.],
            [2.]])
    """
    indices = as_positions(positions).to(table.device)
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < table.shape[0]:
        raise ShapeError(
            f"this table has positions 0 to {table.shape[0] - 1}, got {int(indices.min())} to {int(indices.max())}. "
            "Shorten the sequence, or use sinusoidal or relative positions, which have no maximum length."
        )
    return table[indices]
