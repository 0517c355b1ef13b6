"""Decoder-only models that look both ways (`"is_causal": false`), as text encoders do, against Hugging Face's."""

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
from softlook.blocks import Memory
from softlook.decode import generate
from softlook.models import GPT, GPTConfig
from softlook.weights import from_hugging_face, load, save
from softlook.weights.ctranslate2 import to_ctranslate2
from tests.parity.weights import close, read, there_and_back

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
    """A model of Hugging Face's, with weights large enough for differences to show."""
    config, kind, sizes = KINDS[name]
    torch.manual_seed(0)
    tokens = {"bos_token_id": 1, "eos_token_id": 2}
    model = kind._from_config(config(**sizes, **tokens, **changes), attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@pytest.mark.parametrize("name", KINDS)
def test_a_model_that_looks_both_ways_is_that_of_hugging_face(name: str, tmp_path: Path) -> None:
    theirs = small(name, is_causal=False)
    ours = read(theirs, tmp_path / "theirs")
    present = torch.arange(9) < torch.tensor([[9], [6]])
    with torch.no_grad():
        wanted = theirs(IDS).logits
        close(ours(IDS), wanted)
        assert (wanted - small(name)(IDS).logits)[:, 0].abs().max() > 1e-3
        padded = theirs(IDS, attention_mask=present.long()).logits
        close(ours(IDS, mask=masks.padding([9, 6]))[present], padded[present])


@pytest.mark.parametrize("name", KINDS)
def test_it_still_does_after_saving_and_after_export(name: str, tmp_path: Path) -> None:
    theirs = small(name, is_causal=False)
    ours = read(theirs, tmp_path / "theirs")
    back = there_and_back(ours, type(theirs) if "without" not in name else LlamaForCausalLM, tmp_path / "ours")
    again = load(save(ours, tmp_path / "saved"))
    with torch.no_grad():
        close(back(IDS).logits, theirs(IDS).logits, 1e-6)
        assert torch.equal(again(IDS), ours(IDS))


@pytest.mark.parametrize("name", KINDS)
def test_it_refuses_to_generate(name: str, tmp_path: Path) -> None:
    ours = read(small(name, is_causal=False), tmp_path / "theirs")
    assert ours.mode == "encoder-only"
    with pytest.raises(ConfigError, match="does not say one word after the other; a decoder does"):
        generate(ours, [[1, 2, 3]], longest=3)
    with pytest.raises(ConfigError, match="looks both ways.*neither generates"):
        ours(IDS, memory=Memory())


def test_programs_that_only_generate_are_not_given_it(tmp_path: Path) -> None:
    model = GPT(GPTConfig(vocab=4, context=8, dim=16, depth=1, heads=2, causal=False))
    with pytest.raises(WeightsError, match="looks both ways"):
        to_ctranslate2(model, tmp_path / "model", vocabulary=["<s>", "</s>", "<unk>", "a"])


def test_a_decoder_with_an_encoder_cannot_look_both_ways(tmp_path: Path) -> None:
    sizes: Any = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    T5ForConditionalGeneration(T5Config(vocab_size=11, **sizes)).save_pretrained(tmp_path / "t5")
    config = tmp_path / "t5" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"is_causal": False}))
    with pytest.raises(WeightsError, match="is_causal: Input should be True; False came"):
        from_hugging_face(tmp_path / "t5")


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_prefix_mask_is_hugging_faces_four_axis_mask(name: str, tmp_path: Path) -> None:
    theirs = small(name)
    ours = read(theirs, tmp_path / "theirs")
    mask = masks.causal() | masks.prefix(4)
    numbers = torch.where(mask.dense((1, 1, 9, 9)), 0.0, torch.finfo(torch.float32).min).expand(2, 1, 9, 9)
    with torch.no_grad():
        close(ours(IDS, mask=mask), theirs(IDS, attention_mask=numbers).logits)
