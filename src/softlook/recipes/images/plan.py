"""What an image run trains: the images in memory, a Vision Transformer, its evaluation and a baseline."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import DataError
from softlook.data import LabeledText, data_digest, file_digests, make_validation_split
from softlook.models import ViT, ViTConfig
from softlook.recipes.config.schema import ImageConfig
from softlook.recipes.images.batches import ImageBatch
from softlook.recipes.images.files import LabeledImages, describe_images, read_images, read_labeled_images, scale_pixels
from softlook.recipes.images.pretrained import adapt
from softlook.recipes.text.metrics import classification_report
from softlook.train.batching.collate import to_device
from softlook.train.objectives import cross_entropy_sum
from softlook.train.train_step import Loss

EVAL_BATCH_SIZE = 256
PATCHES_PER_SIDE, MAX_PATCH, MAX_SIZE = 8, 16, {"cuda": 224}
"""Patches on each side of an image, pixels of a patch and of an image; 64 pixels on other devices."""
SMALL_DATA = 10_000
"""Images below which the model is small."""
FINE_TUNING_LR, FINE_TUNING_BATCH, FINE_TUNING_EPOCHS = 1e-4, 32, 10
BASELINE_STEPS, BASELINE_IMAGES, BASELINE_SIZE, BASELINE_PENALTY = 50, 5_000, 64, 1e-3


@dataclass(frozen=True)
class ImageSet:
    """Images in memory with their labels as indices."""

    paths: list[Path]
    images: UInt8[Tensor, "N channels size size"]
    labels: Int[Tensor, " N"]


@dataclass(frozen=True)
class ImageFiles:
    """The files of a run: for training and for validation."""

    train: LabeledImages
    valid: LabeledImages
    classes: list[str]
    digest: str


def find_files(config: ImageConfig) -> ImageFiles:
    """Read the labels, and hold out images if there is no validation data; equal images are on the same side."""
    train = read_labeled_images(config.data, image=config.image, label=config.label)
    classes = sorted(set(train.labels))
    if len(classes) < 2:
        raise DataError(f"a classifier needs two classes, got {classes}", file=config.data[0])
    if config.valid:
        valid = read_labeled_images(config.valid, image=config.image, label=config.label)
    else:
        train, valid = _hold_out(train)
    for name in sorted({*valid.labels} - {*classes}):
        raise DataError(f"the validation images have a class that is not in the training images: {name!r:.80}")
    return ImageFiles(train, valid, classes, data_digest([*train.paths, *valid.paths]))


def _hold_out(images: LabeledImages) -> tuple[LabeledImages, LabeledImages]:
    digests = [file_digests([path])[str(path)] for path in images.paths]
    examples = [LabeledText(digest, None, label) for digest, label in zip(digests, images.labels, strict=True)]
    split = make_validation_split(examples)
    sides: tuple[list[int], list[int]] = ([], [])
    for number, example in enumerate(examples):
        sides[split.holds_out(example)].append(number)
    train, valid = (
        LabeledImages([images.paths[n] for n in side], [images.labels[n] for n in side], images.notes) for side in sides
    )
    return train, valid


def load_images(images: LabeledImages, classes: Sequence[str], size: int, channels: int) -> ImageSet:
    """Read the pixels."""
    index = {name: number for number, name in enumerate(classes)}
    unknown = next((label for label in images.labels if label not in index), None)
    if unknown is not None:
        raise DataError(f"class {unknown!r:.80} is not in the training data", help=f"known: {', '.join(classes):.200}")
    labels = torch.tensor([index[label] for label in images.labels])
    return ImageSet(images.paths, read_images(images.paths, size, channels), labels)


def auto_values(config: ImageConfig, files: ImageFiles, device: torch.device) -> dict[str, Any]:
    """Sizes and rates for these images."""
    side, _ = describe_images(files.train.paths)
    size = config.model.image_size or min(side, MAX_SIZE.get(device.type, 64))
    patch = config.model.patch_size or min(max(size // PATCHES_PER_SIDE, 2), MAX_PATCH, size)
    large = len(files.train.paths) >= SMALL_DATA and device.type == "cuda"
    values = {
        "model.patch_size": patch,
        "model.image_size": -(-size // patch) * patch,
        "model.dim": 384 if large else 64,
        "model.depth": 8 if large else 4,
        "model.heads": 6 if large else 4,
        "model.dropout": 0.1,
        "batch_size": min(max(len(files.train.paths) // 20, 8), 256 if large else 64),
        "optim.lr": 1e-3 if large else 2e-3,
        "optim.schedule": "cosine",
        "optim.weight_decay": 0.05,
    }
    return {name: value for name, value in values.items() if value is not None}


def auto_fine_tuning(config: ImageConfig, pretrained: ViT) -> dict[str, Any]:
    """The sizes of a pretrained model, and rates to fine-tune it."""
    c = pretrained.config
    sizes = {name: getattr(c, name) for name in ("dim", "depth", "heads", "hidden", "patch_size", "pooling")}
    size = config.model.image_size or c.image_size[0]
    sizes |= {"image_size": -(-size // c.patch_size) * c.patch_size, "dropout": 0.0}
    values = {f"model.{name}": value for name, value in sizes.items() if value is not None}
    return values | {
        "batch_size": FINE_TUNING_BATCH,
        "optim.lr": FINE_TUNING_LR,
        "optim.schedule": "cosine",
        "optim.weight_decay": 0.05,
    }


def build_model(config: ImageConfig, channels: int, classes: int, pretrained: ViT | None = None) -> ViT:
    """A pretrained ViT with a new head, or a new ViT.

    The patches and positions of a new one start large enough for a few thousand steps.
    """
    if pretrained is not None:
        return adapt(pretrained, classes, config.model.image_size or 1, config.model.dropout or 0.0)
    sizes = {name: getattr(config.model, name) for name in ("dim", "depth", "heads", "hidden", "dropout")}
    patch, size = config.model.patch_size or 1, config.model.image_size or 1
    model = ViT(
        ViTConfig(
            **sizes,
            channels=channels,
            image_size=(size, size),
            patch_size=patch,
            pooling=config.model.pooling,
            classes=classes,
        )
    )
    nn.init.normal_(model.patch_embedding.proj.weight, std=1 / (patch * channels**0.5))
    nn.init.normal_(model.position_embedding.weight, std=0.5)
    return model


def objective(model: nn.Module, batch: ImageBatch) -> Loss:
    """Cross entropy of the classes."""
    return cross_entropy_sum(model(batch.images), batch.labels)


@torch.no_grad()
def predict_logits(model: nn.Module, images: UInt8[Tensor, "N channels size size"]) -> Float[Tensor, "N K"]:
    """The output of the model for each image."""
    device = next(model.parameters()).device
    parts = (to_device(scale_pixels(part), device) for part in images.split(EVAL_BATCH_SIZE))
    return torch.cat([model(part).float().cpu() for part in parts])


def evaluate(data: ImageSet, model: nn.Module) -> dict[str, float]:
    """Loss and accuracy."""
    return _scores(predict_logits(model, data.images), data.labels)


def report(data: ImageSet, classes: list[str], model: nn.Module) -> dict[str, Any]:
    """All scores of a classifier, overall and per class, with the images that are most confidently wrong."""
    logits = predict_logits(model, data.images)
    names = [str(path) for path in data.paths]
    scores = classification_report(logits.softmax(-1), data.labels.tolist(), classes, names)
    return {"loss": _scores(logits, data.labels)["loss"], **scores}


def baselines(train: ImageSet, valid: ImageSet, classes: int) -> list[dict[str, Any]]:
    """Scores of the frequencies of the classes, and of a linear model of the pixels."""
    counts = Counter(train.labels.tolist())
    frequencies = torch.tensor([counts[number] + 1.0 for number in range(classes)]).log()
    constant = frequencies.expand(len(valid.labels), -1)
    rows = {"most frequent class": constant, "linear model of pixels": _linear_model(train, valid, classes)}
    return [{"model": name, **_scores(logits, valid.labels)} for name, logits in rows.items()]


def _linear_model(train: ImageSet, valid: ImageSet, classes: int) -> Float[Tensor, "N K"]:
    """Logistic regression by L-BFGS, of images reduced to at most 64 pixels a side."""
    some = slice(None, None, max(len(train.images) // BASELINE_IMAGES, 1))
    images, labels = _flat_pixels(train.images[some]), train.labels[some]
    linear = nn.Linear(images.shape[1], classes)
    optimizer = torch.optim.LBFGS(linear.parameters(), max_iter=BASELINE_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(linear(images), labels) + BASELINE_PENALTY * linear.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)  # pyright: ignore[reportArgumentType]  (returns a tensor)
    with torch.no_grad():
        return linear(_flat_pixels(valid.images))


def _flat_pixels(images: UInt8[Tensor, "N channels size size"]) -> Float[Tensor, "N pixels"]:
    size = min(images.shape[-1], BASELINE_SIZE)
    parts = [F.adaptive_avg_pool2d(scale_pixels(part), size).flatten(1) for part in images.split(EVAL_BATCH_SIZE)]
    return torch.cat(parts)


def _scores(logits: Float[Tensor, "N K"], labels: Int[Tensor, " N"]) -> dict[str, float]:
    accuracy = (logits.argmax(-1) == labels).float().mean().item()
    return {"loss": F.cross_entropy(logits, labels).item(), "accuracy": accuracy}
