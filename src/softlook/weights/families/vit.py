"""ViT, bare or with a head that classifies images."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.vit import ViT, ViTConfig
from softlook.weights.families.activations import from_theirs, to_theirs
from softlook.weights.family import Family
from softlook.weights.renaming import Row, Rule, layer
from softlook.weights.schema import Closed

Size = PositiveInt | tuple[PositiveInt, PositiveInt]


class ViTTheirs(Closed):
    """Hugging Face's ViTConfig, as far as it changes the numbers."""

    num_channels: PositiveInt = 3
    image_size: Size = 224
    patch_size: Size = 16
    hidden_size: PositiveInt = 768
    num_hidden_layers: PositiveInt = 12
    num_attention_heads: PositiveInt = 12
    intermediate_size: PositiveInt = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: NonNegativeFloat = 0.0
    layer_norm_eps: PositiveFloat = 1e-12
    qkv_bias: bool = True
    pooler_output_size: PositiveInt | None = None
    pooler_act: str = "tanh"
    id2label: dict[str, Any] | None = None
    num_labels: PositiveInt = 2


def build(theirs: ViTTheirs, head: str) -> ViT:
    patch, same = _pair(theirs.patch_size)
    pooled = theirs.pooler_output_size in (None, theirs.hidden_size) and theirs.pooler_act == "tanh"
    if patch != same or (head == "pooled" and not pooled):
        raise WeightsError("this ViT has patches that are not square, or another pooler than softlook's ViT")
    return ViT(
        ViTConfig(
            channels=theirs.num_channels,
            image=_pair(theirs.image_size),
            patch=patch,
            dim=theirs.hidden_size,
            depth=theirs.num_hidden_layers,
            heads=theirs.num_attention_heads,
            hidden=theirs.intermediate_size,
            activation=from_theirs(theirs.hidden_act),
            dropout=theirs.hidden_dropout_prob,
            eps=theirs.layer_norm_eps,
            biases=theirs.qkv_bias,
            head=head,  # pyright: ignore[reportArgumentType]  (from the family's own table)
            classes=len(theirs.id2label) if theirs.id2label else theirs.num_labels,
        )
    )


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def found_head(named: str, folder: Path, names: Collection[str]) -> str:
    """A bare model may have been saved without its pooler."""
    pooled = any(name.endswith("pooler.dense.weight") for name in names)
    return named if named != "pooled" or pooled else "states"


def rules(model: ViT) -> list[Rule]:
    c = model.config
    found: list[Rule] = [
        *layer("patches.to_vectors", "vit.embeddings.patch_embeddings.projection"),
        Row("unit.vector", "vit.embeddings.cls_token", axes=2),
        Row("places.table.weight", "vit.embeddings.position_embeddings"),
        *layer("norm", "vit.layernorm"),
    ]
    if c.head == "classes":
        found += layer("head.to_classes", "classifier")
    if c.head == "pooled":
        found += layer("head.to_pooled", "vit.pooler.dense")
    for i in range(c.depth):
        ours, theirs = f"blocks.{i}", f"vit.encoder.layer.{i}"
        for part in ("query", "key", "value"):
            kinds = ("weight", "bias") if c.biases else ("weight",)
            found += layer(f"{ours}.attend.to_{part}", f"{theirs}.attention.attention.{part}", *kinds)
        found += [
            *layer(f"{ours}.attend.to_out", f"{theirs}.attention.output.dense"),
            *layer(f"{ours}.around_attend.norm", f"{theirs}.layernorm_before"),
            *layer(f"{ours}.feed.to_hidden", f"{theirs}.intermediate.dense"),
            *layer(f"{ours}.feed.to_out", f"{theirs}.output.dense"),
            *layer(f"{ours}.around_feed.norm", f"{theirs}.layernorm_after"),
        ]
    return found


def ignored(model: ViT) -> tuple[str, ...]:
    return () if model.config.head == "pooled" else (r"(vit\.)?pooler\.dense\.(weight|bias)",)


def describe(model: ViT) -> dict[str, Any]:
    c = model.config
    names = [f"LABEL_{i}" for i in range(c.classes)] if c.head == "classes" else []
    labels = {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }
    return {
        "architectures": ["ViTForImageClassification" if c.head == "classes" else "ViTModel"],
        "num_channels": c.channels,
        "image_size": c.image[0] if c.image[0] == c.image[1] else list(c.image),
        "patch_size": c.patch,
        "hidden_size": c.dim,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "intermediate_size": 4 * c.dim if c.hidden is None else c.hidden,
        "hidden_act": to_theirs(c.activation),
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.dropout,
        "layer_norm_eps": c.eps,
        "qkv_bias": c.biases,
        **(labels if names else {}),
    }


def writes(model: nn.Module) -> bool:
    return isinstance(model, ViT) and model.config.pooling == "first"


def bare(model: ViT) -> bool:
    return model.config.head != "classes"


FAMILY = Family(
    name="ViT",
    model_type="vit",
    schema=ViTTheirs,
    harmless=frozenset({"attention_probs_dropout_prob", "encoder_stride"}),
    architectures={"ViTModel": "pooled", "ViTForImageClassification": "classes"},
    prefix="vit.",
    head=found_head,
    build=build,
    rules=rules,
    ignored=ignored,
    writes=writes,
    bare=bare,
    describe=describe,
)
