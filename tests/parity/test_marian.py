"""Marian's translation models of Hugging Face's, read and written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MarianConfig, MarianModel, MarianMTModel

from softlook.base.errors import WeightsError
from softlook.models import Transformer, TransformerConfig
from softlook.weights import from_hugging_face
from tests.parity.comparison import close, saved, there_and_back
from tests.parity.seq2seq import (
    PRESENT,
    SOURCE,
    TARGET,
    both,
    compare,
    compare_again,
    compare_gradients,
    compare_steps,
    output,
)

SIZES = {"vocab_size": 11, "max_position_embeddings": 16, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3}
WIDTHS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
TOKENS = {"pad_token_id": 10, "decoder_start_token_id": 10, "eos_token_id": 0}


def sizes(**changes: Any) -> MarianConfig:
    torch.manual_seed(0)
    return MarianConfig(**{**SIZES, **WIDTHS, **TOKENS, "scale_embedding": True, **changes})


def small(**changes: Any) -> MarianMTModel:
    return MarianMTModel(sizes(**changes))


APART = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 13}
VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {"activation_function": "swish"},
    "unscaled": {"scale_embedding": False},
    "two vocabularies": APART,
    "two vocabularies, untied": {**APART, "tie_word_embeddings": False},
    "untied": {"tie_word_embeddings": False},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_hidden_states_and_maps_are_those_of_hugging_face(variant: str, tmp_path: Path) -> None:
    compare(*both(small(**VARIANTS[variant]), tmp_path), closing=False)


def test_gradients_match_hugging_face(tmp_path: Path) -> None:
    actual, reference = both(small(**APART), tmp_path)
    pairs = {
        "encoder.embedding.token_embedding.weight": "model.encoder.embed_tokens.weight",
        "decoder.embedding.token_embedding.weight": "model.decoder.embed_tokens.weight",
        "encoder.blocks.1.ffn.to_up.weight": "model.encoder.layers.1.fc1.weight",
        "decoder.blocks.0.attn.to_query.bias": "model.decoder.layers.0.self_attn.q_proj.bias",
    }
    compare_gradients(actual, reference, pairs)


def test_decoding_with_a_memory_is_that_of_hugging_face(tmp_path: Path) -> None:
    compare_steps(*both(small(), tmp_path))


@pytest.mark.parametrize("variant", VARIANTS)
def test_hugging_face_loads_the_export_with_the_same_logits(variant: str, tmp_path: Path) -> None:
    actual, reference = both(small(**VARIANTS[variant]), tmp_path / "hf")
    compare_again(there_and_back(actual, MarianMTModel, tmp_path / "softlook"), reference)


@pytest.mark.parametrize("changes", [{}, APART])
def test_positions_that_are_stored_are_passed_over(changes: dict[str, Any], tmp_path: Path) -> None:
    reference: Any = MarianModel(sizes(**changes))
    reference.save_pretrained(tmp_path)
    assert "encoder.embed_positions.weight" in load_file(tmp_path / "model.safetensors")
    actual: Any = from_hugging_face(tmp_path)
    reference.eval()
    with torch.no_grad():
        expected = output(reference).last_hidden_state @ reference.decoder.embed_tokens.weight.T
        close(actual(SOURCE, TARGET, source_padding_mask=PRESENT), expected)


def test_a_shared_table_is_found_under_the_name_of_the_head(tmp_path: Path) -> None:
    actual, _ = both(small(), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors["lm_head.weight"] = tensors.pop("model.shared.weight")
    save_file(tensors, file)
    again: Any = from_hugging_face(tmp_path)
    torch.testing.assert_close(again(SOURCE, TARGET), actual(SOURCE, TARGET), rtol=0, atol=0)


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": False}, {"target_vocab_size": 13}, {"head_bias": True}])
def test_a_softlook_model_can_be_exported(changes: dict[str, Any], tmp_path: Path) -> None:
    fields = {"vocab_size": 11, "dim": 24, "depth": 2, "heads": 4, "positions": "sinusoidal_half"}
    actual = Transformer(TransformerConfig(**{**fields, **changes})).eval()
    back = there_and_back(actual, MarianMTModel, tmp_path / "softlook")
    with torch.no_grad():
        close(actual(SOURCE, TARGET, source_padding_mask=PRESENT), output(back).logits, 1e-6)


def test_an_old_config_with_fields_of_other_times_is_read(tmp_path: Path) -> None:
    actual, _ = both(small(), tmp_path)
    file = tmp_path / "config.json"
    old = {"add_bias_logits": False, "add_final_layer_norm": False, "normalize_before": False, "num_hidden_layers": 2}
    more = {"normalize_embedding": False, "static_position_embeddings": True, "classif_dropout": 0.0, "max_length": 512}
    file.write_text(json.dumps(json.loads(file.read_text()) | old | more))
    again: Any = from_hugging_face(tmp_path)
    assert again.config == actual.config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalize_embedding": True}, "a norm behind its embedding"),
        ({"static_position_embeddings": False}, "learned positions"),
        ({"add_final_layer_norm": True}, "add_final_layer_norm is true"),
        ({"tie_encoder_decoder": True}, "tie_encoder_decoder is true"),
        ({"decoder_attention_heads": 2}, "4 heads in its encoder and 2 in its decoder"),
        ({"architectures": ["MarianForCausalLM"]}, "of Marian, softlook knows MarianMTModel, MarianModel"),
    ],
)
def test_what_we_cannot_express_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(tmp_path)
