"""ViT, base model or image classifier."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from softlook.base.errors import WeightsError
from softlook.models.vit import ViT, ViTConfig
from softlook.weights.architectures.base import HFArchitecture, from_hf_activation, to_hf_activation
from softlook.weights.schema import HFConfigBase
from softlook.weights.tensor_map import TensorRule, Unsqueeze, rename_layer

Size = PositiveInt | tuple[PositiveInt, PositiveInt]


class HFViTConfig(HFConfigBase):
    """Hugging Face's ViTConfig: the fields that affect the output."""

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


def build(hf_config: HFViTConfig, head: str) -> ViT:
    height, width = _pair(hf_config.patch_size)
    pooled = hf_config.pooler_output_size in (None, hf_config.hidden_size) and hf_config.pooler_act == "tanh"
    if height != width or (head == "pooled" and not pooled):
        raise WeightsError("patches must be square, and the pooler must have hidden_size outputs and tanh")
    return ViT(
        ViTConfig(
            channels=hf_config.num_channels,
            image_size=_pair(hf_config.image_size),
            patch_size=height,
            dim=hf_config.hidden_size,
            depth=hf_config.num_hidden_layers,
            heads=hf_config.num_attention_heads,
            hidden=hf_config.intermediate_size,
            activation=from_hf_activation(hf_config.hidden_act),
            dropout=hf_config.hidden_dropout_prob,
            eps=hf_config.layer_norm_eps,
            qkv_bias=hf_config.qkv_bias,
            head=head,  # pyright: ignore[reportArgumentType]  (from head_by_class)
            classes=len(hf_config.id2label) if hf_config.id2label else hf_config.num_labels,
        )
    )


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def detect_head(head: str, folder: Path, names: Collection[str]) -> str:
    """A base model may have no pooler."""
    pooled = any(name.endswith("pooler.dense.weight") for name in names)
    return head if head != "pooled" or pooled else "hidden_states"


def tensor_map(model: ViT) -> list[TensorRule]:
    c = model.config
    found: list[TensorRule] = [
        *rename_layer("patch_embedding.proj", "vit.embeddings.patch_embeddings.projection"),
        Unsqueeze("cls_token.vector", "vit.embeddings.cls_token", axes=2),
        Unsqueeze("position_embedding.weight", "vit.embeddings.position_embeddings"),
        *rename_layer("final_norm", "vit.layernorm"),
    ]
    if c.head == "classification":
        found += rename_layer("head.to_classes", "classifier")
    if c.head == "pooled":
        found += rename_layer("head.dense", "vit.pooler.dense")
    for i in range(c.depth):
        target, source = f"blocks.{i}", f"vit.encoder.layer.{i}"
        for part in ("query", "key", "value"):
            kinds = ("weight", "bias") if c.qkv_bias else ("weight",)
            found += rename_layer(f"{target}.attn.to_{part}", f"{source}.attention.attention.{part}", *kinds)
        found += [
            *rename_layer(f"{target}.attn.to_out", f"{source}.attention.output.dense"),
            *rename_layer(f"{target}.attn_norm", f"{source}.layernorm_before"),
            *rename_layer(f"{target}.ffn.to_up", f"{source}.intermediate.dense"),
            *rename_layer(f"{target}.ffn.to_out", f"{source}.output.dense"),
            *rename_layer(f"{target}.ffn_norm", f"{source}.layernorm_after"),
        ]
    return found


def ignored_tensors(model: ViT) -> tuple[str, ...]:
    return () if model.config.head == "pooled" else (r"(vit\.)?pooler\.dense\.(weight|bias)",)


def to_config(model: ViT) -> dict[str, Any]:
    c = model.config
    names = [f"LABEL_{i}" for i in range(c.classes)] if c.head == "classification" else []
    labels = {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }
    return {
        "architectures": ["ViTForImageClassification" if c.head == "classification" else "ViTModel"],
        "num_channels": c.channels,
        "image_size": c.image_size[0] if c.image_size[0] == c.image_size[1] else list(c.image_size),
        "patch_size": c.patch_size,
        "hidden_size": c.dim,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "intermediate_size": 4 * c.dim if c.hidden is None else c.hidden,
        "hidden_act": to_hf_activation(c.activation),
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.dropout,
        "layer_norm_eps": c.eps,
        "qkv_bias": c.qkv_bias,
        **(labels if names else {}),
    }


def can_export(model: nn.Module) -> bool:
    return isinstance(model, ViT) and model.config.pooling == "cls"


def is_base_model(model: ViT) -> bool:
    return model.config.head != "classification"


ARCHITECTURE = HFArchitecture(
    name="ViT",
    model_type="vit",
    config_class=HFViTConfig,
    ignored_fields=frozenset({"attention_probs_dropout_prob", "encoder_stride"}),
    head_by_class={"ViTModel": "pooled", "ViTForImageClassification": "classification"},
    base_model_prefix="vit.",
    detect_head=detect_head,
    build=build,
    tensor_map=tensor_map,
    ignored_tensors=ignored_tensors,
    can_export=can_export,
    is_base_model=is_base_model,
    to_config=to_config,
)
