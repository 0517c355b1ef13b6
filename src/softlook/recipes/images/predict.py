"""Image classifiers at work: classes of images, and the patches that a prediction attends to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from softlook.base.device import choose_device
from softlook.base.errors import ConfigError
from softlook.lens import attention_rollout, trace
from softlook.lens.figures import Figure, patches_figure
from softlook.lens.figures.picture import column
from softlook.models import ViT
from softlook.recipes.config.schema import Files, ImageConfig
from softlook.recipes.images.files import read_images, read_labeled_images, scale_pixels
from softlook.recipes.images.plan import load_images, predict_logits, report
from softlook.recipes.images.pretrained import load_vit
from softlook.recipes.inference.encoding import ClassPrediction
from softlook.recipes.inference.pipeline import find_folder
from softlook.recipes.run_dir.layout import load_run_config
from softlook.weights.assets import read_hf_config, read_labels

BATCH_SIZE = 64


@dataclass(frozen=True)
class ImageClassifier:
    """A trained image classifier."""

    model: ViT
    labels: list[str]

    def classify(self, paths: Sequence[Path]) -> Iterator[ClassPrediction]:
        """The class of each image, in their order."""
        for start in range(0, len(paths), BATCH_SIZE):
            part = paths[start : start + BATCH_SIZE]
            probabilities = predict_logits(self.model, self.read(part)).softmax(-1)
            for path, row in zip(part, probabilities.tolist(), strict=True):
                ranked = sorted(zip(self.labels, row, strict=True), key=lambda entry: -entry[1])
                (label, probability), *_ = ranked
                yield ClassPrediction(str(path), None, label, probability, dict(ranked), (label,))

    def class_names(self, ids: Sequence[int]) -> list[str]:
        """The names of classes."""
        return [self.labels[id] for id in ids]

    def read(self, paths: Sequence[Path]) -> UInt8[Tensor, "N channels size size"]:
        """Images as the model reads them."""
        return read_images(paths, self.model.config.image_size[0], self.model.config.channels)

    def attention_figure(self, path: Path) -> Figure:
        """The patches that the prediction for an image attends to."""
        (prediction,) = self.classify([path])
        image = self.read([path])
        (weights,) = patch_attention(self.model, image)
        return attention_figure(image[0], weights, f"{prediction.label}, {prediction.probability:.0%}")


def load_image_classifier(run: str | Path, *, device: str = "auto") -> ImageClassifier:
    """Load the run directory of `softlook train images`, a checkpoint of a ViT, or a Hugging Face folder."""
    folder, model = find_folder(run), load_vit(run)
    if model.config.head != "classification":
        raise ConfigError(f"{run} contains a ViT without classes. Train them: softlook train images --init-from {run}")
    return ImageClassifier(model.to(choose_device(device)).eval(), read_labels(folder, read_hf_config(folder), model))


def evaluate_images(run: Path, data: Files, *, device: str = "auto") -> dict[str, Any]:
    """Scores of a run's best checkpoint on other images."""
    config, classifier = load_run_config(run), load_image_classifier(run, device=device)
    assert isinstance(config, ImageConfig)
    images = read_labeled_images(data, image=config.image, label=config.label)
    size, channels = classifier.model.config.image_size[0], classifier.model.config.channels
    return report(load_images(images, classifier.labels, size, channels), classifier.labels, classifier.model)


@torch.no_grad()
def patch_attention(model: nn.Module, images: UInt8[Tensor, "B channels size size"]) -> Float[Tensor, "B h w"]:
    """How much of each patch reaches the prediction through all layers (attention rollout), summing to one."""
    config: Any = model.config
    with trace(model) as recorded:
        model(scale_pixels(images).to(next(model.parameters()).device))
    flow = attention_rollout(recorded).cpu()
    has_cls = config.pooling == "cls"
    weights = flow[:, 0, 1:] if has_cls else flow.mean(1)
    side = config.image_size[0] // config.patch_size
    return (weights / weights.sum(-1, keepdim=True)).unflatten(-1, (side, side))


def attention_figure(image: UInt8[Tensor, "channels size size"], weights: Tensor, name: str) -> Figure:
    """An image beside the attention to its patches."""
    return patches_figure({name: weights}, (image.float() / 255).expand(3, -1, -1))


def save_attention(
    path: Path, model: nn.Module, images: UInt8[Tensor, "B channels size size"], labels: list[str]
) -> None:
    """Draw what the predictions for a few images attend to."""
    predicted = predict_logits(model, images).argmax(-1).tolist()
    maps = patch_attention(model, images)
    figures = [
        attention_figure(image, one, f"predicted: {labels[number]}")
        for image, one, number in zip(images, maps, predicted, strict=True)
    ]
    first = figures[0]
    Figure(
        "Attention to the patches of validation images",
        " ".join(figure.description for figure in figures),
        column(*(figure.picture for figure in figures), gap=18),
        {str(number): one for number, one in enumerate(maps)},
        subtitle=first.subtitle,
    ).save(path)
