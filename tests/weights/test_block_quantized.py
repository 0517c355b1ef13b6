"""Models whose weights stay quantized: the outputs of the dequantized model, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from softlook.base.errors import WeightsError
from softlook.weights import block_quantized, from_gguf, from_hugging_face, load, save, to_hugging_face
from softlook.weights.block_quantized import QuantizedLinear, dequantize_layers, quantized_layers

gguf = pytest.importorskip("gguf")
from tests.weights.formats.gguf_files import IDS, small, write_model  # noqa: E402  (needs gguf)

VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_embeddings": False},
    "with biases": {"qkv_bias": True},
}


def quantized_file(path: Path, kind: str = "Q8_0", **changes: Any) -> Path:
    architecture = "qwen2" if changes.get("qkv_bias") else "llama"
    return write_model(small(**changes), path, kind=gguf.GGMLQuantizationType[kind], architecture=architecture)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_1"])
def test_quantized_layers_compute_what_dequantized_ones_do(variant: str, kind: str, tmp_path: Path) -> None:
    path = quantized_file(tmp_path / "m.gguf", kind, **VARIANTS[variant])
    kept = from_gguf(path, keep_quantized=True)
    assert len(quantized_layers(kept)) == 2 * 7 + 2
    assert torch.equal(kept(IDS), from_gguf(path)(IDS))


def test_a_weight_larger_than_a_chunk_is_dequantized_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = quantized_file(tmp_path / "m.gguf")
    kept: Any = from_gguf(path, keep_quantized=True)
    expected: Any = from_gguf(path)
    monkeypatch.setattr(block_quantized, "MAX_CHUNK", 64 * 16)
    torch.testing.assert_close(kept(IDS), expected(IDS), rtol=0, atol=1e-5)
    assert torch.equal(kept.lm_head.weight, expected.lm_head.weight)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_checkpoint_keeps_quantized_layers(variant: str, tmp_path: Path) -> None:
    kept = from_gguf(quantized_file(tmp_path / "m.gguf", **VARIANTS[variant]), keep_quantized=True)
    again: Any = load(save(kept, tmp_path / "m"))
    assert torch.equal(again(IDS), kept(IDS))
    assert {name: layer.block_format for name, layer in quantized_layers(again).items()} == {
        name: layer.block_format for name, layer in quantized_layers(kept).items()
    }
    if kept.config.tie_embeddings:
        assert again.lm_head.blocks is again.token_embedding.blocks
    dense = save(from_gguf(tmp_path / "m.gguf"), tmp_path / "dense")
    assert (tmp_path / "m/model.safetensors").stat().st_size < 0.4 * (dense / "model.safetensors").stat().st_size


@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_are_dequantized_for_training_and_export(variant: str, tmp_path: Path) -> None:
    kept: Any = from_gguf(quantized_file(tmp_path / "m.gguf", **VARIANTS[variant]), keep_quantized=True)
    exported: Any = from_hugging_face(to_hugging_face(kept, tmp_path / "hf"))
    assert quantized_layers(kept)
    expected = kept(IDS)
    dense: Any = dequantize_layers(kept)
    assert torch.equal(dense(IDS), expected) and torch.equal(exported(IDS), expected)
    assert type(dense.lm_head) is nn.Linear and not quantized_layers(dense)
    assert (dense.lm_head.weight is dense.token_embedding.weight) == dense.config.tie_embeddings


def test_a_weight_of_another_type_is_dequantized(tmp_path: Path) -> None:
    kept = from_gguf(quantized_file(tmp_path / "m.gguf", "F16"), keep_quantized=True)
    assert not quantized_layers(kept)


def test_a_damaged_block_raises_an_error(tmp_path: Path) -> None:
    path = quantized_file(tmp_path / "m.gguf", "Q8_0")
    content = bytearray(path.read_bytes())
    content[-34:-32] = b"\xff\x7f"  # the scale of the last block: NaN
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="contains NaN or infinity"):
        from_gguf(path, keep_quantized=True)


@pytest.mark.parametrize("formats", [{"lm_hed": "Q8_0"}, {"lm_head": "Q9"}, {"final_norm": "Q8_0"}])
def test_an_unknown_quantized_layer_in_a_config_raises_an_error(formats: dict[str, str]) -> None:
    with pytest.raises(WeightsError, match="cannot be a quantized layer"):
        block_quantized.replace_with_quantized(small(), formats)


def test_a_half_precision_input_gives_a_half_precision_output() -> None:
    layer = QuantizedLinear(torch.zeros(3, 2 * 34, dtype=torch.uint8), "Q8_0", 64)
    assert layer(torch.randn(5, 64, dtype=torch.bfloat16)).dtype == torch.bfloat16
