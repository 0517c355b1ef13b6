"""Block formats of quantized weights (ggml, as in GGUF files), dequantized with torch.

A row of a weight is a sequence of blocks of bytes. A block holds small integers and their scales. The values are those
of llama.cpp, bit for bit.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor


class BlockFormat(NamedTuple):
    """How a block of `size` numbers is stored in `num_bytes` bytes."""

    size: int
    num_bytes: int
    dequantize: Callable[[Tensor], Tensor]
    """(blocks, num_bytes) uint8 -> (blocks, size) float32."""


def dequantize_rows(rows: UInt8[Tensor, "N B"], block_format: str) -> Float[Tensor, "N C"]:
    """The numbers of rows of blocks, in float32.

    >>> zeros = torch.zeros(2, 3 * 34, dtype=torch.uint8)
    >>> dequantize_rows(zeros, "Q8_0").shape
    torch.Size([2, 96])
    """
    found = BLOCK_FORMATS[block_format]
    return found.dequantize(rows.reshape(-1, found.num_bytes)).reshape(len(rows), -1)


def _q4_0(blocks: Tensor) -> Tensor:
    return _float16(blocks, 0) * (_bits(blocks[:, 2:], 16, (0, 4), 15).to(torch.int8) - 8).float()


def _q4_1(blocks: Tensor) -> Tensor:
    return _float16(blocks, 0) * _bits(blocks[:, 4:], 16, (0, 4), 15).float() + _float16(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    low, high = _bits(blocks[:, 6:], 16, (0, 4), 15), _fifth_bits(blocks[:, 2:6])
    return _float16(blocks, 0) * ((low | high).to(torch.int8) - 16).float()


def _q5_1(blocks: Tensor) -> Tensor:
    low, high = _bits(blocks[:, 8:], 16, (0, 4), 15), _fifth_bits(blocks[:, 4:8])
    return _float16(blocks, 0) * (low | high).float() + _float16(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:].view(torch.int8).float() * _float16(blocks, 0)


def _q4_k(blocks: Tensor) -> Tensor:
    scale, minimum = _scales_and_minima(blocks)
    numbers = _bits(blocks[:, 16:], 32, (0, 4), 15).float().unflatten(1, (8, 32))
    return (scale * numbers - minimum).flatten(1)


def _q5_k(blocks: Tensor) -> Tensor:
    scale, minimum = _scales_and_minima(blocks)
    high = _bits(blocks[:, 16:48], 32, tuple(range(8)), 1) << 4
    numbers = (_bits(blocks[:, 48:], 32, (0, 4), 15) | high).float().unflatten(1, (8, 32))
    return (scale * numbers - minimum).flatten(1)


def _q6_k(blocks: Tensor) -> Tensor:
    low, high = _bits(blocks[:, :128], 64, (0, 4), 15), _bits(blocks[:, 128:192], 32, (0, 2, 4, 6), 3) << 4
    scale = _float16(blocks, 208) * blocks[:, 192:208].view(torch.int8).float()
    return (scale[:, :, None] * ((low | high).to(torch.int8) - 32).float().unflatten(1, (16, 16))).flatten(1)


def _float16(blocks: Tensor, begin: int) -> Tensor:
    """The half-precision number that starts at a byte, (blocks, 1)."""
    return blocks[:, begin : begin + 2].contiguous().view(torch.float16).float()


def _bits(packed: Tensor, width: int, shifts: Sequence[int], mask: int) -> Tensor:
    """Integers of a few bits: of each `width` bytes, first those at the first shift, then at the next."""
    groups = packed.unflatten(1, (-1, 1, width))
    return torch.cat([groups >> shift & mask for shift in shifts], 2).flatten(1)


def _fifth_bits(packed: Tensor) -> Tensor:
    """The highest bit of 32 integers of five bits, in place."""
    return torch.stack([packed >> shift & 1 for shift in range(8)], 2).flatten(1) << 4


def _scales_and_minima(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and minimum of each of the 8 groups of a block; both have six bits, spread over twelve bytes."""
    first, second, rest = blocks[:, 4:16].unflatten(1, (3, 4)).unbind(1)
    scales = torch.cat([first & 63, rest & 15 | first >> 2 & 48], 1)
    minima = torch.cat([second & 63, rest >> 4 | second >> 2 & 48], 1)
    return (_float16(blocks, 0) * scales.float())[:, :, None], (_float16(blocks, 2) * minima.float())[:, :, None]


BLOCK_FORMATS = {
    "Q4_0": BlockFormat(32, 18, _q4_0),
    "Q4_1": BlockFormat(32, 20, _q4_1),
    "Q5_0": BlockFormat(32, 22, _q5_0),
    "Q5_1": BlockFormat(32, 24, _q5_1),
    "Q8_0": BlockFormat(32, 34, _q8_0),
    "Q4_K": BlockFormat(256, 144, _q4_k),
    "Q5_K": BlockFormat(256, 176, _q5_k),
    "Q6_K": BlockFormat(256, 210, _q6_k),
}
"""ggml's name of a type -> its format."""
