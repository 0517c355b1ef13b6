"""Import and export of ViT in Hugging Face\'s format."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTModel

from softlook.base.errors import WeightsError
from softlook.models import ViT
from softlook.models import ViTConfig as SoftlookConfig
from softlook.weights import from_hugging_face, to_hugging_face
from tests.parity.comparison import close, export_and_load, import_model, maps, saved, states

IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
SIZES: dict[str, Any] = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "image_size": 8,
    "patch_size": 4,
    "num_labels": 5,
}


def small(kind: Any = ViTForImageClassification, **changes: Any) -> Any:
    torch.manual_seed(0)
    return kind._from_config(ViTConfig(**{**SIZES, **changes}), attn_implementation="eager").eval()


VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "without biases": {"qkv_bias": False},
    "another activation": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
    "one channel": {"num_channels": 1},
    "not square": {"image_size": [8, 12]},
}


def images_for(name: str) -> torch.Tensor:
    changes = VARIANTS[name]
    height, width = changes.get("image_size", (8, 8))
    return torch.randn(2, changes.get("num_channels", 3), height, width)


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_hidden_states_and_attention_maps_match_hugging_face(name: str, tmp_path: Path) -> None:
    reference = small(**VARIANTS[name])
    actual, images = import_model(reference, tmp_path / "hf"), images_for(name)
    with maps(actual) as actual_maps, states(actual.blocks) as actual_states, torch.no_grad():
        logits = actual(images)
        expected = reference(images, output_attentions=True, output_hidden_states=True)
    close(logits, expected.logits)
    for one, other in zip(actual_maps, expected.attentions, strict=True):
        close(one, other)
    for one, other in zip(actual_states, expected.hidden_states[1:], strict=True):
        close(one, other)


def test_gradients_match_hugging_face(tmp_path: Path) -> None:
    reference = small()
    actual = import_model(reference, tmp_path / "hf")
    upstream = torch.randn(2, 5)
    actual(IMAGES).backward(upstream)
    reference(IMAGES).logits.backward(upstream)
    embeddings, block = reference.vit.embeddings, reference.vit.layers[0]
    close(actual.patch_embedding.proj.weight.grad, embeddings.patch_embeddings.projection.weight.grad)
    close(actual.cls_token.vector.grad, embeddings.cls_token.grad[0, 0])
    close(actual.position_embedding.weight.grad, embeddings.position_embeddings.grad[0])
    close(actual.blocks[0].attn.to_key.weight.grad, block.attention.k_proj.weight.grad)
    close(actual.blocks[0].ffn.to_up.bias.grad, block.mlp.fc1.bias.grad)
    close(actual.head.to_classes.weight.grad, reference.classifier.weight.grad)


@pytest.mark.parametrize("name", VARIANTS)
def test_hugging_face_loads_the_export_with_the_same_logits(name: str, tmp_path: Path) -> None:
    reference = small(**VARIANTS[name])
    actual, images = import_model(reference, tmp_path / "hf"), images_for(name)
    back = export_and_load(actual, ViTForImageClassification, tmp_path / "softlook")
    with torch.no_grad():
        close(back(images).logits, reference(images).logits, 1e-6)


def test_a_base_model_returns_its_pooled_vector(tmp_path: Path) -> None:
    reference = small(ViTModel)
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(actual, ViTModel, tmp_path / "softlook")
    with torch.no_grad():
        expected = reference(IMAGES).pooler_output
        close(actual(IMAGES), expected)
        close(back(IMAGES).pooler_output, expected, 1e-6)


def test_a_base_model_without_a_pooler_returns_hidden_states(tmp_path: Path) -> None:
    torch.manual_seed(0)
    reference = ViTModel(ViTConfig(**SIZES), add_pooling_layer=False).eval()
    actual = import_model(reference, tmp_path / "hf")
    back: Any = ViTModel.from_pretrained(to_hugging_face(actual, tmp_path / "softlook"), add_pooling_layer=False)
    with torch.no_grad():
        expected = reference(IMAGES).last_hidden_state
        close(actual(IMAGES), expected)
        close(back.eval()(IMAGES).last_hidden_state, expected, 1e-6)


@pytest.mark.parametrize("fields", [{"patch_size": [4, 2]}, {"pooler_act": "relu"}, {"pooler_output_size": 8}])
def test_unsupported_configs_raise_an_error(fields: dict[str, Any], tmp_path: Path) -> None:
    folder = saved(small(ViTModel), tmp_path / "hf")
    content = json.loads((folder / "config.json").read_text(encoding="utf-8")) | fields
    (folder / "config.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(WeightsError, match="patches must be square, and the pooler must have hidden_size outputs"):
        from_hugging_face(folder)


def test_mean_pooling_cannot_be_exported_as_vit(tmp_path: Path) -> None:
    actual = ViT(SoftlookConfig(image_size=(8, 8), patch_size=4, dim=24, depth=1, heads=2, pooling="mean"))
    with pytest.raises(WeightsError, match="Hugging Face has no architecture for this ViT"):
        to_hugging_face(actual, tmp_path / "softlook")
