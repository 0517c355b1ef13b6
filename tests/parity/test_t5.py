"""Import and export of T5 v1.0 and v1.1 in Hugging Face's format."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import T5Config, T5ForConditionalGeneration

from softlook import models
from softlook.base.errors import WeightsError
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

SIZES: dict[str, Any] = {"vocab_size": 11, "d_model": 24, "d_kv": 5, "d_ff": 40, "num_layers": 2, "num_heads": 3}
BUCKETS = {"relative_attention_num_buckets": 6, "relative_attention_max_distance": 7, "num_decoder_layers": 3}


def small(**changes: Any) -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    return T5ForConditionalGeneration(T5Config(**{**SIZES, **BUCKETS, **changes}))


def add_lm_head(folder: Path) -> None:
    """Add a separate LM head, as in the published v1.1; current transformers ties the embeddings of every new T5."""
    file = folder / "model.safetensors"
    save_file({**load_file(file), "lm_head.weight": torch.randn(11, 24)}, file, metadata={"format": "pt"})


VARIANTS: dict[str, dict[str, Any]] = {
    "v1.0": {},
    "v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "gated by silu": {"feed_forward_proj": "gated-silu"},
    "exact gelu": {"feed_forward_proj": "gelu"},
}


def load_variant(variant: str, folder: Path, *, untied: bool = False) -> tuple[Any, Any]:
    actual, reference = load_both(small(**VARIANTS[variant]), folder)
    if not untied:
        return actual, reference
    add_lm_head(folder)
    again: Any = T5ForConditionalGeneration.from_pretrained(folder, attn_implementation="eager")
    return from_hugging_face(folder), again.eval()


CASES = [(variant, False) for variant in VARIANTS] + [("v1.1", True), ("v1.0", True)]


@pytest.mark.parametrize(("variant", "untied"), CASES)
def test_logits_hidden_states_and_attention_maps_match_hugging_face(variant: str, untied: bool, tmp_path: Path) -> None:
    actual, reference = load_variant(variant, tmp_path, untied=untied)
    assert actual.config.tie_embeddings is not untied and actual.config.scale_decoder_outputs is (variant != "v1.1")
    compare(actual, reference, final_norm=True)


@pytest.mark.parametrize(("variant", "untied"), [("v1.0", False), ("v1.1", True)])
def test_gradients_match_hugging_face(variant: str, untied: bool, tmp_path: Path) -> None:
    gated = variant == "v1.1"
    layer, reference_layer = ("to_gate", "wi_0") if gated else ("to_up", "wi")
    pairs = {
        "token_embedding.weight": "shared.weight",
        "lm_head.weight": "lm_head.weight",
        "encoder.relative_bias.weight": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "decoder.relative_bias.weight": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "decoder.blocks.1.cross_attn.to_key.weight": "decoder.block.1.layer.1.EncDecAttention.k.weight",
        f"encoder.blocks.1.ffn.{layer}.weight": f"encoder.block.1.layer.1.DenseReluDense.{reference_layer}.weight",
    }
    compare_gradients(*load_variant(variant, tmp_path, untied=untied), pairs)


@pytest.mark.parametrize("variant", ["v1.0", "v1.1"])
def test_decoding_with_a_cache_matches_hugging_face(variant: str, tmp_path: Path) -> None:
    compare_steps(*load_variant(variant, tmp_path))


@pytest.mark.parametrize(("variant", "untied"), CASES)
def test_hugging_face_loads_the_export_with_the_same_logits(variant: str, untied: bool, tmp_path: Path) -> None:
    actual, reference = load_variant(variant, tmp_path / "hf", untied=untied)
    compare_export(export_and_load(actual, T5ForConditionalGeneration, tmp_path / "softlook"), reference)


def test_the_published_config_of_v1_1_is_neither_tied_nor_scaled(tmp_path: Path) -> None:
    saved(small(**VARIANTS["v1.1"]), tmp_path)
    add_lm_head(tmp_path)
    file = tmp_path / "config.json"
    fields = json.loads(file.read_text()) | {"tie_word_embeddings": False, "n_positions": 512}
    for new in ("scale_decoder_outputs", "dense_act_fn", "is_gated_act"):
        fields.pop(new)
    file.write_text(json.dumps(fields))
    actual: Any = from_hugging_face(tmp_path)
    reference: Any = T5ForConditionalGeneration.from_pretrained(tmp_path)
    assert not actual.config.tie_embeddings and not actual.config.scale_decoder_outputs
    with torch.no_grad():
        close(actual(SOURCE, TARGET, source_padding_mask=PADDING_MASK), run_reference(reference.eval()).logits)


def test_copies_of_the_embedding_and_an_unused_bias_are_ignored(tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    unused = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.randn(6, 3)}
    save_file({**tensors, **{name: tensors["shared.weight"].clone() for name in copies}, **unused}, file)
    actual: Any = from_hugging_face(tmp_path)
    assert actual.config.tie_embeddings


def test_separate_embeddings_of_source_and_target_raise_an_error(tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({**load_file(file), "decoder.embed_tokens.weight": torch.randn(11, 24)}, file)
    with pytest.raises(WeightsError, match="encoder and decoder embeddings differ"):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feed_forward_proj": "gated-gelu"}, "is_gated_act and dense_act_fn contradict feed_forward_proj"),
        ({"feed_forward_proj": "twice-gated-gelu"}, "feed_forward_proj must be ACTIVATION or gated-ACTIVATION"),
        ({"tie_encoder_decoder": True}, "tie_encoder_decoder is not supported"),
        ({"architectures": ["T5ForSequenceClassification"]}, "supported classes of T5: T5ForConditionalGeneration"),
    ],
)
def test_unsupported_configs_raise_an_error(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(small(), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(tmp_path)


def test_a_gate_with_the_exact_gelu_cannot_be_exported(tmp_path: Path) -> None:
    config = models.T5Config(
        vocab_size=11, dim=8, depth=1, heads=2, head_dim=4, hidden=8, gated=True, activation="gelu"
    )
    with pytest.raises(WeightsError, match="Hugging Face has no architecture for this T5"):
        to_hugging_face(models.T5(config), tmp_path / "softlook")
