"""Batches of images, changed at random: shifted, rotated, resized, mirrored."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from softlook.recipes.config.schema import AugmentationConfig
from softlook.recipes.images.files import scale_pixels
from softlook.train.batching.batches import DataCursor, iterate_epochs
from softlook.train.rng import make_generator


@dataclass(frozen=True)
class ImageBatch:
    """Images and the index of the class of each."""

    images: Float[Tensor, "B channels height width"]
    labels: Int[Tensor, " B"]


class ImageBatches:
    """Shuffled batches of images, augmented; order and changes are a function of the seed and the cursor.

    >>> images, labels = torch.zeros(5, 1, 4, 4, dtype=torch.uint8), torch.arange(5)
    >>> batches = ImageBatches(images, labels, AugmentationConfig(), batch_size=2, seed=0)
    >>> [len(batch.labels) for _, (_, batch) in zip(range(4), batches.iter_from(DataCursor()))]
    [2, 2, 1, 2]
    """

    def __init__(
        self,
        images: UInt8[Tensor, "N channels height width"],
        labels: Int[Tensor, " N"],
        augmentation: AugmentationConfig,
        *,
        batch_size: int,
        seed: int,
    ) -> None:
        self.images, self.labels, self.augmentation = images, labels, augmentation
        self.batch_size, self.seed = batch_size, seed

    def epoch(self, number: int) -> Sequence[Tensor]:
        """The indices of the images of each batch."""
        return torch.randperm(len(self.images), generator=make_generator(self.seed, number)).split(self.batch_size)

    def iter_from(self, cursor: DataCursor) -> Iterator[tuple[DataCursor, ImageBatch]]:
        for after, indices in iterate_epochs(self.epoch, cursor):
            generator = make_generator(self.seed, after.epoch, after.offset + 1)
            images = augment(scale_pixels(self.images[indices]), self.augmentation, generator)
            yield after, ImageBatch(images, self.labels[indices])


def augment(
    images: Float[Tensor, "B channels height width"], config: AugmentationConfig, generator: torch.Generator
) -> Float[Tensor, "B channels height width"]:
    """Change every image at random: one affine map each. Beyond its border an image continues with its last pixels.

    >>> images = torch.rand(2, 3, 8, 8)
    >>> same = AugmentationConfig(shift=0.0, rotate=0.0, zoom=0.0)
    >>> torch.allclose(augment(images, same, torch.Generator()), images, atol=1e-5)
    True
    """
    count = len(images)
    angle, zoom, x, y = 2 * torch.rand(4, count, generator=generator) - 1
    angle, zoom = angle * math.radians(config.rotate), 1 + zoom * config.zoom
    mirrored = torch.rand(count, generator=generator) < 0.5 * config.flip
    sign = 1.0 - 2.0 * mirrored
    top = torch.stack([sign * angle.cos() * zoom, -angle.sin() * zoom, 2 * config.shift * x], 1)
    bottom = torch.stack([sign * angle.sin() * zoom, angle.cos() * zoom, 2 * config.shift * y], 1)
    grid = F.affine_grid(torch.stack([top, bottom], 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)
