"""`python -m benchmarks.image_attention`: `softlook train images` on handwritten digits, and what it attends to.

Writes scikit-learn's digits as PNG files to a folder, trains with the defaults on the first 1,400 and tests on the
others, by other writers. One minute on one CPU core, offline; writes the figure of docs/guide/images.md.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor

from benchmarks.recorded import Results, record
from softlook.lens.figures.figure import Figure
from softlook.lens.figures.maps import patches_figure
from softlook.lens.figures.picture import column, row
from softlook.recipes import ImageConfig, load_image_classifier, train_images
from softlook.recipes.images.predict import patch_attention

NAME = "image_attention"
TRAINING, SHOWN = 1400, (0, 1, 2, 3, 4, 7)
"""Digits to train on; test digits that are drawn."""


def write_digits(folder: Path) -> None:
    """The digits as PNG files, a folder for each class, below `train` and `test`."""
    digits: Any = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / ("train" if number < TRAINING else "test") / str(label) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15.9375).astype("uint8")).save(path)


def run_all() -> Results:
    """Scores, and the attention to the patches of a few test images."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_digits(folder)
        config = ImageConfig(data=(folder / "train",), test=(folder / "test",), run_dir=folder / "run")
        result = train_images(config)
        classifier = load_image_classifier(folder / "run", device="cpu")
        files = sorted((folder / "test").glob("*/*.png"), key=lambda path: int(path.stem))
        shown = [files[number] for number in SHOWN]
        images = classifier.read(shown)
        maps = patch_attention(classifier.model, images)
        predictions = [one.label for one in classifier.classify(shown)]
    scores = {"validation": result.scores["accuracy"], "test": result.scores["test"]["accuracy"]}
    baselines = {row["model"]: row["accuracy"] for row in result.scores["compared"]}
    return {
        "scores": {name: round(score, 4) for name, score in scores.items()},
        "baselines": {name: round(score, 4) for name, score in baselines.items()},
        "steps": result.finished.step,
        "predictions": predictions,
        "images": images[:, 0].tolist(),
        "attention": [[[round(one, 4) for one in line] for line in weights] for weights in maps.tolist()],
    }


def draw(results: Results) -> Figure:
    """Each digit beside the attention to its patches."""
    parts = []
    for image, weights, label in zip(results["images"], results["attention"], results["predictions"], strict=True):
        pixels: Tensor = torch.tensor(image)[None].expand(3, -1, -1) / 255
        parts.append(patches_figure({f"predicted: {label}": torch.tensor(weights)}, pixels).picture)
    rows = [row(*parts[start : start + 2], gap=30) for start in range(0, len(parts), 2)]
    return Figure(
        "What a Vision Transformer attends to in digits",
        "Six handwritten digits and, beside each, a grid of 4 x 4 patches, stronger where the prediction attends more. "
        f"Predicted: {', '.join(results['predictions'])}.",
        column(*rows, gap=18),
        results,
        subtitle="Attention rollout from the class token through four layers to the 16 patches of 2 x 2 pixels.",
        caption=f"Trained with the defaults of softlook train images; {results['scores']['test']:.1%} of the 397 "
        "test digits, by other writers, are named correctly.",
    )


if __name__ == "__main__":
    record(NAME, run_all, draw)
