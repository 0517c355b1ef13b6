"""Images as sequences of patches."""

import pytest
import torch
from torch.testing import assert_close

from softlook import ShapeError
from softlook.embed import PatchEmbedding


def test_a_patch_is_a_linear_layer_on_its_own_points() -> None:
    embed, images = PatchEmbedding(channels=2, patch=3, dim=5), torch.randn(4, 2, 6, 9)
    squares = images.unflatten(2, (2, 3)).unflatten(4, (3, 3)).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
    own = embed.to_vectors
    assert_close(embed(images), torch.nn.functional.linear(squares, own.weight.flatten(1), own.bias))


def test_patches_come_row_by_row_and_do_not_touch() -> None:
    embed, images = PatchEmbedding(channels=1, patch=2, dim=3), torch.randn(1, 1, 4, 6)
    changed = images.clone()
    changed[0, 0, 2, 3] += 1  # the second row of patches, the second column
    moved = (embed(changed) != embed(images)).any(-1)[0]
    assert moved.tolist() == [False, False, False, False, True, False]


def test_images_that_do_not_fit_are_refused() -> None:
    embed = PatchEmbedding(channels=3, patch=4, dim=8)
    with pytest.raises(ShapeError, match=r"images of 3 channels are wanted, .*; \(1, 1, 8, 8\) came"):
        embed(torch.randn(1, 1, 8, 8))
    with pytest.raises(ShapeError, match="an image of 8 x 10 points cannot be cut into squares of 4 x 4"):
        embed(torch.randn(1, 3, 8, 10))
    with pytest.raises(ShapeError, match="an image of 0 x 8 points"):
        embed(torch.randn(1, 3, 0, 8))
