"""An image run in the studio: images to choose from, their prediction, and what ablated heads change."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from softlook.base.errors import ConfigError
from softlook.recipes import load_image_classifier
from softlook.recipes.config.schema import ImageConfig, ImageModelConfig
from softlook.recipes.images.files import scale_pixels
from softlook.recipes.images.run import train_images
from softlook.recipes.studio import open_studio
from softlook.studio import view_figure
from softlook.studio.answers.interventions import Ablation, Intervention, intervene
from softlook.studio.answers.predictions import next_tokens
from softlook.train import TrainingConfig
from tests.recipes.small import squares


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    model = ImageModelConfig(dim=16, depth=1, heads=2, hidden=32, patch_size=4, dropout=0.0)
    training = TrainingConfig(max_steps=3, device="cpu")
    data = (squares(folder / "shapes"),)
    return train_images(
        ImageConfig(data=data, run_dir=folder / "run", model=model, training=training, loggers=("none",))
    ).run_dir


def test_images_of_the_data_are_listed_with_their_predictions(run: Path) -> None:
    studio = open_studio(str(run), device="cpu")
    info = studio.info()
    assert (info["task"], len(info["traces"])) == ("image", 12)
    first = studio.first()
    assert first.image is not None and first.image.startswith("data:image/png;base64,")
    assert first.info()["rowTokens"][:3] == ["[CLS]", "(0,0)", "(0,1)"]
    classifier = load_image_classifier(run, device="cpu")
    path = next(run.parent.glob(f"shapes/{first.title}"))
    (expected,) = classifier.classify([path])
    assert {name: p for name, _, p in next_tokens(first)} == pytest.approx(expected.classes, abs=1e-5)


def test_an_ablated_head_changes_the_prediction_as_in_the_library(run: Path) -> None:
    studio = open_studio(str(run), device="cpu")
    first = studio.first()
    found = intervene(studio, first, Intervention(ablate=[Ablation(layer=0, heads=[0, 1], amount=1.0)]))
    classifier = load_image_classifier(run, device="cpu")
    model, pixels = classifier.model, classifier.read([next(run.parent.glob(f"shapes/{first.title}"))])
    with torch.no_grad():
        model.get_parameter("blocks.0.attn.to_out.weight").zero_()  # what both heads add
        expected = model(scale_pixels(pixels))[0].softmax(-1)
    after = dict(found["after"])
    assert_close(torch.tensor([after[name] for name in classifier.labels]), expected, atol=1e-5, rtol=1e-4)


def test_a_chosen_image_is_shown_beside_the_weights_of_its_patches(run: Path) -> None:
    chosen = sorted(run.parent.glob("shapes/*/*.png"))[5]
    studio = open_studio(str(run), device="cpu", text=str(chosen))
    assert [one["title"] for one in studio.info()["traces"]] == [f"{chosen.parent.name}/{chosen.name}"]
    (weights,) = view_figure(studio, "#/view/patches?row=6").numbers.values()
    expected = studio.first().trace["blocks.0.attn"].weights()[0, 0, 6, 1:]
    assert_close(weights.flatten(), expected)


def test_a_run_whose_images_are_gone_asks_for_others(run: Path) -> None:
    shapes = run.parent / "shapes"
    shapes.rename(run.parent / "moved")
    try:
        with pytest.raises(ConfigError, match="no longer there"):
            open_studio(str(run), device="cpu")
    finally:
        (run.parent / "moved").rename(shapes)
