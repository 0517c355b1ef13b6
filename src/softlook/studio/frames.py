"""Frames: arrays in the binary format that the page reads, a header of 32 bytes and the numbers."""

import struct
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from softlook.base.errors import DataError, ShapeError

Statistic = Literal["exact", "max", "mean", "sampled"]
"""What a cell is: one number, the maximum or the mean of several, or some of several."""
STATISTICS: tuple[Statistic, ...] = ("exact", "max", "mean", "sampled")
MAGIC, VERSION, MAX_DIMS = b"SLFR", 1, 4
HEADER = struct.Struct("<4s4B4I2f")
"""Magic, version, dtype, statistic, number of dimensions, shape, scale, offset."""
DTYPES = (torch.float32, torch.uint8, torch.int32)
WEIGHTS, DECADES = 1, 6
"""The dtype of weights on a logarithmic scale, and the powers of ten that it spans."""
SCALE, OFFSET = DECADES / 254, -float(DECADES)


class DecodedFrame(NamedTuple):
    """A frame that was read."""

    values: Tensor
    """Numbers; of weights on a logarithmic scale, the weights."""
    statistic: Statistic
    offset: float


def encode_frame(values: Tensor, statistic: Statistic = "exact", *, offset: float = 0.0) -> bytes:
    """Integers as they are, all other numbers in float32. `offset` is kept beside them.

    >>> len(encode_frame(torch.zeros(2, 3))), decode_frame(encode_frame(torch.tensor([1.5]), "mean"))
    (56, DecodedFrame(values=tensor([1.5000]), statistic='mean', offset=0.0))
    """
    dtype = 0 if values.is_floating_point() else 2
    return _pack(values.to(DTYPES[dtype]), dtype, statistic, 1.0, offset)


def encode_weights(weights: Tensor, statistic: Statistic = "exact") -> bytes:
    """Attention weights as bytes on a logarithmic scale from 1e-6 to 1: one step is 5.6 %. 0 is 0, or masked.

    >>> decode_frame(encode_weights(torch.tensor([0.0, 1e-9, 0.5, 1.0]))).values
    tensor([0.0000e+00, 1.0000e-06, 4.9308e-01, 1.0000e+00])
    """
    steps = (weights.float().log10() - OFFSET) / SCALE
    codes = steps.round().add(1).clamp(1, 255).masked_fill(weights <= 0, 0)
    return _pack(codes.to(torch.uint8), WEIGHTS, statistic, SCALE, OFFSET)


def decode_frame(content: bytes) -> DecodedFrame:
    """Read a frame."""
    if len(content) < HEADER.size or content[:4] != MAGIC or content[4] != VERSION:
        raise DataError(f"expected a frame of version {VERSION}, got {len(content)} bytes from {content[:5]!r} on")
    _, _, dtype, statistic, dims, *rest = HEADER.unpack_from(content)
    shape, (scale, offset) = rest[:dims], rest[4:]
    values = torch.frombuffer(bytearray(content), dtype=DTYPES[dtype], offset=HEADER.size).view(shape)
    if dtype == WEIGHTS:
        values = (10 ** (offset + scale * (values.float() - 1))).masked_fill(values == 0, 0)
    return DecodedFrame(values, STATISTICS[statistic], offset)


def _pack(values: Tensor, dtype: int, statistic: Statistic, scale: float, offset: float) -> bytes:
    if not 1 <= values.ndim <= MAX_DIMS or not values.numel():
        raise ShapeError(f"a frame has 1 to {MAX_DIMS} dimensions, none of them empty, got {tuple(values.shape)}")
    shape = (*values.shape, *[1] * (MAX_DIMS - values.ndim))
    header = HEADER.pack(MAGIC, VERSION, dtype, STATISTICS.index(statistic), values.ndim, *shape, scale, offset)
    return header + values.detach().cpu().contiguous().numpy().tobytes()
