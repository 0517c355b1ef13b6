"""An image as a sequence: cut into squares, each of which becomes a vector."""

from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ShapeError


class PatchEmbedding(nn.Module):
    """One vector for each square of `patch` x `patch` points, row by row. It is a convolution that never overlaps.

    >>> import torch
    >>> PatchEmbedding(channels=3, patch=4, dim=8)(torch.randn(2, 3, 8, 12)).shape
    torch.Size([2, 6, 8])
    """

    def __init__(self, channels: int, patch: int, dim: int) -> None:
        super().__init__()
        self.channels, self.patch = channels, patch
        self.to_vectors = nn.Conv2d(channels, dim, patch, stride=patch)
        nn.init.normal_(self.to_vectors.weight, std=0.02)
        nn.init.zeros_(self.to_vectors.bias)  # pyright: ignore[reportArgumentType]  (it has one)

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B P C"]:
        _, channels, height, width = images.shape
        if channels != self.channels:
            raise ShapeError(
                f"images of {self.channels} channels are wanted, shaped (B, channels, height, width); "
                f"{tuple(images.shape)} came"
            )
        if height % self.patch or width % self.patch or not height or not width:
            raise ShapeError(
                f"an image of {height} x {width} points cannot be cut into squares of {self.patch} x "
                f"{self.patch}: resize it, or cut off an edge"
            )
        return self.to_vectors(images).flatten(2).transpose(1, 2)
