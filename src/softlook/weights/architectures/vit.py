"""ViT, base model or image classifier."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from softlook.base.errors import WeightsError
from softlook.models.vit import ViT, ViTConfig
from softlook.weights.architectures.base import (
    HF_SIZES,
    HFArchitecture,
    HFLabelConfig,
    from_hf_fields,
    to_hf_fields,
)
from softlook.weights.tensor_map import TensorRule, Unsqueeze, rename_blocks, rename_layer

FIELDS = HF_SIZES | {
    "channels": "num_channels",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "eps": "layer_norm_eps",
    "qkv_bias": "qkv_bias",
}
"""softlook's config fields -> Hugging Face's."""
BLOCK_NAMES = {
    "attn.to_out": "attention.output.dense",
    "attn_norm": "layernorm_before",
    "ffn.to_up": "intermediate.dense",
    "ffn.to_out": "output.dense",
    "ffn_norm": "layernorm_after",
}
Size = PositiveInt | tuple[PositiveInt, PositiveInt]


class HFViTConfig(HFLabelConfig):
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


def build(hf_config: HFViTConfig, head: str) -> ViT:
    height, width = _pair(hf_config.patch_size)
    pooled = hf_config.pooler_output_size in (None, hf_config.hidden_size) and hf_config.pooler_act == "tanh"
    if height != width or (head == "pooled" and not pooled):
        raise WeightsError("patches must be square, and the pooler must have hidden_size outputs and tanh")
    config = ViTConfig(
        **from_hf_fields(hf_config, FIELDS),
        image_size=_pair(hf_config.image_size),
        patch_size=height,
        head=head,  # pyright: ignore[reportArgumentType]  (from head_by_class)
        classes=hf_config.classes,
    )
    return ViT(config)


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
    projections = {f"attn.to_{part}": f"attention.attention.{part}" for part in ("query", "key", "value")}
    kinds = ("weight", "bias") if c.qkv_bias else ("weight",)
    found += rename_blocks(c.depth, "vit.encoder.layer", projections, *kinds)
    return [*found, *rename_blocks(c.depth, "vit.encoder.layer", BLOCK_NAMES)]


def ignored_tensors(model: ViT) -> tuple[str, ...]:
    return () if model.config.head == "pooled" else (r"(vit\.)?pooler\.dense\.(weight|bias)",)


def to_config(model: ViT) -> dict[str, Any]:
    c = model.config
    return {
        **to_hf_fields(c, FIELDS),
        "image_size": c.image_size[0] if c.image_size[0] == c.image_size[1] else list(c.image_size),
        "patch_size": c.patch_size,
        "attention_probs_dropout_prob": c.dropout,
    }


VIT = HFArchitecture(
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
    can_export=lambda model: isinstance(model, ViT) and model.config.pooling == "cls",
    to_config=to_config,
)
