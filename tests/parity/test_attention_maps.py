"""Attention maps match the attentions that transformers returns."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from softlook.lens import attention_maps
from softlook.weights import from_hugging_face

IDS = torch.tensor([[3, 1, 4, 1, 5, 9, 2]])
TARGET = torch.tensor([[0, 6, 5, 3]])
SIZES: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
    "attn_implementation": "eager",
}
DECODER: dict[str, Any] = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
GPT2: dict[str, Any] = {
    "vocab_size": 32,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 16,
    "attn_implementation": "eager",
}
T5: dict[str, Any] = {
    "vocab_size": 32,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    "attn_implementation": "eager",
}
MODELS = {
    "bert": lambda: BertForMaskedLM(BertConfig(**SIZES)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**GPT2)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**DECODER)),
    "gemma2, with a softcap and a window": lambda: Gemma2ForCausalLM(
        Gemma2Config(**DECODER, attn_logit_softcapping=1.0, query_pre_attn_scalar=5, sliding_window=3)
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_self_attention_matches(name: str, tmp_path: Path) -> None:
    reference = MODELS[name]().eval()
    reference.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = reference(IDS, output_attentions=True).attentions
    maps = attention_maps(from_hugging_face(tmp_path).eval(), IDS)
    assert len(maps) == len(expected) == 2
    for weights, other in zip(maps.values(), expected, strict=True):
        torch.testing.assert_close(weights, other, atol=1e-5, rtol=1e-4)


def test_encoder_decoder_and_cross_attention_match(tmp_path: Path) -> None:
    reference = T5ForConditionalGeneration(T5Config(**T5)).eval()
    reference.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = reference(IDS, decoder_input_ids=TARGET, output_attentions=True)
    maps = attention_maps(from_hugging_face(tmp_path).eval(), IDS, TARGET)
    for layer in range(2):
        pairs = {
            f"encoder.blocks.{layer}.attn": expected.encoder_attentions,
            f"decoder.blocks.{layer}.attn": expected.decoder_attentions,
            f"decoder.blocks.{layer}.cross_attn": expected.cross_attentions,
        }
        for path, attentions in pairs.items():
            torch.testing.assert_close(maps[path], attentions[layer], atol=1e-5, rtol=1e-4)
