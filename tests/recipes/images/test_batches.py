"""Batches of images: resumable, and changed at random but never beyond the settings."""

from itertools import islice

import torch
from torch.testing import assert_close

from softlook.recipes.config.schema import AugmentationConfig
from softlook.recipes.images.batches import ImageBatches, augment
from softlook.train.batching.batches import DataCursor

NONE = AugmentationConfig(shift=0.0, rotate=0.0, zoom=0.0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batches() -> ImageBatches:
    images = torch.randint(0, 256, (7, 1, 8, 8), dtype=torch.uint8, generator=generator())
    return ImageBatches(images, torch.arange(7), AugmentationConfig(), batch_size=3, seed=0)


def test_every_image_comes_once_per_epoch() -> None:
    labels = torch.cat([batch.labels for _, batch in islice(batches().iter_from(DataCursor()), 3)])
    assert sorted(labels.tolist()) == list(range(7))


def test_a_run_resumes_with_the_same_images() -> None:
    (first, _), (_, second) = islice(batches().iter_from(DataCursor()), 2)
    _, again = next(iter(batches().iter_from(first)))
    assert_close(again.images, second.images, rtol=0, atol=0)


def test_an_image_changes_from_epoch_to_epoch() -> None:
    one = ImageBatches(batches().images[:1], torch.zeros(1).long(), AugmentationConfig(), batch_size=1, seed=0)
    (_, first), (_, second) = islice(one.iter_from(DataCursor()), 2)
    assert (first.images - second.images).abs().max() > 0.01


def test_flips_mirror_left_and_right() -> None:
    image = torch.rand(1, 1, 4, 4, generator=generator())
    flipped = augment(image.expand(50, -1, -1, -1), NONE.model_copy(update={"flip": True}), generator())
    mirrored = [(one - image[0].flip(-1)).abs().max() < 1e-5 for one in flipped]
    same = [(one - image[0]).abs().max() < 1e-5 for one in flipped]
    assert 10 < sum(mirrored) < 40 and sum(mirrored) + sum(same) == 50


def test_shifts_stay_within_their_limit() -> None:
    image = torch.zeros(200, 1, 20, 20)
    image[:, :, 9:11, 9:11] = 1
    moved = augment(image, NONE.model_copy(update={"shift": 0.1}), generator())
    rows, columns = moved[:, 0].nonzero().unbind(1)[1:]
    assert int(min(rows.min(), columns.min())) >= 6 and int(max(rows.max(), columns.max())) <= 13
    assert moved[:, 0].amax((1, 2)).min() > 0.2
