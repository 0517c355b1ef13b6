"""Images as sequences of patches."""

import pytest
import torch
from torch.testing import assert_close

from softlook import ShapeError
from softlook.embed import ClassToken, PatchEmbedding


def test_a_patch_embedding_is_a_linear_layer_on_the_pixels_of_the_patch() -> None:
    embed, images = PatchEmbedding(channels=2, patch_size=3, dim=5), torch.randn(4, 2, 6, 9)
    patches = images.unflatten(2, (2, 3)).unflatten(4, (3, 3)).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
    assert_close(embed(images), torch.nn.functional.linear(patches, embed.proj.weight.flatten(1), embed.proj.bias))


def test_patches_are_in_row_major_order_and_do_not_overlap() -> None:
    embed, images = PatchEmbedding(channels=1, patch_size=2, dim=3), torch.randn(1, 1, 4, 6)
    changed = images.clone()
    changed[0, 0, 2, 3] += 1  # the second row of patches, the second column
    differs = (embed(changed) != embed(images)).any(-1)[0]
    assert differs.tolist() == [False, False, False, False, True, False]


def test_images_that_cannot_be_divided_into_patches_raise_an_error() -> None:
    embed = PatchEmbedding(channels=3, patch_size=4, dim=8)
    with pytest.raises(ShapeError, match=r"expected images \(B, 3, height, width\), got \(1, 1, 8, 8\)"):
        embed(torch.randn(1, 1, 8, 8))
    indivisible = "pixels cannot be divided into patches of 4 x 4 pixels: resize"
    with pytest.raises(ShapeError, match=f"an image of 8 x 10 {indivisible}"):
        embed(torch.randn(1, 3, 8, 10))
    with pytest.raises(ShapeError, match=f"an image of 0 x 8 {indivisible}"):
        embed(torch.randn(1, 3, 0, 8))


def test_class_token_is_prepended_to_every_sequence() -> None:
    cls_token, x = ClassToken(4), torch.randn(2, 3, 4)
    output = cls_token(x)
    assert torch.equal(output[:, 1:], x)
    assert torch.equal(output[:, 0], cls_token.vector.expand(2, -1))


def test_class_token_is_trained() -> None:
    cls_token = ClassToken(4)
    cls_token(torch.randn(2, 3, 4)).sum().backward()
    assert cls_token.vector.grad is not None
    torch.testing.assert_close(cls_token.vector.grad, torch.full((4,), 2.0))
