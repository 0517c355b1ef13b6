"""Pretrained Vision Transformers: the scale of their pixels, another image size, new classes."""

import json
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from softlook.base.errors import ConfigError, WeightsError
from softlook.models import ViT
from softlook.recipes.config.resolve import ConfigOverrides
from softlook.recipes.inference.pipeline import find_folder
from softlook.recipes.text.pretrained import load_pretrained, replace_head

PREPROCESSOR_FILE = "preprocessor_config.json"
FIXED_FIELDS = ("dim", "depth", "heads", "hidden", "patch_size", "pooling")
"""Fields of the model's config that the weights determine."""


def load_vit(run: str | Path) -> ViT:
    """A ViT that reads pixels from -1 to 1, from a run, a checkpoint or a Hugging Face folder."""
    folder = find_folder(run)
    model: ViT = load_pretrained(folder, ViT, "classify images")
    if len(set(model.config.image_size)) > 1:
        raise WeightsError(f"{run} expects images of {model.config.image_size} pixels; only square ones are supported")
    if (folder / PREPROCESSOR_FILE).is_file():
        fold_normalization(model.patch_embedding.proj, *read_normalization(folder / PREPROCESSOR_FILE))
    return model


def read_normalization(path: Path) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, for pixels from 0 to 1, in a file of Hugging Face's."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        mean, std = (torch.tensor(values.get(name, 0.5), dtype=torch.float32) for name in ("image_mean", "image_std"))
    except (OSError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise WeightsError(f"{path} cannot be read: {error}") from None
    if not (mean.isfinite().all() and std.isfinite().all() and (std > 0).all() and max(mean.ndim, std.ndim) < 2):
        raise WeightsError(f"{path}: expected numbers image_mean and positive numbers image_std, one per channel")
    return mean, std


@torch.no_grad()
def fold_normalization(proj: nn.Conv2d, mean: Tensor, std: Tensor) -> None:
    """Change a projection of (pixels - mean) / std, with pixels from 0 to 1, to one of pixels from -1 to 1.

    >>> proj, pixels = nn.Conv2d(3, 4, 2, 2), torch.rand(1, 3, 4, 4)
    >>> before = proj((pixels - 0.4) / 0.2)
    >>> fold_normalization(proj, torch.tensor(0.4), torch.tensor(0.2))
    >>> torch.allclose(proj(2 * pixels - 1), before, atol=1e-5)
    True
    """
    channels, bias = proj.in_channels, proj.bias
    assert bias is not None
    if not {mean.numel(), std.numel()} <= {1, channels}:
        raise WeightsError(
            f"expected image_mean and image_std of {channels} channels, got {mean.numel()}, {std.numel()}"
        )
    scale, shift = (one.expand(channels)[:, None, None] for one in (0.5 / std, (0.5 - mean) / std))
    bias += (proj.weight * shift).sum((1, 2, 3))
    proj.weight *= scale


def check_sizes(overrides: ConfigOverrides[Any]) -> None:
    """Raise an error for dimensions that the pretrained weights determine."""
    given = [name for name in FIXED_FIELDS if f"model.{name}" in overrides.values]
    if given:
        raise ConfigError(f"model.{given[0]} is determined by the weights of {overrides.get('init_from')}: remove it")


def adapt(pretrained: ViT, classes: int, size: int, dropout: float) -> ViT:
    """The same weights with a new head, for images of another size."""
    sizes = {"image_size": (size, size), "dropout": dropout}
    model: ViT = replace_head(pretrained, head="classification", classes=classes, **sizes)
    with torch.no_grad():
        model.position_embedding.weight.copy_(resize_positions(pretrained, size))
    return model


def resize_positions(model: ViT, size: int) -> Float[Tensor, "positions C"]:
    """The position vectors of a ViT for images of another size, interpolated."""
    config, weight = model.config, model.position_embedding.weight.detach()
    old, new = config.image_size[0] // config.patch_size, size // config.patch_size
    start = len(weight) - old**2  # of the class token
    grid = weight[start:].T.unflatten(1, (old, old))[None]
    resized = F.interpolate(grid, (new, new), mode="bicubic", align_corners=False) if new != old else grid
    return torch.cat([weight[:start], resized[0].flatten(1).T])
