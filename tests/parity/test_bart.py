"""BART of Hugging Face's, read and written."""

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


def sizes(**changes: Any) -> BartConfig:
    torch.manual_seed(0)
    # Their padding token learns nothing from being read: here it is one that nobody reads.
    return BartConfig(**{"pad_token_id": 10, **SIZES, **WIDTHS, **changes})


def small(**changes: Any) -> BartForConditionalGeneration:
    return BartForConditionalGeneration(sizes(**changes))


VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "untied": {"tie_word_embeddings": False},
    "scaled, another bend": {"scale_embedding": True, "activation_function": "relu"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_hidden_states_and_maps_are_those_of_hugging_face(variant: str, tmp_path: Path) -> None:
    compare(*both(small(**VARIANTS[variant]), tmp_path), closing=False)


def test_gradients_match_hugging_face(tmp_path: Path) -> None:
    actual, reference = both(small(), tmp_path)
    pairs = {
        "encoder.embedding.token_embedding.weight": "model.shared.weight",
        "encoder.embedding.position_embedding.weight": "model.encoder.embed_positions.weight",
        "encoder.blocks.0.attn.to_key.weight": "model.encoder.layers.0.self_attn.k_proj.weight",
        "decoder.blocks.2.cross_attn.to_value.weight": "model.decoder.layers.2.encoder_attn.v_proj.weight",
    }
    compare_gradients(actual, reference, pairs)


def test_decoding_with_a_memory_is_that_of_hugging_face(tmp_path: Path) -> None:
    compare_steps(*both(small(), tmp_path))


@pytest.mark.parametrize("variant", VARIANTS)
def test_hugging_face_loads_the_export_with_the_same_logits(variant: str, tmp_path: Path) -> None:
    actual, reference = both(small(**VARIANTS[variant]), tmp_path / "hf")
    compare_again(there_and_back(actual, BartForConditionalGeneration, tmp_path / "softlook"), reference)


def test_the_base_model_has_a_tied_lm_head(tmp_path: Path) -> None:
    reference: Any = BartModel(sizes())
    actual: Any = from_hugging_face(saved(reference, tmp_path))
    reference.eval()
    with torch.no_grad():
        expected = output(reference).last_hidden_state @ reference.shared.weight.T
        close(actual(SOURCE, TARGET, source_padding_mask=PRESENT), expected)


@pytest.mark.parametrize("name", ["lm_head.weight", "model.decoder.embed_tokens.weight"])
def test_a_shared_table_is_found_under_any_of_its_names(name: str, tmp_path: Path) -> None:
    actual, _ = both(small(), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors[name] = tensors.pop("model.shared.weight")
    save_file(tensors, file)
    again: Any = from_hugging_face(tmp_path)
    torch.testing.assert_close(again(SOURCE, TARGET), actual(SOURCE, TARGET), rtol=0, atol=0)


def test_a_head_that_differs_is_kept_though_the_config_ties_it_as_hugging_face_does(tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({**load_file(file), "lm_head.weight": torch.randn(11, 24)}, file, metadata={"format": "pt"})
    actual: Any = from_hugging_face(tmp_path)
    reference: Any = BartForConditionalGeneration.from_pretrained(tmp_path)
    with torch.no_grad():
        close(actual(SOURCE, TARGET, source_padding_mask=PRESENT), output(reference.eval()).logits)


def test_a_table_that_nobody_uses_is_passed_over_as_hugging_face_does(tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file, used = tmp_path / "model.safetensors", torch.randn(11, 24)
    names = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    save_file({**load_file(file), **{name: used.clone() for name in names}}, file, metadata={"format": "pt"})
    actual: Any = from_hugging_face(tmp_path)
    reference: Any = BartForConditionalGeneration.from_pretrained(tmp_path)
    with torch.no_grad():
        close(actual(SOURCE, TARGET, source_padding_mask=PRESENT), output(reference.eval()).logits)


def test_a_missing_logits_bias_is_zero(tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors.pop("final_logits_bias")
    save_file(tensors, file)
    actual: Any = from_hugging_face(tmp_path)
    assert not actual.head.bias.any()


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
    back = there_and_back(actual, BartForConditionalGeneration, tmp_path / "softlook")
    with torch.no_grad():
        close(actual(SOURCE, TARGET, source_padding_mask=PRESENT), output(back).logits, 1e-6)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "different heads": ({"decoder_attention_heads": 2}, "4 heads in its encoder and 2 in its decoder"),
    "different widths": ({"decoder_ffn_dim": 8}, "40 as hidden width in its encoder and 8 in its decoder"),
    "norms first": ({"normalize_before": True}, "normalize_before is true"),
    "a bias by another name": ({"add_bias_logits": True}, "add_bias_logits is true"),
    "two depths": ({"num_hidden_layers": 7}, "encoder_layers says 2 and num_hidden_layers"),
    "no norm behind the embedding": ({"normalize_embedding": False}, "no norm behind its embedding"),
    "an unknown bend": ({"activation_function": "softplus"}, "no such activation is known: 'softplus'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_we_cannot_express_is_refused(case: str, tmp_path: Path) -> None:
    changes, message = REFUSED[case]
    saved(small(), tmp_path)
    content = sizes().to_dict() | {"architectures": ["BartForConditionalGeneration"]} | changes
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize("changes", [{"labels": 3}, {"norm": "pre", "position_offset": 0}, {"positions": "sinusoidal"}])
def test_what_hugging_face_cannot_express_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
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
