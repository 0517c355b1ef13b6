"""Image runs from pretrained weights: a Vision Transformer of Hugging Face learns new classes."""

import json
from pathlib import Path

import pytest
import torch

from softlook.base.errors import ConfigError, WeightsError
from softlook.models import ViT, ViTConfig
from softlook.recipes import load_image_classifier
from softlook.recipes.config.schema import ImageConfig, ImageModelConfig
from softlook.recipes.images.files import scale_pixels
from softlook.recipes.images.pretrained import adapt, load_vit, resize_positions
from softlook.recipes.images.run import train_images
from softlook.recipes.run_dir.layout import is_image_model
from softlook.train import OptimizerConfig, TrainingConfig
from softlook.weights import to_hugging_face
from tests.recipes.small import squares

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small ViT as Hugging Face distributes them, with pixels that are normalized per channel."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("weights") / "vit"
    model = ViT(ViTConfig(image_size=(16, 16), patch_size=4, dim=16, depth=2, heads=2, classes=5))
    torch.nn.init.normal_(model.patch_embedding.proj.weight, std=0.2)
    torch.nn.init.normal_(model.position_embedding.weight, std=0.5)  # as after training
    to_hugging_face(model, folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": MEAN, "image_std": STD}))
    return folder


def config(data: Path, folder: Path, run_dir: Path, **model: int) -> ImageConfig:
    return ImageConfig(
        data=(data,),
        run_dir=run_dir,
        init_from=folder,
        model=ImageModelConfig(**model),  # pyright: ignore[reportArgumentType]
        batch_size=16,
        optim=OptimizerConfig(lr=5e-3, warmup=10),
        training=TrainingConfig(max_steps=100, evaluate_every=50, device="cpu"),
        loggers=("none",),
        no_baseline=True,
    )


def test_the_output_equals_that_of_normalized_pixels(folder: Path) -> None:
    pixels = torch.randint(256, (2, 3, 16, 16), dtype=torch.uint8)
    plain, mean, std = load_vit(folder), torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    (folder / "preprocessor_config.json").rename(folder / "hidden.json")
    original = load_vit(folder)
    (folder / "hidden.json").rename(folder / "preprocessor_config.json")
    expected = original((pixels / 255 - mean) / std)
    torch.testing.assert_close(plain(scale_pixels(pixels)), expected, atol=1e-4, rtol=1e-4)


def test_fine_tuning_learns_new_classes(folder: Path, tmp_path: Path) -> None:
    result = train_images(config(squares(tmp_path / "data"), folder, tmp_path / "run"))
    assert result.scores["validation"]["accuracy"] > 0.9
    model = load_image_classifier(tmp_path / "run", device="cpu").model
    assert (model.config.dim, model.config.image_size, model.config.classes) == (16, (16, 16), 2)


def test_another_image_size_interpolates_the_positions(folder: Path) -> None:
    pretrained = load_vit(folder)
    positions = resize_positions(pretrained, 32)
    assert positions.shape == (1 + 64, 16)
    torch.testing.assert_close(positions[0], pretrained.position_embedding.weight[0])
    torch.testing.assert_close(resize_positions(pretrained, 16), pretrained.position_embedding.weight)
    assert adapt(pretrained, 3, 32, 0.0)(torch.randn(2, 3, 32, 32)).shape == (2, 3)


def test_sizes_that_the_weights_determine_are_an_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model.dim is determined by the weights"):
        train_images(config(squares(tmp_path / "data"), folder, tmp_path / "run", dim=32))


def test_an_unreadable_normalization_is_an_error(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "vit"
    to_hugging_face(load_vit(folder), copy)
    (copy / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5, 0.5], "image_std": 0.0}))
    with pytest.raises(WeightsError, match="positive numbers image_std"):
        load_vit(copy)
    (copy / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5, 0.5]}))
    with pytest.raises(WeightsError, match="of 3 channels"):
        load_vit(copy)


def test_a_folder_of_hugging_face_classifies_as_it_is(folder: Path, tmp_path: Path) -> None:
    classifier = load_image_classifier(folder, device="cpu")
    (prediction,) = classifier.classify([next(squares(tmp_path / "data").rglob("*.png"))])
    assert prediction.label.startswith("LABEL_") and is_image_model(folder) and not is_image_model(tmp_path)
