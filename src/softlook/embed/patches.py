"""Patch embedding of images, and the [CLS] token."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ShapeError


class PatchEmbedding(nn.Module):
    """Patch embedding (ViT): one vector per square of `patch_size` pixels, row by row, by a strided convolution.

    >>> PatchEmbedding(channels=3, patch_size=4, dim=8)(torch.randn(2, 3, 8, 12)).shape
    torch.Size([2, 6, 8])
    """

    def __init__(self, channels: int, patch_size: int, dim: int) -> None:
        super().__init__()
        self.channels, self.patch_size = channels, patch_size
        self.proj = nn.Conv2d(channels, dim, patch_size, stride=patch_size)
        nn.init.normal_(self.proj.weight, std=0.02)
        nn.init.zeros_(self.proj.bias)  # pyright: ignore[reportArgumentType]  (it has one)

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B P C"]:
        _, channels, height, width = images.shape
        if channels != self.channels:
            raise ShapeError(f"expected images (B, {self.channels}, height, width), got {tuple(images.shape)}")
        if height % self.patch_size or width % self.patch_size or not height or not width:
            raise ShapeError(
                f"an image of {height} x {width} pixels cannot be divided into patches of {self.patch_size} x "
                f"{self.patch_size} pixels: resize or crop it"
            )
        return self.proj(images).flatten(2).transpose(1, 2)


class ClassToken(nn.Module):
    """Prepends a learned [CLS] token, which `heads.ClsPool` reads after the encoder. A mask needs one more position.

    >>> ClassToken(4)(torch.randn(2, 3, 4)).shape
    torch.Size([2, 4, 4])
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(dim))
        nn.init.normal_(self.vector, std=0.02)

    def forward(self, x: Float[Tensor, "B T C"]) -> Float[Tensor, "B T1 C"]:
        return torch.cat([self.vector.expand(x.shape[0], 1, -1), x], 1)
