"""An image classifier for the studio: recordings of some images, to choose from."""

import base64
from io import BytesIO
from pathlib import Path

from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from softlook.base.errors import ConfigError
from softlook.recipes.config.schema import ImageConfig
from softlook.recipes.images.files import find_images, read_labeled_images, scale_pixels
from softlook.recipes.images.predict import ImageClassifier, load_image_classifier
from softlook.recipes.run_dir.layout import load_run_config
from softlook.studio.live import LiveModel, ModelInput
from softlook.studio.recording import StudioTrace

MAX_IMAGES = 12
CAPABILITIES = ("intervene", "next")


def open_images(run: Path, device: str, chosen: str | None = None) -> list[StudioTrace]:
    """The attention of an image classifier on some images: `chosen`, a file or folder, or those of its data."""
    classifier = load_image_classifier(run, device=device)
    live = LiveModel(run.name, classifier.model, "image", _refuse_text, classifier.class_names, CAPABILITIES)
    paths = find_images([Path(chosen)]) if chosen else _images_of(run)
    return [_record(classifier, live, path) for path in paths[:: max(len(paths) // MAX_IMAGES, 1)][:MAX_IMAGES]]


def _images_of(run: Path) -> list[Path]:
    """The images that a run was validated with, or else those that it was trained with."""
    config = load_run_config(run)
    assert isinstance(config, ImageConfig)
    data = config.valid or config.data
    if not all(path.exists() for path in data):
        raise ConfigError(f"the images of {run} are no longer there. Name others: softlook studio {run} --text FOLDER")
    return read_labeled_images(data, image=config.image, label=config.label).paths


def _record(classifier: ImageClassifier, live: LiveModel, path: Path) -> StudioTrace:
    config, pixels = classifier.model.config, classifier.read([path])
    side = config.image_size[0] // config.patch_size
    patches = [f"({row},{column})" for row in range(side) for column in range(side)]
    tokens = ["[CLS]", *patches] if config.pooling == "cls" else patches
    inputs = scale_pixels(pixels).to(next(classifier.model.parameters()).device)
    title = f"{path.parent.name}/{path.name}"
    recorded = live.record(ModelInput(title, (inputs,), {}, tokens))
    recorded.inputs["images"] = [inputs]  # a trace itself keeps token ids only
    return StudioTrace(recorded, title, live.name, "image", live, image=_data_url(pixels[0]))


def _data_url(pixels: UInt8[Tensor, "channels size size"]) -> str:
    """An image as PNG in a data URL."""
    content = BytesIO()
    Image.fromarray(pixels.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()).save(content, "PNG")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode("ascii")


def _refuse_text(text: str, pair: str | None, target: str | None) -> ModelInput:
    raise ConfigError("an image model reads no text")
