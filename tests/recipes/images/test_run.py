"""Image runs: a classifier learns, resumes, predicts, is evaluated, and draws what it attends to."""

import json
from pathlib import Path

import pytest
import torch

from softlook.base.errors import ConfigError, DataError
from softlook.cli.commands.serve import _load as load_served
from softlook.recipes import evaluate, load_image_classifier, load_pipeline
from softlook.recipes.config.schema import AugmentationConfig, ImageConfig, ImageModelConfig
from softlook.recipes.images.batches import ImageBatch
from softlook.recipes.images.plan import build_model, objective
from softlook.recipes.images.predict import patch_attention
from softlook.recipes.images.run import train_images
from softlook.serve.loaded_model import LoadedImageModel, load_model
from softlook.train import OptimizerConfig, StopTraining, TrainingConfig
from softlook.train.events import Event, StepLogged
from softlook.train.train_step import Loss
from tests.recipes.small import squares

SMALL = ImageModelConfig(dim=16, depth=1, heads=2, hidden=32, patch_size=4, dropout=0.0)


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return squares(tmp_path_factory.mktemp("shapes"))


def config(shapes: Path, run_dir: Path, steps: int = 100) -> ImageConfig:
    return ImageConfig(
        data=(shapes,),
        run_dir=run_dir,
        model=SMALL,
        batch_size=16,
        augment=AugmentationConfig(rotate=0.0, zoom=0.0, shift=0.05),
        optim=OptimizerConfig(lr=5e-3, warmup=10, schedule="cosine"),
        training=TrainingConfig(max_steps=steps, evaluate_every=25, save_every=25, seed=0, device="cpu"),
        loggers=("none",),
    )


@pytest.fixture(scope="module")
def run(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = train_images(config(shapes, tmp_path_factory.mktemp("run") / "squares"))
    assert result.scores["accuracy"] > 0.9 and result.scores["validation"]["accuracy"] > 0.9
    assert [row["model"] for row in result.scores["compared"]][1:] == ["most frequent class", "linear model of pixels"]
    return result.run_dir


def test_a_run_directory_has_labels_a_report_and_the_attention(run: Path) -> None:
    assert json.loads((run / "labels.json").read_text())["labels"] == ["left", "right"]
    assert (run / "report.html").is_file() and (run / "attention.svg").read_text().startswith("<svg")


def test_a_trained_model_classifies_files(run: Path, shapes: Path) -> None:
    classifier = load_image_classifier(run, device="cpu")
    paths = sorted(shapes.glob("*/*.png"))
    predictions = list(classifier.classify(paths))
    assert [one.text for one in predictions] == list(map(str, paths))
    assert sum(one.label == path.parent.name for one, path in zip(predictions, paths, strict=True)) > 100
    assert all(sum(one.classes.values()) == pytest.approx(1, abs=1e-5) for one in predictions)


def test_evaluation_on_the_same_images_gives_their_accuracy(run: Path, shapes: Path) -> None:
    scores = evaluate(run, (shapes,), device="cpu")
    assert scores["examples"] == 120 and scores["accuracy"] > 0.9


def test_attention_to_the_patches_sums_to_one(run: Path, shapes: Path) -> None:
    classifier = load_image_classifier(run, device="cpu")
    images = classifier.read(sorted(shapes.glob("*/*.png"))[:3])
    weights = patch_attention(classifier.model, images)
    assert weights.shape == (3, 4, 4)
    torch.testing.assert_close(weights.sum((1, 2)), torch.ones(3))
    assert "patch" in classifier.attention_figure(next(shapes.glob("*/*.png"))).description


def test_a_stopped_run_resumes_to_the_same_weights(run: Path, shapes: Path, tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, StepLogged) and event.step >= 30:
            raise StopTraining

    settings = config(shapes, tmp_path / "stopped")
    assert train_images(settings, [stop]).finished.step == 30
    resumed = train_images(settings)
    one, two = (load_image_classifier(path, device="cpu").model.state_dict() for path in (resumed.run_dir, run))
    for name, weight in one.items():
        torch.testing.assert_close(weight, two[name], rtol=0, atol=0)


def test_a_text_command_says_what_to_use(run: Path) -> None:
    with pytest.raises(ConfigError, match="is an image model. Try: softlook classify"):
        load_pipeline(run)
    with pytest.raises(ConfigError, match="is an image model, expected one of text"):
        load_model(run)


def test_the_command_serves_a_run(run: Path, shapes: Path) -> None:
    loaded = load_served(run, "squares", "cpu")
    assert isinstance(loaded, LoadedImageModel) and loaded.images.labels == ["left", "right"]
    image = loaded.images.decode((shapes / "left/0.png").read_bytes())
    assert loaded.images.predict([image]).argmax() == 0


def test_one_class_is_an_error(shapes: Path, tmp_path: Path) -> None:
    table = tmp_path / "one.csv"
    files = sorted((shapes / "left").glob("*.png"))[:5]
    table.write_text("image,label\n" + "".join(f"{path},left\n" for path in files))
    with pytest.raises(DataError, match="needs two classes"):
        train_images(config(shapes, tmp_path / "run").model_copy(update={"data": (table,)}))


def test_the_loss_is_a_sum_over_images() -> None:
    settings = ImageConfig(model=SMALL.model_copy(update={"image_size": 8}))
    loss = objective(build_model(settings, 1, 3), ImageBatch(torch.randn(4, 1, 8, 8), torch.arange(4) % 3))
    assert isinstance(loss, Loss) and loss.count == 4
