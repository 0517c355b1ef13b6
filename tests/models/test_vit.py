"""ViT: images in, and what is asked of them out."""

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


def test_its_defaults_are_the_86_million_weights_of_vit_b_16() -> None:
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
def test_the_head_decides_what_comes_out(changes: dict[str, Any], shape: tuple[int, ...]) -> None:
    assert small(**changes)(IMAGES).shape == shape


def test_classes_are_said_from_the_unit_in_front_or_from_the_mean_of_the_patches() -> None:
    for pooling in ("cls", "mean"):
        states, classes = small(head="hidden_states", pooling=pooling), small(pooling=pooling)
        states.load_state_dict({name: own for name, own in classes.state_dict().items() if "head" not in name})
        seen = states(IMAGES)
        whole = seen[:, 0] if pooling == "cls" else seen.mean(1)
        assert_close(classes.head.get_submodule("to_classes")(whole), classes(IMAGES))


def test_where_a_patch_stands_counts() -> None:
    swapped = torch.cat([IMAGES[..., 4:8], IMAGES[..., :4], IMAGES[..., 8:]], -1)
    model = small(pooling="mean")
    assert (model(swapped) - model(IMAGES)).abs().max() > 1e-2
    torch.nn.init.zeros_(model.position_embedding.weight)
    assert_close(model(swapped), model(IMAGES))


def test_every_patch_is_seen_by_the_unit() -> None:
    images = IMAGES.clone().requires_grad_()
    small()(images).sum().backward()
    assert images.grad is not None and (images.grad.abs().amax(1) > 0).all()


def test_queries_keys_and_values_can_do_without_biases() -> None:
    names = {
        name.split(".")[-2] for name, _ in small(qkv_bias=False).blocks.named_parameters() if name.endswith("bias")
    }
    assert names == {"attn_norm", "ffn_norm", "to_out", "to_up"}


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"expected images of 8 x 12 pixels, got 12 x 8\. Resize them\."):
        small()(torch.randn(1, 3, 12, 8))


def test_images_that_cannot_be_cut_evenly_are_refused() -> None:
    with pytest.raises(ConfigError, match="image_size 8 x 10 must be a multiple of patch_size 4"):
        small(image_size=(8, 10))


def test_it_is_kept_and_read_again(tmp_path: Path) -> None:
    model = small()
    again = load(save(model, tmp_path / "vit"))
    assert again.config == model.config
    assert_close(again(IMAGES), model(IMAGES), rtol=0, atol=0)
