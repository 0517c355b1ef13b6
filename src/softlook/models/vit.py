"""Vision Transformer (ViT)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from softlook.base.errors import ConfigError, ShapeError
from softlook.blocks.attention import AttentionCore, MakeAttention, SelfAttention
from softlook.blocks.block import PreNormBlock
from softlook.blocks.feed_forward import ACTIVATIONS, ActivationName, FeedForward
from softlook.blocks.init import init_normal
from softlook.embed.patches import ClassToken, PatchEmbedding
from softlook.embed.positions import LearnedPositions
from softlook.heads.classification import ClassificationHead, HiddenStates
from softlook.heads.pooling import Pooler, PoolName, build_pool
from softlook.ops.bias import Bias
from softlook.ops.dropout import Dropout
from softlook.ops.masks import Mask


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """Hyperparameters of a ViT. The defaults are those of ViT-B/16."""

    channels: int = 3
    """Number of channels."""
    image_size: tuple[int, int] = (224, 224)
    """Height and width of the images, in pixels."""
    patch_size: int = 16
    """Height and width of a patch."""
    dim: int = 768
    """Width of the hidden states."""
    depth: int = 12
    """Number of blocks."""
    heads: int = 12
    """Number of attention heads."""
    hidden: int | None = None
    """Width inside the feed-forward layers; default: 4 * dim."""
    activation: ActivationName = "gelu"
    """Activation of the feed-forward layers."""
    dropout: float = 0.0
    """Dropout probability of embeddings, attention weights and layer outputs."""
    eps: float = 1e-12
    """Epsilon of the layer norms."""
    qkv_bias: bool = True
    """Whether the query, key and value projections have biases."""
    pooling: PoolName = "cls"
    """Pooling by a [CLS] token or by the mean of the patches."""
    head: Literal["classification", "pooled", "hidden_states"] = "classification"
    """What the model returns: logits of the classes, the pooled vector, or the hidden states."""
    classes: int = 1000
    """Number of classes."""


class ViT(nn.Module):
    """Vision Transformer (Dosovitskiy et al. 2021): images in, logits of the classes out.

    `attention(layer)` builds the self-attention of each layer; default: `SelfAttention` with the sizes of the config.

    >>> model = ViT(ViTConfig(image_size=(8, 12), patch_size=4, dim=16, depth=2, heads=2, classes=5))
    >>> model(torch.randn(2, 3, 8, 12)).shape
    torch.Size([2, 5])
    """

    mode: ClassVar = "encoder-only"

    def __init__(self, config: ViTConfig, *, attention: MakeAttention | None = None) -> None:
        super().__init__()
        self.config = c = config
        self.patch_embedding = PatchEmbedding(c.channels, c.patch_size, c.dim)
        self.cls_token = ClassToken(c.dim) if c.pooling == "cls" else nn.Identity()
        self.position_embedding = LearnedPositions(sequence_length(c), c.dim)
        self.dropout = Dropout(c.dropout)
        self.blocks = nn.ModuleList(self._block(layer, attention) for layer in range(c.depth))
        self.final_norm = nn.LayerNorm(c.dim, c.eps)
        self.head = build_head(c)
        init_normal(self)

    def _block(self, layer: int, attention: MakeAttention | None) -> PreNormBlock:
        c = self.config
        if attention is None:
            core = AttentionCore(dropout=c.dropout)
            attn: nn.Module = SelfAttention(c.dim, c.heads, qkv_bias=c.qkv_bias, out_bias=True, core=core)
        else:
            attn = attention(layer)
        ffn = FeedForward(c.dim, c.hidden, ACTIVATIONS[c.activation])
        return PreNormBlock(attn, ffn, lambda: nn.LayerNorm(c.dim, c.eps), dropout=c.dropout)

    def forward(
        self,
        images: Float[Tensor, "B channels height width"],
        *,
        mask: Mask | Tensor | None = None,
        bias: Bias | Tensor | None = None,
    ) -> Float[Tensor, "B *logits"]:
        """`mask` and `bias` are those of the attention among the [CLS] token and the patches."""
        if tuple(images.shape[2:]) != tuple(self.config.image_size):
            expected, got = (" x ".join(map(str, sizes)) for sizes in (self.config.image_size, images.shape[2:]))
            raise ShapeError(f"expected images of {expected} pixels, got {got}. Resize them.")
        x = self.cls_token(self.patch_embedding(images))
        x = self.dropout(x + self.position_embedding(torch.arange(x.shape[1], device=x.device)))
        for block in self.blocks:
            x = block(x, mask=mask, bias=bias)
        return self.head(self.final_norm(x))


def sequence_length(config: ViTConfig) -> int:
    """Number of patches, and of the [CLS] token."""
    (height, width), patch = config.image_size, config.patch_size
    if patch < 1 or min(height, width) < 1 or height % patch or width % patch:
        raise ConfigError(f"image_size {height} x {width} must be a multiple of patch_size {patch}")
    return (height // patch) * (width // patch) + (config.pooling == "cls")


def build_head(config: ViTConfig) -> nn.Module:
    """The head that the config names."""
    pool = build_pool(config.pooling)
    if config.head == "classification":
        return ClassificationHead(pool, config.dim, config.classes)
    return Pooler(pool, config.dim, torch.tanh) if config.head == "pooled" else HiddenStates()
