"""An image classifier as the server uses it."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from softlook.recipes.images.files import read_pixels
from softlook.recipes.images.plan import predict_logits
from softlook.recipes.images.predict import ImageClassifier, load_image_classifier, patch_attention
from softlook.serve.loaded_model import LoadedImageModel


class ServedImageModel:
    """An image classifier whose prediction for an image does not depend on the others of a batch.

    >>> from softlook.models import ViT, ViTConfig
    >>> vit = ViT(ViTConfig(image_size=(8, 8), patch_size=4, dim=16, depth=1, heads=2, classes=2))
    >>> model = ServedImageModel(ImageClassifier(vit.eval(), ["cat", "dog"]))
    >>> model.predict([torch.zeros(1, 3, 8, 8, dtype=torch.uint8)]).shape
    torch.Size([1, 2])
    """

    def __init__(self, classifier: ImageClassifier) -> None:
        self.model, self.labels = classifier.model, classifier.labels

    def decode(self, data: bytes) -> UInt8[Tensor, "1 channels size size"]:
        """The pixels of a file."""
        config = self.model.config
        return read_pixels(BytesIO(data), config.image_size[0], config.channels)[None]

    def predict(self, chunks: Sequence[UInt8[Tensor, "1 channels size size"]]) -> Float[Tensor, "N K"]:
        """Probabilities, of one image after the other: on a CPU the last bits may depend on the batch."""
        return torch.cat([predict_logits(self.model, one) for one in chunks]).softmax(-1)

    def explain(self, chunks: Sequence[UInt8[Tensor, "1 channels size size"]]) -> Float[Tensor, "N h w"]:
        """Attention to each patch."""
        return torch.cat([patch_attention(self.model, one) for one in chunks])


def load_images_for_serving(run: str | Path, name: str, *, device: str = "auto") -> LoadedImageModel:
    """Load the run directory of `softlook train images`, a checkpoint of a ViT or a Hugging Face folder."""
    model = ServedImageModel(load_image_classifier(run, device=device))
    return LoadedImageModel(name, model, created=int(Path(run).stat().st_mtime))
