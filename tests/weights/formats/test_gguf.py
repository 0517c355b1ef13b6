"""GGUF files: import of small models, and errors of damaged or unsupported files."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter
from torch import Tensor

from softlook.base.errors import WeightsError
from softlook.models import RopeScaling
from softlook.ops.positions import llama3
from softlook.weights.formats.gguf import from_gguf
from softlook.weights.schema import ConfigWarning
from tests.weights.formats.gguf_files import ADDERS, IDS, metadata_of, small, write, write_model

VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_embeddings": False},
    "wide heads": {"head_dim": 24},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_gguf_file_gives_the_logits_of_the_exported_model(variant: str, tmp_path: Path) -> None:
    model = small(**VARIANTS[variant])
    width = {"llama.attention.key_length": model.head_dim, "llama.attention.value_length": model.head_dim}
    again = from_gguf(write_model(model, tmp_path / "m.gguf", fields=width))
    assert again.config.tie_embeddings == model.config.tie_embeddings and not again.training
    torch.testing.assert_close(again(IDS), model(IDS), rtol=0, atol=1e-6)


def test_a_qwen2_has_biases_and_unpermuted_rows(tmp_path: Path) -> None:
    model = small(qkv_bias=True)
    again = from_gguf(write_model(model, tmp_path / "m.gguf", architecture="qwen2"))
    torch.testing.assert_close(again(IDS), model(IDS), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_1])
def test_quantized_weights_are_dequantized_like_the_gguf_package(kind: Kind, tmp_path: Path) -> None:
    model = small()
    again = from_gguf(write_model(model, tmp_path / "m.gguf", kind=kind))
    weight, found = (one.state_dict()["blocks.1.ffn.to_up.weight"] for one in (model, again))
    expected = gguf.dequantize(gguf.quantize(weight.numpy(), kind), kind)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=0)
    assert not torch.equal(found, weight)


ROPE_SCALINGS: dict[str, tuple[dict[str, Any], RopeScaling | None]] = {
    "type none ignores the factor": ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}, None),
    "default type": ({"llama.rope.scaling.factor": 4.0}, RopeScaling(rope_type="linear", factor=4.0)),
    "linear": (
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
        RopeScaling(rope_type="linear", factor=4.0),
    ),
    "linear, in older files": ({"llama.rope.scale_linear": 4.0}, RopeScaling(rope_type="linear", factor=4.0)),
    "yarn": (
        {
            "llama.rope.scaling.type": "yarn",
            "llama.rope.scaling.factor": 4.0,
            "llama.rope.scaling.original_context_length": 16,
        },
        RopeScaling(rope_type="yarn", factor=4.0, original_context=16),
    ),
}


@pytest.mark.parametrize("name", ROPE_SCALINGS)
def test_rope_scaling_is_read_from_the_metadata(name: str, tmp_path: Path) -> None:
    fields, scaling = ROPE_SCALINGS[name]
    model = small(rope_scaling=scaling, rope_theta=100.0)
    again = from_gguf(write_model(model, tmp_path / "m.gguf", fields=fields))
    assert again.config.rope_scaling == scaling
    torch.testing.assert_close(again(IDS), model(IDS), rtol=0, atol=1e-6)


def frequency_divisors(factor: float, context: int, width: int, theta: float) -> Tensor:
    frequencies = theta ** -(torch.arange(0, width, 2) / width)
    return frequencies / llama3(factor, context=context).scale_frequencies(frequencies, theta)


@pytest.mark.parametrize(
    ("factor", "context", "theta"), [(8.0, 8192, 500_000.0), (32.0, 8192, 500_000.0), (4.0, 48, 50.0)]
)
def test_llama_3_rope_scaling_is_recovered_from_its_divisors(
    factor: float, context: int, theta: float, tmp_path: Path
) -> None:
    scaling = RopeScaling(rope_type="llama3", factor=factor, original_context=context)
    model = small(rope_scaling=scaling, rope_theta=theta, head_dim=64)
    divisors = {"rope_freqs.weight": frequency_divisors(factor, context, 64, theta)}
    again = from_gguf(
        write_model(model, tmp_path / "m.gguf", tensors=divisors, fields={"llama.attention.key_length": 64})
    )
    assert again.config.rope_scaling == scaling
    torch.testing.assert_close(again(IDS), model(IDS), rtol=0, atol=1e-6)


def test_factors_of_one_mean_no_rope_scaling(tmp_path: Path) -> None:
    path = write_model(small(), tmp_path / "m.gguf", tensors={"rope_freqs.weight": torch.ones(8)})
    assert from_gguf(path).config.rope_scaling is None


def test_a_bidirectional_model_is_imported_as_such(tmp_path: Path) -> None:
    model = small(causal=False)
    again = from_gguf(write_model(model, tmp_path / "m.gguf", fields={"llama.attention.causal": False}))
    assert not again.config.causal
    torch.testing.assert_close(again(IDS), model(IDS), rtol=0, atol=1e-6)


def test_a_sliding_window_is_imported(tmp_path: Path) -> None:
    model = small(sliding_window=3)
    again = from_gguf(write_model(model, tmp_path / "m.gguf", fields={"llama.attention.sliding_window": 3}))
    torch.testing.assert_close(again(IDS), model(IDS), rtol=0, atol=1e-6)


def test_unknown_metadata_is_ignored_with_a_warning(tmp_path: Path) -> None:
    path = write_model(small(), tmp_path / "m.gguf", fields={"llama.brand_new": 3})
    with pytest.warns(ConfigWarning, match="brand_new"):
        from_gguf(path)


NAN = torch.full((64,), float("nan"))
INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "missing size": ({"fields": {"llama.block_count": None}}, "block_count: Field required"),
    "size as a string": ({"fields": {"llama.block_count": "two"}}, "block_count: Input should be a valid integer"),
    "size as a list": (
        {"fields": {"llama.attention.head_count_kv": [2, 2]}},
        "attention_head_count_kv: Input should",
    ),
    "size of zero": ({"fields": {"llama.attention.head_count": 0}}, "greater than 0, got 0"),
    "too many layers": ({"fields": {"llama.block_count": 4_000_000_000}}, "the maximum is"),
    "another depth": (
        {"fields": {"llama.block_count": 1}},
        "holds 'blk.1.attn_k.weight'.*unknown to this architecture",
    ),
    "another width": (
        {"fields": {"llama.embedding_length": 32, "llama.rope.dimension_count": None}},
        r"'token_embd.weight' must have shape \(11, 32\) by the config, got \(11, 64\)",
    ),
    "incompatible heads": (
        {"fields": {"llama.attention.head_count_kv": 3}},
        "heads must be a multiple of kv_heads",
    ),
    "another vocabulary": ({"fields": {"llama.vocab_size": 12}}, r"'token_embd.weight' must have shape \(12, 64\)"),
    "missing tensor": ({"tensors": {"blk.0.attn_k.weight": None}}, "lacks 'blk.0.attn_k.weight'"),
    "missing embedding": ({"tensors": {"token_embd.weight": None}}, "lacks 'token_embd.weight'"),
    "extra tensor": ({"tensors": {"blk.0.attn_q.bias": torch.ones(64)}}, "holds 'blk.0.attn_q.bias'"),
    "NaN": ({"tensors": {"output_norm.weight": NAN}}, "contains NaN or infinity"),
    "experts": ({"fields": {"llama.expert_count": 8}}, "experts"),
    "partial rotary dimensions": ({"fields": {"llama.rope.dimension_count": 8}}, "must be equal"),
    "unsupported RoPE scaling": ({"fields": {"llama.rope.scaling.type": "longrope"}}, "has RoPE scaling 'longrope'"),
    "divisors that are not those of Llama 3": (
        {"tensors": {"rope_freqs.weight": torch.linspace(1, 3, 8)}},
        "does not match Llama 3",
    ),
    "RoPE scaling twice": (
        {"fields": {"llama.rope.scaling.factor": 4.0}, "tensors": {"rope_freqs.weight": torch.ones(8)}},
        "has RoPE scaling twice",
    ),
    "one of several splits": ({"fields": {"split.count": 3}}, "is one of several splits"),
}


@pytest.mark.parametrize("name", INVALID)
def test_inconsistent_files_raise_an_error(name: str, tmp_path: Path) -> None:
    changes, message = INVALID[name]
    with pytest.raises(WeightsError, match=message):
        from_gguf(write_model(small(), tmp_path / "m.gguf", **changes))


def test_an_unknown_architecture_raises_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", {}, {}, Kind.F32, "mamba")
    with pytest.raises(WeightsError, match="has architecture 'mamba'; supported: llama, qwen2"):
        from_gguf(path)


def test_an_unknown_tensor_type_raises_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    model = small()
    writer = GGUFWriter(tmp_path / "m.gguf", "llama")
    for name, value in metadata_of(model).items():
        ADDERS[type(value)](writer, f"llama.{name}", value)
    writer.add_tensor("token_embd.weight", np.zeros((11, 64), np.int8))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(WeightsError, match="'token_embd.weight' has type I8; supported: F32, F16, BF16, Q4_0"):
        from_gguf(tmp_path / "m.gguf")


def test_paths_that_are_not_gguf_files_raise_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.gguf", tmp_path):
        with pytest.raises(WeightsError, match="is not a file. Expected a GGUF file"):
            from_gguf(path)
    for content in (b"", b"GGUF", b"A letter to a friend, long enough to hold a header."):
        (tmp_path / "m.gguf").write_bytes(content)
        with pytest.raises(WeightsError, match="is damaged or not a GGUF file"):
            from_gguf(tmp_path / "m.gguf")


def test_a_file_truncated_anywhere_raises_an_error(tmp_path: Path) -> None:
    content = write_model(small(depth=1), tmp_path / "m.gguf").read_bytes()
    for length in [*range(1, 2400, 37), *range(2400, len(content), len(content) // 20), len(content) - 1]:
        (tmp_path / "cut.gguf").write_bytes(content[:length])
        with pytest.raises(WeightsError, match="is damaged or not a GGUF file"):
            from_gguf(tmp_path / "cut.gguf")


def test_a_flipped_bit_is_loaded_or_raises_a_weights_error(tmp_path: Path) -> None:
    fields = {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": [1, 1]}
    content = write_model(small(depth=1), tmp_path / "m.gguf", fields=fields).read_bytes()
    errors = 0
    for index in range(0, 1800, 5):
        changed = bytearray(content)
        changed[index] ^= 1 << (index % 8)
        (tmp_path / "flipped.gguf").write_bytes(changed)
        try:
            from_gguf(tmp_path / "flipped.gguf")
        except WeightsError:
            errors += 1
        except ConfigWarning:
            pass
    assert errors > 100


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1])
def test_a_huge_array_length_raises_an_error_immediately(length: int, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", {"llama.of_bytes": [True, False, True]}, {}, Kind.F32, "llama")
    content = path.read_bytes()
    start = (
        content.index(b"of_bytes") + len("of_bytes") + 8
    )  # after the name: the types of the field and of its elements
    path.write_bytes(content[:start] + length.to_bytes(8, "little") + content[start + 8 :])
    with pytest.raises(WeightsError, match="unexpected end of file"):
        from_gguf(path)


def test_optional_packages_are_imported_lazily() -> None:
    code = (
        "import sys; sys.modules['gguf'] = None; import softlook.weights\n"
        "try: import softlook.weights.formats.gguf\n"
        "except ImportError as error: print(error)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install softlook[gguf]" in output
