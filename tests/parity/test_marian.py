"""Import and export of Marian's translation models in Hugging Face's format."""

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
from tests.parity.comparison import close, export_and_load, saved
from tests.parity.seq2seq import (
    PADDING_MASK,
    SOURCE,
    TARGET,
    compare,
    compare_export,
    compare_gradients,
    compare_steps,
    load_both,
    run_reference,
)

SIZES = {"vocab_size": 11, "max_position_embeddings": 16, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3}
WIDTHS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
TOKENS = {"pad_token_id": 10, "decoder_start_token_id": 10, "eos_token_id": 0}


def sizes(**changes: Any) -> MarianConfig:
    torch.manual_seed(0)
    return MarianConfig(**{**SIZES, **WIDTHS, **TOKENS, "scale_embedding": True, **changes})


def small(**changes: Any) -> MarianMTModel:
    return MarianMTModel(sizes(**changes))


SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 13}
VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {"activation_function": "swish"},
    "unscaled": {"scale_embedding": False},
    "two vocabularies": SEPARATE,
    "two vocabularies, untied": {**SEPARATE, "tie_word_embeddings": False},
    "untied": {"tie_word_embeddings": False},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_hidden_states_and_attention_maps_match_hugging_face(variant: str, tmp_path: Path) -> None:
    compare(*load_both(small(**VARIANTS[variant]), tmp_path), final_norm=False)


def test_gradients_match_hugging_face(tmp_path: Path) -> None:
    actual, reference = load_both(small(**SEPARATE), tmp_path)
    pairs = {
        "encoder.embedding.token_embedding.weight": "model.encoder.embed_tokens.weight",
        "decoder.embedding.token_embedding.weight": "model.decoder.embed_tokens.weight",
        "encoder.blocks.1.ffn.to_up.weight": "model.encoder.layers.1.fc1.weight",
        "decoder.blocks.0.attn.to_query.bias": "model.decoder.layers.0.self_attn.q_proj.bias",
    }
    compare_gradients(actual, reference, pairs)


def test_decoding_with_a_cache_matches_hugging_face(tmp_path: Path) -> None:
    compare_steps(*load_both(small(), tmp_path))


@pytest.mark.parametrize("variant", VARIANTS)
def test_hugging_face_loads_the_export_with_the_same_logits(variant: str, tmp_path: Path) -> None:
    actual, reference = load_both(small(**VARIANTS[variant]), tmp_path / "hf")
    compare_export(export_and_load(actual, MarianMTModel, tmp_path / "softlook"), reference)


@pytest.mark.parametrize("changes", [{}, SEPARATE])
def test_stored_sinusoidal_positions_are_ignored(changes: dict[str, Any], tmp_path: Path) -> None:
    reference: Any = MarianModel(sizes(**changes))
    reference.save_pretrained(tmp_path)
    assert "encoder.embed_positions.weight" in load_file(tmp_path / "model.safetensors")
    actual: Any = from_hugging_face(tmp_path)
    reference.eval()
    with torch.no_grad():
        expected = run_reference(reference).last_hidden_state @ reference.decoder.embed_tokens.weight.T
        close(actual(SOURCE, TARGET, source_padding_mask=PADDING_MASK), expected)


def test_a_shared_embedding_is_found_under_the_name_of_the_lm_head(tmp_path: Path) -> None:
    actual, _ = load_both(small(), tmp_path)
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
    back = export_and_load(actual, MarianMTModel, tmp_path / "softlook")
    with torch.no_grad():
        close(actual(SOURCE, TARGET, source_padding_mask=PADDING_MASK), run_reference(back).logits, 1e-6)


def test_an_older_config_with_obsolete_fields_is_imported(tmp_path: Path) -> None:
    actual, _ = load_both(small(), tmp_path)
    file = tmp_path / "config.json"
    old = {"add_bias_logits": False, "add_final_layer_norm": False, "normalize_before": False, "num_hidden_layers": 2}
    more = {"normalize_embedding": False, "static_position_embeddings": True, "classif_dropout": 0.0, "max_length": 512}
    file.write_text(json.dumps(json.loads(file.read_text()) | old | more))
    again: Any = from_hugging_face(tmp_path)
    assert again.config == actual.config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalize_embedding": True}, "normalize_embedding must be false and static_position_embeddings true"),
        (
            {"static_position_embeddings": False},
            "normalize_embedding must be false and static_position_embeddings true",
        ),
        ({"add_final_layer_norm": True}, "add_final_layer_norm must be false, .*, got true"),
        ({"tie_encoder_decoder": True}, "tie_encoder_decoder must be false, .*, got true"),
        ({"decoder_attention_heads": 2}, "decoder_attention_heads must be equal, got 4 and 2"),
        ({"architectures": ["MarianForCausalLM"]}, "supported classes of Marian: MarianMTModel, MarianModel"),
    ],
)
def test_unsupported_configs_raise_an_error(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(tmp_path)
