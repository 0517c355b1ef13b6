"""Bidirectional decoder-only models (`"is_causal": false`), which are used as text encoders, match Hugging Face."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from softlook import masks
from softlook.base.errors import ConfigError, WeightsError
from softlook.blocks import KVCache
from softlook.decode import generate
from softlook.models import GPT, GPTConfig
from softlook.weights import from_hugging_face, load, save
from softlook.weights.formats.ctranslate2 import to_ctranslate2
from tests.parity.comparison import close, export_and_load, import_model

SIZES: dict[str, Any] = {
    "vocab_size": 11,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
WINDOWED: dict[str, Any] = {"use_sliding_window": True, "sliding_window": 2, "max_window_layers": 1}
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, SIZES),
    "mistral": (MistralConfig, MistralForCausalLM, {**SIZES, "sliding_window": 2}),
    "mistral without window": (MistralConfig, MistralForCausalLM, {**SIZES, "sliding_window": None}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {**SIZES, **WINDOWED}),
    "gpt2": (
        GPT2Config,
        GPT2LMHeadModel,
        {"vocab_size": 11, "n_positions": 32, "n_embd": 24, "n_layer": 3, "n_head": 4},
    ),
}
IDS = torch.randint(0, 11, (2, 9), generator=torch.Generator().manual_seed(0))


def small(name: str, **changes: Any) -> Any:
    """A Hugging Face model with noise on all weights, so that every one matters."""
    config, kind, sizes = KINDS[name]
    torch.manual_seed(0)
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    model = kind._from_config(config(**sizes, **tokens, **changes), attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.mark.parametrize("name", KINDS)
def test_a_bidirectional_model_matches_hugging_face(name: str, tmp_path: Path) -> None:
    reference = small(name, is_causal=False)
    actual = import_model(reference, tmp_path / "hf")
    padding_mask = torch.arange(9) < torch.tensor([[9], [6]])
    with torch.no_grad():
        expected = reference(IDS).logits
        close(actual(IDS), expected)
        assert (expected - small(name)(IDS).logits)[:, 0].abs().max() > 1e-3
        padded = reference(IDS, attention_mask=padding_mask.long()).logits
        close(actual(IDS, mask=masks.padding([9, 6]))[padding_mask], padded[padding_mask])


@pytest.mark.parametrize("name", KINDS)
def test_a_bidirectional_model_matches_hugging_face_after_saving_and_export(name: str, tmp_path: Path) -> None:
    reference = small(name, is_causal=False)
    actual = import_model(reference, tmp_path / "hf")
    back = export_and_load(
        actual, type(reference) if "without" not in name else LlamaForCausalLM, tmp_path / "softlook"
    )
    again = load(save(actual, tmp_path / "saved"))
    with torch.no_grad():
        close(back(IDS).logits, reference(IDS).logits, 1e-6)
        assert torch.equal(again(IDS), actual(IDS))


@pytest.mark.parametrize("name", KINDS)
def test_generation_with_a_bidirectional_model_raises_an_error(name: str, tmp_path: Path) -> None:
    actual = import_model(small(name, is_causal=False), tmp_path / "hf")
    assert actual.mode == "encoder-only"
    with pytest.raises(ConfigError, match="does not generate text: expected a decoder or an encoder-decoder"):
        generate(actual, [[1, 2, 3]], max_new_tokens=3)
    with pytest.raises(ConfigError, match="a bidirectional model .*takes no KV cache and does not generate"):
        actual(IDS, cache=KVCache())


def test_a_bidirectional_model_is_not_exported_to_ctranslate2(tmp_path: Path) -> None:
    model = GPT(GPTConfig(vocab_size=4, context=8, dim=16, depth=1, heads=2, causal=False))
    with pytest.raises(WeightsError, match="CTranslate2 export supports causal GPTs only, got causal=False"):
        to_ctranslate2(model, tmp_path / "model", vocabulary=["<s>", "</s>", "<unk>", "a"])


def test_cross_attention_requires_causal_decoding(tmp_path: Path) -> None:
    sizes: Any = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    T5ForConditionalGeneration(T5Config(vocab_size=11, **sizes)).save_pretrained(tmp_path / "t5")
    config = tmp_path / "t5" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"is_causal": False}))
    with pytest.raises(WeightsError, match="is_causal: Input should be True, got False"):
        from_hugging_face(tmp_path / "t5")


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_prefix_mask_equals_a_four_dimensional_mask_of_hugging_face(name: str, tmp_path: Path) -> None:
    reference = small(name)
    actual = import_model(reference, tmp_path / "hf")
    mask = masks.causal() | masks.prefix(4)
    numbers = torch.where(mask.to_dense((1, 1, 9, 9)), 0.0, torch.finfo(torch.float32).min).expand(2, 1, 9, 9)
    with torch.no_grad():
        close(actual(IDS, mask=mask), reference(IDS, attention_mask=numbers).logits)
