"""ViT: heads, pooling, positions and image sizes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from softlook import ShapeError
from softlook.base.errors import ConfigError
from softlook.models import ViT, ViTConfig
from softlook.weights import load, save

IMAGES = torch.randn(2, 3, 8, 12, generator=torch.Generator().manual_seed(0))


def small(**changes: Any) -> ViT:
    sizes: dict[str, Any] = {"image_size": (8, 12), "patch_size": 4, "dim": 16, "depth": 2, "heads": 2, "classes": 5}
    torch.manual_seed(0)
    model = ViT(ViTConfig(**{**sizes, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def test_the_defaults_have_the_86_million_parameters_of_vit_b_16() -> None:
    with torch.device("meta"):
        model = ViT(ViTConfig())
    assert sum(weight.numel() for weight in model.parameters()) == 86_567_656


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({}, (2, 5)),
        ({"pooling": "mean"}, (2, 5)),
        ({"head": "pooled"}, (2, 16)),
        ({"head": "hidden_states"}, (2, 7, 16)),
        ({"head": "hidden_states", "pooling": "mean"}, (2, 6, 16)),
    ],
)
def test_every_head_has_its_output_shape(changes: dict[str, Any], shape: tuple[int, ...]) -> None:
    assert small(**changes)(IMAGES).shape == shape


def test_classes_are_predicted_from_the_class_token_or_the_mean_of_the_patches() -> None:
    for pooling in ("cls", "mean"):
        states, classes = small(head="hidden_states", pooling=pooling), small(pooling=pooling)
        states.load_state_dict({name: own for name, own in classes.state_dict().items() if "head" not in name})
        hidden = states(IMAGES)
        pooled = hidden[:, 0] if pooling == "cls" else hidden.mean(1)
        assert_close(classes.head.get_submodule("to_classes")(pooled), classes(IMAGES))


def test_the_output_depends_on_the_positions_of_patches() -> None:
    swapped = torch.cat([IMAGES[..., 4:8], IMAGES[..., :4], IMAGES[..., 8:]], -1)
    model = small(pooling="mean")
    assert (model(swapped) - model(IMAGES)).abs().max() > 1e-2
    torch.nn.init.zeros_(model.position_embedding.weight)
    assert_close(model(swapped), model(IMAGES))


def test_the_class_token_depends_on_every_pixel() -> None:
    images = IMAGES.clone().requires_grad_()
    small()(images).sum().backward()
    assert images.grad is not None and (images.grad.abs().amax(1) > 0).all()


def test_qkv_bias_can_be_disabled() -> None:
    names = {
        name.split(".")[-2] for name, _ in small(qkv_bias=False).blocks.named_parameters() if name.endswith("bias")
    }
    assert names == {"attn_norm", "ffn_norm", "to_out", "to_up"}


def test_images_of_another_size_raise_an_error() -> None:
    with pytest.raises(ShapeError, match=r"expected images of 8 x 12 pixels, got 12 x 8\. Resize them\."):
        small()(torch.randn(1, 3, 12, 8))


def test_an_image_size_that_is_not_a_multiple_of_the_patch_size_raises_an_error() -> None:
    with pytest.raises(ConfigError, match="image_size 8 x 10 must be a multiple of patch_size 4"):
        small(image_size=(8, 10))


def test_a_saved_model_is_loaded_unchanged(tmp_path: Path) -> None:
    model = small()
    again = load(save(model, tmp_path / "vit"))
    assert again.config == model.config
    assert_close(again(IMAGES), model(IMAGES), rtol=0, atol=0)
