"""Heat maps as images, with one pixel for each weight."""

import struct
import zlib

import torch
from torch import Tensor

from softlook.lens.figures.color import STEPS, colormap
from softlook.lens.figures.picture import Picture, Scale
from softlook.lens.figures.shapes import Image

PNG = b"\x89PNG\r\n\x1a\n"


def heatmap(weights: Tensor, *, maximum: float, width: float, height: float, name: str = "weight") -> Picture:
    """A map of weights as an image, from 0 to `maximum`.

    >>> heatmap(torch.eye(3), maximum=1.0, width=30, height=30).scales[0].maximum
    1.0
    """
    steps = (weights.detach().double().nan_to_num(0).clamp(0, maximum) / maximum * STEPS).round().to(torch.uint8).cpu()
    light, dark = (
        encode_png(steps, [colormap(step, dark=is_dark) for step in range(STEPS + 1)]) for is_dark in (False, True)
    )
    image = Image(x=0, y=0, width=width, height=height, light=light, dark=dark, tooltip=name)
    return Picture(width, height, (image,), (Scale("weight", maximum),))


def encode_png(pixels: Tensor, palette: list[str]) -> bytes:
    """A PNG image from indices into a palette of at most 256 colors.

    >>> encode_png(torch.zeros(1, 1, dtype=torch.uint8), ["#ff0000"])[:4]
    b'\\x89PNG'
    """
    height, width = pixels.shape
    rows = b"".join(b"\0" + bytes(row) for row in pixels.tolist())  # 0: no filter
    header = struct.pack(">2I5B", width, height, 8, 3, 0, 0, 0)  # 8 bits, palette
    colors = b"".join(bytes.fromhex(color[1:]) for color in palette)
    chunks = ((b"IHDR", header), (b"PLTE", colors), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return PNG + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
