"""Import and export of mBART, Pegasus and M2M-100 in Hugging Face's format."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from softlook.base.errors import WeightsError
from softlook.decode.generation_config import GenerationConfig
from softlook.models import Transformer, TransformerConfig
from softlook.recipes.inference.translation import search_translations
from softlook.weights import from_hugging_face, load, save, to_hugging_face
from tests.parity.comparison import export_and_load, saved
from tests.parity.seq2seq import SOURCE, compare, compare_export, compare_gradients, compare_steps, load_both

SIZES = {"vocab_size": 11, "max_position_embeddings": 16, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3}
WIDTHS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40}
TOKENS = {"pad_token_id": 10, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
KINDS = ("MBart", "Pegasus", "M2M100")
VARIANTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "untied": {"tie_word_embeddings": False},
    "scaled otherwise, another activation": {"activation_function": "swish"},
}
SINUSOIDAL = frozenset(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))
CASES = [(kind, variant) for kind in KINDS for variant in VARIANTS]


def small(kind: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")
    if "activation_function" in changes:
        changes["scale_embedding"] = kind != "M2M100"  # the opposite of the default
    return model(model.config_class(**{**SIZES, **WIDTHS, **TOKENS, **changes}))


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_logits_hidden_states_and_attention_maps_match_hugging_face(kind: str, variant: str, tmp_path: Path) -> None:
    compare(*load_both(small(kind, **VARIANTS[variant]), tmp_path), final_norm=True)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_match_hugging_face(kind: str, tmp_path: Path) -> None:
    actual, reference = load_both(small(kind), tmp_path)
    pairs = {
        "encoder.embedding.token_embedding.weight": "model.shared.weight",
        "encoder.blocks.0.attn.to_query.weight": "model.encoder.layers.0.self_attn.q_proj.weight",
        "decoder.blocks.2.cross_attn.to_value.weight": "model.decoder.layers.2.encoder_attn.v_proj.weight",
        "encoder.final_norm.weight": "model.encoder.layer_norm.weight",
        "decoder.final_norm.bias": "model.decoder.layer_norm.bias",
    }
    compare_gradients(actual, reference, pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_with_a_cache_matches_hugging_face(kind: str, tmp_path: Path) -> None:
    compare_steps(*load_both(small(kind), tmp_path))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_beams", [1, 3])
def test_generation_with_a_forced_first_token_matches_hugging_face(kind: str, num_beams: int, tmp_path: Path) -> None:
    """These models select the target language by the first token."""
    actual, reference = load_both(small(kind), tmp_path)
    settings = {"num_beams": num_beams, "max_length": 12, "forced_bos_token_id": 7, "forced_eos_token_id": None}
    expected = reference.generate(SOURCE, **settings, do_sample=False)
    found = search_translations(
        actual,
        SOURCE.tolist(),
        bos_id=2,
        eos_ids=2,
        num_beams=num_beams,
        config=GenerationConfig(forced_bos_token_id=7, max_new_tokens=11),
    )
    for row, hypotheses in zip(expected.tolist(), found, strict=True):
        output = [id for id in row[1:] if id != 10]
        assert hypotheses[0].ids == (output[:-1] if output[-1] == 2 else output)
        assert hypotheses[0].ids[0] == 7


@pytest.mark.parametrize(("kind", "variant"), CASES)
def test_hugging_face_loads_the_export_with_the_same_logits(kind: str, variant: str, tmp_path: Path) -> None:
    actual, reference = load_both(small(kind, **VARIANTS[variant]), tmp_path / "hf")
    again: Any = load(save(actual, tmp_path / "saved"))
    back = export_and_load(
        again, type(reference), tmp_path / "softlook", SINUSOIDAL if kind == "Pegasus" else frozenset()
    )
    assert back.config.model_type == reference.config.model_type
    compare_export(back, reference)


OLD: dict[str, dict[str, Any]] = {
    "MBart": {"normalize_embedding": True, "static_position_embeddings": False},
    "Pegasus": {"normalize_embedding": False, "static_position_embeddings": True, "extra_pos_embeddings": 1},
    "M2M100": {},
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_config_with_obsolete_fields_is_imported(kind: str, tmp_path: Path) -> None:
    actual, _ = load_both(small(kind), tmp_path)
    old = {"add_bias_logits": False, "add_final_layer_norm": True, "normalize_before": True, "num_hidden_layers": 2}
    change(tmp_path, **old, **OLD[kind], classif_dropout=0.0, max_length=200, num_beams=5)
    again: Any = from_hugging_face(tmp_path)
    assert again.config == actual.config


def test_stored_positions_that_are_not_sinusoidal_raise_an_error(tmp_path: Path) -> None:
    saved(small("Pegasus"), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "model.encoder.embed_positions.weight": torch.randn(16, 24)}, file, {"format": "pt"})
    with pytest.raises(WeightsError, match="embed_positions.weight differs from the sinusoidal positions"):
        from_hugging_face(tmp_path)


UNSUPPORTED: dict[str, tuple[str, dict[str, Any], str]] = {
    "post-norm": ("MBart", {"normalize_before": False}, "normalize_before must be true, .*, got false"),
    "no final norm": ("Pegasus", {"add_final_layer_norm": False}, "add_final_layer_norm must be true, .*, got false"),
    "tied stacks": ("M2M100", {"tie_encoder_decoder": True}, "tie_encoder_decoder must be false, .*, got true"),
    "no norm after the embedding": ("MBart", {"normalize_embedding": False}, "normalize_embedding must be true"),
    "learned positions": ("Pegasus", {"static_position_embeddings": False}, "static_position_embeddings true"),
    "a start token without a position": ("M2M100", {"decoder_start_token_id": 10}, "got 10 for both"),
    "other heads": ("MBart", {"decoder_attention_heads": 2}, "decoder_attention_heads must be equal, got 4 and 2"),
    "another class": ("MBart", {"architectures": ["MBartForCausalLM"]}, "supported classes of mBART: MBartForCond"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_configs_raise_an_error(case: str, tmp_path: Path) -> None:
    kind, changes, message = UNSUPPORTED[case]
    saved(small(kind), tmp_path)
    change(tmp_path, **changes)
    with pytest.raises(WeightsError, match=message):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "learned", "position_offset": 2},
        {"positions": "learned", "embedding_norm": True},
        {"positions": "sinusoidal_half", "position_offset": 2},
        {"positions": "sinusoidal_half", "target_vocab_size": 12},
        {"positions": "sinusoidal_tensor2tensor"},
        {"positions": "sinusoidal_tensor2tensor", "position_offset": 2, "head_bias": True},
        {"positions": "sinusoidal", "position_offset": 1},
    ],
)
def test_models_without_a_hugging_face_class_raise_an_error(changes: dict[str, Any], tmp_path: Path) -> None:
    model = Transformer(
        TransformerConfig(**{"vocab_size": 11, "dim": 24, "depth": 1, "heads": 4, "norm": "pre", **changes})
    )
    with pytest.raises(WeightsError, match="no architecture for this Transformer"):
        to_hugging_face(model, tmp_path / "softlook")


def change(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
