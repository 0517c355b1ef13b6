"""Import and export of BART in Hugging Face\'s format."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BartConfig, BartForConditionalGeneration, BartModel

from softlook.base.errors import WeightsError
from softlook.models import Transformer, TransformerConfig
from softlook.weights import from_hugging_face, to_hugging_face
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


def sizes(**changes: Any) -> BartConfig:
    torch.manual_seed(0)
    # transformers gives the padding embedding no gradient: here the padding id does not occur in the inputs.
    return BartConfig(**{"pad_token_id": 10, **SIZES, **WIDTHS, **changes})


def small(**changes: Any) -> BartForConditionalGeneration:
    return BartForConditionalGeneration(sizes(**changes))


VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "untied": {"tie_word_embeddings": False},
    "scaled, another activation": {"scale_embedding": True, "activation_function": "relu"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_hidden_states_and_attention_maps_match_hugging_face(variant: str, tmp_path: Path) -> None:
    compare(*load_both(small(**VARIANTS[variant]), tmp_path), final_norm=False)


def test_gradients_match_hugging_face(tmp_path: Path) -> None:
    actual, reference = load_both(small(), tmp_path)
    pairs = {
        "encoder.embedding.token_embedding.weight": "model.shared.weight",
        "encoder.embedding.position_embedding.weight": "model.encoder.embed_positions.weight",
        "encoder.blocks.0.attn.to_key.weight": "model.encoder.layers.0.self_attn.k_proj.weight",
        "decoder.blocks.2.cross_attn.to_value.weight": "model.decoder.layers.2.encoder_attn.v_proj.weight",
    }
    compare_gradients(actual, reference, pairs)


def test_decoding_with_a_cache_matches_hugging_face(tmp_path: Path) -> None:
    compare_steps(*load_both(small(), tmp_path))


@pytest.mark.parametrize("variant", VARIANTS)
def test_hugging_face_loads_the_export_with_the_same_logits(variant: str, tmp_path: Path) -> None:
    actual, reference = load_both(small(**VARIANTS[variant]), tmp_path / "hf")
    compare_export(export_and_load(actual, BartForConditionalGeneration, tmp_path / "softlook"), reference)


def test_the_base_model_has_a_tied_lm_head(tmp_path: Path) -> None:
    reference: Any = BartModel(sizes())
    actual: Any = from_hugging_face(saved(reference, tmp_path))
    reference.eval()
    with torch.no_grad():
        expected = run_reference(reference).last_hidden_state @ reference.shared.weight.T
        close(actual(SOURCE, TARGET, source_padding_mask=PADDING_MASK), expected)


@pytest.mark.parametrize("name", ["lm_head.weight", "model.decoder.embed_tokens.weight"])
def test_a_shared_embedding_is_found_under_any_of_its_names(name: str, tmp_path: Path) -> None:
    actual, _ = load_both(small(), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors[name] = tensors.pop("model.shared.weight")
    save_file(tensors, file)
    again: Any = from_hugging_face(tmp_path)
    torch.testing.assert_close(again(SOURCE, TARGET), actual(SOURCE, TARGET), rtol=0, atol=0)


def test_a_different_lm_head_is_used_even_if_the_config_ties_it_as_in_hugging_face(tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({**load_file(file), "lm_head.weight": torch.randn(11, 24)}, file, metadata={"format": "pt"})
    actual: Any = from_hugging_face(tmp_path)
    reference: Any = BartForConditionalGeneration.from_pretrained(tmp_path)
    with torch.no_grad():
        close(actual(SOURCE, TARGET, source_padding_mask=PADDING_MASK), run_reference(reference.eval()).logits)


def test_an_unused_shared_embedding_is_ignored_as_in_hugging_face(tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file, used = tmp_path / "model.safetensors", torch.randn(11, 24)
    names = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    save_file({**load_file(file), **{name: used.clone() for name in names}}, file, metadata={"format": "pt"})
    actual: Any = from_hugging_face(tmp_path)
    reference: Any = BartForConditionalGeneration.from_pretrained(tmp_path)
    with torch.no_grad():
        close(actual(SOURCE, TARGET, source_padding_mask=PADDING_MASK), run_reference(reference.eval()).logits)


def test_a_missing_logits_bias_is_zero(tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors.pop("final_logits_bias")
    save_file(tensors, file)
    actual: Any = from_hugging_face(tmp_path)
    assert not actual.lm_head.bias.any()


def test_a_softlook_model_can_be_exported(tmp_path: Path) -> None:
    config = TransformerConfig(
        vocab_size=11,
        context=16,
        dim=24,
        depth=2,
        heads=4,
        positions="learned",
        position_offset=2,
        embedding_norm=True,
        tie_embeddings=False,
    )
    actual = Transformer(config).eval()
    back = export_and_load(actual, BartForConditionalGeneration, tmp_path / "softlook")
    with torch.no_grad():
        close(actual(SOURCE, TARGET, source_padding_mask=PADDING_MASK), run_reference(back).logits, 1e-6)


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "different heads": (
        {"decoder_attention_heads": 2},
        "encoder_attention_heads and decoder_attention_heads must be equal, got 4 and 2",
    ),
    "different widths": (
        {"decoder_ffn_dim": 8},
        "encoder_ffn_dim and decoder_ffn_dim must be equal, got 40 and 8",
    ),
    "pre-norm": ({"normalize_before": True}, "normalize_before must be false, .*, got true"),
    "a bias by another name": ({"add_bias_logits": True}, "add_bias_logits must be false, .*, got true"),
    "two depths": ({"num_hidden_layers": 7}, "num_hidden_layers must equal encoder_layers 2, got 7"),
    "no norm after the embedding": ({"normalize_embedding": False}, "normalize_embedding must be true"),
    "an unknown activation": ({"activation_function": "softplus"}, "activation 'softplus' is not supported"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_configs_raise_an_error(case: str, tmp_path: Path) -> None:
    changes, message = UNSUPPORTED[case]
    saved(small(), tmp_path)
    content = sizes().to_dict() | {"architectures": ["BartForConditionalGeneration"]} | changes
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize(
    "changes", [{"num_class_labels": 3}, {"norm": "pre", "position_offset": 0}, {"positions": "sinusoidal"}]
)
def test_models_without_a_hugging_face_class_raise_an_error(changes: dict[str, Any], tmp_path: Path) -> None:
    fields = {
        "vocab_size": 11,
        "dim": 8,
        "depth": 1,
        "heads": 2,
        "positions": "learned",
        "position_offset": 2,
        "embedding_norm": True,
    }
    model = Transformer(TransformerConfig(**{**fields, **changes}))
    with pytest.raises(WeightsError, match="Hugging Face has no architecture for this Transformer"):
        to_hugging_face(model, tmp_path / "softlook")
