"""ViT: an encoder-only Transformer that reads an image as a sequence of patches."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.attention import Mixing, SelfAttention
from softlook.blocks.block import Block
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.initial import start
from softlook.blocks.residual import PreNorm
from softlook.embed.patches import PatchEmbedding
from softlook.embed.places import LearnedPlaces
from softlook.embed.unit import GlobalUnit
from softlook.heads.classify import ClassHead, States
from softlook.heads.pooling import DensePool, FirstPool, MeanPool
from softlook.ops.dropping import Dropout


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """The sizes of a ViT. The defaults are those of ViT-B/16."""

    channels: int = 3
    """Numbers for each point of an image: three for a coloured one."""
    image: tuple[int, int] = (224, 224)
    """Height and width of the images, in points."""
    patch: int = 16
    """Height and width of a patch."""
    dim: int = 768
    """Width of the vectors between blocks."""
    depth: int = 12
    """Number of blocks."""
    heads: int = 12
    """Heads in each block."""
    hidden: int | None = None
    """Width inside the feed-forward layers; four times `dim` where not told."""
    activation: ActivationName = "gelu"
    """The bend inside the feed-forward layers."""
    dropout: float = 0.0
    """Share dropped after the embedding, inside attention and before each addition, while training."""
    eps: float = 1e-12
    """Added to the variance in layer norms."""
    biases: bool = True
    """Do the projections to queries, keys and values have biases?"""
    pooling: Literal["first", "mean"] = "first"
    """How the whole becomes one vector: by a global unit in front of the patches, or by their mean."""
    head: Literal["classes", "pooled", "states"] = "classes"
    """What is asked: classes, the pooled vector behind a dense layer, or the vectors of the unit and the patches."""
    classes: int = 1000
    """Number of classes."""


class ViT(nn.Module):
    """Images in, scores of classes out.

    >>> model = ViT(ViTConfig(image=(8, 12), patch=4, dim=16, depth=2, heads=2, classes=5))
    >>> model(torch.randn(2, 3, 8, 12)).shape
    torch.Size([2, 5])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = PatchEmbedding(config.channels, config.patch, config.dim)
        self.unit = GlobalUnit(config.dim) if config.pooling == "first" else nn.Identity()
        self.places = LearnedPlaces(length_of(config), config.dim)
        self.drop = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._block() for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim, config.eps)
        self.head = head_of(config)
        start(self)

    def _block(self) -> Block:
        c = self.config
        return Block(
            SelfAttention(c.dim, c.heads, bias=c.biases, out_bias=True, mix=Mixing(dropout=c.dropout)),
            FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation]),
            lambda: PreNorm(nn.LayerNorm(c.dim, c.eps), c.dropout),
        )

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B *scores"]:
        if tuple(images.shape[2:]) != tuple(self.config.image):
            wanted, came = (" x ".join(map(str, sizes)) for sizes in (self.config.image, images.shape[2:]))
            raise ShapeError(f"this model has positions for images of {wanted} points; {came} came. Resize them.")
        x = self.unit(self.patches(images))
        x = self.drop(x + self.places(torch.arange(x.shape[1], device=x.device)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def length_of(config: ViTConfig) -> int:
    """How many vectors an image becomes: its patches, and the unit in front."""
    height, width = config.image
    if config.patch < 1 or min(height, width) < 1 or height % config.patch or width % config.patch:
        raise ConfigError(f"an image of {height} x {width} points cannot be cut into squares of {config.patch} points")
    patches = (height // config.patch) * (width // config.patch)
    return patches + (config.pooling == "first")


def head_of(config: ViTConfig) -> nn.Module:
    """What makes of the vectors what was asked for."""
    pool = FirstPool() if config.pooling == "first" else MeanPool()
    if config.head == "classes":
        return ClassHead(pool, config.dim, config.classes)
    return DensePool(pool, config.dim, torch.tanh) if config.head == "pooled" else States()
